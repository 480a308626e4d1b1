"""`survey` prints a valid configuration for pools of network devices. Claims for a pool get the devices that its device plugin selects."""

import json
import re

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from analysis.configuration import ConfigurationInForce
from analysis.loading import SURVEY, read_cluster
from analysis.survey.overview import SurveyScope, overview
from analysis.survey.pools import declare_pools
from cluster.embedded import Embedded
from dra import cel
from dra.objects.device import Device
from dra.wire import convert
from tests.cli.running import run, run_json
from tests.corpus.move.plugins import config_map
from tests.objects import obj, pod, workload
from tests.webhook.pods import EXAMPLES, configured
from webhook.state import Configuration, NetworkPool, read_configuration

DRIVER = "sriovnetwork.k8snetworkplumbingwg.io"
DRIVERS = EXAMPLES / "drivers"
VF_KEY, RDMA_KEY = "openshift.io/mlxnics", "rdma/hca_a"
SELECTORS = {
    "vendors": ["15b3"],
    "devices": ["101e"],
    "pfNames": ["ens1f0#2-3"],
    "linkTypes": ["ether"],
    "IsRdma": True,
}
PLUGIN_CONFIG_MAPS = (
    config_map("device-plugin-config", "sriov", edge_1={"resourceList": [{"resourceName": "mlxnics", "selectors": SELECTORS}]}),
    config_map("rdma-devices", config={"configList": [{"resourceName": "hca_a", "rdmaHcaMax": 63, "selectors": {"vendors": ["15b3"], "ifNames": ["rdma2", "rdma3"]}}]}),
)  # fmt: skip


def pod_for(key, count=1):
    """Return a pod of namespace team that requests a resource and is named after the resource."""
    amounts = {key: count}
    return pod(re.sub("[^a-z]", "-", key), namespace="team", limits=amounts, requests=amounts)


def write_yaml(folder, name, *objects):
    path = folder / name
    path.write_text(yaml.safe_dump_all(objects))
    return path


def survey_networks(folder, *objects):
    _, answer = run_json("survey", "-f", write_yaml(folder, "dump.yaml", *objects), "--fail-on", "never")
    return answer["network"]


def write_text(folder, text, name="config.yaml"):
    path = folder / name
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("key", "count", "devices"),
    [
        (VF_KEY, 2, [f"{DRIVER}/edge-1/0000-08-00-4", f"{DRIVER}/edge-1/0000-08-00-5"]),
        (RDMA_KEY, 1, ["dra.net/h100-1/pci-0000-3a-00-0"]),
    ],
)
def test_a_printed_configuration_claims_the_devices_that_the_plugin_selects(key, count, devices, tmp_path):
    requesting_pod = pod_for(key, count)
    network = survey_networks(tmp_path, *PLUGIN_CONFIG_MAPS, requesting_pod)
    assert list(network["pools"]) == [key]
    config = write_text(tmp_path, network["configuration"])
    code, answer = run_json("check", "-f", config)
    assert (code, answer["findings"]) == (0, [])
    pod_file = write_yaml(tmp_path, "pod.yaml", requesting_pod)
    code, answer = run_json("translate", "-f", pod_file, "--config", config, "--inventory", DRIVERS)
    assert code == 0
    assert {decision["outcome"] for decision in answer["decisions"]} == {
        "translated" if key == VF_KEY else "approximated"
    }
    result = run("simulate", "-f", pod_file, "-f", DRIVERS, "--config", config)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[2].partition(": ")[2] == ", ".join(devices)


@pytest.mark.parametrize(("allows_multiple", "placed_count"), [(False, 2), (True, 5)])
def test_pods_share_rdma_devices_only_with_multiple_allocations(allows_multiple, placed_count, tmp_path):
    pods = [pod_for(RDMA_KEY) for _ in range(5)]
    for number, requesting_pod in enumerate(pods):
        requesting_pod["metadata"]["name"] += str(number)
        requesting_pod["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "h100-1"}
    config = write_text(tmp_path, survey_networks(tmp_path, *PLUGIN_CONFIG_MAPS, pod_for(RDMA_KEY))["configuration"])
    fleet = [obj for path in ("dra.net.yaml", "nodes.yaml") for obj in yaml.safe_load_all((DRIVERS / path).read_text())]
    for fleet_object in fleet:
        for device in fleet_object["spec"]["devices"] if fleet_object["kind"] == "ResourceSlice" else ():
            device["allowMultipleAllocations"] = allows_multiple
    files = write_yaml(tmp_path, "pods.yaml", *pods), write_yaml(tmp_path, "fleet.yaml", *fleet)
    _, answer = run_json("simulate", "-f", files[0], "-f", files[1], "--config", config)
    assert answer["totals"]["placed"] == placed_count


def test_nothing_is_declared_for_a_pool_whose_name_the_configuration_would_refuse(tmp_path):
    resource = {"resourcePrefix": "nvidia.com", "resourceName": "fast", "selectors": SELECTORS}
    plugin = {"config": json.dumps({"resourceList": [resource]})}
    policy = obj("NicClusterPolicy", "p", "mellanox.com/v1alpha1", sriovDevicePlugin=plugin)
    assert not any(survey_networks(tmp_path, policy, pod_for("nvidia.com/fast")).values())


def test_a_range_of_two_virtual_functions_serves_no_third(tmp_path):
    network = survey_networks(tmp_path, *PLUGIN_CONFIG_MAPS, pod_for(VF_KEY, 3))
    config = write_text(tmp_path, network["configuration"])
    pod_file = write_yaml(tmp_path, "pod.yaml", pod_for(VF_KEY, 3))
    _, answer = run_json("simulate", "-f", pod_file, "-f", DRIVERS, "--config", config)
    assert answer["totals"]["placed"] == 0


def test_the_drivers_objects_publish_a_pool_by_its_name(tmp_path):
    network = survey_networks(tmp_path, *PLUGIN_CONFIG_MAPS, pod_for(VF_KEY), pod_for(RDMA_KEY))
    pool_object, policy = yaml.safe_load_all(network["driverObjects"])
    assert pool_object["spec"]["attributes"] == {"k8s.cni.cncf.io/resourceName": {"string": VF_KEY}}
    (pool_policy,) = policy["spec"]["configs"]
    assert pool_policy["deviceAttributesSelector"]["matchLabels"] == pool_object["metadata"]["labels"]
    assert pool_policy["resourceFilters"] == [
        {"vendors": ["15b3"], "devices": ["101e"], "pfNames": ["ens1f0"], "linkType": "ethernet"}
    ]
    assert "a filter cannot express pfNames ens1f0#2-3; isRdma" in network["driverObjects"]
    assert run("check", "-f", write_text(tmp_path, network["driverObjects"], "objects.yaml")).exit_code == 0
    config = write_text(tmp_path, network["driverConfiguration"])
    pod_file = write_yaml(tmp_path, "pod.yaml", pod_for(VF_KEY, 4))
    _, answer = run_json("simulate", "-f", pod_file, "-f", DRIVERS, "--config", config)
    assert answer["totals"]["placed"] == 1


def test_a_survey_prints_only_pools_that_pods_request(tmp_path):
    dump = write_yaml(tmp_path, "dump.yaml", *PLUGIN_CONFIG_MAPS, pod_for(RDMA_KEY))
    text = run("survey", "-f", dump).stdout
    assert "Pools of network devices\nrdma/hca_a: vendors=15b3 ifNames=rdma2,rdma3 in ConfigMap" in text
    assert VF_KEY not in text
    assert "kind: SriovResourcePolicy" not in text
    assert "DrawbridgeConfiguration" in run("survey", "-f", dump, "-o", "markdown").stdout
    assert survey_networks(tmp_path, *PLUGIN_CONFIG_MAPS) == {
        "pools": {},
        "configuration": "",
        "driverObjects": "",
        "driverConfiguration": "",
    }


def test_a_pool_that_is_declared_already_needs_no_declaration(tmp_path):
    network = survey_networks(tmp_path, *PLUGIN_CONFIG_MAPS, pod_for(VF_KEY))
    config = write_text(tmp_path, network["configuration"])
    dump = write_yaml(tmp_path, "dump.yaml", *PLUGIN_CONFIG_MAPS, pod_for(VF_KEY))
    _, answer = run_json("survey", "-f", dump, "--config", config)
    assert (answer["network"]["pools"], answer["outcomes"]) == ({}, {"translated": 1})


def test_a_plugin_configuration_that_is_not_json_is_an_obstacle(tmp_path):
    dump = write_yaml(tmp_path, "dump.yaml", config_map(config='{"resourceList": ['), pod_for(VF_KEY))
    _, answer = run_json("survey", "-f", dump)
    (finding,) = [obstacle for obstacle in answer["obstacles"] if obstacle["code"].startswith("S00")]
    assert (finding["object"], finding["message"]) == ("ConfigMap/gpu-operator/plugin (config)", "it is not valid JSON, or longer than 256 KiB")  # fmt: skip


def declarations(*pools, **fields):
    return declare_pools(pools, configured(**fields) if fields else Configuration())


def network_pool(name="openshift.io/a", *, shared=False, **selectors):
    return NetworkPool(name=name, where="ConfigMap a/b (c)", alternatives=(selectors,), is_shared=shared)


# A pool, and the end of the comment about it in the configuration (empty: there is no configuration).
UNPUBLISHED_SELECTORS = {
    "the kernel driver, which no DRA driver publishes": (
        network_pool(drivers=("vfio-pci",), vendors=("15b3",)),
        "drivers vfio-pci",
    ),
    "the ACPI index": (network_pool(acpiIndexes=("1",), vendors=("15b3",)), "acpiIndexes 1"),
    "the number of a model, of which dranet publishes only the name": (
        network_pool("rdma/a", shared=True, deviceIDs=("1017",)),
        "deviceIDs 1017",
    ),
    "a vendor without a known name": (network_pool("rdma/a", shared=True, vendors=("beef",)), "vendors beef"),
    "a range without numbers": (network_pool(pfNames=("a#",)), "pfNames a#"),
    "a range that is not a number": (network_pool(pfNames=("a#x",)), "pfNames a#x"),
    "an accelerator": (network_pool(deviceType=("accelerator",)), ""),
    "a line break": (network_pool(drivers=("a\nmode: off",), vendors=("15b3",)), r"drivers a\x0amode: off"),
}


@pytest.mark.parametrize("case", UNPUBLISHED_SELECTORS)
def test_an_unpublished_selector_is_no_part_of_the_configuration(case):
    pool, comment = UNPUBLISHED_SELECTORS[case]
    declared = declarations(pool)
    assert bool(declared.configuration) == bool(comment)
    if comment:
        comments = [line for line in declared.configuration.splitlines() if line.startswith("#")]
        assert any(line.endswith(comment) for line in comments), comments
        assert set(yaml.safe_load(declared.configuration)) == {"apiVersion", "kind", "targets", "nics"}
        assert read_configuration(yaml.safe_load(declared.configuration))[0]


def test_an_alternative_without_published_attributes_selects_the_whole_class():
    pool = NetworkPool(name="a.org/a", where="", alternatives=({"vendors": ("15b3",)}, {"drivers": ("vfio-pci",)}))
    (target,) = yaml.safe_load(declarations(pool).configuration)["targets"]
    assert "selectors" not in target
    assert declarations(pool).driver_objects == ""


def test_target_names_differ_from_existing_names():
    declared = declarations(
        network_pool("a.org/vf"),
        network_pool("b.org/x"),
        network_pool("c.org/x"),
        network_pool("d.org/mine"),
        targets=[{"name": "mine", "driver": "a.b"}],
    )
    names = [target["name"] for target in yaml.safe_load(declared.configuration)["targets"]]
    assert names == ["a.org/vf", "x", "c.org/x", "d.org/mine"]


def test_targets_above_half_the_limit_become_comments():
    declared = declarations(*(network_pool(f"openshift.io/p{i}", vendors=("15b3",)) for i in range(40)))
    assert len(yaml.safe_load(declared.configuration)["targets"]) == 32
    assert declared.configuration.count("too many pools") == 8
    assert read_configuration(yaml.safe_load(declared.configuration))[0]


def test_a_configured_class_is_the_first_class_of_a_target():
    declared = declarations(network_pool("rdma/a", shared=True, ifNames=("ib0",)), classes={"nic": "ours"})
    assert yaml.safe_load(declared.configuration)["targets"][0]["classes"][0] == "ours"


# Selectors of the SR-IOV plugin, and attributes of virtual functions.
_WORDS = st.sampled_from(["a", "b", "c"])
_NUMBERS = st.sampled_from(["", "#0", "#1-2", "#0,2", "#2-1"])
_SELECTOR = st.fixed_dictionaries(
    {},
    optional={
        "vendors": st.lists(_WORDS, min_size=1, max_size=2),
        "devices": st.lists(_WORDS, min_size=1, max_size=2),
        "pciAddresses": st.lists(_WORDS, min_size=1, max_size=2),
        "pfNames": st.lists(st.builds(str.__add__, _WORDS, _NUMBERS), min_size=1, max_size=3),
        "rootDevices": st.lists(st.builds(str.__add__, _WORDS, _NUMBERS), min_size=1, max_size=3),
        "linkTypes": st.lists(st.sampled_from(["ether", "infiniband"]), min_size=1, max_size=2),
        "isRdma": st.just([]),
    },
).filter(bool)
_VIRTUAL_FUNCTION = st.fixed_dictionaries(
    {
        "vendor": _WORDS,
        "deviceID": _WORDS,
        "pciAddress": _WORDS,
        "PFName": _WORDS,
        "pfPciAddress": _WORDS,
        "linkType": st.sampled_from(["ethernet", "infiniband", "unknown"]),
        "vfID": st.integers(0, 3),
        "rdmaCapable": st.booleans(),
    }
)
_ATTRIBUTE_OF_SELECTOR = {"vendors": "vendor", "devices": "deviceID", "pciAddresses": "pciAddress", "pfNames": "PFName", "rootDevices": "pfPciAddress", "linkTypes": "linkType"}  # fmt: skip


def plugin_selects(selector, function):
    """Return whether the SR-IOV plugin selects this virtual function (pkg/resources/deviceSelectors.go)."""
    for name, values in selector.items():
        if name == "isRdma":
            if not function["rdmaCapable"]:
                return False
            continue
        value = function[_ATTRIBUTE_OF_SELECTOR[name]]
        if name == "linkTypes":
            value = {"ethernet": "ether"}.get(value, value)
        matching_pattern = next((pattern for pattern in values if pattern.partition("#")[0] == value), None)
        if matching_pattern is None:
            return False
        _, has_range, numbers = matching_pattern.partition("#")
        # Without a range, every number is selected.
        spans = [[int(end) for end in part.split("-")] for part in numbers.split(",")] if has_range else [[0, 9]]
        if not any(span[0] <= function["vfID"] <= span[-1] for span in spans):
            return False
    return True


@given(selectors=st.lists(_SELECTOR, min_size=1, max_size=3), function=_VIRTUAL_FUNCTION)
def test_a_target_selects_a_virtual_function_as_the_plugin_does(selectors, function):
    pool = NetworkPool(
        name="a.org/a", where="", alternatives=tuple({k: tuple(v) for k, v in s.items()} for s in selectors)
    )
    (target,) = yaml.safe_load(declarations(pool).configuration)["targets"]
    kinds = {str: "string", int: "int", bool: "bool"}
    attributes = {f"{DRIVER}/{name}": {kinds[type(value)]: value} for name, value in function.items()}
    view = cel.view_of(DRIVER, convert({"name": "d", "attributes": attributes}, Device))
    selected = all(cel.compile(text, cel.NEW).matches(view) for text in target["selectors"])
    assert selected == any(plugin_selects(selector, function) for selector in selectors)


def test_the_example_on_the_page_of_the_configuration_is_valid():
    page = (EXAMPLES.parents[1] / "docs" / "configuration.md").read_text()
    (text,) = [block for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if "hca_a" in block]
    assert configured(**yaml.safe_load(text)).file.targets


def daemon_set(name, namespace, image, config_map_name):
    volume = {"name": "c", "configMap": {"name": config_map_name}}
    pod_spec = {"containers": [{"name": "p", "image": image}], "volumes": [volume]}
    return workload("DaemonSet", name, pod_spec, namespace=namespace, labels={"a": name})


@pytest.mark.parametrize("trusted_namespaces", [("sriov", "gpu-operator"), ("sriov",)])
async def test_a_live_survey_reads_only_config_maps_that_plugins_mount(trusted_namespaces):
    plugins = [
        daemon_set("vfs", "sriov", "example.com/sriov-network-device-plugin:v3", "device-plugin-config"),
        daemon_set("hcas", "gpu-operator", "example.com/of-our-own", "rdma-devices"),
    ]
    cluster = Embedded.holding([*PLUGIN_CONFIG_MAPS, *plugins, pod_for(VF_KEY), pod_for(RDMA_KEY)])
    in_force = ConfigurationInForce(configured(evidence={"namespaces": list(trusted_namespaces)}))
    survey = overview(await read_cluster(cluster, SURVEY, given=in_force), SurveyScope())
    assert list(survey.network.pools) == [VF_KEY]
    [obstacle] = [obstacle for obstacle in survey.obstacles if obstacle.code in ("S001", "S002")]
    assert (obstacle.object, obstacle.message) == (RDMA_KEY, "no ConfigMap that describes them was read; in a cluster, only ConfigMaps that a DaemonSet of the plugin mounts are read")  # fmt: skip
