"""The properties of a control plane on which the tests rely."""

import subprocess
import sys

import pytest

from dra.server import RELEASE
from e2e.actors.client import USER_AGENT, ApiError
from e2e.ground.controlplane import reserve

pytestmark = pytest.mark.real


def test_the_server_reports_the_pinned_version(control_plane):
    assert control_plane.get("/version")["gitVersion"] == f"v{RELEASE}"


def test_a_pod_is_scheduled_to_a_fake_node(control_plane, namespace, created):
    [node] = control_plane.add_fake_nodes(1, prefix="placed-")
    created(pod("p", namespace, node))
    assert control_plane.wait_scheduled(namespace, "p")["spec"]["nodeName"] == node
    control_plane.delete(f"/api/v1/nodes/{node}")


def test_the_audit_log_distinguishes_a_dry_run_from_a_write(control_plane, namespace):
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "audited"}}
    control_plane.post(path, settings, dryRun="All")
    with pytest.raises(ApiError, match="not found"):
        control_plane.get(f"{path}/audited")

    def requests():
        ours = [e for e in control_plane.audit_events() if e.get("userAgent") == USER_AGENT and e["verb"] == "create"]
        return [e["requestURI"] for e in ours if e["requestURI"].startswith(path)]

    # The API server may answer before it writes the line.
    assert control_plane.until("the audit log has the request", requests, 60) == [f"{path}?dryRun=All"]


def test_a_program_can_run_with_a_service_accounts_rights_only(control_plane, namespace):
    mine = ["--kubeconfig", str(control_plane.account_kubeconfig(namespace, "default")), "auth", "whoami", "-ojson"]
    assert f"system:serviceaccount:{namespace}:default" in control_plane.kubectl(*mine).stdout
    refused = control_plane.kubectl(*mine[:2], "get", "secrets", "-n", namespace, check=False)
    assert "is forbidden" in refused.stderr


def test_a_port_belongs_to_one_process_until_it_ends():
    script = "from e2e.ground.controlplane import free_port; print(free_port(), flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        port = int(other.stdout.readline())
        assert not reserve(port)
        other.communicate(b"\n")
    assert reserve(port)


def test_a_second_scheduler_serves_its_own_profile(control_plane, namespace, created):
    [node] = control_plane.add_fake_nodes(1, prefix="second-")
    second = control_plane.start_scheduler({"profiles": [{"schedulerName": "second"}]}, name="second-scheduler")
    created(pod("p", namespace, node) | {"spec": {**pod("p", namespace, node)["spec"], "schedulerName": "second"}})
    control_plane.wait_scheduled(namespace, "p")
    second.stop()
    control_plane.delete(f"/api/v1/nodes/{node}")


def pod(name, namespace, node):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": node},
            "containers": [{"name": "main", "image": "localhost/busybox:e2e"}],
        },
    }
