"""The webhook beside other mutating webhooks on a real API server: a later webhook that restores keys, and one that injects them."""

import base64
import datetime as dt
import json
import ssl
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from certs import authority
from e2e.actors import fleet
from e2e.actors.client import ApiError
from e2e.actors.webhook import claims_of, gpu, results_of
from e2e.actors.workloads import container, limits, pod

pytestmark = pytest.mark.real


@contextmanager
def neighbour(cluster, namespace, patch, tmp_path, *, again="Never"):
    """Another mutating webhook, called after ours, that patches each pod with `patch(pod)`; yields its answers."""
    calls = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["request"]
            operations = patch(request["object"])
            calls.append(operations)
            response = {"uid": request["uid"], "allowed": True}
            if operations:
                encoded = base64.b64encode(json.dumps(operations).encode()).decode()
                response |= {"patchType": "JSONPatch", "patch": encoded}
            answer = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
            body = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    now, life = dt.datetime.now(dt.UTC), dt.timedelta(hours=1)
    signer = authority.authority("neighbour", now=now, life=life)
    leaf = authority.leaf(signer, ["127.0.0.1"], now=now, life=life)
    (tmp_path / "pair.pem").write_bytes(leaf.certificate + leaf.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "pair.pem")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    webhook = {
        "name": "neighbour.example.com",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "reinvocationPolicy": again,
        "clientConfig": {
            "url": f"https://127.0.0.1:{server.server_port}/",
            "caBundle": base64.b64encode(signer.certificate).decode(),
        },
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
    }
    configuration = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {
            "name": f"zz-{namespace}"[:60].rstrip("-")
        },  # webhooks are called in the order of their configurations' names
        "webhooks": [webhook],
    }
    cluster.create(configuration)
    try:
        plain = pod("probe", namespace)
        cluster.until("the neighbour is called", lambda: cluster.create(plain, dryRun="All") and calls, 20)
        calls.clear()
        yield calls
    finally:
        cluster.remove(configuration)
        server.shutdown()
        server.server_close()


def stubborn(item):
    """Return operations that restore the key in the first container if it is missing, as an injector does."""
    resources = item["spec"]["containers"][0].get("resources", {})
    if "nvidia.com/gpu" in resources.get("limits", {}) or item["metadata"].get("name") == "probe":
        return []
    amount = {"nvidia.com/gpu": "1"}
    return [
        {"op": "add", "path": f"/spec/containers/0/resources/{part}", "value": amount}
        for part in ("limits", "requests")
    ]


def test_a_key_restored_by_another_webhook_is_not_translated_twice(control_plane, fleet_node, gated, tmp_path):
    with neighbour(control_plane, gated, stubborn, tmp_path) as calls:
        [stored] = control_plane.create(gpu("p", gated))
        assert any(calls), "the neighbour did put it back"
    assert len(stored["spec"]["resourceClaims"]) == 1
    assert "nvidia.com/gpu" not in stored["spec"]["containers"][0]["resources"].get("limits", {})
    control_plane.wait_scheduled(gated, "p")
    [claim] = claims_of(control_plane, gated, "p").values()
    assert len(results_of(claim)) == 1


def test_a_pod_with_claim_and_restored_key_is_refused(control_plane, fleet_node, gated, tmp_path):
    with neighbour(control_plane, gated, stubborn, tmp_path, again="IfNeeded"), pytest.raises(ApiError) as caught:
        control_plane.create(gpu("p", gated))
    assert "request its devices twice" in caught.value.message
    assert "/spec/containers/0/resources" in caught.value.message


def test_a_key_injected_by_another_webhook_is_translated_on_reinvocation(control_plane, fleet_node, gated, tmp_path):
    def injecting(item):
        limits_ = item["spec"]["containers"][0].get("resources", {}).get("limits", {})
        if item["metadata"].get("name") == "probe" or "injected" in item["metadata"].get("annotations", {}):
            return []
        amounts = limits_ | {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000"}
        return [
            {"op": "add", "path": "/spec/containers/0/resources", "value": {"limits": amounts, "requests": amounts}},
            {"op": "add", "path": "/metadata/annotations", "value": {"injected": "true"}},
        ]

    with neighbour(control_plane, gated, injecting, tmp_path):
        # Because of its own claim the pod reaches our webhook in the first round, too.
        item = pod(
            "p", gated, container(**limits(cpu=1)), resourceClaims=[{"name": "own", "resourceClaimTemplateName": "own"}]
        )
        [stored] = control_plane.create(item)
    assert len(stored["spec"]["resourceClaims"]) == 2
    assert set(stored["spec"]["containers"][0]["resources"]["limits"]) == {"cpu"}
    assert fleet.HAMI in stored["metadata"]["annotations"]["drawbridge.dev/templates"]
