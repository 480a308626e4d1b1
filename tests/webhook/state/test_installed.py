"""Installed components are read from objects in which every field may have an unexpected type."""

import pytest

from cluster.manifests import unfold
from tests.corpus.move.autoscaled import STATUS, deployment, karpenter, pool, requirement, scaler
from tests.corpus.move.plugins import CHART, config_map, daemon_set, gpu_cluster, policy, sharing
from tests.growth import assert_linear
from webhook.state import IN_CONFIG_MAPS, installed, outline

ODD = (5, True, "x", None, [], {}, [5], ["x"], {"x": 5}, [{"x": 5}])
OBJECTS = (
    pool(labels={"a": "b"}, requirements=[requirement("a", "In", "b")], taints=[{"key": "a", "effect": "NoSchedule"}]),
    karpenter("1.8.1", "--ignore-dra-requests=false", IGNORE_DRA_REQUESTS="false"),
    scaler("1.33.0", "--enable-dynamic-resource-allocation"),
    config_map("cluster-autoscaler-status", "kube-system", status=STATUS),
    config_map(any=sharing(renameByDefault=True)),
    policy("any"),
    gpu_cluster("notReady"),
    config_map("imex", any={"version": "v1", "imex": {"channelIDs": [0]}}),
    CHART,
    daemon_set("intel/intel-gpu-plugin:1", args=["-shared-dev-num=4"], selector={"a": "b"}),
    config_map(
        "device-plugin-config", node_1={"resourceList": [{"resourceName": "a", "selectors": [{"vendors": ["b"]}]}]}
    ),
    daemon_set("sriov-network-device-plugin:1", args=["--resource-prefix=a"], volume="device-plugin-config"),
    {
        "apiVersion": "deviceplugin.intel.com/v1",
        "kind": "GpuDevicePlugin",
        "metadata": {"name": "x"},
        "spec": {"sharedDevNum": 4, "nodeSelector": {"a": "b"}},
    },
)


def mistyped(value):
    """Yield copies of a value, each with one part of an unexpected type."""
    yield from ODD
    if isinstance(value, dict):
        for name, inner in value.items():
            for odd in mistyped(inner):
                yield {**value, name: odd}
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            for odd in mistyped(inner):
                yield [*value[:at], odd, *value[at + 1 :]]


@pytest.mark.parametrize("obj", OBJECTS, ids=lambda obj: f"{obj['kind']} {obj['metadata']['name']}")
def test_a_part_of_an_unexpected_type_counts_as_absent(obj):
    others = [unfold(other, IN_CONFIG_MAPS) for other in OBJECTS if other is not obj]
    for odd in mistyped(unfold(obj, IN_CONFIG_MAPS)):
        if isinstance(odd, dict):
            read = installed([*others, odd])
            assert len(read.plugins) + len(read.autoscalers) >= 3, odd


def secretive(value, around=""):
    """Add a secret to every object in a value, and to variables and arguments, under a name that nothing reads."""
    if isinstance(value, dict):
        return {name: secretive(inner, name) for name, inner in value.items()} | {"password": "hunter2"}
    if isinstance(value, list):
        more = {"env": [{"name": "TOKEN", "value": "hunter2"}], "args": ["--token=hunter2", "hunter2"]}
        return [*map(secretive, value), *more.get(around, [])]
    return value


def test_an_outline_keeps_exactly_what_is_read():
    unfolded = [unfold(obj, IN_CONFIG_MAPS) for obj in OBJECTS]
    labels = ("labels", "nodeSelector")  # all of their entries are read
    for obj in unfolded:
        whole = secretive({name: part for name, part in obj.items() if name != "data"})
        hidden = str(outline(whole))
        for name in labels:
            hidden = hidden.replace(f"'{name}': {{'a': 'b', 'password': 'hunter2'}}", "")
        assert "hunter2" not in hidden
        assert str(outline(obj)) == str(outline(outline(obj)))
    text = '{"version": "v1", "flags": {"migStrategy": "none", "x": "hunter2"}, "sharing": {"mps": {"x": "hunter2"}}}'
    kept = outline(unfold(config_map(a=text, b="resources: hunter2", c="hunter2"), IN_CONFIG_MAPS))
    assert kept["data"] == {"a": {"version": "v1", "flags": {"migStrategy": "none"}, "sharing": {"mps": {}}}}
    assert installed(map(outline, unfolded)) == installed(unfolded)


@pytest.mark.parametrize("part", ["@", ":1.1@", ":", "/"])
def test_reading_an_image_name_takes_linear_time(part):
    """With a backtracking pattern, 100 KB of @ and a line break take more than 30 s."""
    assert_linear(lambda image: installed([deployment(image)]), lambda size: part * (size // len(part)) + "\nx")


@pytest.mark.parametrize("version", ["v1.33.0", "v1.33.0@sha256:0f", "1.33"])
def test_an_image_digest_does_not_hide_the_autoscaler_version(version):
    """The port of a registry does not hide it either."""
    image = f"registry.example.com:5000/autoscaling/cluster-autoscaler:{version}"
    [autoscaler] = installed([deployment(image, "--enable-dynamic-resource-allocation")]).autoscalers
    assert (autoscaler.minor, autoscaler.considers_claims) == (33, True)
