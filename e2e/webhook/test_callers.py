"""Authentication of callers on a real API server: the documented steps of docs/install.md, and the same with a token.

The webhook is called by its Service, which has an external name here: nothing routes to Services on this machine, and an API
server follows an external name by itself.
"""

import http.client
import json
import random
import re
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from cluster import manifests
from e2e.actors.client import ApiError
from e2e.actors.webhook import BASE, ROOT, SYSTEM, Webhook
from e2e.actors.workloads import container, limits, pod
from e2e.ground.controlplane import ControlPlane, free_port

pytestmark = pytest.mark.real
TOKEN = "only-the-api-server-knows"
PLACE = "/etc/kubernetes/pki/webhooks"
MOUNT = "/etc/drawbridge-callers"


def documented():
    """The commands and the files of the section, by the file's name in its first line."""
    section = (ROOT / "docs/install.md").read_text().partition("## Allowed callers")[2].partition("\n## ")[0]
    blocks = re.findall(r"^```(sh|yaml)\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    files = {text.partition("\n")[0].removeprefix("# "): text for language, text in blocks if language == "yaml"}
    (commands,) = [text for language, text in blocks if language == "sh"]
    return commands, files


class Shown(NamedTuple):
    webhook: Webhook
    folder: Path
    host: str  # the target of the Service: a loopback address of this run, because the port is always 443


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """A control plane that sends a client certificate to the Service, and a token to all other webhooks."""
    folder = tmp_path_factory.mktemp("callers")
    commands, files = documented()
    subprocess.run(["sh", "-ec", commands.replace(PLACE, str(folder))], check=True, capture_output=True)
    for name, text in files.items():
        (folder / name).write_text(text.replace(PLACE, str(folder)))
    kubeconfig = read(folder / "kubeconfig.yaml")
    kubeconfig["users"].append({"name": "*", "user": {"token": TOKEN}})
    (folder / "kubeconfig.yaml").write_text(json.dumps(kubeconfig))
    (folder / "token").write_text(TOKEN)
    host = f"127.{random.randint(1, 250)}.{random.randint(1, 250)}.{random.randint(1, 250)}"
    with ControlPlane(name="callers", admission=read(folder / "admission.yaml")) as cluster:
        webhook = Webhook(cluster)
        try:
            webhook.install()
            cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "callers"}})
            yield Shown(webhook, folder, host)
        finally:
            webhook.remove()


def read(file):
    (document,) = manifests.read([file])
    return document.object


def again(webhook, *options):
    webhook.processes["webhook"].stop()
    webhook.start_webhook(*options)


def unknown_client(webhook, host, port):
    """The answer to a caller without credentials."""
    connection = http.client.HTTPSConnection(host, port, context=webhook.trust(), timeout=60)
    connection._context.check_hostname = False
    try:
        connection.request("POST", "/mutate", b"{}", {"Content-Type": "application/json"})
        return connection.getresponse().status
    finally:
        connection.close()


ASKING = pod("q", "callers", container(**limits(**{"nvidia.com/mig-1g.5gb": 1})))


def test_only_an_api_server_with_the_token_is_answered(shown):
    webhook, file = shown.webhook, shown.folder / "token"
    again(webhook, f"--token-file={file}")
    webhook.admits("callers")  # a refusal in our words, so the API server was answered
    assert unknown_client(webhook, "127.0.0.1", webhook.port) == 401
    file.write_text("another")
    again(webhook, f"--token-file={file}")
    with pytest.raises(ApiError, match=r"failed calling webhook.*credentials"):
        webhook.cluster.create(ASKING)


def test_only_an_api_server_with_a_client_certificate_is_answered(shown):
    webhook, folder, host = shown
    options = overlaid(webhook.cluster, folder)
    webhook.processes["webhook"].stop()
    route(webhook.cluster, host)
    port = free_port()
    webhook.start(
        "webhook", "--no-controllers", *options, f"--listen={host}:443", f"--metrics-listen=127.0.0.1:{port}", "--notice=0.5"
    )  # fmt: skip
    webhook.cluster.kubectl("delete", "mutatingwebhookconfiguration,validatingwebhookconfiguration", "drawbridge")
    made = webhook.webhooks({"webhooks": {"optIn": True, "failurePolicy": "Fail"}})
    webhook.cluster.kubectl("apply", "--server-side", "-f", "-", input=made)
    webhook.admits("callers")
    assert unknown_client(webhook, host, 443) == 401
    metrics = webhook.plain(port, "/metrics")
    assert 'drawbridge_refused_requests_total{path="/mutate",status="401"} 1.0' in metrics, (
        "the client without a token, and no other"
    )
    # The webhook rejects a client certificate of the same authority with another name.
    webhook.processes["webhook"].stop()
    others = [f"{option}-of-another-cluster" if option.startswith("--client-name") else option for option in options]
    webhook.start("webhook", "--no-controllers", *others, f"--listen={host}:443", f"--metrics-listen=127.0.0.1:{free_port()}", "--notice=0.5")  # fmt: skip

    def turned_away():
        try:
            webhook.cluster.create(ASKING, dryRun="All")
        except ApiError as error:
            return "failed calling webhook" in error.message and "credentials" in error.message
        return False

    webhook.cluster.until("it is turned away", turned_away, 30)


def overlaid(cluster, folder):
    """The options of the documented overlay, with the paths of its files here."""
    overlay = folder / "overlay"
    overlay.mkdir()
    up = "../" * (len(overlay.resolve().parts) - 1)  # kustomize wants a relative path
    text = (folder / "kustomization.yaml").read_text().replace("../base", f"{up}{BASE.relative_to(BASE.anchor)}")
    (overlay / "kustomization.yaml").write_text(text)
    built = cluster.kubectl("kustomize", str(overlay)).stdout
    (deployment,) = [
        document.object
        for document in manifests.parse(built)
        if (document.object["kind"], document.object["metadata"]["name"]) == ("Deployment", "drawbridge-webhook")
    ]
    spec = deployment["spec"]["template"]["spec"]
    (container_,) = spec["containers"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container_["volumeMounts"]}
    assert mounts["callers"] == MOUNT
    assert {"name": "callers", "configMap": {"name": "drawbridge-callers"}} in spec["volumes"]
    return [argument.replace(MOUNT, str(folder)) for argument in container_["args"] if argument.startswith("--client-")]


def route(cluster, host):
    """Route our Service to an address of this machine."""
    path = f"/api/v1/namespaces/{SYSTEM}/services/drawbridge"
    ports = cluster.get(path)["spec"]["ports"]
    cluster.delete(path)
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "drawbridge", "namespace": SYSTEM},
        "spec": {"type": "ExternalName", "externalName": host, "ports": ports},
    }
    cluster.create(service)
