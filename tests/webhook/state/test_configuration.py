"""A configuration is read strictly, whole, and with every mistake named."""

import pytest

from cluster import manifests
from dra import wire
from dra.objects import DeviceClass, Node, ResourceSlice
from tests.webhook.pods import (
    EXAMPLES,
    HAMI,
    SIZES,
    WHOLE,
    became,
    configured,
    container,
    devices,
    exactly,
    example_fleet,
    patched,
    pod,
    read_objects,
    untouched,
)
from webhook.dialects import PCIE_ROOT
from webhook.state import Inventory
from webhook.state.configuration import Configuration, read

BY_CLASS = "gpu.nvidia.com.deviceclass.resource.k8s.io/devices"
HEAD = {"apiVersion": "drawbridge.dev/v1alpha1", "kind": "DrawbridgeConfiguration"}


def mistakes(**fields) -> dict[str, str]:
    """Message by pointer."""
    configuration, findings = read({**HEAD, **fields})
    assert configuration is None
    assert all(finding.remedy for finding in findings)
    return {finding.path: finding.message for finding in findings}


def test_an_unknown_feature_gate_is_a_warning():
    kubernetes = {"version": "1.36", "featureGates": {"DRADeviceTaint": True, "DRAPartitionableDevices": False}}
    configuration, findings = read({**HEAD, "mode": "warn", "kubernetes": kubernetes})
    assert configuration.file.mode == "warn"
    assert dict(configuration.file.kubernetes.declared().gates) == {"DRAPartitionableDevices": False}
    [finding] = findings
    assert (finding.code, finding.severity, finding.path) == ("C002", "warning", "/kubernetes/featureGates/DRADeviceTaint")  # fmt: skip
    assert finding.remedy == "did you mean DRADeviceTaints?"
    assert mistakes(kubernetes={"featureGates": {"DRADeviceTaints": "yes"}}).keys() == {"/kubernetes/featureGates/DRADeviceTaints"}  # fmt: skip


def test_the_example_is_good():
    (document,) = manifests.read([EXAMPLES / "configuration.yaml"])
    configuration, findings = read(document.object)
    assert findings == []
    assert configuration is not None


def test_an_empty_one_is_the_default():
    assert configured().file == Configuration().file


def fenced(fence=True, **said):
    """A configuration of a fenced driver, and what becomes of pods that ask by the name of a class."""
    return {"bridge": {"schedulerName": "drawbridge", "drivers": ["x.com"], "fence": fence}, "extendedResources": said}


@pytest.mark.parametrize(
    "value",
    [
        fenced(),
        fenced(drivers={"x.com": "translate", "other.com": "leave"}, default="leave"),
        fenced(namespaces={"ml": "translate"}),
        fenced(fence=False, default="leave", namespaces={"ml": "leave"}),
    ],
)
def test_pods_may_be_left_to_core_where_no_fence_keeps_it_from_their_devices(value):
    assert configured(**value).file.bridge is not None


def placing(**fields):
    """A configuration of the bridge that places so."""
    return {"bridge": {"schedulerName": "drawbridge", "placement": fields}}


@pytest.mark.parametrize("value", [None, [], "text", 3, {}])
def test_a_value_other_than_a_configuration_is_rejected(value):
    configuration, findings = read(value)
    assert configuration is None
    assert findings


def test_every_mistake_is_named_at_once():
    found = mistakes(
        mode="enforcing",
        canary=101,
        aproximations="warn",
        meanings={"nvidia.com/gpu": 3},
        models=[{"product": "x"}, {"product": "x", "memory": "1Gi", "size": 1}],
        koordinator={"webhook": "yes"},
    )
    assert set(found) == {
        "/mode",
        "/canary",
        "/aproximations",
        "/meanings/nvidia.com~1gpu",
        "/models/0",
        "/models/1/size",
        "/koordinator/webhook",
    }


def test_names_in_a_broken_table_are_not_called_unknown():
    table = {"name": "ours", "title": 7, "keys": [{"name": "our.org/nic", "meaning": "NICs"}]}
    joint = [{"primary": "nvidia.com/gpu", "secondary": "our.org/nic"}]
    found = mistakes(dialects=[table], joint=joint, meanings={"x": "ours"}, disabled=["ours"], canary=101)
    assert set(found) == {"/dialects/0/title", "/canary"}


def test_a_member_that_is_null_is_not_set():
    configuration, findings = read({**HEAD, "mode": None, "models": None, "hami": {"memoryFactor": None}})
    assert findings == []
    assert configuration.file == Configuration().file


def test_a_misspelt_field_gets_a_suggestion():
    _, findings = read({**HEAD, "aproximations": "warn"})
    assert "approximations" in findings[0].remedy


@pytest.mark.parametrize(
    ("fields", "meant"),
    [
        ({"mode": "enforced"}, "enforce"),
        ({"mode": "Warn"}, "warn"),
        ({"meanings": {"nvidia.com/gpu": "hole"}}, "whole"),
        ({"meanings": {"nvidia.com/gpu": "HAMi"}}, "hami"),
    ],
)
def test_a_misspelt_word_gets_one_suggestion(fields, meant):
    _, findings = read({**HEAD, **fields})
    (one,) = findings
    assert one.remedy.startswith(f"did you mean {meant}? ")
    words = one.remedy.partition("? ")[2].removeprefix("one of ").split(", ")
    assert len(words) == len(set(words)) > 2


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"canary": 101}, "/canary"),
        ({"meanings": {"nvidia.com/gpu": "entire"}}, "/meanings/nvidia.com~1gpu"),
        ({"meanings": {"nvidia.com/gpu": "mig:huge"}}, "/meanings/nvidia.com~1gpu"),
        ({"classes": {"gpus": "x"}}, "/classes/gpus"),
        ({"keys": {"hamy": {}}}, "/keys/hamy"),
        ({"keys": {"hami": {"nvidia.com/mem": "x"}}}, "/keys/hami/nvidia.com~1mem"),
        ({"disabled": ["unknown"]}, "/disabled/0"),
        ({"cpuClaims": {"default": "on"}}, "/cpuClaims/default"),
        ({"cpuClaims": {"namespaces": {"batch": True}}}, "/cpuClaims/namespaces/batch"),
        ({"cpuClaims": {"namespaces": {"team-*": "translate"}}}, "/cpuClaims/namespaces/team-*"),
        (fenced(default="leave"), "/extendedResources/default"),
        (fenced(drivers={"x.com": "leave"}), "/extendedResources/drivers/x.com"),
        (fenced(namespaces={"ml": "leave"}), "/extendedResources/namespaces/ml"),
        (placing(strategy="best"), "/bridge/placement/strategy"),
        (placing(strategy=""), "/bridge/placement/strategy"),
        (placing(strategy="topology=0,CompactFirst=1"), "/bridge/placement/strategy"),
        (placing(namespaces={"ml": "topology,topology"}), "/bridge/placement/namespaces/ml"),
        (placing(namespaces={"ml-*": "topology"}), "/bridge/placement/namespaces/ml-*"),
        (placing(mostPodsPerNode=-1), "/bridge/placement/mostPodsPerNode"),
        (placing(mostPodsPerNode="4"), "/bridge/placement/mostPodsPerNode"),
        (placing(weights={}), "/bridge/placement/weights"),
        ({"models": [{"product": "x", "memory": "much"}]}, "/models/0/memory"),
        ({"quotas": {"nvidia.com/gpu": ""}}, "/quotas/nvidia.com~1gpu"),
        ({"quotas": {"requests.nvidia.com/gpu": BY_CLASS}}, "/quotas/requests.nvidia.com~1gpu"),
        ({"meanings": {"nvidia.com/gpuu": "whole"}}, "/meanings/nvidia.com~1gpuu"),
        (
            {"mixed": {"nvidia.com/gpu": {"prefer": "dra", "namespaces": {"a-*": {"prefer": "dra"}}}}},
            "/mixed/nvidia.com~1gpu/namespaces/a-*",
        ),
        ({"dialects": [{"name": "hami", "title": "t", "keys": []}]}, "/dialects/0/name"),
        ({"dialects": [{"name": "x", "title": "t", "keys": [], "rule": "hami"}]}, "/dialects/0/rule"),
        ({"dialects": [{"name": "x", "title": "t", "keys": [], "target": "y"}]}, "/dialects/0/target"),
        (
            {"dialects": [{"name": "x", "title": "t", "keys": [{"name": "a/b", "meaning": "m", "unit": "stones"}]}]},
            "/dialects/0/keys/0/unit",
        ),
        (
            {"dialects": [{"name": "x", "title": "t", "keys": [{"name": "a/b", "meaning": "m", "target": "y"}]}]},
            "/dialects/0/keys/0/target",
        ),
        ({"joint": [{"primary": "nvidia.com/gpu", "secondary": "unknown/key"}]}, "/joint/0/secondary"),
        ({"hami": {"memoryFactor": 0}}, "/hami/memoryFactor"),
    ],
)
def test_an_invalid_field_is_reported_at_its_path(fields, path):
    assert list(mistakes(**fields)) == [path]


@pytest.mark.parametrize(
    "quota",
    [
        "banana",
        "claims",
        "resourceclaims",
        "nvidia.com/gpu",
        "limits.nvidia.com/gpu",
        "requests.gpu",
        "requests.cpu",
        "requests.kubernetes.io/gpu",
        "requests.nvidia.com/gpu/x",
        "gpu.nvidia.com/devices",
        ".deviceclass.resource.k8s.io/devices",
        "GPU_1.deviceclass.resource.k8s.io/devices",
        "gpu.nvidia.com.deviceclass.resource.k8s.io/device",
        "deviceclass.resource.kubernetes.io/gpu.nvidia.com",
        "requests.deviceclass.resource.kubernetes.io/",
        "requests.deviceclass.resource.kubernetes.io/GPU_1",
        "count/resourceclaims",
        "count/resourceclaimtemplates.resource.k8s.io",
        "count/pods",
        f"{BY_CLASS} ",
    ],
)
def test_a_quota_key_that_counts_no_claims_is_rejected(quota):
    assert list(mistakes(quotas={"nvidia.com/gpu": quota})) == ["/quotas/nvidia.com~1gpu"]
    _, (finding,) = read({**HEAD, "quotas": {"nvidia.com/gpu": quota}})
    for form in ("CLASS.deviceclass.resource.k8s.io/devices", "requests.NAME", "count/resourceclaims.resource.k8s.io"):
        assert form in finding.remedy


@pytest.mark.parametrize(
    "quota",
    [
        BY_CLASS,
        "gpu.deviceclass.resource.k8s.io/devices",
        "requests.deviceclass.resource.kubernetes.io/gpu.nvidia.com",
        "requests.nvidia.com/gpu",
        "requests.example.com/gpu-a100",
        "count/resourceclaims.resource.k8s.io",
    ],
)
def test_every_resource_quota_key_for_claims_is_accepted(quota):
    assert configured(quotas={"nvidia.com/gpu": quota}).file.quotas == {"nvidia.com/gpu": quota}


PAIR = {"primary": "nvidia.com/gpu", "secondary": "vpc.amazonaws.com/efa"}


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"keys": {"nvidia": {"nvidia.com/gpu": "gpu"}}}, "/keys/nvidia/nvidia.com~1gpu"),
        ({"keys": {"nvidia": {"nvidia.com/gpu": "our.kubernetes.io/gpu"}}}, "/keys/nvidia/nvidia.com~1gpu"),
        ({"keys": {"hami": {"nvidia.com/gpumem": "our.org/gpu mem"}}}, "/keys/hami/nvidia.com~1gpumem"),
        ({"joint": [{**PAIR, "attribute": "pcieRoot"}]}, "/joint/0/attribute"),
        ({"joint": [{**PAIR, "attribute": "our org/root"}]}, "/joint/0/attribute"),
        ({"bridge": {"schedulerName": ""}}, "/bridge/schedulerName"),
        ({"bridge": {"schedulerName": "x", "drivers": ["gpu.nvidia.com", "gpu_nvidia"]}}, "/bridge/drivers/1"),
        ({"evidence": {"drivers": ["gpu nvidia"]}}, "/evidence/drivers/0"),
        ({"evidence": {"nodeSelector": {"our org/pool": "a"}}}, "/evidence/nodeSelector/our org~1pool"),
        ({"evidence": {"nodeSelector": {"pool": "a b"}}}, "/evidence/nodeSelector/pool"),
        ({"extendedResources": {"drivers": {"gpu_nvidia": "leave"}}}, "/extendedResources/drivers/gpu_nvidia"),
        ({"kueue": {"deviceClasses": ["GPU_1"]}}, "/kueue/deviceClasses/0"),
        ({"mixed": {"nvidia.com/gpu": {"nodeSelector": {"pool": "a b"}}}}, "/mixed/nvidia.com~1gpu/nodeSelector/pool"),
        (
            {"mixed": {"nvidia.com/gpu": {"prefer": "dra", "namespaces": {"ml": {"nodeSelector": {"a b": ""}}}}}},
            "/mixed/nvidia.com~1gpu/namespaces/ml/nodeSelector/a b",
        ),
        ({"nodeTemplates": [{"name": "x", "allocatable": {"nvidia com/gpu": 1}}]}, "/nodeTemplates/0/allocatable/nvidia com~1gpu"),
    ],
)  # fmt: skip
def test_a_name_that_no_object_can_have_is_turned_back(fields, path):
    assert list(mistakes(**fields)) == [path]


def test_keys_may_be_renamed_to_names_that_objects_can_have():
    renames = {"hami": {"nvidia.com/gpumem": "our.org/mem", "nvidia.com/gpucores": ""}}
    patterned = {"nvidia": {"nvidia.com/mig-<profile>": "our.org/mig-<profile>"}}
    assert configured(keys={**renames, **patterned}, joint=[{**PAIR, "attribute": "our.org/root"}, PAIR])
    assert configured(bridge={"schedulerName": "x", "drivers": ["gpu.nvidia.com"]}, kueue={"deviceClasses": ["gpu.x"]})
    assert configured(evidence={"drivers": ["gpu.nvidia.com"], "nodeSelector": {"our.org/pool": ""}})


def table(*keys: dict, name: str = "ours", **more) -> dict:
    return {"name": name, "title": "Ours", "keys": [{"meaning": "m", **key} for key in keys], **more}


@pytest.mark.parametrize(
    ("fields", "path", "says"),
    [
        (
            {"dialects": [table({"name": "our/mem", "place": "annotation", "role": "memory", "unit": "MiB"})]},
            "keys/0/role",
            "container",
        ),
        ({"dialects": [table({"name": "OUR_MEM", "place": "env", "role": "placed"})]}, "keys/0/role", "env"),
        ({"dialects": [table({"name": "cpu", "role": "count"})]}, "keys/0/name", "Kubernetes"),
        ({"dialects": [table({"name": "kubernetes.io/x", "role": "count"})]}, "keys/0/name", "Kubernetes"),
        ({"dialects": [table({"name": "our/x", "role": "profile"})]}, "keys/0/role", "profile"),
        ({"dialects": [table({"name": "nvidia.com/gpumem", "role": "memory", "unit": "MiB"})]}, "keys/0/name", "hami"),
        (
            {"dialects": [table({"name": "our/x"}), table({"name": "our/x"}, name="b")]},
            "dialects/1/keys/0/name",
            "ours",
        ),
        ({"dialects": [table({"name": "rdma/hca", "role": "nic"}, target="nic")]}, "keys/0/role", "RDMA"),
        ({"dialects": [table({"name": "our/x", "least": 3, "most": 2})]}, "keys/0/most", "below"),
        ({"classes": {"gpu": "dranet"}}, "/classes/gpu", "'nic'"),
        (
            {
                "targets": [{"name": "mi300", "driver": "gpu.amd.com", "classes": ["gpu.amd.com"]}],
                "classes": {"gpu": "gpu.amd.com"},
            },
            "/classes/gpu",
            "'mi300'",
        ),
        ({"targets": [{"name": "gpu", "driver": "gpu.amd.com"}]}, "/targets/0/name", "exists"),
        ({"targets": [{"name": "mi300", "driver": ""}]}, "/targets/0/driver", "no driver"),
        ({"targets": [{"name": "mi300", "driver": "d", "instead": "x"}]}, "/targets/0/instead", "unknown target"),
        ({"targets": [{"name": "mi300"}]}, "/targets/0", "driver"),
        ({"targets": [{"name": "mi300", "driver": "d", "request": "GPU_"}]}, "/targets/0/request", "request"),
        ({"targets": [{"name": "mi300", "driver": "d", "unique": "uuid"}]}, "/targets/0/unique", "full name"),
        (
            {"targets": [{"name": "mi300", "driver": "dra.cpu", "cores": "dra.cpu/cpu"}]},
            "/targets/0/cores",
            "the driver's domain",
        ),
        ({"hami": {"defaultCores": 101}}, "/hami/defaultCores", "percentage"),
    ],
)
def test_an_ineffective_table_is_rejected(fields, path, says):
    ((where, message),) = mistakes(**fields).items()
    assert where.endswith(path)
    assert says in message


def test_a_row_may_reuse_a_renamed_or_disabled_key():
    ours = [table({"name": "nvidia.com/gpumem", "role": "memory", "unit": "MiB"}, target="vgpu")]
    assert configured(dialects=ours, keys={"hami": {"nvidia.com/gpumem": ""}})
    assert configured(dialects=ours, disabled=["hami"])


AMD = {
    "name": "mi300",
    "title": "AMD GPU",
    "driver": "gpu.amd.com",
    "classes": ["gpu.amd.com"],
    "unique": "gpu.amd.com/uuid",
}


def test_a_declared_device_kind_is_added_to_ours():
    ours = table({"name": "amd.example.com/gpu", "role": "count"}, target="mi300")
    done = became(pod({"amd.example.com/gpu": 2}, {"nvidia.com/gpu": 1}), targets=[AMD], dialects=[ours], **WHOLE)
    requests = [spec["spec"]["devices"]["requests"][0]["exactly"] for spec in done.templates.values()]
    assert {(request["deviceClassName"], request["count"]) for request in requests} == {
        ("gpu.amd.com", 2),
        ("gpu.nvidia.com", 1),
    }


def test_two_kinds_of_one_name_get_distinct_request_names():
    ours = table({"name": "amd.example.com/gpu", "role": "count"}, target="mi300")
    joint = [{"primary": "nvidia.com/gpu", "secondary": "amd.example.com/gpu", "attribute": PCIE_ROOT}]
    target = {**AMD, "attributes": [PCIE_ROOT]}
    value = pod({"nvidia.com/gpu": 2, "amd.example.com/gpu": 2})
    done = became(value, targets=[target], dialects=[ours], joint=joint, **WHOLE)
    assert [one["name"] for one in devices(done)["requests"]] == ["gpu-0", "gpu-beside-0", "gpu-1", "gpu-beside-1"]


def test_a_key_needing_an_undeclared_target_field_is_left():
    target = {"name": "mi300", "driver": "gpu.amd.com", "classes": ["gpu.amd.com"]}
    rows = [{"name": "our/gpu", "role": "count"}, {"name": "our/mem", "role": "memory", "unit": "bytes"}]
    percent = {"name": "our/percent", "role": "memoryPercent"}
    config = {"targets": [target], "dialects": [table(*rows, percent, target="mi300")], **SIZES, "unresolved": "leave"}
    several, relative = became(pod({"our/gpu": 2, "our/mem": 5}), **config), became(pod({"our/percent": 50}), **config)
    assert untouched(several)
    assert "unique" in several.warnings[0]
    assert untouched(relative)
    assert "product" in relative.warnings[0]
    assert became(pod({"our/gpu": 1, "our/mem": 5}), **config).changed


def test_a_class_of_another_driver_does_not_serve_a_target():
    classes = [
        {"metadata": {"name": "odd"}, "spec": {"selectors": [{"cel": {"expression": "device.driver == 'dra.net'"}}]}}
    ]
    example = read_objects(manifests.read([EXAMPLES / "fleet"]))
    odd = [wire.convert(device_class, DeviceClass) for device_class in classes]
    fleet = Inventory.gather(odd, example.of_type(ResourceSlice), example.of_type(Node))
    done = became(pod({"nvidia.com/gpu": 1}), fleet=fleet, classes={"gpu": "odd"}, **WHOLE)
    assert untouched(done)
    assert "dra.net" in done.warnings[0]
    assert "targets" in done.warnings[0]


def test_network_devices_with_rdma_are_asked_for_by_their_role():
    ours = table({"name": "rdma/hca", "role": "rdma"}, target="nic")
    (request,) = exactly(became(pod({"rdma/hca": 1}), dialects=[ours], fleet=example_fleet()))
    assert request["cel"] == ['device.attributes["dra.net"].?rdma.orValue(false)']


def test_a_label_of_a_table_of_ones_own_can_keep_us_away():
    rows = [
        {"name": "our/gpu", "role": "count"},
        {"name": "our/done", "place": "label", "role": "placed", "because": "x"},
    ]
    value = pod({"our/gpu": 1})
    assert became(value, dialects=[table(*rows)]).changed
    value["metadata"]["labels"] = {"our/done": "yes"}
    assert untouched(became(value, dialects=[table(*rows)]))


def test_keys_can_have_this_clusters_names():
    renamed = {"keys": {"hami": {"nvidia.com/gpumem": "our.org/vmem"}}}
    assert exactly(became(pod({"our.org/vmem": 100}), **renamed))[0]["class"] == HAMI
    assert untouched(became(pod({"nvidia.com/gpumem": 100}), **renamed))


def test_a_key_or_a_dialect_can_be_switched_off():
    value = pod({"nvidia.com/gpumem": 100})
    assert untouched(became(value, keys={"hami": {"nvidia.com/gpumem": ""}}))
    assert untouched(became(value, disabled=["hami"]))


def test_an_administrators_table_is_a_dialect_like_ours():
    table = {
        "name": "ours",
        "title": "Ours",
        "target": "vgpu",
        "keys": [
            {"name": "our.org/slices", "meaning": "GPUs", "role": "count"},
            {"name": "our.org/gib", "meaning": "memory of each", "unit": "GiB", "role": "memory", "most": 80},
            {"name": "our.org/percent", "meaning": "compute of each", "unit": "percent", "role": "cores", "most": 100},
            {"name": "our.org/old", "meaning": "unknown", "outcome": "left", "because": "unclear"},
        ],
    }
    value = pod({"our.org/slices": 2, "our.org/gib": 4, "our.org/percent": 20})
    done = became(value, dialects=[table])
    assert exactly(done) == [{"class": HAMI, "count": 1, "capacity": {"memory": "4Gi", "cores": "20"}}] * 2
    assert untouched(became(pod({"our.org/slices": 1, "our.org/old": 1}), dialects=[table]))
    assert became(pod({"our.org/gib": 81}), dialects=[table]).refusals


def test_virtual_functions_are_asked_for_by_their_pool():
    table = {
        "name": "pools",
        "title": "pools",
        "target": "vf",
        "keys": [{"name": "openshift.io/mlxnics", "meaning": "virtual functions", "role": "nic"}],
    }
    (request,) = exactly(became(pod({"openshift.io/mlxnics": 2}), dialects=[table]))
    assert request == {
        "class": "sriovnetwork.k8snetworkplumbingwg.io",
        "count": 2,
        "cel": ['device.attributes["k8s.cni.cncf.io"].?resourceName.orValue("") == "openshift.io/mlxnics"'],
    }


def test_a_table_of_pod_scope_adds_up_and_is_seen_by_the_containers_that_ask():
    table = {
        "name": "sums",
        "title": "sums",
        "scope": "pod",
        "target": "vgpu",
        "keys": [{"name": "our.org/gib", "meaning": "memory of one GPU", "unit": "GiB", "role": "memory"}],
    }
    value = pod({"our.org/gib": 3}, {"our.org/gib": 3}, {}, init=(container("i", {"our.org/gib": 5}),))
    done = became(value, dialects=[table])
    assert exactly(done) == [{"class": HAMI, "count": 1, "capacity": {"memory": "6Gi"}}]
    after = patched(value, done)["spec"]
    every = [*after["initContainers"], *after["containers"]]
    assert [bool(one["resources"].get("claims")) for one in every] == [True, True, True, False]


def test_of_many_names_that_there_are_some_are_told_in_order():
    _, [finding] = read({**HEAD, "keys": {"nvidia": {"gpuu": "x"}}})
    told = finding.remedy.removeprefix("one of ").split(", ")
    assert told == sorted(told)
    assert told[-1].endswith(" more")
