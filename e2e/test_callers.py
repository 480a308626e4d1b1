"""Who may ask, on a real API server: its admission configuration shows our webhook a token, and nobody else has it."""

import http.client
import json

import pytest

from e2e.client import ApiError
from e2e.controlplane import ControlPlane
from e2e.gate import Gate
from e2e.workloads import container, limits, pod

pytestmark = pytest.mark.real
TOKEN = "only-the-api-server-knows"


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """A control plane that shows the token, and a gate that wants to see it."""
    folder = tmp_path_factory.mktemp("callers")
    kubeconfig = folder / "webhooks.kubeconfig"
    users = [{"name": "*", "user": {"token": TOKEN}}]
    kubeconfig.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", "users": users}))
    (folder / "token").write_text(TOKEN)
    kind = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "WebhookAdmissionConfiguration"}
    plugins = [
        {"name": name, "configuration": {**kind, "kubeConfigFile": str(kubeconfig)}}
        for name in ("MutatingAdmissionWebhook", "ValidatingAdmissionWebhook")
    ]
    admission = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration", "plugins": plugins}
    with ControlPlane(name="callers", admission=admission) as cluster:
        gate = Gate(cluster)
        try:
            gate.install()
            yield gate, folder / "token"
        finally:
            gate.remove()


def again(gate, *options):
    gate.processes["webhook"].stop()
    gate.start_gate(*options)


def test_an_api_server_that_shows_the_token_is_answered_and_a_stranger_is_not(shown):
    gate, file = shown
    again(gate, f"--token-file={file}")
    gate.cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "callers"}})
    gate.admits("callers")  # refused in our words, so the API server was answered
    stranger = http.client.HTTPSConnection("127.0.0.1", gate.port, context=gate.trust(), timeout=10)
    stranger.request("POST", "/mutate", b"{}", {"Content-Type": "application/json"})
    assert stranger.getresponse().status == 401
    stranger.close()
    file.write_text("another")
    again(gate, f"--token-file={file}")
    with pytest.raises(ApiError, match=r"failed calling webhook.*credentials"):
        gate.cluster.create(pod("q", "callers", container(**limits(**{"nvidia.com/mig-1g.5gb": 1}))))
