"""What `drawbridge doctor` reports about fences. A fence is a taint that keeps other schedulers from the devices of the bridge.

The bridge is the part of drawbridge that schedules pods with devices.
"""

from datetime import UTC, datetime

import pytest

from analysis.configuration import ConfigurationInForce
from analysis.doctor import diagnose, survey, write_repair
from tests.allocator.service.sidecar import DRIVER, claim, device_class, loaded, node, pod
from tests.cli.commands.faults import (
    CONFIGURATION,
    FLEET,
    allocated_claim,
    bound_pod,
    findings_in,
    tolerating_claim,
    waiting_pod,
)
from tests.cli.running import manifest, run_json
from webhook.claims import taint_rule
from webhook.state import read_configuration

CONFIGURATION_WITH_FENCE = ConfigurationInForce(read_configuration(CONFIGURATION)[0], "a file")
# The fleet without its class.
NODE_AND_SLICE = FLEET[1:]


def test_a_missing_fence_is_reported_until_it_exists(tmp_path):
    config = manifest(tmp_path / "configuration.yaml", CONFIGURATION)
    dump = manifest(tmp_path / "dump.yaml", *FLEET, pod("p"))
    code, answer = run_json("doctor", "-f", dump, "--config", config)
    assert (code, [finding["code"] for finding in answer["findings"]]) == (1, ["O206"])
    fenced = manifest(tmp_path / "fenced.yaml", *FLEET, pod("p"), taint_rule(DRIVER))
    code, answer = run_json("doctor", "-f", fenced, "--config", config)
    assert (code, answer["findings"]) == (0, [])
    assert answer["configuration"] == {"source": str(config), "mode": "enforce"}


def reported_schedulers(tmp_path, *objects, bridge=None):
    """The pairs of schedulers that doctor reports for a driver, if the bridge has this configuration."""
    config = manifest(tmp_path / "configuration.yaml", CONFIGURATION | {"bridge": bridge}) if bridge else ""
    findings = findings_in(tmp_path, *objects, options=("--config", config) if bridge else ())
    return [finding["message"].partition(" may ")[0] for finding in findings if finding["code"] == "O205"]


def test_two_schedulers_of_a_driver_are_reported_without_a_fence(tmp_path):
    """Each scheduler has a pod with a device, or the second scheduler has a pod that waits for a device."""
    bridge_pod, default_pod = pod("p", "a", nodeName="n0"), pod("q", "b", nodeName="n0", schedulerName="default-scheduler")  # fmt: skip
    of_bridge, of_default = [allocated_claim("a", "p"), bridge_pod], [allocated_claim("b", "q", device="gpu-1"), default_pod]  # fmt: skip
    ended = [of_default[0], {**default_pod, "status": {"phase": "Succeeded"}}]
    for objects, is_reported in (
        ([*of_bridge, *of_default], True),
        ([*of_bridge, claim("b"), default_pod], True),
        ([*of_bridge, *of_default, taint_rule(DRIVER)], False),
        ([*of_bridge, *of_default, taint_rule("other.example.com")], True),
        (of_bridge, False),
        (of_default, False),
        ([*of_bridge, *ended], False),
    ):
        assert reported_schedulers(tmp_path, *objects) == ["drawbridge and default-scheduler"] * is_reported


def test_a_driver_of_the_bridge_without_a_fence_is_reported(tmp_path):
    bridge = {"schedulerName": "packer", "drivers": [DRIVER]}
    assert reported_schedulers(tmp_path, pod("p"), bridge=bridge) == ["packer and any other scheduler"]
    assert reported_schedulers(tmp_path, pod("p"), bridge=bridge | {"fence": True}) == []
    assert reported_schedulers(tmp_path, pod("p"), taint_rule(DRIVER), bridge=bridge) == []
    pod_with_claim = [allocated_claim("a", "p"), pod("p", "a", schedulerName="packer")]
    assert reported_schedulers(tmp_path, *pod_with_claim, bridge=bridge) == ["packer and any other scheduler"]


def test_a_pod_on_a_node_lacks_devices_for_another_reason_than_the_fence(tmp_path):
    findings = findings_in(tmp_path, taint_rule(DRIVER), claim("a"), bound_pod("p", "a"))
    assert [finding["code"] for finding in findings] == ["O114"]


def unschedulable_pod(**fields):
    """An unschedulable pod that requests the extended resource example.com/gpu."""
    resources = {"limits": {"example.com/gpu": "1"}}
    spec = {"schedulerName": "default-scheduler", "containers": [{"name": "c", "resources": resources}]}
    return waiting_pod(**spec | fields)


# Objects, and whether a fenced request for an extended resource is reported.
FENCED_REQUESTS = {
    "the fence blocks the pod": ([taint_rule(DRIVER), unschedulable_pod()], True),
    "the fence blocks a pod without a scheduler name": ([taint_rule(DRIVER), unschedulable_pod(schedulerName="")], True),
    "the fence of another driver": ([taint_rule("other.example.com"), unschedulable_pod()], False),
    "no scheduler has tried the pod": ([taint_rule(DRIVER), unschedulable_pod() | {"status": {}}], False),
    "the pod has a node": ([taint_rule(DRIVER), unschedulable_pod(nodeName="n0")], False),
    "a pod of the bridge": ([taint_rule(DRIVER), unschedulable_pod(schedulerName="drawbridge")], False),
}  # fmt: skip


@pytest.mark.parametrize(("objects", "is_reported"), FENCED_REQUESTS.values(), ids=FENCED_REQUESTS)
def test_only_a_fenced_request_for_an_extended_resource_is_reported(objects, is_reported, tmp_path):
    served_class = device_class(extendedResourceName="example.com/gpu")
    dump = manifest(tmp_path / "dump.yaml", *NODE_AND_SLICE, served_class, *objects)
    _, answer = run_json("doctor", "-f", dump)
    bound = [finding["object"] for finding in answer["findings"] if finding["code"] == "O230"]
    assert bound == ["Pod/default/p"] * (objects[-1]["spec"].get("nodeName") == "n0")
    others = [finding for finding in answer["findings"] if finding["code"] != "O230"]
    assert [finding["code"] for finding in others] == ["O110"] * is_reported
    assert all("default-scheduler for example.com/gpu" in finding["message"] for finding in others)


CLASS_WITH_DEVICES = device_class(extendedResourceName="example.com/gpu")
CLASS_WITHOUT_DEVICES = device_class(
    "hollow", selectors=[{"cel": {"expression": "false"}}], extendedResourceName="example.com/gpu"
)
# Of several classes with the same extended resource name, the newest class serves it.
CLASS_WITHOUT_DEVICES["metadata"]["creationTimestamp"] = "2026-06-01T00:00:00Z"
REPAIR_TAINT = taint_rule(DRIVER)
REPAIR_TAINT["spec"]["taint"] = {"key": "example.com/repairs", "effect": "NoSchedule"}
RULE_WITHOUT_SELECTOR = {**REPAIR_TAINT, "metadata": {"name": "a"}, "spec": {"taint": REPAIR_TAINT["spec"]["taint"]}}


def pod_waiting_for(name="example.com/gpu", **fields):
    """An unschedulable pod that requests a device by this resource name."""
    return unschedulable_pod(containers=[{"name": "c", "resources": {"limits": {name: "1"}}}], **fields)


# Objects, and the code and the object of the finding about a request for an extended resource.
EXTENDED_RESOURCES = {
    "all devices are tainted, by one of two rules": ([RULE_WITHOUT_SELECTOR, REPAIR_TAINT, pod_waiting_for()], "O111", f"DeviceTaintRule/{REPAIR_TAINT['metadata']['name']}"),
    "a newer class without devices has the name": ([CLASS_WITHOUT_DEVICES, pod_waiting_for()], "O108", "DeviceClass/hollow"),
    "the class does not exist": ([pod_waiting_for("deviceclass.resource.kubernetes.io/none")], "O107", "DeviceClass/none"),
    "devices are free": ([pod_waiting_for()], "", ""),
    "the pod has a node": ([REPAIR_TAINT, pod_waiting_for(nodeName="n0")], "O230", "Pod/default/p"),
    "a device plugin serves the name": ([CLASS_WITHOUT_DEVICES, pod_waiting_for(), node("n5", allocatable={"example.com/gpu": "1"})], "", ""),
}  # fmt: skip


@pytest.mark.parametrize(("objects", "code", "object_name"), EXTENDED_RESOURCES.values(), ids=EXTENDED_RESOURCES)
def test_an_extended_resource_request_is_checked_like_its_implicit_claim(objects, code, object_name, tmp_path):
    dump = manifest(tmp_path / "dump.yaml", *NODE_AND_SLICE, CLASS_WITH_DEVICES, *objects)
    findings = run_json("doctor", "-f", dump)[1]["findings"]
    assert [(finding["code"], finding["object"]) for finding in findings] == [(code, object_name)] * bool(code)
    assert all("Pod/default/p" in f"{finding['object']} {finding['message']}" for finding in findings)


@pytest.mark.parametrize(
    ("name", "remedy_part"),
    [
        ("nvidia.com/gpu", "recreate the pod where the webhook translates it"),
        ("example.com/gpu", "the webhook translates no example.com/gpu into a claim"),
        ("deviceclass.resource.kubernetes.io/class", "the webhook translates no deviceclass"),
    ],
)
def test_the_remedy_recreates_only_pods_that_the_webhook_would_translate(name, remedy_part, tmp_path):
    # The last name is implied by the name of the class.
    served_class = device_class("class", extendedResourceName=name if name.count(".") == 1 else "example.com/other")
    resources = {"limits": {name: "1"}}
    blocked_pod = unschedulable_pod(containers=[{"name": "c", "resources": resources}])
    dump = manifest(tmp_path / "dump.yaml", *NODE_AND_SLICE, served_class, taint_rule(DRIVER), blocked_pod)
    _, answer = run_json("doctor", "-f", dump)
    [remedy] = [finding["remedy"] for finding in answer["findings"] if finding["code"] == "O110"]
    assert remedy_part in remedy
    assert "schedulerName" in remedy


def test_a_claim_that_tolerates_another_taint_waits_behind_the_fence(tmp_path):
    [finding] = findings_in(tmp_path, taint_rule(DRIVER), tolerating_claim("a", "other"), waiting_pod("a"))
    assert "drawbridge for devices of gpu.example.com" in finding["message"]


async def test_repair_creates_a_missing_fence_once():
    cluster = loaded(*FLEET, pod("p"))
    doctor_input = await survey(cluster, datetime.now(UTC), CONFIGURATION_WITH_FENCE)
    [(_, repair)] = diagnose(doctor_input).items()
    assert await write_repair(cluster, repair) == ""
    assert diagnose(await survey(cluster, datetime.now(UTC), CONFIGURATION_WITH_FENCE)) == {}
    assert await write_repair(cluster, repair) == "it exists now: run doctor again"


@pytest.mark.parametrize(("part", "value"), [("deviceSelector", {"pool": "n0"}), ("taint", {"effect": "None"})])
async def test_a_rule_for_one_pool_or_without_an_effect_is_no_fence(part, value):
    rule = taint_rule(DRIVER)
    rule["spec"][part] |= value
    cluster = loaded(*FLEET, pod("p"), rule)
    [(finding, repair)] = diagnose(await survey(cluster, datetime.now(UTC), CONFIGURATION_WITH_FENCE)).items()
    assert (finding.code, repair) == ("O206", None)
