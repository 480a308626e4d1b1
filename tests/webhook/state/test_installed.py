"""Installed device plugins and autoscalers are read from objects in which every field may have an unexpected type."""

import pytest

from cluster.manifests import unfold
from tests.corpus.move.autoscaled import STATUS, deployment, karpenter, pool, requirement, scaler
from tests.corpus.move.plugins import CHART, config_map, daemon_set, gpu_cluster, policy, sharing
from tests.loops import every
from tests.objects import obj
from webhook.state import IN_CONFIG_MAPS, installed, outline

UNEXPECTED_VALUES = (5, True, "x", None, [], {}, [5], ["x"], {"x": 5}, [{"x": 5}])
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
    obj("GpuDevicePlugin", "x", "deviceplugin.intel.com/v1", sharedDevNum=4, nodeSelector={"a": "b"}),
)


def with_unexpected_types(value):
    """Yield copies of a value, each with one part of an unexpected type."""
    yield from UNEXPECTED_VALUES
    if isinstance(value, dict):
        for name, inner in value.items():
            for mistyped_inner in with_unexpected_types(inner):
                yield {**value, name: mistyped_inner}
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            for mistyped_inner in with_unexpected_types(inner):
                yield [*value[:index], mistyped_inner, *value[index + 1 :]]


@every("item", OBJECTS)
def test_an_unexpected_type_does_not_hide_other_components(item):
    other_objects = [unfold(other_object, IN_CONFIG_MAPS) for other_object in OBJECTS if other_object is not item]
    for mistyped_object in with_unexpected_types(unfold(item, IN_CONFIG_MAPS)):
        if isinstance(mistyped_object, dict):
            components = installed([*other_objects, mistyped_object])
            assert len(components.plugins) + len(components.autoscalers) >= 3, mistyped_object


def add_secrets(value, parent=""):
    """Return a copy with a secret in every map, and in lists of variables and arguments, under names that nothing reads."""
    if isinstance(value, dict):
        return {name: add_secrets(inner, name) for name, inner in value.items()} | {"password": "hunter2"}
    if isinstance(value, list):
        secrets = {"env": [{"name": "TOKEN", "value": "hunter2"}], "args": ["--token=hunter2", "hunter2"]}
        return [*map(add_secrets, value), *secrets.get(parent, [])]
    return value


def test_an_outline_keeps_exactly_what_is_read():
    unfolded = [unfold(item, IN_CONFIG_MAPS) for item in OBJECTS]
    labels = ("labels", "nodeSelector")  # all entries of these maps are read
    for item in unfolded:
        with_secrets = add_secrets({name: part for name, part in item.items() if name != "data"})
        outline_text = str(outline(with_secrets))
        for name in labels:
            outline_text = outline_text.replace(f"'{name}': {{'a': 'b', 'password': 'hunter2'}}", "")
        assert "hunter2" not in outline_text
        assert str(outline(item)) == str(outline(outline(item)))
    text = '{"version": "v1", "flags": {"migStrategy": "none", "x": "hunter2"}, "sharing": {"mps": {"x": "hunter2"}}}'
    outlined = outline(unfold(config_map(a=text, b="resources: hunter2", c="hunter2"), IN_CONFIG_MAPS))
    assert outlined["data"] == {"a": {"version": "v1", "flags": {"migStrategy": "none"}, "sharing": {"mps": {}}}}
    assert installed(map(outline, unfolded)) == installed(unfolded)


@pytest.mark.parametrize("part", ["@", ":1.1@", ":", "/"])
def test_reading_an_image_name_takes_linear_time(part):
    """With a backtracking pattern, 100 KB of @ and a line break take more than 30 s, and this test would reach its time limit."""
    installed([deployment(part * 500_000 + "\nx")])


@pytest.mark.parametrize("version", ["v1.33.0", "v1.33.0@sha256:0f", "1.33"])
def test_an_image_digest_does_not_hide_the_autoscaler_version(version):
    """The port of a registry does not hide it either."""
    image = f"registry.example.com:5000/autoscaling/cluster-autoscaler:{version}"
    [autoscaler] = installed([deployment(image, "--enable-dynamic-resource-allocation")]).autoscalers
    assert (autoscaler.minor, autoscaler.considers_claims) == (33, True)
