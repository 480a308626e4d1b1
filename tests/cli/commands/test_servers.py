"""`--kubernetes` and `--feature-gates` set the server version that the commands assume."""

import json

import msgspec
import pytest
import yaml

from cluster.embedded import Embedded
from cluster.kubernetes import Kubernetes
from dra.server import CURRENT, OLDEST, SUPPORTED
from tests.cli.running import run, run_json
from tests.loops import every
from tests.objects import device_class, obj, resource_slice

RESOURCE_API = "resource.k8s.io/v1"


def half_slice(name, **spec):
    """One of the two slices of a pool."""
    return resource_slice(name, driver="g", resourceSliceCount=2, nodeName="n0", **spec)


COUNTER_USE = [{"counterSet": "s", "counters": {"m": {"value": "1"}}}]
CLAIM_SPEC = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}
CLAIM_SPEC_WITH_CAPACITY = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu", "capacity": {"requests": {"m": "1"}}}}]}}  # fmt: skip
FLEET = [
    {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n0"}},
    {"apiVersion": RESOURCE_API, "kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": {}},
    half_slice("a", sharedCounters=[{"name": "s", "counters": {"m": {"value": "1"}}}]),
    half_slice("b", devices=[{"name": "part", "consumesCounters": COUNTER_USE}]),
]
CLAIM = obj("ResourceClaim", "c", RESOURCE_API, namespace="d", **CLAIM_SPEC)
POD = obj(
    "Pod",
    "p",
    namespace="d",
    containers=[{"name": "c", "image": "i"}],
    resourceClaims=[{"name": "c", "resourceClaimName": "c"}],
)
TAINT = {"key": "k", "effect": "NoSchedule"}
TAINT_RULE = obj("DeviceTaintRule", "r", RESOURCE_API, taint=TAINT)


def yaml_of(*objects):
    return yaml.safe_dump_all(objects)


def answer_of(*options, stdin):
    result = run(*options, "-f", "-", "-o", "json", stdin=stdin)
    return result.exit_code, json.loads(result.stdout)


@pytest.mark.parametrize(
    ("options", "expected_exit_code"),
    [
        ((), 0),
        (("--kubernetes", "1.36"), 0),
        (("--kubernetes", "1.35"), 1),
        (("--kubernetes", "1.37", "--feature-gates", "DRAPartitionableDevices=false"), 1),
    ],
)
def test_a_partition_is_allocated_only_with_its_feature_gate(options, expected_exit_code):
    exit_code, report = answer_of("simulate", "--claims", "--node", "n0", *options, stdin=yaml_of(*FLEET, CLAIM))
    assert exit_code == expected_exit_code
    stages = [reason["stage"] for reason in report["nodes"]["n0"]["reasons"]]
    assert stages == (["gate"] if expected_exit_code else [])


def test_a_pod_waits_in_a_simulation_of_an_older_server():
    _, newest = answer_of("simulate", stdin=yaml_of(*FLEET, CLAIM, POD))
    _, older = answer_of("simulate", "--kubernetes", "1.35", stdin=yaml_of(*FLEET, CLAIM, POD))
    assert [report["pods"][0]["node"] for report in (newest, older)] == ["n0", None]


def test_check_reports_fields_and_kinds_an_older_server_lacks():
    def codes_with(*options):
        _, report = answer_of(
            "check", *options, stdin=yaml_of(*FLEET, CLAIM | {"spec": CLAIM_SPEC_WITH_CAPACITY}, TAINT_RULE)
        )
        return {(finding["code"], finding["object"].partition("/")[0]) for finding in report["findings"]}

    dropped_field, missing_kind = ("D006", "ResourceClaim"), ("D004", "DeviceTaintRule")
    assert not codes_with() & {dropped_field, missing_kind}
    assert codes_with("--kubernetes", "1.36") & {dropped_field, missing_kind} == {missing_kind}
    assert codes_with("--kubernetes", "1.35") >= {dropped_field, missing_kind, ("D006", "ResourceSlice")}


def test_the_remedy_names_the_api_version_of_an_older_server():
    remedies = {}
    for minor in ("1.36", "1.35"):
        _, report = answer_of("check", "--kubernetes", minor, stdin=yaml_of(TAINT_RULE))
        remedies[minor] = [finding["remedy"] for finding in report["findings"] if finding["code"] == "D004"]
    assert remedies == {"1.36": ["write resource.k8s.io/v1beta2"], "1.35": ["write resource.k8s.io/v1alpha3"]}


def test_a_survey_of_files_follows_the_server_options():
    _, report = answer_of("survey", "--kubernetes", "1.36", "--feature-gates", "DRAConsumableCapacity=false", stdin=yaml_of(*FLEET, POD))  # fmt: skip
    assert report["features"]["DRAConsumableCapacity"] is False
    survey_of_cluster = run("survey", "--kubernetes", "1.36", "--kubeconfig", "/nowhere")
    assert survey_of_cluster.exit_code == 2
    assert "reports its own version" in survey_of_cluster.stderr


@every("command", ["check", "explain pod p", "simulate", "simulate --claims", "survey", "translate"])
@every(
    ("options", "message"),
    [
        (("--feature-gates", "DRAConsumableCapacty=true"), "did you mean DRAConsumableCapacity?"),
        (("--feature-gates", "DRAPrioritizedList=false"), "locked to true"),
        (("--kubernetes", f"1.{OLDEST - 1}"), f"choose one of {SUPPORTED}"),
        (("--kubernetes", "next"), "not a Kubernetes version"),
    ],
)
def test_invalid_server_versions_and_feature_gates_exit_with_2(command, options, message):
    result = run(*command.split(), *options, "-f", "-", stdin=yaml_of(*FLEET))
    assert result.exit_code == 2
    assert message in result.stderr


def test_explain_follows_and_names_the_given_server_version():
    command = ("explain", "pod", "p")
    _, newest = answer_of(*command, stdin=yaml_of(*FLEET, CLAIM, POD))
    _, older = answer_of(*command, "--kubernetes", "1.35", stdin=yaml_of(*FLEET, CLAIM, POD))
    assert [report["pod"]["prospect"]["outlook"] for report in (newest, older)] == ["fits", "never"]
    assert [report["server"]["source"] for report in (newest, older)] == ["undeclared", "options"]
    assert (older["server"]["kubernetes"], older["server"]["features"]["DRAPartitionableDevices"]) == ("1.35", False)
    result = run(
        *command, "--feature-gates", "DRAPartitionableDevices=false", "-f", "-", stdin=yaml_of(*FLEET, CLAIM, POD)
    )
    assert f"server      Kubernetes 1.{CURRENT} with DRAPartitionableDevices=false, as the options say" in result.stdout
    assert "server " not in run(*command, "-f", "-", stdin=yaml_of(*FLEET, CLAIM, POD)).stdout


EMPTY_CONFIGURATION = {"apiVersion": "drawbridge.dev/v1alpha1", "kind": "DrawbridgeConfiguration"}
CONFIGURATION_OF_1_36 = EMPTY_CONFIGURATION | {
    "kubernetes": {"version": "1.36", "featureGates": {"DRAPartitionableDevices": False}}
}


@pytest.mark.parametrize("options", [(), ("--kubernetes", "1.37")])
def test_the_configuration_sets_the_server_unless_options_override_it(options, tmp_path):
    config_file = tmp_path / "config.yaml"
    config_file.write_text(yaml_of(CONFIGURATION_OF_1_36))
    all_options = ("--config", config_file, *options)
    _, report = answer_of("explain", "pod", "p", *all_options, stdin=yaml_of(*FLEET, CLAIM, POD))
    assert report["server"]["source"] == ("options" if options else "configuration")
    assert report["pod"]["prospect"]["outlook"] == ("fits" if options else "never")
    assert options or "Kubernetes 1.36 without DRAPartitionableDevices, as the configuration says" in run(
        "explain", "pod", "p", *all_options, "-f", "-", stdin=yaml_of(*FLEET, CLAIM, POD)
    ).stdout.replace("\n", "")
    _, report = answer_of("simulate", *all_options, stdin=yaml_of(*FLEET, CLAIM, POD))
    assert report["pods"][0]["node"] == ("n0" if options else None)
    _, report = answer_of("check", *all_options, stdin=yaml_of(*FLEET))
    assert ("D006" in {finding["code"] for finding in report["findings"]}) == (not options)


def test_check_warns_of_a_misspelt_feature_gate():
    code, report = answer_of(
        "check", stdin=yaml_of(EMPTY_CONFIGURATION | {"kubernetes": {"featureGates": {"DRADeviceTaint": True}}})
    )
    assert (code, [(finding["code"], finding["remedy"]) for finding in report["findings"]]) == (0, [("C002", "did you mean DRADeviceTaints?")])  # fmt: skip


class OlderCluster(Embedded):
    """A cluster of version 1.36 that does not report its feature gates."""

    async def server(self, *, probe=True):
        info = await super().server(probe=probe)
        return msgspec.structs.replace(info, minor=36, gates={})


@pytest.mark.parametrize(
    ("options", "outlook", "server"),
    [
        ((), "fits", "Kubernetes 1.36, as the cluster says"),
        (("--feature-gates", "DRAPartitionableDevices=false"), "never", "1.36 with DRAPartitionableDevices=false"),
        (("--kubernetes", "1.35"), "never", "Kubernetes 1.35, as the options say"),
    ],
)
def test_explain_uses_the_clusters_version_unless_options_override_it(options, outlook, server, monkeypatch):
    cluster = OlderCluster()
    cluster.load([*FLEET, CLAIM, POD])
    monkeypatch.setattr(Kubernetes, "connect", lambda **_: cluster)
    assert server in run("explain", "pod", "p", *options).stdout
    _, report = run_json("explain", "pod", "p", *options)
    assert report["pod"]["prospect"]["outlook"] == outlook
    assert "DRADerivedAttributes" not in report["server"]["features"]  # 1.37 is the first version with this gate


def test_a_feature_gate_unknown_to_the_cluster_exits_with_2(monkeypatch):
    monkeypatch.setattr(Kubernetes, "connect", lambda **_: OlderCluster())
    result = run("explain", "pod", "p", "--feature-gates", "DRADerivedAttributes=true")
    assert result.exit_code == 2
    assert "1.37 is the first" in result.stderr


EXTENDED_RESOURCE_FLEET = [
    {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n0"}, "status": {"allocatable": {"cpu": "8"}}},
    {"apiVersion": RESOURCE_API, "kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": {"extendedResourceName": "g.io/card"}},
    resource_slice("a", "card-0", driver="g", nodeName="n0"),
]  # fmt: skip
IMPLICIT_RESOURCE_NAME = "deviceclass.resource.kubernetes.io/gpu"


def pod_requesting(resource):
    container = {"name": "c", "image": "i", "resources": {"limits": {resource: 1}}}
    metadata = {"name": "p", "namespace": "d", "uid": "u"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}


SERVER_1_34 = ("--kubernetes", "1.34")
SERVER_1_36 = ("--kubernetes", "1.36")


@pytest.mark.parametrize("resource", ["g.io/card", IMPLICIT_RESOURCE_NAME])
@pytest.mark.parametrize(
    ("options", "is_served"), [(SERVER_1_36, True), (SERVER_1_34, False), (("--kubernetes", "1.35"), False)]
)
def test_a_class_serves_an_extended_resource_only_with_its_gate(resource, options, is_served):
    stdin = yaml_of(*EXTENDED_RESOURCE_FLEET, pod_requesting(resource))
    _, survey = answer_of("survey", *options, stdin=stdin)
    assert [workload["outcome"] for workload in survey["workloads"]] == ["served" if is_served else "left"]
    [key] = survey["workloads"][0]["keys"]
    assert ("DRAExtendedResource is on" in key.get("until", "")) is not is_served
    _, report = answer_of("explain", "pod", "p", "-n", "d", *options, stdin=stdin)
    assert bool(report["pod"]["prospect"]) is is_served
    assert answer_of("simulate", *options, stdin=stdin)[0] == (0 if is_served else 1)


def test_version_1_34_with_the_gate_serves_only_explicit_names():
    options = (*SERVER_1_34, "--feature-gates", "DRAExtendedResource=true")
    codes = [
        answer_of("simulate", *options, stdin=yaml_of(*EXTENDED_RESOURCE_FLEET, pod_requesting(key)))[0]
        for key in ("g.io/card", IMPLICIT_RESOURCE_NAME)
    ]
    assert codes == [0, 1]


@pytest.mark.parametrize(
    ("options", "resource"),
    [((), f"{IMPLICIT_RESOURCE_NAME}-x"), (SERVER_1_34, IMPLICIT_RESOURCE_NAME)],
    ids=["the class does not exist", "the gate is off"],
)
def test_a_request_that_no_class_serves_is_reported(options, resource):
    stdin = yaml_of(*EXTENDED_RESOURCE_FLEET, pod_requesting(resource))
    findings = answer_of("check", *options, stdin=stdin)[1]["findings"]
    assert [finding["code"] for finding in findings if finding["object"].startswith("Pod/")] == ["D220"]
    assert "D220" in run("translate", *options, "-f", "-", stdin=stdin).stderr


@pytest.mark.parametrize(
    ("gates", "is_known"), [("DRAListTypeAttributes=false", False), ("DRAListTypeAttributes=true", True)]
)
def test_the_remedy_for_an_unknown_cel_function_names_its_feature_gate(gates, is_known):
    stdin = yaml_of(device_class("a.b", "device.attributes['a.b'].models.includes('x')"))
    _, report = answer_of("check", "--kubernetes", "1.37", "--feature-gates", gates, stdin=stdin)
    remedies = [finding["remedy"] for finding in report["findings"] if finding["code"] == "D110"]
    assert ["DRAListTypeAttributes" in remedy for remedy in remedies] == [True] * (not is_known)
