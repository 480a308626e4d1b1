"""`drawbridge doctor` on a live cluster: findings, and repairs."""

import json
import re
import shlex
import subprocess

import pytest

from e2e.actors import fleet
from e2e.actors.webhook import COMMAND, ROOT
from e2e.actors.workloads import claim, pod, request, template, using
from webhook.claims import taint_rule

pytestmark = pytest.mark.real
# A template with a name of our form, and with content that drawbridge did not write: doctor reports it at once, not after an hour.
UNUSED = f"drawbridge-{'0' * 32}"
DRIVER = "doctor.example.com"
NODE = "doctor-0"
LABELS = {"app.kubernetes.io/managed-by": "drawbridge"}


def doctor(control_plane, namespace, *options):
    """Run doctor; return its findings about a namespace, and its exit code."""
    done = run(control_plane.kubeconfig, *options)
    findings = json.loads(done.stdout)["findings"]
    return [
        finding for finding in findings if f"/{namespace}/" in f"{finding['object']} {finding['message']}"
    ], done.returncode


def examine(control_plane, *options):
    """Run doctor; return all findings."""
    findings: list[dict[str, object]] = json.loads(run(control_plane.kubeconfig, *options).stdout)["findings"]
    return findings


def run(kubeconfig, *options):
    command = [*COMMAND, "doctor", "--kubeconfig", str(kubeconfig), "-o", "json", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_doctor_reports_and_repairs_a_live_cluster(control_plane, namespace):
    unused = template(UNUSED, namespace, request("gpu", "doctor-none"))
    unused["metadata"]["labels"] = LABELS
    control_plane.create(unused, claim("waits", namespace, request("gpu", "doctor-none")))
    findings, code = doctor(control_plane, namespace)
    assert (code, [finding["code"] for finding in findings]) == (1, ["O107", "O216"])
    assert control_plane.read(unused) is not None
    repairs, code = doctor(control_plane, namespace, "--repair", "--yes")
    assert (code, [finding["repaired"] for finding in repairs]) == (1, [False, True])
    assert control_plane.read(unused) is None
    [remaining], _ = doctor(control_plane, namespace)
    assert f"ResourceClaim/{namespace}/waits" in remaining["message"]


@pytest.fixture
def shared_device(control_plane, namespace, created):
    """Two claims that hold one device. The pod of the first claim is on a node, the pod of the second claim is not."""
    control_plane.add_fake_nodes(1, prefix="doctor-")
    created(*fleet.slices(DRIVER, NODE, [fleet.device("gpu", {})], by_name=True))
    result = {"request": "gpu", "driver": DRIVER, "pool": f"{NODE}-fleet", "device": "gpu"}
    for name, placed in (("first", {"nodeName": NODE}), ("second", {})):
        created_pod, _ = control_plane.create(
            pod(name, namespace, schedulerName="no-such-scheduler", resourceClaims=[using(name)], **placed),
            claim(name, namespace, request("gpu", "doctor-gpu")),
        )
        reserved = {"resource": "pods", "name": name, "uid": created_pod["metadata"]["uid"]}
        status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [reserved]}
        control_plane.patch(f"{claims_of(namespace)}/{name}/status", {"status": status})
    yield namespace
    control_plane.delete(f"/api/v1/namespaces/{namespace}/pods", gracePeriodSeconds=0)
    control_plane.remove({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})


def claims_of(namespace):
    return f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims"


def test_repair_takes_a_shared_device_from_the_pod_not_started(control_plane, shared_device):
    findings, code = doctor(control_plane, shared_device)
    assert (code, [finding["code"] for finding in findings if finding["code"] == "O209"]) == (1, ["O209"])
    repairs, _ = doctor(control_plane, shared_device, "--repair", "--yes")
    assert [(finding["repaired"], finding["problem"]) for finding in repairs if finding["code"] == "O209"] == [
        (True, "")
    ]
    assert "allocation" not in control_plane.get(f"{claims_of(shared_device)}/second").get("status", {})
    assert "allocation" in control_plane.get(f"{claims_of(shared_device)}/first")["status"]
    later, _ = doctor(control_plane, shared_device, "--repair", "--yes")
    assert [finding for finding in later if finding["code"] == "O209"] == []


def test_repair_creates_a_missing_fence(control_plane, namespace, tmp_path):
    rule = taint_rule(DRIVER)
    config = tmp_path / "c.yaml"
    head = "apiVersion: drawbridge.dev/v1alpha1\nkind: DrawbridgeConfiguration\n"
    config.write_text(f"{head}bridge: {{schedulerName: drawbridge, drivers: [{DRIVER}], fence: true}}\n")
    try:
        for repaired in ([True], []):
            findings = examine(control_plane, "--repair", "--yes", "--config", str(config))
            assert [finding["repaired"] for finding in findings if finding["code"] == "O206"] == repaired
        assert control_plane.read(rule)["spec"]["taint"]["effect"] == "NoSchedule"
    finally:
        control_plane.remove(rule)


def test_doctor_without_permission_names_the_resource_it_cannot_list(control_plane, namespace):
    kubeconfig = control_plane.account_kubeconfig(namespace, "default")
    done = run(kubeconfig)
    assert done.returncode == 3
    reasons = {missed["kind"]: missed["reason"] for missed in json.loads(done.stdout)["unread"]}
    assert 'cannot list resource "resourceclaims"' in reasons["resourceclaims.resource.k8s.io"]


CONDITION = "DrawbridgeDevicesConsistent"


@pytest.fixture
def abandoned_condition(control_plane, created):
    """A function that gives a node the condition of a killed node agent, between two conditions of the kubelet."""
    name = "doctor-worn"
    created({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})

    def set_conditions():
        conditions = [
            {"type": type_, "status": "False", "reason": "Told", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}
            for type_ in ("MemoryPressure", CONDITION, "PIDPressure")
        ]
        control_plane.patch(f"/api/v1/nodes/{name}/status", {"status": {"conditions": conditions}})
        return name

    def types():
        conditions = control_plane.get(f"/api/v1/nodes/{name}")["status"]["conditions"]
        return sorted(condition["type"] for condition in conditions if condition["reason"] == "Told")

    set_conditions.types = types
    return set_conditions


def test_a_killed_agents_condition_is_reported_and_removed(control_plane, abandoned_condition):
    """Either `--repair` or the documented command removes the condition."""
    name = abandoned_condition()
    assert CONDITION in abandoned_condition.types()
    [finding] = of_node(examine(control_plane), name)
    assert (finding["code"], finding["repair"]) == ("O214", "remove it from the node")
    [repair] = of_node(examine(control_plane, "--repair", "--yes"), name)
    assert repair["repaired"], repair
    assert abandoned_condition.types() == ["MemoryPressure", "PIDPressure"]
    assert of_node(examine(control_plane), name) == []
    abandoned_condition()
    page = (ROOT / "docs/node.md").read_text(encoding="utf-8").replace("\\\n", "")
    [line] = re.findall(r'^kubectl (patch node "\$NODE" .*)$', page, re.MULTILINE)
    control_plane.kubectl(*shlex.split(line.replace("$NODE", name)))
    assert abandoned_condition.types() == ["MemoryPressure", "PIDPressure"]


def of_node(findings, name):
    return [finding for finding in findings if finding["object"] == f"Node/{name}" and finding["code"] == "O214"]
