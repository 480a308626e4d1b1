"""A configuration is read strictly, and all its mistakes are reported at once."""

import pytest

from cluster import manifests
from tests.loops import every
from tests.webhook.pods import EXAMPLES, configured
from tests.webhook.state.configurations import HEAD, PAIR, mistakes
from webhook.state.configuration import Configuration, read_configuration

BY_CLASS = "gpu.nvidia.com.deviceclass.resource.k8s.io/devices"


def test_an_unknown_feature_gate_is_a_warning():
    kubernetes = {"version": "1.36", "featureGates": {"DRADeviceTaint": True, "DRAPartitionableDevices": False}}
    configuration, findings = read_configuration({**HEAD, "mode": "warn", "kubernetes": kubernetes})
    assert configuration.file.mode == "warn"
    assert dict(configuration.file.kubernetes.declared().gates) == {"DRAPartitionableDevices": False}
    [finding] = findings
    assert (finding.code, finding.severity, finding.path) == ("C002", "warning", "/kubernetes/featureGates/DRADeviceTaint")  # fmt: skip
    assert finding.remedy == "did you mean DRADeviceTaints?"
    assert mistakes(kubernetes={"featureGates": {"DRADeviceTaints": "yes"}}).keys() == {"/kubernetes/featureGates/DRADeviceTaints"}  # fmt: skip


def test_the_example_configuration_is_valid():
    (document,) = manifests.read([EXAMPLES / "configuration.yaml"])
    configuration, findings = read_configuration(document.object)
    assert findings == []
    assert configuration is not None


def test_an_empty_configuration_is_the_default():
    assert configured().file == Configuration().file


def fenced_driver(fence=True, **extended_resources):
    """Return the fields of a configuration whose bridge fences a driver, with these `extendedResources`."""
    return {
        "bridge": {"schedulerName": "drawbridge", "drivers": ["x.com"], "fence": fence},
        "extendedResources": extended_resources,
    }


@pytest.mark.parametrize(
    "value",
    [
        fenced_driver(),
        fenced_driver(drivers={"x.com": "translate", "other.com": "leave"}, default="leave"),
        fenced_driver(namespaces={"ml": "translate"}),
        fenced_driver(fence=False, default="leave", namespaces={"ml": "leave"}),
    ],
)
def test_settings_leaving_no_pod_of_a_fenced_driver_are_valid(value):
    assert configured(**value).file.bridge is not None


def bridge_with_placement(**fields):
    """Return the fields of a configuration whose bridge has this placement."""
    return {"bridge": {"schedulerName": "drawbridge", "placement": fields}}


@pytest.mark.parametrize("value", [None, [], "text", 3, {}])
def test_a_value_other_than_a_configuration_is_rejected(value):
    configuration, findings = read_configuration(value)
    assert configuration is None
    assert findings


def test_all_mistakes_are_reported_at_once():
    reported = mistakes(
        mode="enforcing",
        canary=101,
        aproximations="warn",
        meanings={"nvidia.com/gpu": 3},
        models=[{"product": "x"}, {"product": "x", "memory": "1Gi", "size": 1}],
        koordinator={"webhook": "yes"},
    )
    assert set(reported) == {
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
    reported = mistakes(dialects=[table], joint=joint, meanings={"x": "ours"}, disabled=["ours"], canary=101)
    assert set(reported) == {"/dialects/0/title", "/canary"}


def test_a_null_field_counts_as_absent():
    configuration, findings = read_configuration({**HEAD, "mode": None, "models": None, "hami": {"memoryFactor": None}})
    assert findings == []
    assert configuration.file == Configuration().file


def test_a_misspelt_field_gets_a_suggestion():
    _, findings = read_configuration({**HEAD, "aproximations": "warn"})
    assert "approximations" in findings[0].remedy


@pytest.mark.parametrize(
    ("fields", "suggestion"),
    [
        ({"mode": "enforced"}, "enforce"),
        ({"mode": "Warn"}, "warn"),
        ({"meanings": {"nvidia.com/gpu": "hole"}}, "whole"),
        ({"meanings": {"nvidia.com/gpu": "HAMi"}}, "hami"),
    ],
)
def test_a_misspelt_word_gets_one_suggestion(fields, suggestion):
    _, findings = read_configuration({**HEAD, **fields})
    (finding,) = findings
    assert finding.remedy.startswith(f"did you mean {suggestion}? ")
    words = finding.remedy.partition("? ")[2].removeprefix("one of ").split(", ")
    assert len(words) == len(set(words)) > 2


@every(
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
        (fenced_driver(default="leave"), "/extendedResources/default"),
        (fenced_driver(drivers={"x.com": "leave"}), "/extendedResources/drivers/x.com"),
        (fenced_driver(namespaces={"ml": "leave"}), "/extendedResources/namespaces/ml"),
        (bridge_with_placement(strategy="best"), "/bridge/placement/strategy"),
        (bridge_with_placement(strategy=""), "/bridge/placement/strategy"),
        (bridge_with_placement(strategy="topology=0,CompactFirst=1"), "/bridge/placement/strategy"),
        (bridge_with_placement(namespaces={"ml": "topology,topology"}), "/bridge/placement/namespaces/ml"),
        (bridge_with_placement(namespaces={"ml-*": "topology"}), "/bridge/placement/namespaces/ml-*"),
        (bridge_with_placement(mostPodsPerNode=-1), "/bridge/placement/mostPodsPerNode"),
        (bridge_with_placement(mostPodsPerNode="4"), "/bridge/placement/mostPodsPerNode"),
        (bridge_with_placement(weights={}), "/bridge/placement/weights"),
        ({"models": [{"product": "x", "memory": "much"}]}, "/models/0/memory"),
        ({"quotas": {"nvidia.com/gpu": ""}}, "/quotas/nvidia.com~1gpu"),
        ({"quotas": {"requests.nvidia.com/gpu": BY_CLASS}}, "/quotas/requests.nvidia.com~1gpu"),
        ({"meanings": {"nvidia.com/gpuu": "whole"}}, "/meanings/nvidia.com~1gpuu"),
        ({"dialects": [{"name": "hami", "title": "t", "keys": []}]}, "/dialects/0/name"),
        ({"dialects": [{"name": "x", "title": "t", "keys": [], "rule": "hami"}]}, "/dialects/0/rule"),
        ({"dialects": [{"name": "x", "title": "t", "keys": [], "target": "y"}]}, "/dialects/0/target"),
        ({"dialects": [{"name": "x", "title": "t", "keys": [{"name": "a/b", "meaning": "m", "unit": "stones"}]}]}, "/dialects/0/keys/0/unit"),
        ({"dialects": [{"name": "x", "title": "t", "keys": [{"name": "a/b", "meaning": "m", "target": "y"}]}]}, "/dialects/0/keys/0/target"),
        ({"joint": [{"primary": "nvidia.com/gpu", "secondary": "unknown/key"}]}, "/joint/0/secondary"),
        ({"evictMissedPods": -1}, "/evictMissedPods"),
        ({"targets": [{"name": "t", "driver": "d.org", "selectors": ["true"] * 9}]}, "/targets/0/selectors"),
        ({"evidence": {"namespaces": ["Kube_System"]}}, "/evidence/namespaces/0"),
        ({"evidence": {"namespaces": ["../../nodes"]}}, "/evidence/namespaces/0"),
        ({"evidence": {"namespaces": [f"n-{n}" for n in range(17)]}}, "/evidence/namespaces"),
        ({"hami": {"memoryFactor": 0}}, "/hami/memoryFactor"),
        ({"amazon": {"coresPerDevice": 65}}, "/amazon/coresPerDevice"),
        ({"llmd": {"pairsPerNode": 0}}, "/llmd/pairsPerNode"),
        ({"llmd": {"pairsPerNode": 65}}, "/llmd/pairsPerNode"),
        ({"llmd": {"pairsPerNumaNode": 9}}, "/llmd/pairsPerNumaNode"),
        ({"parameters": {"nics": {}}}, "/parameters/nics"),
        ({"parameters": {"nic": [1]}}, "/parameters/nic"),
        ({"parameters": {"nic": {"x": "y" * 10240}}}, "/parameters/nic"),
        ({"ascend": {"products": {"Ascend910": ""}}}, "/ascend/products/Ascend910"),
        ({"ascend": {"products": {"a/b": ""}}}, "/ascend/products/a~1b"),
        ({"ascend": {"templates": {"m": [{"memory": 0, "cores": 1}]}}}, "/ascend/templates/m/0/memory"),
        ({"ascend": {"templates": {"m": [{"memory": 1, "cores": 101}]}}}, "/ascend/templates/m/0/cores"),
        ({"tensorfusion": {"tflops": {"": 100}}}, "/tensorfusion/tflops/"),
        *(
            ({"tensorfusion": {"tflops": {"H100": value}}}, "/tensorfusion/tflops/H100")
            for value in ("121.5", "fast", True, {}, [1], 0, -1, 10**400, float("inf"), float("nan"))
        ),
    ],
)  # fmt: skip
def test_an_invalid_field_is_reported_at_its_path(fields, path):
    assert list(mistakes(**fields)) == [path]


@every(
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
    _, (finding,) = read_configuration({**HEAD, "quotas": {"nvidia.com/gpu": quota}})
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


@every(
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
        ({"mixed": {"nvidia.com/gpu": {"prefer": "dra", "namespaces": {"ml": {"nodeSelector": {"a b": ""}}}}}}, "/mixed/nvidia.com~1gpu/namespaces/ml/nodeSelector/a b"),
        ({"nodeTemplates": [{"name": "x", "allocatable": {"nvidia com/gpu": 1}}]}, "/nodeTemplates/0/allocatable/nvidia com~1gpu"),
    ],
)  # fmt: skip
def test_an_invalid_kubernetes_name_is_rejected(fields, path):
    assert list(mistakes(**fields)) == [path]


def test_a_remedy_lists_some_of_many_names_in_order():
    _, [finding] = read_configuration({**HEAD, "keys": {"nvidia": {"gpuu": "x"}}})
    names = finding.remedy.removeprefix("one of ").split(", ")
    assert names == sorted(names)
    assert names[-1].endswith(" more")
