"""`drawbridge doctor` on a live cluster: what is found, what is put right, and what it says of the rest."""

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
# The form of our names, with content that is not what the name says: no test waits an hour for that.
OURS = f"drawbridge-{'0' * 32}"
DRIVER = "doctor.example.com"
NODE = "doctor-0"
LABELS = {"app.kubernetes.io/managed-by": "drawbridge"}


def doctor(control_plane, namespace, *options):
    """Ask it; answer with what it found in a namespace, and its exit code."""
    done = run(control_plane.kubeconfig, *options)
    found = json.loads(done.stdout)["findings"]
    return [one for one in found if f"/{namespace}/" in f"{one['object']} {one['message']}"], done.returncode


def examine(control_plane, *options):
    """Ask it; answer with all that it found."""
    found: list[dict[str, object]] = json.loads(run(control_plane.kubeconfig, *options).stdout)["findings"]
    return found


def run(kubeconfig, *options):
    command = [*COMMAND, "doctor", "--kubeconfig", str(kubeconfig), "-o", "json", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_a_live_cluster_is_looked_at_and_put_right_where_it_can_be(control_plane, namespace):
    left = template(OURS, namespace, request("gpu", "doctor-none"))
    left["metadata"]["labels"] = LABELS
    control_plane.create(left, claim("waits", namespace, request("gpu", "doctor-none")))
    found, code = doctor(control_plane, namespace)
    assert (code, [one["code"] for one in found]) == (1, ["O107", "O216"])
    assert control_plane.read(left) is not None
    treated, code = doctor(control_plane, namespace, "--repair", "--yes")
    assert (code, [one["repaired"] for one in treated]) == (1, [False, True])
    assert control_plane.read(left) is None
    [rest], _ = doctor(control_plane, namespace)
    assert f"ResourceClaim/{namespace}/waits" in rest["message"]


@pytest.fixture
def shared(control_plane, namespace, created):
    """Two claims that hold one device: the first one's pod is on a node, the second one's is not."""
    control_plane.add_fake_nodes(1, prefix="doctor-")
    created(*fleet.slices(DRIVER, NODE, [fleet.device("gpu", {})], by_name=True))
    result = {"request": "gpu", "driver": DRIVER, "pool": f"{NODE}-fleet", "device": "gpu"}
    for name, placed in (("first", {"nodeName": NODE}), ("second", {})):
        made, _ = control_plane.create(
            pod(name, namespace, schedulerName="no-such-scheduler", resourceClaims=[using(name)], **placed),
            claim(name, namespace, request("gpu", "doctor-gpu")),
        )
        reserved = {"resource": "pods", "name": name, "uid": made["metadata"]["uid"]}
        status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [reserved]}
        control_plane.patch(f"{claims_of(namespace)}/{name}/status", {"status": status})
    yield namespace
    control_plane.delete(f"/api/v1/namespaces/{namespace}/pods", gracePeriodSeconds=0)
    control_plane.remove({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})


def claims_of(namespace):
    return f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims"


def test_of_two_claims_that_hold_a_device_the_one_without_a_started_pod_gives_it_up(control_plane, shared):
    looked, code = doctor(control_plane, shared)
    assert (code, [one["code"] for one in looked if one["code"] == "O209"]) == (1, ["O209"])
    treated, _ = doctor(control_plane, shared, "--repair", "--yes")
    assert [(one["repaired"], one["problem"]) for one in treated if one["code"] == "O209"] == [(True, "")]
    assert "allocation" not in control_plane.get(f"{claims_of(shared)}/second").get("status", {})
    assert "allocation" in control_plane.get(f"{claims_of(shared)}/first")["status"]
    again, _ = doctor(control_plane, shared, "--repair", "--yes")
    assert [one for one in again if one["code"] == "O209"] == []


def test_a_fence_that_is_missing_is_made_and_missed_no_more(control_plane, namespace, tmp_path):
    rule = taint_rule(DRIVER)
    config = tmp_path / "c.yaml"
    head = "apiVersion: drawbridge.dev/v1alpha1\nkind: DrawbridgeConfiguration\n"
    config.write_text(f"{head}bridge: {{schedulerName: drawbridge, drivers: [{DRIVER}], fence: true}}\n")
    try:
        for repaired in ([True], []):
            found = examine(control_plane, "--repair", "--yes", "--config", str(config))
            assert [one["repaired"] for one in found if one["code"] == "O206"] == repaired
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
def worn(control_plane, created):
    """A node that wears the condition of an agent that was killed, between two of the kubelet's."""
    name = "doctor-worn"
    created({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})

    def wear():
        conditions = [
            {"type": one, "status": "False", "reason": "Told", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}
            for one in ("MemoryPressure", CONDITION, "PIDPressure")
        ]
        control_plane.patch(f"/api/v1/nodes/{name}/status", {"status": {"conditions": conditions}})
        return name

    def types():
        there = control_plane.get(f"/api/v1/nodes/{name}")["status"]["conditions"]
        return sorted(one["type"] for one in there if one["reason"] == "Told")

    wear.types = types
    return wear


def test_a_condition_that_a_killed_agent_left_is_named_and_ends_by_repair_and_by_the_command_of_the_page(
    control_plane, worn
):
    name = worn()
    assert CONDITION in worn.types()
    [found] = of_node(examine(control_plane), name)
    assert (found["code"], found["repair"]) == ("O214", "remove it from the node")
    [treated] = of_node(examine(control_plane, "--repair", "--yes"), name)
    assert treated["repaired"], treated
    assert worn.types() == ["MemoryPressure", "PIDPressure"]
    assert of_node(examine(control_plane), name) == []
    worn()
    page = (ROOT / "docs/node.md").read_text(encoding="utf-8").replace("\\\n", "")
    [line] = re.findall(r'^kubectl (patch node "\$NODE" .*)$', page, re.MULTILINE)
    control_plane.kubectl(*shlex.split(line.replace("$NODE", name)))
    assert worn.types() == ["MemoryPressure", "PIDPressure"]


def of_node(found, name):
    return [one for one in found if one["object"] == f"Node/{name}" and one["code"] == "O214"]
