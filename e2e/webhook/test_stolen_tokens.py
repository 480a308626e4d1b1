"""Attacks with the token of each shipped account, on a real API server: every attack is refused, and the processes keep working."""

import base64

import pytest

from e2e.actors.client import ApiError
from e2e.actors.webhook import SYSTEM, gpu, templates_of
from e2e.actors.workloads import request, template

pytestmark = pytest.mark.real
SECRETS = f"/api/v1/namespaces/{SYSTEM}/secrets"
OURS = {"app.kubernetes.io/name": "drawbridge"}
DATA = {"release": base64.b64encode(b"forged").decode()}


def thief(cluster, account, namespace=SYSTEM):
    """A client with the token of an account of ours."""
    return cluster.client_of(namespace, f"drawbridge-{account}")


def refusal(attempt, *arguments, **query):
    """Return the API server's refusal of a dry run; "" if it accepts it or the object exists."""
    try:
        attempt(*arguments, dryRun="All", **query)
    except ApiError as error:
        if error.code not in (403, 422):
            return ""
        return error.message
    return ""


def secret(name, kind="Opaque", **metadata):
    meta = {"name": name, "namespace": SYSTEM, "labels": OURS} | metadata
    return {"apiVersion": "v1", "kind": "Secret", "type": kind, "metadata": meta, "data": DATA}


TOKEN = "kubernetes.io/service-account-token"
OF_CONTROLLER = {"kubernetes.io/service-account.name": "drawbridge-controller"}
RELEASE = {"owner": "helm", "name": "drawbridge", "status": "deployed", "version": "99"}
FORGED = {
    "the next release of Helm": secret("sh.helm.release.v1.drawbridge.v99", "helm.sh/release.v1", labels=RELEASE),
    "a release under a name of ours": secret("drawbridge-reservations", labels=RELEASE),
    "another account's token": secret("drawbridge-reservations", TOKEN, annotations=OF_CONTROLLER) | {"data": {}},
    "another account's token under another name": secret("any", TOKEN, annotations=OF_CONTROLLER) | {"data": {}},
    "a pull secret": secret("drawbridge", "kubernetes.io/dockerconfigjson") | {"data": {".dockerconfigjson": "e30="}},
    "a token to join nodes": secret("bootstrap-token-abcdef", "bootstrap.kubernetes.io/token"),
    "any other Secret": secret("other"),
    "a Secret without a name": secret(None, generateName="drawbridge"),
    "one that another program fills": secret("drawbridge-reservations", annotations={"reflector/reflects": "other/secret"}),
    "one that cannot be renewed": secret("drawbridge-reservations") | {"immutable": True},
    "one that goes with another object": secret("drawbridge-reservations", ownerReferences=[{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}]),
    "one that never goes": secret("drawbridge-reservations", finalizers=["example.com/stay"]),
}  # fmt: skip


@pytest.mark.parametrize("what", FORGED)
def test_the_authoritys_token_creates_no_secret_but_its_own(control_plane, webhook, what):
    with thief(control_plane, "authority") as client:
        assert "drawbridge-secrets" in refusal(client.create, FORGED[what])


CHANGES = {
    "labels": {"metadata": {"labels": RELEASE}},
    "annotations": {"metadata": {"annotations": OF_CONTROLLER}},
    "owners": {"metadata": {"ownerReferences": FORGED["one that goes with another object"]["metadata"]["ownerReferences"]}},
    "finalizers": {"metadata": {"finalizers": ["example.com/stay"]}},
    "immutability": {"immutable": True},
}  # fmt: skip


@pytest.mark.parametrize("what", CHANGES)
def test_the_authoritys_token_changes_only_the_contents_of_its_secrets(control_plane, webhook, what):
    with thief(control_plane, "authority") as client:
        path = f"{SECRETS}/drawbridge-signature"
        assert "drawbridge-secrets" in refusal(client.patch, path, CHANGES[what])
        assert refusal(client.patch, path, {"data": {"note": "bm90ZQ=="}}) == ""


def test_a_token_of_another_account_cannot_replace_a_missing_secret(control_plane, gated, webhook):
    """Without the policy, kube-controller-manager writes the controller's token into the Secret, and the thief reads it."""
    path = f"{SECRETS}/drawbridge-reservations"
    webhook.processes["authority"].stop()
    control_plane.delete(path)
    try:
        with thief(control_plane, "authority") as client:
            with pytest.raises(ApiError, match="drawbridge-secrets"):
                client.create(FORGED["another account's token"])
            with pytest.raises(ApiError, match="not found"):
                client.get(path)
    finally:
        webhook.start_authority()
    control_plane.until("the authority has made its own", lambda: filled(control_plane, path), 30)


def filled(cluster, path):
    secret_ = cluster.get(path)
    return secret_["type"] == "Opaque" and {"tls.crt", "tls.key", "ca.crt"} <= secret_["data"].keys()


def test_a_token_secret_in_place_of_ours_is_kept(control_plane, gated, webhook):
    path = f"{SECRETS}/drawbridge-reservations"
    webhook.processes["authority"].stop()
    control_plane.delete(path)
    control_plane.create(FORGED["another account's token"])
    control_plane.until("Kubernetes has filled it", lambda: "token" in control_plane.get(path).get("data", {}), 30)
    try:
        process = webhook.start_authority()
        control_plane.until("it is named", lambda: f"has type '{TOKEN}'" in process.tail(50), 30)
        assert control_plane.get(path)["data"].keys() == {"token", "ca.crt", "namespace"}
    finally:
        control_plane.delete(path)
    control_plane.until("the authority has made its own", lambda: filled(control_plane, path), 30)


# The controller


def lease(name, namespace=SYSTEM):
    meta = {"name": name, "namespace": namespace}
    spec = {"holderIdentity": "thief", "leaseDurationSeconds": 1_000_000, "renewTime": "2026-01-01T00:00:00.000000Z"}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec}


def test_the_controllers_token_creates_its_own_lease_and_no_other(control_plane, webhook):
    with thief(control_plane, "controller") as client:
        for name in ("drawbridge-allocator", "any", "kube-scheduler"):
            assert "drawbridge-leases" in refusal(client.create, lease(name))
        assert refusal(client.create, lease("drawbridge")) == ""


def test_the_controllers_token_creates_and_deletes_only_drawbridge_templates(control_plane, fleet_node, gated):
    request_ = request("gpu", "gpu.nvidia.com")
    seeing = request("gpu", "gpu.nvidia.com", adminAccess=True, allocationMode="All")
    del seeing["exactly"]["count"]
    name = f"drawbridge-{'0' * 32}"
    control_plane.patch(f"/api/v1/namespaces/{gated}", {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}})  # fmt: skip
    [theirs, ours] = control_plane.create(template("theirs", gated, request_), template(name, gated, request_))
    with thief(control_plane, "controller") as client:
        assert "drawbridge-controller" in refusal(client.create, template("wanted", gated, request_))
        assert "drawbridge-controller" in refusal(client.create, template(f"drawbridge-{'1' * 32}", gated, seeing))
        assert refusal(client.create, template(f"drawbridge-{'1' * 32}", gated, request_)) == ""
        assert "drawbridge-controller" in refusal(client.delete, control_plane.path_of(theirs))
        assert refusal(client.delete, control_plane.path_of(ours)) == ""


def test_the_processes_work_under_the_policies(control_plane, fleet_node, gated, webhook):
    """The processes start under the policies; a pod is translated, and its template is created and deleted."""
    webhook.kill_controller()
    webhook.start_controller()
    control_plane.create(gpu("honest", gated))
    control_plane.wait_scheduled(gated, "honest", 60)
    assert templates_of(control_plane, gated)
    control_plane.delete(f"/api/v1/namespaces/{gated}/pods/honest", gracePeriodSeconds=0)
    control_plane.until("the template is swept", lambda: not templates_of(control_plane, gated), 60)
