"""Objects of every kind of the examples, with values of random types at random places. `draw` is a random.Random with a seed."""

import copy
import json
from collections import defaultdict
from functools import cache
from pathlib import Path

from cluster import manifests
from dra.validation.fields.shape import Fields
from dra.validation.parameters.entries import DRIVERS
from tests.corpus.move import autoscaled, plugins

MANIFESTS_FOLDER = Path(__file__).parents[1] / "manifests"
# Values that replace members of objects.
SHAPES = (
    *({}, [], "", 0, None, True, False, -1, 1.5, 2**70, 1e300),
    *([{}], {"a": {}}, [None], [[]], {"": None}, [1, "a"], {"a": [None]}),
    *(
        "x",
        "1Gi",
        "{}",
        "[]",
        "null",
        '{"a": []}',
        "\x00",
        "\ud7ff\x1b",
        "2020-01-01T00:00:00Z",
        "9" * 20 + "E" + "9" * 5,
    ),
)
# A few of these values, for tests that try each place.
SOME = ({}, [], [{}], 1, True, None, "x", "")
ANNOTATIONS = (
    *("drawbridge.dev/devices", "drawbridge.dev/mode", "drawbridge.dev/strategy", "drawbridge.dev/templates"),
    *("gpu-memory", "nvidia.com/use-gputype", "volcano.sh/vgpu-mode"),
    *("scheduling.koordinator.sh/device-allocate-hint", "scheduling.koordinator.sh/device-joint-allocate"),
    "scheduling.koordinator.sh/resource-spec",
)
COMPUTE_DOMAIN = {
    "apiVersion": "resource.nvidia.com/v1beta1",
    "kind": "ComputeDomain",
    "metadata": {"name": "d", "namespace": "default"},
    "spec": {"numNodes": 2, "channel": {"resourceClaimTemplate": {"name": "t"}}},
}

# Objects of kinds without an example.
OTHER_OBJECTS = (
    plugins.policy("any"),
    plugins.gpu_cluster("notReady"),
    plugins.device_config(plugin=True, driver=True),
    plugins.CHART,
    autoscaled.pool(
        requirements=[autoscaled.requirement("karpenter.sh/capacity-type", "In", "spot")], taints=[autoscaled.TAINT]
    ),
    autoscaled.karpenter(),
    autoscaled.scaler("1.33.0", autoscaled.DRA_FLAG),
    {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": "nvidia"},
        "handler": "nvidia",
        "scheduling": {"nodeSelector": {"a": "b"}, "tolerations": [{"key": "a", "operator": "Exists"}]},
    },
    {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "l", "namespace": "default"},
        "spec": {"limits": [{"type": "Container", "default": {"cpu": "1"}, "max": {"nvidia.com/gpu": "2"}}]},
    },
    {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "q", "namespace": "default"},
        "spec": {"hard": {"requests.nvidia.com/gpu": "4"}},
    },
    {
        "apiVersion": "mellanox.com/v1alpha1",
        "kind": "NicClusterPolicy",
        "metadata": {"name": "n"},
        "spec": {"sriovDevicePlugin": {"config": json.dumps(plugins.POOLS)}},
    },
)
PLUGIN_CONFIGURATIONS = (plugins.sharing(), plugins.sharing(strategy="mps"), plugins.POOLS, plugins.PLAIN)


@cache
def examples():
    """Return the small examples, by kind."""
    by_kind = defaultdict(list)
    by_kind["ComputeDomain"].append(COMPUTE_DOMAIN)
    for path in sorted(MANIFESTS_FOLDER.rglob("*.yaml")):
        documents, _ = manifests.read_leniently([path])
        for document in documents[:30]:
            if isinstance(document.object.get("kind"), str) and len(json.dumps(document.object)) < 20_000:
                by_kind[document.object["kind"]].append(document.object)
    return dict(by_kind)


def _filled(form, draw):
    if not isinstance(form, Fields):
        return draw.choice(("a", "MPS", "TimeSlicing", "1Gi", 1, True, ["10.0.0.1/24"], None))
    return {name: _filled(member, draw) for name, member in form.fields.items()}


def claim(draw):
    """Return a claim with parameters of a random driver, with all their members."""
    driver = draw.choice([candidate for candidate in DRIVERS.values() if candidate.kinds])
    kind = draw.choice(list(driver.kinds))
    parameters = _filled(driver.kinds[kind].form, draw)
    if driver.version:
        parameters |= {"apiVersion": driver.version, "kind": kind}
    return claim_with(driver.name, parameters)


def claim_with(driver, parameters, name="c"):
    """Return a claim with these parameters for a driver."""
    config = [{"requests": ["r"], "opaque": {"driver": driver, "parameters": parameters}}]
    requests = [{"name": "r", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"devices": {"requests": requests, "config": config}},
    }


def claims_with(shape):
    """Yield claims with parameters of each driver. In each claim, this value replaces all members of an object, or a single member."""
    for driver in DRIVERS.values():
        for name, kind in driver.kinds.items():
            typed = {"apiVersion": driver.version, "kind": name} if driver.version else {}
            for parameters in _parameters_with(kind.form, shape):
                yield claim_with(driver.name, parameters | typed)


def _parameters_with(form, shape):
    fields = getattr(form, "fields", {})
    yield dict.fromkeys(fields, shape)
    for name, member in fields.items():
        yield {name: shape}
        for inner in _parameters_with(member, shape):
            yield {name: inner}


def _paths(value, at=()):
    if at:
        yield at
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, member in members:
        yield from _paths(member, (*at, name))


def bent(obj, draw):
    """Return a copy of an object with up to three random changes: a value of another type, a removed member or an additional member."""
    obj = copy.deepcopy(obj)
    for _ in range(draw.choice((0, 1, 1, 1, 2, 3))):
        *path, member = draw.choice(list(_paths(obj)))
        parent = obj
        for name in path:
            parent = parent[name]
        shape = copy.deepcopy(draw.choice(SHAPES))
        chance = draw.random()
        if chance < 0.75:
            parent[member] = shape
        elif chance < 0.85 and len(obj) > 1:
            del parent[member]
        elif isinstance(parent, dict):
            parent[draw.choice(("x", "name", "spec", "status", "metadata", "kind", ""))] = shape
        else:
            parent.append(shape)
    if draw.random() < 0.15 and isinstance(obj.get("metadata"), dict):
        obj["metadata"]["annotations"] = {draw.choice(ANNOTATIONS): draw.choice(SHAPES)}
    return obj


def drawn(draw, *kinds):
    """Return a changed object: a claim with parameters or an object of one of these kinds; without kinds, also an object of any kind or the settings of a device plugin."""
    chance = draw.random()
    if chance < 0.3:
        return bent(claim(draw), draw)
    if chance < 0.4 and not kinds:
        return bent(draw.choice(OTHER_OBJECTS), draw)
    if chance < 0.5 and not kinds:
        return plugins.config_map(any=bent(draw.choice(PLUGIN_CONFIGURATIONS), draw))
    kind = draw.choice(kinds or list(examples()))
    return bent(draw.choice(examples()[kind]), draw)
