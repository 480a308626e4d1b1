"""The dashboard as `manifests/dashboard` installs it for tenants: in its own pod, behind TLS, a login and an Ingress."""

import base64
import http.client
import os
import re
import socket
import ssl
import subprocess
from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode

import pytest

from certs import authority
from e2e.actors import fleet
from e2e.actors.webhook import SYSTEM
from e2e.actors.workloads import claim, pod, request, using
from e2e.build import program
from e2e.installed.breakages import reference
from e2e.installed.installation import ROOT, kustomized
from tests.limits import PATIENCE

pytestmark = [pytest.mark.real, pytest.mark.node, pytest.mark.timeout(480)]  # fmt: skip

HOST = "gpus.example.com"
PAGE = ROOT / "docs" / "dashboard.md"
TENANT_NAMESPACE, OTHER_NAMESPACE = "looks", "unseen"
PERMISSIONS = {
    "rules": [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
        {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims"], "verbs": ["list"]},
    ]
}


class SiteClient:
    """Sends requests to the dashboard's pod as an Ingress does: with TLS, and with the name of the site as host."""

    def __init__(self, address, bundle, port=8642):
        self._address, self._port = address, port
        self.bundle = bundle
        self._context = ssl.create_default_context(cadata=bundle)

    def ask(self, path, method="GET", form=None, **headers):
        connection = http.client.HTTPSConnection(HOST, timeout=60, context=self._context)
        tcp = socket.create_connection((self._address, self._port), timeout=60)
        connection.sock = self._context.wrap_socket(tcp, server_hostname=HOST)
        try:
            if form is not None:
                headers["Content-Type"] = "application/x-www-form-urlencoded"
            connection.request(method, path, urlencode(form) if form is not None else None, headers)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read().decode()
        finally:
            connection.close()


@pytest.fixture(scope="module")
def pages(installation):
    """The Deployment of docs/dashboard.md, with a certificate for the name of the site."""
    cluster, now = installation.cluster, datetime.now(UTC)
    signer = authority.authority("site", now=now, life=timedelta(days=9))
    pair = authority.leaf(signer, [HOST], now=now, life=timedelta(days=8))
    files = {"tls.crt": pair.certificate, "tls.key": pair.key}
    data = {name: base64.b64encode(content).decode() for name, content in files.items()}
    secret = reference("v1", "Secret", "drawbridge-dashboard-tls", SYSTEM) | {"type": "kubernetes.io/tls", "data": data}
    [ingress] = re.findall(
        r"```yaml\n(apiVersion: networking.k8s.io/v1\nkind: Ingress\n.*?)```", PAGE.read_text(), re.DOTALL
    )
    objects = [secret, *kustomized(cluster, resources=["dashboard"])]
    installation.apply(objects)
    cluster.kubectl("apply", "-f", "-", input=ingress)
    installation.wait(objects)
    [running] = installation.pods(component="dashboard")
    yield SiteClient(running["status"]["podIP"], signer.certificate.decode())
    cluster.kubectl("delete", "-f", "-", input=ingress)
    cluster.remove(*reversed(objects))
    cluster.until("its pod is gone", lambda: not installation.pods(component="dashboard"), PATIENCE)


@pytest.fixture(scope="module")
def token(installation):
    """The token of a tenant who may list the pods of one namespace, but not of a second one; each namespace has a pod."""
    cluster = installation.cluster
    for space, name in ((TENANT_NAMESPACE, "my-notebook"), (OTHER_NAMESPACE, "their-secret")):
        cluster.namespace(space)
        scheduling_gate = {"schedulingGates": [{"name": "example.com/later"}]}
        cluster.create(
            claim("c", space, request("gpu", fleet.NVIDIA)),
            pod(name, space, resourceClaims=[using("c")], **scheduling_gate),
        )
    rbac = "rbac.authorization.k8s.io"
    cluster.create(
        reference("v1", "ServiceAccount", "tenant", TENANT_NAMESPACE),
        reference(f"{rbac}/v1", "Role", "tenant", TENANT_NAMESPACE) | PERMISSIONS,
        reference(f"{rbac}/v1", "RoleBinding", "tenant", TENANT_NAMESPACE)
        | {
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "tenant"},
            "subjects": [{"kind": "ServiceAccount", "name": "tenant", "namespace": TENANT_NAMESPACE}],
        },
    )
    cluster.until_may(f"system:serviceaccount:{TENANT_NAMESPACE}:tenant", "list", "pods", TENANT_NAMESPACE)
    yield cluster.token_of(TENANT_NAMESPACE, "tenant")
    for space in (TENANT_NAMESPACE, OTHER_NAMESPACE):
        cluster.delete(f"/api/v1/namespaces/{space}")


def test_a_tenant_logs_in_through_the_ingress(installation, pages, token):
    status, headers, text = pages.ask("/")
    assert (status, headers["WWW-Authenticate"]) == (401, "Bearer")
    assert "A bearer token of this cluster" in text
    status, headers, _ = pages.ask("/login", "POST", {"token": token}, Origin=f"https://{HOST}")
    assert (status, headers["Location"]) == (303, "/")
    cookie, _, attributes = headers["Set-Cookie"].partition(";")
    assert all(word in attributes for word in ("Secure", "HttpOnly", "SameSite=Strict"))

    def shows_pod():
        status, _, text = pages.ask("/waiting", Cookie=cookie)
        assert status == 200
        assert "their-secret" not in text
        return f"/pods/{TENANT_NAMESPACE}/my-notebook" in text

    installation.cluster.until("the dashboard shows the tenant's pod", shows_pod, PATIENCE)
    status, _, text = pages.ask("/api/v1/fleet", Authorization=f"Bearer {token}")
    assert status == 200
    assert fleet.NVIDIA in text
    assert "their-secret" not in text


def test_another_site_cannot_log_a_user_in(pages, token):
    assert pages.ask("/login", "POST", {"token": token}, Origin="https://elsewhere.example.com")[0] == 403


def test_the_dashboards_role_covers_each_page(pages, installation):
    """The role of the manifests is enough for every page."""
    cluster = installation.cluster
    admin = cluster.token_of(SYSTEM, "drawbridge-dashboard")  # it may list pods and claims of all namespaces
    for path in ("/", "/waiting", "/quota", "/together", "/history", f"/pods/{OTHER_NAMESPACE}/their-secret"):
        status, _, text = pages.ask(path, Authorization=f"Bearer {admin}")
        assert status == 200, path
        assert "Not read" not in text, path
    cluster.until("the page shows a survey", lambda: "Surveyed at" in pages.ask("/move", Authorization=f"Bearer {admin}")[2], PATIENCE)  # fmt: skip


def test_without_an_ingress_kubectl_opens_the_dashboard(installation, pages):
    """The commands are those of the page."""
    [line] = re.findall(r"^kubectl (port-forward .*)$", PAGE.read_text(), re.MULTILINE)
    words = [word if word != "8642:443" else ":443" for word in line.split()]
    environment = os.environ | {"KUBECONFIG": str(installation.cluster.kubeconfig)}
    with subprocess.Popen([program("kubectl"), *words], stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            port = int(process.stdout.readline().partition(" -> ")[0].rpartition(":")[2])
            assert SiteClient("127.0.0.1", pages.bundle, port).ask("/")[0] == 401
        finally:
            process.terminate()
