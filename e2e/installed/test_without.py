"""`drawbridge uninstall`, twice, on a cluster with a complete installation; then an upgrade and a rollback of an older installation.

There is no release yet. `older.yaml.gz` is what `drawbridge manifests --opt-in` printed at commit 1898e32; the image is today's. So the
tests cover the upgrade of the objects, and today's program with the old arguments.
"""

import gzip
import json
import re
import subprocess
from pathlib import Path

import pytest

from cluster.manifests import dump
from e2e.actors import fleet
from e2e.actors.webhook import MODE, SYSTEM
from e2e.actors.workloads import container, limits, pod
from e2e.ground import product
from e2e.installed.installation import PROGRAM, Installation, objects, printed_manifests, until_pods_are_translated

pytestmark = [
    pytest.mark.real,
    pytest.mark.node,
    pytest.mark.timeout(540),
]

OLDER = Path(__file__).with_name("older.yaml.gz")
CONFIGURATION = {"apiVersion": "drawbridge.dev/v1alpha1", "kind": "DrawbridgeConfiguration", "mode": "observe"}
QUOTA = {
    "apiVersion": "drawbridge.dev/v1alpha1",
    "kind": "DeviceQuota",
    "spec": {"hard": {"gpu.nvidia.com/devices": 4}},
}


def json_of(cluster, *words):
    command = [PROGRAM, *words, "--kubeconfig", str(cluster.kubeconfig), "-o", "json"]
    process = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert process.returncode in (0, 1), process.stderr
    return json.loads(process.stdout)


@pytest.fixture(scope="module")
def uninstalled(installation, tenants):
    """The cluster after uninstall, and the output of uninstall."""
    cluster = installation.cluster
    cluster.create(QUOTA | {"metadata": {"name": "kept", "namespace": tenants}})
    plan = json_of(cluster, "uninstall")
    assert not plan["changed"]
    result = json_of(cluster, "uninstall", "--yes")
    assert result["changed"]
    assert result["removedObjects"] == plan["removedObjects"]
    cluster.until(
        "uninstall finds no object to remove", lambda: not json_of(cluster, "uninstall", "--yes")["removedObjects"], 90
    )
    return cluster, result


def test_uninstall_removes_drawbridge_objects_and_keeps_and_lists_user_objects(uninstalled, tenants):
    cluster, result = uninstalled
    assert result["removedObjects"][0] == "MutatingWebhookConfiguration drawbridge"
    assert f"Namespace {tenants}: its labels drawbridge.dev/mode" in result["removedObjects"]
    [kept] = [line for line in result["remainingObjects"] if line.startswith("CustomResourceDefinition")]
    assert "devicequotas.drawbridge.dev" in kept
    assert f"{tenants}/kept" in kept
    assert any("ConfigMap drawbridge-driver/drawbridge-inventory" in line for line in result["remainingObjects"])
    assert cluster.get(f"/apis/drawbridge.dev/v1alpha1/namespaces/{tenants}/devicequotas/kept")


@pytest.fixture(scope="module")
def older(node, uninstalled):
    """An older installation, with a right that the controller had then, a quota, a running pod and a waiting pod."""
    cluster, _ = uninstalled
    cluster.add_fake_nodes(1, prefix="far-")
    cluster.patch("/api/v1/nodes/far-0", {"spec": {"unschedulable": True}})  # this node has no kubelet
    cluster.create(
        *fleet.slices(fleet.NVIDIA, "far-0", fleet.whole_gpus(1), by_name=True)
    )  # the slices of our driver were deleted with it
    text = re.sub(r"REGISTRY/drawbridge:[\d.]+", product.NAME, gzip.decompress(OLDER.read_bytes()).decode())
    objects_ = objects(text.replace("drawbridge-quota", "drawbridge-reservations"))  # today's name of a Secret
    [role] = [
        obj for obj in objects_ if obj["kind"] == "ClusterRole" and obj["metadata"]["name"] == "drawbridge-controller"
    ]
    role["rules"].append(
        {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims"], "verbs": ["list", "watch"]}
    )
    installed = Installation(node)
    installed.apply(objects_)
    installed.wait(objects_)
    namespace = cluster.namespace("upgraded")
    cluster.patch(f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": {MODE: "enforce"}}})
    until_pods_are_translated(cluster, namespace)
    cluster.create(QUOTA | {"metadata": {"name": "old", "namespace": namespace}})
    container_ = container(**limits(**{"nvidia.com/gpu": 1}))
    cluster.create(
        pod(
            "runs",
            namespace,
            container_,
            nodeSelector={"kubernetes.io/hostname": "far-0"},
            tolerations=[{"operator": "Exists"}],
        )
    )
    cluster.create(pod("waits", namespace, container_, nodeSelector={"no": "node"}))
    cluster.wait_scheduled(namespace, "runs")
    cluster.patch(f"/api/v1/namespaces/{namespace}/pods/runs/status", {"status": {"phase": "Running"}})
    cluster.until("both have claims", lambda: len(state_of(cluster, namespace)["claims"]) == 2, 30)
    return installed, namespace, objects_


def state_of(cluster, namespace):
    """Return our pods, claims, templates, quotas and keys, and the devices of the claims."""
    base = f"/apis/resource.k8s.io/v1/namespaces/{namespace}"

    def by_uid(path, name):
        return {item["metadata"]["uid"]: item.get(name) for item in cluster.get(path)["items"]}

    return {
        "pods": by_uid(f"/api/v1/namespaces/{namespace}/pods", "spec"),
        "claims": {uid: (status or {}).get("allocation") for uid, status in by_uid(f"{base}/resourceclaims", "status").items()},
        "templates": by_uid(f"{base}/resourceclaimtemplates", "spec"),
        "quotas": by_uid(f"/apis/drawbridge.dev/v1alpha1/namespaces/{namespace}/devicequotas", "spec"),
        "signature": cluster.get(f"/api/v1/namespaces/{SYSTEM}/secrets/drawbridge-signature")["data"]["signature.key"],
    }  # fmt: skip


def test_an_upgrade_and_a_rollback_keep_running_and_waiting_pods(older):
    installed, namespace, before = older
    cluster = installed.cluster
    state = state_of(cluster, namespace)
    assert len(state["claims"]) == 2
    assert len(list(filter(None, state["claims"].values()))) == 1
    findings = {(finding["code"], finding["object"]) for finding in json_of(cluster, "doctor")["findings"]}
    assert ("O003", "ValidatingAdmissionPolicy/drawbridge-secrets") in findings
    assert ("O004", "ClusterRole/drawbridge-controller") in findings
    apply_version(older, printed_manifests(cluster, CONFIGURATION), "no")
    assert state_of(cluster, namespace) == state

    def other_findings():
        """No node has the label that the waiting pod selects, which is a finding after a minute."""
        findings = json_of(cluster, "doctor")["findings"]
        return [finding for finding in findings if finding["object"] != f"Pod/{namespace}/waits"]

    cluster.until("doctor has no other finding", lambda: not other_findings(), 60, other_findings)
    apply_version(older, before, "yes")
    assert state_of(cluster, namespace) == state


def apply_version(older, objects_, listing):
    """Apply a version as in docs/install.md, and wait until it translates; `listing` says whether its controller may list claims."""
    installed, namespace, _ = older
    kinds = [obj for obj in objects_ if obj["kind"] == "CustomResourceDefinition"]
    for batch in (kinds, objects_):
        installed.cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", input=dump(batch))
    installed.wait(objects_)
    until_pods_are_translated(installed.cluster, namespace)
    account = f"--as=system:serviceaccount:{SYSTEM}:drawbridge-controller"
    command = ("auth", "can-i", "list", "resourceclaims.resource.k8s.io", "-A", account)
    installed.cluster.until("the controller has the rights of these manifests", lambda: installed.cluster.kubectl(*command, check=False).stdout.strip() == listing, 30)  # fmt: skip
