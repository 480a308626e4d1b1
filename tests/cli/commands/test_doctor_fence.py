"""What `drawbridge doctor` reports about fences (taints that keep other schedulers from the devices of the bridge's drivers), and about pods that a fence blocks."""

from datetime import UTC, datetime

import pytest

from analysis.configuration import ConfigurationInForce
from analysis.doctor import diagnose, survey, write_repair
from tests.allocator.service.sidecar import DRIVER, claim, device_class, loaded, node, pod
from tests.cli.commands.faults import CONFIGURATION, FLEET, allocated_claim, waiting_pod
from tests.cli.running import manifest, run_json
from webhook.claims import taint_rule
from webhook.state import read_configuration

FENCING = ConfigurationInForce(read_configuration(CONFIGURATION)[0], "a file")
DEFAULTS = {"source": "defaults", "mode": "enforce"}


def claim_with_alternatives(name):
    """A claim for a device of the fenced class `gpu` or of the class `free`."""
    obj = claim(name)
    ways = [{"name": way, "deviceClassName": class_name} for way, class_name in (("x", "gpu"), ("y", "free"))]
    obj["spec"]["devices"]["requests"] = [{"name": "r", "firstAvailable": ways}]
    return obj


def tolerating(name, key="drawbridge.dev/fence"):
    """A claim that tolerates a taint with this key."""
    obj = claim(name)
    [request] = obj["spec"]["devices"]["requests"]
    request["exactly"]["tolerations"] = [{"key": key, "operator": "Exists", "effect": "NoSchedule"}]
    return obj


def test_a_missing_fence_is_reported_until_it_exists(tmp_path):
    config = manifest(tmp_path / "configuration.yaml", CONFIGURATION)
    dump = manifest(tmp_path / "dump.yaml", *FLEET, pod("p"))
    code, answer = run_json("doctor", "-f", dump, "--config", config)
    assert (code, [finding["code"] for finding in answer["findings"]]) == (1, ["O206"])
    fenced = manifest(tmp_path / "fenced.yaml", *FLEET, pod("p"), taint_rule(DRIVER))
    code, answer = run_json("doctor", "-f", fenced, "--config", config)
    assert (code, answer["findings"]) == (0, [])
    assert answer["configuration"] == {"source": str(config), "mode": "enforce"}


def schedulers_reported(tmp_path, *objects, bridge=None):
    """The pairs of schedulers that doctor reports for a driver, if the bridge has this configuration."""
    config = manifest(tmp_path / "configuration.yaml", CONFIGURATION | {"bridge": bridge}) if bridge else ""
    dump = manifest(tmp_path / "dump.yaml", *FLEET, *objects)
    options = ("--config", config) if bridge else ()
    _, answer = run_json("doctor", "-f", dump, *options)
    return [finding["message"].partition(" may ")[0] for finding in answer["findings"] if finding["code"] == "O205"]


def test_two_schedulers_of_a_driver_are_reported_without_a_fence(tmp_path):
    """Each scheduler has a pod with a device, or the second scheduler has a pod that waits for a device."""
    ours, theirs = pod("p", "a", nodeName="n0"), pod("q", "b", nodeName="n0", schedulerName="default-scheduler")
    both = [allocated_claim("a", "p"), allocated_claim("b", "q", device="gpu-1"), ours, theirs]
    pair = ["drawbridge and default-scheduler"]
    assert schedulers_reported(tmp_path, *both) == pair
    assert schedulers_reported(tmp_path, allocated_claim("a", "p"), claim("b"), ours, theirs) == pair
    assert schedulers_reported(tmp_path, *both, taint_rule(DRIVER)) == []
    assert schedulers_reported(tmp_path, *both, taint_rule("other.example.com")) == pair
    assert schedulers_reported(tmp_path, allocated_claim("a", "p"), ours) == []
    assert schedulers_reported(tmp_path, allocated_claim("b", "q"), theirs) == []
    over = {**theirs, "status": {"phase": "Succeeded"}}
    assert schedulers_reported(tmp_path, allocated_claim("a", "p"), allocated_claim("b", "q", device="gpu-1"), ours, over) == []


def test_a_managed_driver_without_a_fence_is_reported(tmp_path):
    bridge = {"schedulerName": "packer", "drivers": [DRIVER]}
    assert schedulers_reported(tmp_path, pod("p"), bridge=bridge) == ["packer and any other scheduler"]
    assert schedulers_reported(tmp_path, pod("p"), bridge=bridge | {"fence": True}) == []
    assert schedulers_reported(tmp_path, pod("p"), taint_rule(DRIVER), bridge=bridge) == []
    packed = [allocated_claim("a", "p"), pod("p", "a", schedulerName="packer")]
    assert schedulers_reported(tmp_path, *packed, bridge=bridge) == ["packer and any other scheduler"]


@pytest.mark.parametrize(
    "objects",
    [
        pytest.param([taint_rule(DRIVER), tolerating("a"), waiting_pod("a")], id="the claim tolerates the fence"),
        pytest.param([taint_rule("other.example.com"), claim("a"), waiting_pod("a")], id="the fence of another driver"),
        pytest.param([claim("a"), waiting_pod("a")], id="no fence exists"),
        pytest.param([taint_rule(DRIVER), claim("a"), pod("p", "a")], id="no scheduler has tried the pod"),
        pytest.param([taint_rule(DRIVER), allocated_claim("a", "p"), waiting_pod("a")], id="the pod has its devices"),
        pytest.param([taint_rule(DRIVER), claim("a"), waiting_pod("a", nodeName="n0")], id="the pod has a node"),
        pytest.param(
            [
                taint_rule(DRIVER),
                device_class("free", selectors=[{"cel": {"expression": "false"}}]),
                claim_with_alternatives("a"),
                waiting_pod("a"),
            ],
            id="the claim has an alternative without a fence",
        ),
    ],
)
def test_a_pod_not_blocked_by_the_fence_has_no_finding(objects, tmp_path):
    code, answer = run_json("doctor", "-f", manifest(tmp_path / "dump.yaml", *FLEET, *objects))
    assert (code, answer["configuration"], answer["findings"], answer["unread"]) == (0, DEFAULTS, [], [])


def waiting_by_name(**more):
    """An unschedulable pod that requests the extended resource example.com/gpu."""
    resources = {"limits": {"example.com/gpu": "1"}}
    spec = {"schedulerName": "default-scheduler", "containers": [{"name": "c", "resources": resources}]}
    return waiting_pod(**spec | more)


@pytest.mark.parametrize(
    ("objects", "waits"),
    [
        pytest.param([taint_rule(DRIVER), waiting_by_name()], True, id="the fence blocks the pod"),
        pytest.param([taint_rule(DRIVER), waiting_by_name(schedulerName="")], True, id="the fence blocks a pod without a scheduler name"),
        pytest.param([taint_rule("other.example.com"), waiting_by_name()], False, id="the fence of another driver"),
        pytest.param([taint_rule(DRIVER), waiting_by_name() | {"status": {}}], False, id="no scheduler has tried the pod"),
        pytest.param([taint_rule(DRIVER), waiting_by_name(nodeName="n0")], False, id="the pod has a node"),
        pytest.param([taint_rule(DRIVER), waiting_by_name(schedulerName="drawbridge")], False, id="a pod of the bridge"),
    ],
)
def test_the_fence_blocks_pods_that_request_an_extended_resource(objects, waits, tmp_path):
    served = device_class(extendedResourceName="example.com/gpu")
    dump = manifest(tmp_path / "dump.yaml", *FLEET[1:], served, *objects)
    _, answer = run_json("doctor", "-f", dump)
    assert [finding["code"] for finding in answer["findings"]] == ["O110"] * waits
    assert all("default-scheduler for example.com/gpu" in finding["message"] for finding in answer["findings"])


SERVED = device_class(extendedResourceName="example.com/gpu")
HOLLOW = device_class("hollow", selectors=[{"cel": {"expression": "false"}}], extendedResourceName="example.com/gpu")
# Of several classes with the same extended resource name, the newest class serves it.
HOLLOW["metadata"]["creationTimestamp"] = "2026-06-01T00:00:00Z"
REPAIRS = taint_rule(DRIVER)
REPAIRS["spec"]["taint"] = {"key": "example.com/repairs", "effect": "NoSchedule"}


def waiting_by_class_name(name="example.com/gpu", **more):
    """An unschedulable pod that requests a device by this resource name."""
    return waiting_by_name(containers=[{"name": "c", "resources": {"limits": {name: "1"}}}], **more)


@pytest.mark.parametrize(
    ("objects", "finding_code", "about"),
    [
        pytest.param([REPAIRS, waiting_by_class_name()], "O111", "DeviceTaintRule", id="all devices are tainted"),
        pytest.param([HOLLOW, waiting_by_class_name()], "O108", "DeviceClass/hollow", id="a newer class without devices has the name"),
        pytest.param(
            [waiting_by_class_name("deviceclass.resource.kubernetes.io/none")],
            "O107",
            "DeviceClass/none",
            id="the class does not exist",
        ),
    ],
)
def test_an_extended_resource_request_is_checked_like_its_implicit_claim(objects, finding_code, about, tmp_path):
    _, answer = run_json("doctor", "-f", manifest(tmp_path / "dump.yaml", *FLEET[1:], SERVED, *objects))
    [finding] = answer["findings"]
    assert finding["code"] == finding_code
    assert finding["object"].startswith(about)
    assert "od/default/p" in finding["message"]


@pytest.mark.parametrize(
    "objects",
    [
        pytest.param([waiting_by_class_name()], id="devices are free"),
        pytest.param([REPAIRS, waiting_by_class_name(nodeName="n0")], id="the pod has a node"),
        pytest.param(
            [HOLLOW, waiting_by_class_name(), node("n5", allocatable={"example.com/gpu": "1"})],
            id="a device plugin serves the name",
        ),
    ],
)
def test_an_extended_resource_request_that_fits_has_no_finding(objects, tmp_path):
    dump = manifest(tmp_path / "dump.yaml", *FLEET[1:], SERVED, *objects)
    assert run_json("doctor", "-f", dump)[1]["findings"] == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nvidia.com/gpu", "recreate the pod where the webhook translates it"),
        ("example.com/gpu", "the webhook translates no example.com/gpu into a claim"),
        ("deviceclass.resource.kubernetes.io/class", "the webhook translates no deviceclass"),
    ],
)
def test_the_remedy_recreates_only_pods_that_the_webhook_would_translate(name, expected, tmp_path):
    served = device_class("class", extendedResourceName=name if name.count(".") == 1 else "example.com/other")
    resources = {"limits": {name: "1"}}
    item = waiting_by_name(containers=[{"name": "c", "resources": resources}])
    dump = manifest(tmp_path / "dump.yaml", *FLEET[1:], served, taint_rule(DRIVER), item)
    _, answer = run_json("doctor", "-f", dump)
    [remedy] = [finding["remedy"] for finding in answer["findings"] if finding["code"] == "O110"]
    assert expected in remedy
    assert "schedulerName" in remedy


def test_a_claim_that_tolerates_another_taint_waits_behind_the_fence(tmp_path):
    dump = manifest(tmp_path / "dump.yaml", *FLEET, taint_rule(DRIVER), tolerating("a", "other"), waiting_pod("a"))
    _, answer = run_json("doctor", "-f", dump)
    [finding] = answer["findings"]
    assert "drawbridge for devices of gpu.example.com" in finding["message"]


async def test_repair_creates_a_missing_fence_once():
    cluster = loaded(*FLEET, pod("p"))
    seen = await survey(cluster, datetime.now(UTC), FENCING)
    [(_, repair)] = diagnose(seen).items()
    assert await write_repair(cluster, repair) == ""
    assert diagnose(await survey(cluster, datetime.now(UTC), FENCING)) == {}
    assert await write_repair(cluster, repair) == "it exists now: run doctor again"


async def test_a_fence_for_one_pool_is_reported_and_not_repaired():
    rule = taint_rule(DRIVER)
    rule["spec"]["deviceSelector"]["pool"] = "n0"
    [(finding, repair)] = diagnose(await survey(loaded(*FLEET, pod("p"), rule), datetime.now(UTC), FENCING)).items()
    assert (finding.code, repair) == ("O206", None)


async def test_a_rule_whose_taint_has_no_effect_fences_nothing():
    rule = taint_rule(DRIVER)
    rule["spec"]["taint"]["effect"] = "None"
    [(finding, repair)] = diagnose(await survey(loaded(*FLEET, pod("p"), rule), datetime.now(UTC), FENCING)).items()
    assert (finding.code, repair) == ("O206", None)
