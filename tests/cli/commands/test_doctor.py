"""`drawbridge doctor`: each fault of a cluster is reported with a remedy, and a healthy cluster has no findings."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from analysis.doctor import diagnose, survey
from analysis.errors import Failed
from cluster import resources
from cluster.errors import NotFound
from tests.allocator.service.sidecar import claim, device_class, loaded, node, pod
from tests.cli.commands.faults import (
    FAULTS,
    FINALIZER,
    FLEET,
    agent_taint_rule,
    allocated_claim,
    audit_event,
    bound_pod,
    claim_of_pod,
    claim_with_finalizer,
    diagnosis_of,
    faults,
    findings_in,
    lease,
    named,
    node_with_condition,
    unowned_claim,
)
from tests.cli.forbidden import forbidding
from tests.cli.running import manifest, run, run_json
from tests.objects import workload


def claim_of_pod_with_finalizer(name, owner):
    """A claim as kube-controller-manager creates it if manifests/protected-claims is installed."""
    obj = claim_of_pod(name, owner)
    obj["metadata"]["finalizers"] = [FINALIZER]
    return obj


def healthy_objects():
    """Objects without a fault."""
    return [
        allocated_claim("a", "p"),
        pod("p", "a"),
        claim("b"),
        claim_of_pod("c", "p"),
        claim_with_finalizer("d"),
        claim_of_pod_with_finalizer("e", "q"),
        pod("q", "d"),
        lease(5),
        agent_taint_rule(60),
        node_with_condition(60, "n8"),
        *events_of_agents(),
    ]


def events_of_agents():
    """Events of audit agents that are no findings: about an ended fault, an old fault, a pod, and with an unknown reason."""
    return [
        audit_event("DeviceGivenTwice", "it is over"),
        audit_event("DeviceNotAllocated", "long ago", age=7200),
        audit_event("DeviceGivenTwice", "two have it", kind="Pod"),
        audit_event("SomethingElse", "else"),
    ]


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_in_a_dump_is_reported_with_a_remedy(fault, tmp_path):
    objects, name, repair = faults()[fault]
    code, answer = run_json("doctor", "-f", manifest(tmp_path / "dump.yaml", *FLEET, *objects))
    [finding] = answer["findings"]
    assert code == (0 if finding["severity"] == "info" else 1)
    assert (finding["code"], finding["object"], finding["repair"]) == (fault, name, repair)
    assert finding["remedy"]
    assert not finding["repaired"]


@pytest.mark.parametrize("fault", ["O110", "O113"])
def test_a_pod_and_claim_without_a_namespace_are_in_default(fault, tmp_path):
    objects, name, _ = faults()[fault]
    for obj in objects:
        obj["metadata"].pop("namespace", None)
    assert named(findings_in(tmp_path, *objects)) == [(fault, name)]


def test_a_terminating_claim_with_a_stale_finalizer_is_reported(tmp_path):
    terminating_claim = claim_of_pod_with_finalizer("a", "p")
    terminating_claim["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0}
    assert named(findings_in(tmp_path, terminating_claim, pod("p"))) == [("O212", "ResourceClaim/default/a")]


@pytest.mark.parametrize(
    "condition", [{"lastHeartbeatTime": None}, {"lastHeartbeatTime": "yesterday"}, {"lastHeartbeatTime": 7}]
)
def test_a_condition_without_a_valid_heartbeat_time_is_stale(condition, tmp_path):
    findings = findings_in(tmp_path, node_with_condition(60, "n9", **condition), pod("p"))
    assert named(findings) == [("O214", "Node/n9")]


def test_unused_claims_of_a_namespace_are_a_single_finding(tmp_path):
    [finding] = findings_in(tmp_path, unowned_claim("a"), unowned_claim("b", minutes=90), pod("p"))
    assert finding["object"] == "ResourceClaim/default/b"  # the oldest claim
    assert "namespace default has 2 claims" in finding["message"]
    assert finding["message"].endswith("b, a")


async def test_in_a_live_cluster_a_claim_without_pods_is_unused():
    cluster = loaded(*FLEET, claim("a"), claim("b"), pod("p", "a"))
    findings = diagnose(await survey(cluster, datetime.now(UTC) + timedelta(hours=1)))
    assert [finding.object for finding in findings if finding.code == "O217"] == ["ResourceClaim/default/b"]


def test_a_healthy_cluster_has_no_findings(tmp_path):
    result = run("doctor", "-f", manifest(tmp_path / "dump.yaml", *FLEET, *healthy_objects()))
    assert result.exit_code == 0
    assert result.stdout.startswith("0 findings\n\n26 codes not checked for lack of input (ConfigMap, Deployment, ")
    assert "\n\nNot checked\n  CODES " in run("doctor", "-v", "-f", tmp_path / "dump.yaml").stdout


def test_a_dump_without_pods_has_no_findings_about_absent_pods(tmp_path):
    result = run(
        "doctor", "-f", manifest(tmp_path / "dump.yaml", *FLEET, allocated_claim("a", "p"), claim_with_finalizer("b"))
    )
    assert result.exit_code == 0
    assert run_json("doctor", "-f", str(tmp_path / "dump.yaml"))[1]["findings"] == []
    # Under "Not checked", a line has the codes of the findings that need pods.
    output = run("doctor", "-v", "-f", tmp_path / "dump.yaml").stdout
    [line] = [line.split() for line in output.splitlines() if "Pod" in line.split()]
    assert {"O210", "O211", "O212", "O216", "O217"} <= {*line}


def test_claims_without_a_uid_are_distinguished_by_name(tmp_path):
    claims = [allocated_claim("a"), allocated_claim("b")]
    for obj in claims:
        del obj["metadata"]["uid"]
    assert [finding["code"] for finding in findings_in(tmp_path, *claims)] == ["O209"]


def test_an_unreachable_cluster_is_an_error_and_no_finding(tmp_path):
    cluster = {"server": "http://127.0.0.1:1"}
    kubeconfig = manifest(
        tmp_path / "kubeconfig",
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "c", "user": {}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
        },
    )
    code, answer = run_json("doctor", "--kubeconfig", kubeconfig)
    assert code == 3
    assert answer["findings"] == []
    assert answer["errors"]


async def test_doctor_fails_on_a_server_without_resource_claims(monkeypatch):
    cluster = loaded()

    async def raise_not_found(*_, **__):
        raise NotFound("the server could not find the requested resource")

    monkeypatch.setattr(cluster, "list", raise_not_found)
    with pytest.raises(Failed, match="has no ResourceClaims"):
        await diagnosis_of(cluster)


def test_the_finding_names_the_claim_that_has_the_devices_instead(tmp_path):
    former = allocated_claim("former", "p")
    former["metadata"] |= claim_of_pod("former", "p")["metadata"]
    [finding] = findings_in(tmp_path, claim_of_pod("a", "p"), former, bound_pod("p", "a"))
    assert "claim default/former, which the pod does not name any more, has devices" in finding["message"]


async def test_an_event_says_why_a_daemon_set_has_no_pod():
    """A Deployment has a condition that says why its pods cannot be created; a DaemonSet has none."""
    labels = {"app.kubernetes.io/name": "drawbridge", "app.kubernetes.io/component": "driver"}
    status = {"observedGeneration": 1, "desiredNumberScheduled": 1, "numberReady": 0}
    daemon_set, deployment = (
        workload(kind, name, {}, labels=labels, status=status) | {"metadata": {"name": name, "namespace": "default", "labels": labels}}
        for kind, name in (("DaemonSet", "drawbridge-driver"), ("Deployment", "drawbridge-webhook"))
    )  # fmt: skip
    event = audit_event("FailedCreate", 'violates PodSecurity "restricted"', kind="DaemonSet")
    event["involvedObject"] |= {"name": "drawbridge-driver", "namespace": "default"}
    findings = await diagnosis_of(loaded(*FLEET, pod("p"), daemon_set, deployment, event))
    [finding] = [finding for finding in findings if finding.object == "DaemonSet/default/drawbridge-driver"]
    assert finding.message.endswith('no pod can be created: violates PodSecurity "restricted"')


async def test_doctor_without_access_to_events_reports_other_faults():
    cluster = forbidding("Event").holding([*FLEET, pod("p"), agent_taint_rule(3600)])
    doctor_input = await survey(cluster, datetime.now(UTC))
    assert [finding.code for finding in diagnose(doctor_input)] == ["O213"]
    assert [(resource.kind, resource.reason) for resource in doctor_input.reading.unread] == [
        ("events", "events is forbidden")
    ]


def test_ages_in_a_dump_are_relative_to_the_dump(tmp_path):
    """A snapshot of a healthy cluster has no findings a year later, and an expired Lease in a snapshot is still reported."""
    node_lease, allocator_lease = lease(500), lease(505)
    node_lease["metadata"] = {"name": "n0", "namespace": "kube-node-lease"}
    assert findings_in(tmp_path, pod("p"), node_lease, allocator_lease) == []
    assert [finding["code"] for finding in findings_in(tmp_path, pod("p"), node_lease, lease(900))] == ["O017"]


async def test_unreadable_resources_are_listed_without_a_finding():
    kinds = {resource.kind for resource in resources.ALL} - {"Pod", "Node"}
    objects = [claim("a", class_name="none"), allocated_claim("b", "gone"), pod("p", "a")]
    cluster = forbidding(*kinds).holding([*FLEET, *objects])
    doctor_input = await survey(cluster, datetime.now(UTC))
    assert doctor_input.missing["ResourceClaim"] == "resourceclaims.resource.k8s.io is forbidden"
    assert diagnose(doctor_input) == {}


def test_a_dump_without_slices_is_not_checked_for_empty_classes(tmp_path):
    classes = [device_class("gpu"), device_class("other")]
    claims = [claim("a"), claim("b", class_name="other")]
    _, answer = run_json("doctor", "-f", manifest(tmp_path / "dump.yaml", *classes, *claims))
    assert answer["findings"] == []
    [unchecked] = [entry for entry in answer["notChecked"] if entry["inputs"] == ["ResourceSlice"]]
    assert unchecked["codes"] == ["D212", "O108", "O111", "O115", "O116", "O119", "O218"]
    assert "kubectl get resourceslice -A" in unchecked["reason"]


@pytest.mark.parametrize("kind", [resource.kind for resource in resources.ALL if resource.kind != "Workload"])
@pytest.mark.parametrize("field", ["apiVersion", "metadata", "status"])
def test_an_unreadable_object_is_named_with_its_line(tmp_path, kind, field):
    known_resource = next(resource for resource in resources.ALL if resource.kind == kind)
    labels = {"app.kubernetes.io/name": "drawbridge"}
    obj = {"apiVersion": known_resource.api_version, "kind": kind, "metadata": {"name": "drawbridge", "labels": labels}}
    result = run("doctor", "-f", manifest(tmp_path / "dump.yaml", obj | {field: 7}))
    # The object is unreadable only if doctor reads this field.
    assert result.exit_code in (0, 1, 3), result.output
    assert ("dump.yaml:1: " in result.output) is ("warning: not read: " in result.output) is (result.exit_code == 3)
    assert "this is a bug" not in result.output


def test_an_unreadable_object_hides_no_finding_about_another_object(tmp_path):
    objects, name, _ = faults()["O212"]
    unreadable_node = node("odd") | {"metadata": {"name": "odd", "labels": 3}}
    code, answer = run_json("doctor", "-f", manifest(tmp_path / "dump.json", *FLEET, unreadable_node, *objects))
    assert (code, [(finding["code"], finding["object"]) for finding in answer["findings"]]) == (1, [("O212", name)])
    [unread] = answer["unread"]
    assert unread["kind"] == "Node default/odd"
    assert "/metadata/labels" in unread["reason"]


@pytest.mark.parametrize("form", ["sarif", "github", "junit", "markdown", "text"])
def test_every_format_has_findings_and_formats_for_people_their_repair(form, tmp_path):
    objects, name, repair = faults()["O212"]
    result = run("doctor", "-f", manifest(tmp_path / "dump.json", *objects), "-o", form)
    assert result.exit_code == 1
    assert ("O212" in result.stdout, name in result.stdout, "O212 :" in result.stdout) == (True, True, False)
    assert (f"--repair would {repair}" in result.stdout) is (form in ("text", "markdown"))


def test_findings_are_printed_under_their_object_with_their_repairs(tmp_path):
    output = run(
        "doctor",
        "-f",
        manifest(tmp_path / "dump.json", *FLEET, claim_with_finalizer("a"), claim_with_finalizer("b"), pod("p")),
    ).stdout
    assert output.startswith(
        "2 findings: 2 warning\n\n"
        + "".join(
            f"ResourceClaim/default/{name}\n  warning O212: it has the finalizer of an allocation, but no allocation\n"
            "      remove the finalizer: the claim holds no device, and the finalizer prevents its deletion\n"
            "      --repair would remove its finalizer\n\n"
            for name in "ab"
        )
    )


@pytest.mark.parametrize("code", ["O209", "O212", "O215"])
def test_doctor_and_check_name_an_object_alike(code, tmp_path):
    """`check` reports an unknown field (D002) of the object that `doctor` reports."""
    objects = {**faults(), "O215": ([allocated_claim("a", "p") | {"metadata": allocated_claim("a")["metadata"] | {"finalizers": ["x.example.com/y"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}, pod("p", "a")], "", "")}[code][0]  # fmt: skip
    dump = manifest(tmp_path / "dump.yaml", *FLEET, *objects)
    manifest(tmp_path / "checked.yaml", *FLEET, *[obj | {"more": 1} for obj in objects])
    _, doctor_answer = run_json("doctor", "-f", dump)
    _, check_answer = run_json("check", "-f", str(tmp_path / "checked.yaml"))
    names = {finding["object"] for finding in doctor_answer["findings"] if finding["code"] == code}
    assert names
    assert names <= {finding["object"] for finding in check_answer["findings"] if finding["code"] == "D002"}


def test_the_dump_line_of_the_docs_has_what_doctor_reads(tmp_path):
    """All that is missing in such a dump is in no cluster's API by default, or only in a live cluster."""
    page = Path("docs/commands.md").read_text(encoding="utf-8")
    plurals = re.search(r"^kubectl get (\S+) -A -o yaml", page, re.MULTILINE)[1].split(",")
    dumped = [(resource.api_version, resource.kind) for resource in resources.ALL if resource.plural in plurals]
    dumped += [("v1", "ServiceAccount")] if "serviceaccounts" in plurals else []
    metadata = {"name": "x", "namespace": "x"}
    objects = [{"apiVersion": version, "kind": kind, "metadata": metadata} for version, kind in dumped]
    answer = run_json("doctor", "-f", manifest(tmp_path / "dump.yaml", *objects))[1]
    missing = [entry["inputs"] for entry in answer["notChecked"] if "kubectl get" in entry["reason"]]
    assert missing == []
