"""No JSON value makes the translation of pods or the decoding of configurations fail."""

import copy

from hypothesis import given
from hypothesis import strategies as st

from tests.webhook.pods import (
    GPU_MODELS,
    KOORD,
    SIGNING_KEY,
    WHOLE_GPUS,
    configured,
    container,
    example_fleet,
    patched,
    pod,
    replay_update,
)
from webhook.admission import decide_object
from webhook.names import DECISION, DEVICES, ORIGINAL, TEMPLATES
from webhook.state import State
from webhook.state.configuration import read_configuration
from webhook.translate.translate import translate

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
json_values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=5,
)

VALID_PODS = [
    pod(
        {"nvidia.com/gpu": 2, "nvidia.com/gpumem": 3000},
        {"nvidia.com/gpu": 1},
        annotations={"nvidia.com/use-gputype": "A100"},
    ),
    pod(
        {KOORD + "gpu": 200, KOORD + "rdma": 200},
        init=(container("i", {KOORD + "gpu": 100}),),
        annotations={
            "scheduling.koordinator.sh/device-joint-allocate": '{"deviceTypes":["gpu","rdma"],"requiredScope":"SamePCIe"}',
            "scheduling.koordinator.sh/device-allocate-hint": '{"rdma":{"allocateStrategy":"ApplyForAll"}}',
            ORIGINAL: '{"containers":{"c0":{"cpu":1}}}',
            DECISION: "{}",
            DEVICES: "[]",
            TEMPLATES: "v1 0 {}",
        },
        nodeSelector={"nvidia.com/gpu.product": "X-SHARED"},
        resourceClaims=[{"name": "drawbridge-c0", "resourceClaimTemplateName": "x"}],
        affinity={
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": []}]}
            }
        },
    ),
]


def paths_in(value, path=()):
    """Yield the path of every value in a JSON value."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from paths_in(inner, (*path, key))


@st.composite
def spoiled(draw, valid_values):
    """Draw a valid value with some parts replaced by random values."""
    value = copy.deepcopy(draw(st.sampled_from(valid_values)))
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(list(paths_in(value))))
        replacement = draw(json_values)
        if not path:
            value = replacement
            continue
        inner = value
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = replacement
    return value


STATE = State(configuration=configured(**WHOLE_GPUS, **GPU_MODELS), fleet=example_fleet(), keys=(SIGNING_KEY,))


@given(spoiled(VALID_PODS))
def test_a_pod_with_random_parts_never_causes_an_error(value):
    if not isinstance(value, dict):
        return
    translation = translate(value, STATE, namespace="n", sign=True)
    if translation.changed:
        translated_pod = patched(value, translation)
        assert not translate(translated_pod, STATE, namespace="n", sign=True).templates
        patched(value, replay_update(value, translated_pod))


@given(spoiled([{"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"template": VALID_PODS[0]}}]), st.booleans())
def test_a_workload_with_random_parts_never_causes_an_error(value, rewrites_unknown):
    if isinstance(value, dict):
        decide_object(value, STATE, rewrite_unknown=rewrites_unknown)


VALID_CONFIGURATION = {
    "apiVersion": "drawbridge.dev/v1alpha1",
    "kind": "DrawbridgeConfiguration",
    "metadata": {"name": "x"},
    **WHOLE_GPUS,
    **GPU_MODELS,
    "keys": {"hami": {"nvidia.com/gpumem": "a/b"}},
    "dialects": [{"name": "x", "title": "x", "keys": [{"name": "a/<p>", "meaning": "m", "role": "count", "most": 3}]}],
    "joint": [{"primary": "nvidia.com/gpu", "secondary": "a/c"}],
    "schedulers": {"s": {"likeCluster": True}},
    "bridge": {"schedulerName": "s", "drivers": ["d"]},
    "hami": {"memoryFactor": 2},
}


@given(spoiled([VALID_CONFIGURATION]))
def test_a_configuration_with_random_parts_is_valid_or_has_findings(value):
    configuration, findings = read_configuration(value)
    assert (configuration is None) == bool(findings)
