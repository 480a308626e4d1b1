"""The other two ways of the bridge as pods, each put in place of the one before it: a stock scheduler with the extender in one pod, as kustomize
builds it, and in two pods that know each other by certificates, as Helm makes it of the chart."""

import os
import re
import socket
import ssl
import subprocess
from pathlib import Path

import pytest

from e2e.actors.webhook import SYSTEM
from e2e.build import program
from e2e.ground import product
from e2e.installed.installation import ALLOCATOR, ALLOCATOR_PORT, ROOT, built, charted, translates

pytestmark = [pytest.mark.real, pytest.mark.node, pytest.mark.time_limit(480, "a dozen processes start")]

SECTION = (ROOT / "docs/bridge.md").read_text().partition("## By address, with certificates")[2]
MAKE_CERTIFICATES, MAKE_SECRETS = re.findall(r"```sh\n(.*?)```", SECTION, re.DOTALL)[:2]
CONFIGURATION = {
    "apiVersion": "drawbridge.dev/v1alpha1",
    "kind": "DrawbridgeConfiguration",
    "mode": "observe",
    "bridge": {"schedulerName": "drawbridge"},
}


def run(cluster, folder, commands):
    """Run the page's commands as an administrator does."""
    path = f"{Path(program('kubectl')).parent}:{os.environ['PATH']}"
    beside = os.environ | {"PATH": path, "KUBECONFIG": str(cluster.kubeconfig)}
    subprocess.run(["sh", "-e", "-c", commands], cwd=folder, env=beside, check=True, capture_output=True, timeout=60)


@pytest.fixture(scope="module")
def extender(installation, tenants):
    made = built(installation.cluster, resources=["base"], components=["bridge"])
    installation.apply(made)
    installation.wait(made)
    translates(installation.cluster, tenants, schedulerName="drawbridge")
    return installation


@pytest.fixture(scope="module")
def certificates(installation, tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificates")
    run(installation.cluster, folder, MAKE_CERTIFICATES)
    return folder


@pytest.fixture(scope="module")
def apart(extender, certificates, tenants):
    """Applied before its Secrets are there: the pods wait, and their events say for what."""
    cluster = extender.cluster
    made = charted(cluster, CONFIGURATION, bridge={"way": "apart", "schedulerImage": product.STOCK_SCHEDULER})
    extender.apply(made)
    for component in ("allocator", "scheduler"):
        secret = f'secret "drawbridge-{component}" not found'
        cluster.until(f"an event names the Secret of the {component}", lambda said=secret: said in events(cluster), 60)
    run(cluster, certificates, MAKE_SECRETS)
    extender.wait(made)
    translates(cluster, tenants, schedulerName="drawbridge")
    return extender


def events(cluster):
    return "\n".join(one["message"] for one in cluster.get(f"/api/v1/namespaces/{SYSTEM}/events")["items"])


def test_a_stock_scheduler_in_the_allocators_pod_places_pods_also_when_the_allocator_was_killed(extender, tenants):
    extender.serve(tenants, "by-an-extender", schedulerName="drawbridge")
    extender.kill(extender.leads(), "allocator")
    extender.serve(tenants, "after-a-kill", schedulerName="drawbridge")
    # The kubelet says so when it comes to it.
    extender.cluster.until("the allocator was started again", lambda: extender.restarts("allocator")["allocator"], 60)
    assert extender.restarts("allocator") == {"allocator": 1, "scheduler": 0}


def test_in_two_pods_a_stock_scheduler_places_pods_also_when_the_allocators_pod_is_another(apart, tenants):
    apart.serve(tenants, "by-two-pods", schedulerName="drawbridge")
    first = apart.leads()
    apart.cluster.delete(f"/api/v1/namespaces/{SYSTEM}/pods/{first}")
    apart.serve(tenants, "after-another-came", schedulerName="drawbridge")
    apart.cluster.until("another leads", lambda: apart.leader() not in ("", first), 60)
    assert apart.restarts("scheduler") == {"scheduler": 0}


def test_at_the_allocators_service_a_client_without_a_certificate_of_the_schedulers_is_turned_away(apart, certificates):
    """The allocator's own is of the same authority, and has another name."""
    served = {"scheduler": 404, "allocator": 403}
    for who, code in served.items():
        context = ssl.create_default_context(cafile=str(certificates / "ca.crt"))
        context.load_cert_chain(certificates / f"{who}.crt", certificates / f"{who}.key")
        # Of the pods that there are: the one that was there before may still be listed.
        apart.cluster.until(
            f"{who} is answered", lambda code=code, context=context: f" {code} " in asked(apart, context)
        )
    assert asked(apart, ssl.create_default_context(cafile=str(certificates / "ca.crt"))) == "turned away"


def asked(apart, context):
    """The first line of what the allocator answers in its pod to an unknown question. In TLS 1.3 a client is turned away when it reads."""
    [address] = apart.addresses("drawbridge-allocator")
    with socket.create_connection((address, ALLOCATOR_PORT), timeout=30) as line:
        try:
            with context.wrap_socket(line, server_hostname=ALLOCATOR) as talk:
                talk.sendall(f"GET /nothing HTTP/1.1\r\nHost: {ALLOCATOR}\r\nConnection: close\r\n\r\n".encode())
                return talk.recv(4096).decode().partition("\r\n")[0] or "turned away"
        except (ssl.SSLError, ConnectionError):
            return "turned away"
