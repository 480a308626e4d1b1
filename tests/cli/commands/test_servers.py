"""`--kubernetes` and `--feature-gates` set the server version that the commands assume."""

import json

import msgspec
import pytest
import yaml

from cluster.embedded import Embedded
from cluster.kubernetes import Kubernetes
from dra.server import NEWEST, OLDEST
from tests.cli.running import run, run_json
from tests.objects import resource_slice

API = "resource.k8s.io/v1"


def half_slice(name, **spec):
    """One of the two slices of a pool."""
    return resource_slice(name, driver="g", resourceSliceCount=2, nodeName="n0", **spec)


USE = [{"counterSet": "s", "counters": {"m": {"value": "1"}}}]
ASKED = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}
SHARE = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu", "capacity": {"requests": {"m": "1"}}}}]}}  # fmt: skip
FLEET = [
    {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n0"}},
    {"apiVersion": API, "kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": {}},
    half_slice("a", sharedCounters=[{"name": "s", "counters": {"m": {"value": "1"}}}]),
    half_slice("b", devices=[{"name": "part", "consumesCounters": USE}]),
]
CLAIM = {"apiVersion": API, "kind": "ResourceClaim", "metadata": {"name": "c", "namespace": "d"}, "spec": ASKED}
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "namespace": "d"},
    "spec": {"containers": [{"name": "c", "image": "i"}], "resourceClaims": [{"name": "c", "resourceClaimName": "c"}]},
}
TAINT = {"key": "k", "effect": "NoSchedule"}
RULE = {"apiVersion": API, "kind": "DeviceTaintRule", "metadata": {"name": "r"}, "spec": {"taint": TAINT}}


def text(*objects):
    return yaml.safe_dump_all(objects)


def answer(*options, stdin):
    result = run(*options, "-f", "-", "-o", "json", stdin=stdin)
    return result.exit_code, json.loads(result.stdout)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ((), 0),
        (("--kubernetes", "1.36"), 0),
        (("--kubernetes", "1.35"), 1),
        (("--kubernetes", "1.37", "--feature-gates", "DRAPartitionableDevices=false"), 1),
    ],
)
def test_a_partition_is_allocated_where_the_feature_gate_is_on(options, code):
    exit_code, report = answer("simulate", "--claims", "--node", "n0", *options, stdin=text(*FLEET, CLAIM))
    assert exit_code == code
    assert [reason["stage"] for reason in report["nodes"]["n0"]["reasons"]] == ["gate"] * code


def test_a_pod_waits_in_a_simulation_of_an_older_server():
    _, newest = answer("simulate", stdin=text(*FLEET, CLAIM, POD))
    _, older = answer("simulate", "--kubernetes", "1.35", stdin=text(*FLEET, CLAIM, POD))
    assert [report["pods"][0]["node"] for report in (newest, older)] == ["n0", None]


def test_check_reports_fields_and_kinds_an_older_server_lacks():
    def codes(*options):
        _, report = answer("check", *options, stdin=text(*FLEET, CLAIM | {"spec": SHARE}, RULE))
        return {(finding["code"], finding["object"].partition("/")[0]) for finding in report["findings"]}

    drops, kinds = ("D006", "ResourceClaim"), ("D004", "DeviceTaintRule")
    assert not codes() & {drops, kinds}
    assert codes("--kubernetes", "1.36") & {drops, kinds} == {kinds}
    assert codes("--kubernetes", "1.35") >= {drops, kinds, ("D006", "ResourceSlice")}


def test_the_remedy_names_the_api_version_of_an_older_server():
    hints = {}
    for minor in ("1.36", "1.35"):
        _, report = answer("check", "--kubernetes", minor, stdin=text(RULE))
        hints[minor] = [finding["remedy"] for finding in report["findings"] if finding["code"] == "D004"]
    assert hints == {"1.36": ["write resource.k8s.io/v1beta2"], "1.35": ["write resource.k8s.io/v1alpha3"]}


def test_a_survey_follows_the_given_server_version():
    _, report = answer("survey", "--kubernetes", "1.36", "--feature-gates", "DRAConsumableCapacity=false", stdin=text(*FLEET, POD))  # fmt: skip
    assert report["features"]["DRAConsumableCapacity"] is False
    live = run("survey", "--kubernetes", "1.36", "--kubeconfig", "/nowhere")
    assert live.exit_code == 2
    assert "reports its own version" in live.stderr


@pytest.mark.parametrize("command", ["check", "explain pod p", "simulate", "simulate --claims", "survey", "translate"])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--feature-gates", "DRAConsumableCapacty=true"), "did you mean DRAConsumableCapacity?"),
        (("--feature-gates", "DRAPrioritizedList=false"), "locked to true"),
        (("--kubernetes", f"1.{OLDEST - 1}"), f"1.{OLDEST} to 1.{NEWEST} are"),
        (("--kubernetes", "next"), "not a Kubernetes version"),
    ],
)
def test_unknown_server_versions_and_gates_exit_with_2(command, options, message):
    result = run(*command.split(), *options, "-f", "-", stdin=text(*FLEET))
    assert result.exit_code == 2
    assert message in result.stderr


def test_explain_follows_and_names_the_given_server_version():
    waits = ("explain", "pod", "p")
    _, newest = answer(*waits, stdin=text(*FLEET, CLAIM, POD))
    _, older = answer(*waits, "--kubernetes", "1.35", stdin=text(*FLEET, CLAIM, POD))
    assert [report["pod"]["prospect"]["outlook"] for report in (newest, older)] == ["fits", "never"]
    assert [report["server"]["source"] for report in (newest, older)] == ["undeclared", "options"]
    assert (older["server"]["kubernetes"], older["server"]["features"]["DRAPartitionableDevices"]) == ("1.35", False)
    shown = run(*waits, "--feature-gates", "DRAPartitionableDevices=false", "-f", "-", stdin=text(*FLEET, CLAIM, POD))
    assert f"server      Kubernetes 1.{NEWEST} with DRAPartitionableDevices=false, as the options say" in shown.stdout
    assert "server " not in run(*waits, "-f", "-", stdin=text(*FLEET, CLAIM, POD)).stdout


HEAD = {"apiVersion": "drawbridge.dev/v1alpha1", "kind": "DrawbridgeConfiguration"}
DECLARED = HEAD | {"kubernetes": {"version": "1.36", "featureGates": {"DRAPartitionableDevices": False}}}


@pytest.mark.parametrize("options", [(), ("--kubernetes", "1.37")])
def test_options_override_the_server_of_the_configuration(options, tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text(text(DECLARED))
    known = ("--config", config, *options)
    _, report = answer("explain", "pod", "p", *known, stdin=text(*FLEET, CLAIM, POD))
    assert report["server"]["source"] == ("options" if options else "configuration")
    assert report["pod"]["prospect"]["outlook"] == ("fits" if options else "never")
    assert options or "Kubernetes 1.36 without DRAPartitionableDevices, as the configuration says" in run(
        "explain", "pod", "p", *known, "-f", "-", stdin=text(*FLEET, CLAIM, POD)
    ).stdout.replace("\n", "")
    _, report = answer("simulate", *known, stdin=text(*FLEET, CLAIM, POD))
    assert report["pods"][0]["node"] == ("n0" if options else None)
    _, report = answer("check", *known, stdin=text(*FLEET))
    assert ("D006" in {finding["code"] for finding in report["findings"]}) == (not options)


def test_check_warns_of_a_misspelt_feature_gate():
    code, report = answer("check", stdin=text(HEAD | {"kubernetes": {"featureGates": {"DRADeviceTaint": True}}}))
    assert (code, [(finding["code"], finding["remedy"]) for finding in report["findings"]]) == (0, [("C002", "did you mean DRADeviceTaints?")])  # fmt: skip


class Older(Embedded):
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
    cluster = Older()
    cluster.load([*FLEET, CLAIM, POD])
    monkeypatch.setattr(Kubernetes, "connect", lambda **_: cluster)
    assert server in run("explain", "pod", "p", *options).stdout
    _, report = run_json("explain", "pod", "p", *options)
    assert report["pod"]["prospect"]["outlook"] == outlook
    assert "DRADerivedAttributes" not in report["server"]["features"]  # 1.37 is the first version with this gate


def test_a_feature_gate_unknown_to_the_cluster_exits_with_2(monkeypatch):
    monkeypatch.setattr(Kubernetes, "connect", lambda **_: Older())
    result = run("explain", "pod", "p", "--feature-gates", "DRADerivedAttributes=true")
    assert result.exit_code == 2
    assert "1.37 is the first that has it" in result.stderr


PLAIN_FLEET = [
    {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n0"}, "status": {"allocatable": {"cpu": "8"}}},
    {"apiVersion": API, "kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": {"extendedResourceName": "g.io/card"}},
    resource_slice("a", "card-0", driver="g", nodeName="n0"),
]  # fmt: skip
NAME = "deviceclass.resource.kubernetes.io/gpu"


def by_name(resource):
    limits = {"name": "c", "image": "i", "resources": {"limits": {resource: 1}}}
    metadata = {"name": "p", "namespace": "d", "uid": "u"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [limits]}}


OFF = ("--kubernetes", "1.34")
ON = ("--kubernetes", "1.36")


@pytest.mark.parametrize("resource", ["g.io/card", NAME])
@pytest.mark.parametrize(("options", "served"), [(ON, True), (OFF, False), (("--kubernetes", "1.35"), False)])
def test_a_class_serves_an_extended_resource_with_the_gate_on(resource, options, served):
    stdin = text(*PLAIN_FLEET, by_name(resource))
    _, looked = answer("survey", *options, stdin=stdin)
    assert [workload["outcome"] for workload in looked["workloads"]] == ["served" if served else "left"]
    [key] = looked["workloads"][0]["keys"]
    assert ("DRAExtendedResource is on" in key.get("until", "")) is not served
    _, report = answer("explain", "pod", "p", "-n", "d", *options, stdin=stdin)
    assert bool(report["pod"]["prospect"]) is served
    assert answer("simulate", *options, stdin=stdin)[0] == (0 if served else 1)


def test_with_the_gate_1_34_serves_only_explicit_names():
    options = (*OFF, "--feature-gates", "DRAExtendedResource=true")
    codes = [answer("simulate", *options, stdin=text(*PLAIN_FLEET, by_name(key)))[0] for key in ("g.io/card", NAME)]
    assert codes == [0, 1]


def test_check_reports_that_an_older_server_drops_extended_resource_name():
    def findings_of(*options, stdin):
        return [(finding["code"], finding["path"]) for finding in answer("check", *options, stdin=stdin)[1]["findings"]]

    stdin = text(*PLAIN_FLEET)
    assert findings_of(*OFF, stdin=stdin) == [("D006", "/spec/extendedResourceName")]
    for options in (ON, (), (*OFF, "--feature-gates", "DRAExtendedResource=true")):
        assert findings_of(*options, stdin=stdin) == []


@pytest.mark.parametrize(("options", "resource"), [((), f"{NAME}-x"), (OFF, NAME)], ids=["the class does not exist", "the gate is off"])
def test_a_request_that_no_class_serves_is_reported(options, resource):
    stdin = text(*PLAIN_FLEET, by_name(resource))
    findings = answer("check", *options, stdin=stdin)[1]["findings"]
    assert [finding["code"] for finding in findings if finding["object"].startswith("Pod/")] == ["D220"]
    assert "D220" in run("translate", *options, "-f", "-", stdin=stdin).stderr


@pytest.mark.parametrize(("version", "gates", "refused"), [("1.35", "", True), ("1.37", "", True), ("1.37", "DRAListTypeAttributes=true", False)])  # fmt: skip
def test_a_selector_with_includes_needs_version_and_gate(version, gates, refused, tmp_path):
    path = tmp_path / "class.yaml"
    expression = "device.attributes['a.b'].models.includes('x')"
    spec = f'spec: {{selectors: [{{cel: {{expression: "{expression}"}}}}]}}'
    path.write_text(f"apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {{name: a.b}}\n{spec}\n")
    more = ("--feature-gates", gates) if gates else ()
    code, report = run_json("check", "-f", path, "--kubernetes", version, *more)
    assert code == (1 if refused else 0)
    hint = "includes is a function since Kubernetes 1.36, with the feature gate DRAListTypeAttributes"
    assert [(finding["code"], finding["remedy"]) for finding in report["findings"]] == [("D110", hint)] * refused
