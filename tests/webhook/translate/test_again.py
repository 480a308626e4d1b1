"""A second review changes nothing in a translated pod. The API server sends a second review if another webhook changes the pod."""

import pytest

from tests.objects import container, pod
from tests.webhook.pods import GPU_MODELS, NVIDIA_BY_CLAIM, SIGNING_KEY, WHOLE_GPUS, configured, example_fleet, patched
from webhook.state import State
from webhook.translate.translate import translate

SHARE = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000"}
JOINT, CPUS = "scheduling.koordinator.sh/device-joint-allocate", "scheduling.koordinator.sh/numa-topology-spec"
# States by what shows the meaning of a key: the fleet that the webhook sees, the configuration, or annotations of the pod.
STATES = {
    name: State(configuration=configured(**fields), fleet=example_fleet(), keys=(SIGNING_KEY,))
    for name, fields in {
        "seen": {},
        "declared": {**WHOLE_GPUS, **GPU_MODELS, **NVIDIA_BY_CLAIM},
        "by annotation": {**GPU_MODELS, "kai": {"fractions": "translate"}, "tensorfusion": {"fractions": "translate"}},
    }.items()
}


def pod_of(*limits, annotations=None, scheduler="default-scheduler"):
    """Return a pod with a container for each of these limits."""
    containers = [container(f"c{i}", amounts) for i, amounts in enumerate(limits)]
    return pod(namespace="", containers=containers, schedulerName=scheduler, annotations=annotations)


def assert_second_translation_changes_nothing(item, state):
    """Assert that a second translation changes and refuses nothing. Return False if the first translation left the pod unchanged or refused it."""
    verdict = translate(item, state, namespace="n", sign=True)
    if not verdict.changed or verdict.refusals:
        return False
    patched_pod = patched(item, verdict)
    second_verdict = translate(patched_pod, state, namespace="n", sign=True)
    assert (second_verdict.refusals, second_verdict.operations) == ((), ()), item
    return True


@pytest.mark.parametrize(
    "item",
    [
        pod_of(
            {"nvidia.com/gpu": "1", "xilinx.com/x": "1"}, {"volcano.sh/vgpu-number": "1"}, scheduler="hami-scheduler"
        ),
        pod_of({"rdma/x": "1", "nvidia.com/gpu": "1"}, SHARE, annotations={CPUS: "[]"}),
        pod_of({"rebellions.ai/ATOM": "2", "nvidia.com/gpu": "1"}, SHARE, annotations={JOINT: "0"}),
    ],
    ids=["a plain key beside a key of another system", "a malformed annotation", "an annotation of another system"],
)
@pytest.mark.parametrize("state", STATES)
def test_removed_keys_still_identify_the_system_of_a_pod(item, state):
    assert_second_translation_changes_nothing(item, STATES[state])
