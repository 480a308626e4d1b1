"""Pools of network devices are read from the ConfigMaps of two device plugins, in which any field may have an unexpected type."""

import json

import pytest

from cluster.manifests import unfold
from tests.corpus.move.plugins import config_map, daemon_set
from tests.loops import every
from tests.objects import obj
from webhook.state import IN_CONFIG_MAPS, config_maps_of, installed, outline

SRIOV = "ghcr.io/k8snetworkplumbingwg/sriov-network-device-plugin:v3.9.0"
RDMA = "ghcr.io/mellanox/k8s-rdma-shared-dev-plugin:v1.5.2"


def pool(name="vfs", selectors={"vendors": ["15b3"]}, **fields):  # noqa: B006  never changed
    return {"resourceName": name, "selectors": selectors, **fields}


def sriov_config(*pools):
    return {"resourceList": list(pools)}


def rdma_config(*pools):
    return {"periodicUpdateInterval": 300, "configList": list(pools)}


def plugin(image=SRIOV, *arguments, volume="plugin"):
    return daemon_set(image, args=arguments, volume=volume)


def read_network(*objects):
    return installed([unfold(obj, IN_CONFIG_MAPS) for obj in objects]).network


def pool_names(*objects):
    return list(read_network(*objects).pools)


POOL_NAMES = {
    "the SR-IOV plugin's own prefix": ([config_map(config=sriov_config(pool()))], "intel.com/vfs"),
    "a prefix of the pool": ([config_map(config=sriov_config(pool(resourcePrefix="a.org")))], "a.org/vfs"),
    "a prefix of the plugin": ([config_map(config=sriov_config(pool())), plugin(SRIOV, "--resource-prefix=b.org")], "b.org/vfs"),
    "a prefix in an argument of its own": ([config_map(config=sriov_config(pool())), plugin(SRIOV, "-resource-prefix", "b.org")], "b.org/vfs"),
    "a pool's prefix before the plugin's": ([config_map(config=sriov_config(pool(resourcePrefix="a.org"))), plugin(SRIOV, "--resource-prefix=b.org")], "a.org/vfs"),
    "the map of the SR-IOV network operator": ([config_map("device-plugin-config", node_1=sriov_config(pool()))], "openshift.io/vfs"),
    "another plugin's map": ([config_map(config=sriov_config(pool())), plugin(SRIOV, "--resource-prefix=b.org", volume="other")], "intel.com/vfs"),
    "a name with hyphens": ([config_map(config=sriov_config(pool("a-b")))], "intel.com/a-b"),
    "the shared RDMA plugin": ([config_map(config=rdma_config(pool("hca_a")))], "rdma/hca_a"),
    "the shared RDMA plugin with a prefix": ([config_map(config=rdma_config(pool("hca_a", resourcePrefix="c")))], "c/hca_a"),
    "field names in other case, as Go accepts them": ([config_map(config={"ResourceList": [{"RESOURCENAME": "vfs", "Selectors": {"Vendors": ["8086"]}}]})], "intel.com/vfs"),
}  # fmt: skip


@pytest.mark.parametrize("case", POOL_NAMES)
def test_a_pool_has_the_resource_name_of_its_plugin(case):
    objects, name = POOL_NAMES[case]
    network = read_network(*objects)
    assert (list(network.pools), network.mistakes) == ([name], ())


def test_pools_of_a_nic_cluster_policy_are_read():
    hostdev = sriov_config(
        pool("hostdev", resourcePrefix="nvidia.com", selectors={"vendors": ["15b3"], "isRdma": True})
    )
    spec = {
        "rdmaSharedDevicePlugin": {"config": json.dumps(rdma_config(pool("rdma_shared_device_a")))},
        "sriovDevicePlugin": {"config": json.dumps(hostdev)},
    }
    policy = obj("NicClusterPolicy", "p", "mellanox.com/v1alpha1", **spec)
    pools = read_network(policy).pools
    assert list(pools) == ["rdma/rdma_shared_device_a", "nvidia.com/hostdev"]
    assert pools["nvidia.com/hostdev"].where == "NicClusterPolicy p (sriovDevicePlugin)"
    for broken in ('{"configList": [', '{"configList": ' + "[" * 100_000 + "}", '{"configList": []}' + " " * (1 << 20)):
        (mistake,) = read_network({**policy, "spec": {"rdmaSharedDevicePlugin": {"config": broken}}}).mistakes
        assert "is not valid JSON" in mistake.problem


def test_selectors_of_several_nodes_are_alternatives_of_one_pool():
    of_a = sriov_config(pool(selectors={"pfNames": ["a"]}))
    of_b_and_a = sriov_config(pool(selectors=[{"pfNames": ["b"]}, {"pfNames": ["a"]}]))
    config = config_map("device-plugin-config", node_1=of_a, node_2=of_b_and_a, node_3=of_a)
    (network_pool,) = read_network(config).pools.values()
    assert network_pool.alternatives == ({"pfNames": ("a",)}, {"pfNames": ("b",)})
    assert network_pool.where == "ConfigMap gpu-operator/device-plugin-config (node-1)"
    assert str(network_pool) == f"pfNames=a… in {network_pool.where}"


def test_all_selectors_are_read_and_booleans_only_if_true():
    selectors = {
        "vendors": ["15b3"],
        "IsRdma": True,
        "needVhostNet": False,
        "vdpaType": "vhost",
        "drivers": ["mlx5_core"],
    }
    (network_pool,) = read_network(
        config_map(config=sriov_config(pool(selectors=selectors, deviceType="auxNetDevice")))
    ).pools.values()
    assert network_pool.alternatives == (
        {"deviceType": ("auxNetDevice",), "vendors": ("15b3",), "drivers": ("mlx5_core",), "isRdma": (), "vdpaType": ("vhost",)},
    )  # fmt: skip
    (network_pool,) = read_network(
        config_map(config=sriov_config(pool(selectors=selectors | {"IsRdma": False})))
    ).pools.values()
    assert "isRdma" not in network_pool.alternatives[0]


def test_devices_of_the_shared_rdma_plugin_are_interface_names():
    (network_pool,) = read_network(
        config_map(config=rdma_config({"resourceName": "a", "devices": ["ib0", "ib1"]}))
    ).pools.values()
    assert (network_pool.alternatives, network_pool.is_shared) == (({"ifNames": ("ib0", "ib1")},), True)


INVALID_POOLS = {
    "a text that is not JSON": ('{"resourceList": [', "is not valid JSON"),
    "a text that is too long": (json.dumps(sriov_config(pool(selectors={"vendors": ["15b3"] * 40_000}))), "longer than 256 KiB"),
    "a text of 1 MiB": ('{"resourceList": []}' + " " * (1 << 20), "longer than 256 KiB"),
    "a deep text": ('{"resourceList": ' + "[" * 50_000 + "]" * 50_000 + "}", "is not valid JSON"),
    "a pool twice": (sriov_config(pool(), pool()), "has the pool intel.com/vfs twice"),
    "a name with a slash": (sriov_config(pool("a/b")), "has a pool 'a/b', a name that the plugin refuses"),
    "a hyphen in a name of shared RDMA": (rdma_config(pool("a-b")), "has a pool 'a-b', a name that the plugin refuses"),
    "no name": (sriov_config({"selectors": {"vendors": ["15b3"]}}), "has a pool ''"),
    "a name that is a number": (sriov_config(pool(5)), "has a pool ''"),
    "no selectors": (sriov_config({"resourceName": "vfs"}), "has no selectors that can be read for the pool intel.com/vfs"),
    "selectors that are numbers": (sriov_config(pool(selectors=5)), "has no selectors"),
    "a selector of numbers": (sriov_config(pool(selectors={"vendors": [5, {}]})), "has no selectors"),
    "a value that is too long": (sriov_config(pool(selectors={"pfNames": ["x" * 64]})), "has no selectors"),
    "257 values": (sriov_config(pool(selectors={"pfNames": ["x"] * 257})), "has no selectors"),
}  # fmt: skip


@every("case", INVALID_POOLS)
def test_a_bad_pool_is_reported_and_the_others_are_read(case):
    value, problem = INVALID_POOLS[case]
    network = read_network(config_map(config=value), config_map("good", config=sriov_config(pool("good"))))
    (mistake,) = network.mistakes
    assert mistake.where == "ConfigMap gpu-operator/plugin (config)"
    assert problem in mistake.problem
    assert "intel.com/good" in network.pools


@pytest.mark.parametrize("value", [[], 5, "resourceList", {"resourceList": 5}, {"resourceList": [5, None]}, {"configList": {}}, {5: 5}])  # fmt: skip
def test_a_configuration_of_another_shape_has_no_pools(value):
    assert pool_names({**config_map(), "data": {"config": value}}) == []


def test_unrelated_text_is_not_a_mistake():
    assert read_network(config_map(function='{"kind": "ResourceList", "items": [')).mistakes == ()


def test_pools_beyond_the_limit_are_reported_and_dropped():
    configs = [sriov_config(*(pool(f"p{i}_{j}") for j in range(100))) for i in range(4)]
    network = read_network(config_map(**{f"node_{i}": config for i, config in enumerate(configs)}))
    assert len(network.pools) == 256
    assert {mistake.problem for mistake in network.mistakes} == {"has more than 256 pools"}


def test_the_config_maps_of_a_plugin_are_its_mounts():
    assert config_maps_of(plugin(SRIOV)) == config_maps_of(plugin(RDMA)) == [("gpu-operator", "plugin")]
    assert config_maps_of(plugin("registry.example/other:1")) == []


def test_an_outline_keeps_pools_and_no_secret():
    plugin_config = sriov_config(
        pool(
            selectors={"vendors": ["15b3"], "IsRdma": True, "password": ["hunter2"]},
            additionalInfo={"*": {"token": "hunter2"}},
        )
    )
    objects = [config_map(config=plugin_config), plugin(SRIOV, "--resource-prefix=b.org", "--token=hunter2")]
    outlines = [outline(unfold(obj, IN_CONFIG_MAPS)) for obj in objects]
    assert "hunter2" not in str(outlines)
    assert installed(outlines).network == read_network(*objects)
    assert list(map(outline, outlines)) == outlines
