"""A second review changes nothing in a translated pod. The API server sends a second review if another webhook changes the pod."""

import random
import re
from collections import defaultdict

import pytest

from tests.limits import draws
from tests.objects import container, pod
from tests.webhook.pods import GPU_MODELS, NVIDIA_BY_CLAIM, SIGNING_KEY, WHOLE_GPUS, configured, example_fleet, patched
from webhook.dialects import VOCABULARIES, Position
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
NUMBERS = ("1", "1", "1", "2", "50", "3000", "0", "1.5", "4Gi", 1)
TEXTS = ("1", "0.5", "true", "A100", "[]", "{}", "a,b", "4Gi", "0", "x", '{"deviceTypes": ["gpu"]}')


def pod_of(*limits, annotations=None, scheduler="default-scheduler"):
    """Return a pod with a container for each of these limits."""
    containers = [container(f"c{i}", amounts) for i, amounts in enumerate(limits)]
    return pod(namespace="", containers=containers, schedulerName=scheduler, annotations=annotations)


def rows_by_place():
    """Return the rows of all dialects by the place of their keys on a pod. A dialect is a table with a row for each key of a system."""
    by_place = defaultdict(list)
    for dialect in VOCABULARIES:
        for row in dialect.table.keys:
            by_place[row.place].append(row)
    return by_place


ROWS = rows_by_place()


def drawn_pod(rng):
    """Draw a pod with keys and annotations of any dialects."""

    def key(position):
        row = rng.choice(ROWS[position])
        name = re.sub(r"<[^>]*>", lambda _: rng.choice(("0", "c0", "main", "a", "1g.5gb")), row.name)
        return name, row.when or rng.choice(NUMBERS if position is Position.RESOURCE else TEXTS)

    def limits():
        amounts = dict(key(Position.RESOURCE) for _ in range(rng.choice((0, 1, 1, 2))))
        return amounts | rng.choice(({}, {"nvidia.com/gpu": "1"}, SHARE, {"volcano.sh/vgpu-number": "1"}))

    annotations = dict(key(Position.ANNOTATION) for _ in range(rng.choice((0, 1, 2))))
    scheduler = rng.choice(("default-scheduler", "hami-scheduler", "kai-scheduler", "volcano"))
    return pod_of(*(limits() for _ in range(rng.choice((1, 2, 2, 3)))), annotations=annotations, scheduler=scheduler)


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


@pytest.mark.parametrize("state", STATES)
def test_deciding_any_translated_pod_again_changes_nothing(state):
    draw = random.Random(state)
    assert (
        sum(assert_second_translation_changes_nothing(drawn_pod(draw), STATES[state]) for _ in range(draws(2_000)))
        > draws(2_000) // 20
    )
