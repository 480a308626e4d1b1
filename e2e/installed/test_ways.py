"""Two other layouts of the bridge as pods: a stock scheduler that calls the extender. Each layout replaces the previous one.

First kustomize puts scheduler and allocator into one pod. Then Helm puts them into two pods that use mutual TLS.
"""

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
from e2e.installed.installation import (
    ALLOCATOR,
    ALLOCATOR_PORT,
    ROOT,
    kustomized,
    rendered_chart,
    until_pods_are_translated,
)

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
    """Run commands of the page as an administrator does."""
    path = f"{Path(program('kubectl')).parent}:{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "KUBECONFIG": str(cluster.kubeconfig)}
    subprocess.run(
        ["sh", "-e", "-c", commands], cwd=folder, env=environment, check=True, capture_output=True, timeout=60
    )


@pytest.fixture(scope="module")
def extender(installation, tenants):
    objects = kustomized(installation.cluster, resources=["base"], components=["bridge"])
    installation.apply(objects)
    installation.wait(objects)
    until_pods_are_translated(installation.cluster, tenants, schedulerName="drawbridge")
    return installation


@pytest.fixture(scope="module")
def certificates(installation, tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificates")
    run(installation.cluster, folder, MAKE_CERTIFICATES)
    return folder


@pytest.fixture(scope="module")
def two_pods(extender, certificates, tenants):
    """The layout with two pods. It is applied before its Secrets exist: the pods wait, and their events name the Secret."""
    cluster = extender.cluster
    objects = rendered_chart(cluster, CONFIGURATION, bridge={"way": "apart", "schedulerImage": product.STOCK_SCHEDULER})
    extender.apply(objects)
    for component in ("allocator", "scheduler"):
        secret = f'secret "drawbridge-{component}" not found'
        cluster.until(
            f"an event names the Secret of the {component}", lambda secret=secret: secret in events(cluster), 60
        )
    run(cluster, certificates, MAKE_SECRETS)
    extender.wait(objects)
    until_pods_are_translated(cluster, tenants, schedulerName="drawbridge")
    return extender


def events(cluster):
    return "\n".join(event["message"] for event in cluster.get(f"/api/v1/namespaces/{SYSTEM}/events")["items"])


def test_a_stock_scheduler_places_pods_after_the_allocator_was_killed(extender, tenants):
    extender.run_gpu_pod(tenants, "by-an-extender", schedulerName="drawbridge")
    extender.kill(extender.wait_for_leader(), "allocator")
    extender.run_gpu_pod(tenants, "after-a-kill", schedulerName="drawbridge")
    # The kubelet reports the restart with a delay.
    extender.cluster.until("the allocator was started again", lambda: extender.restarts("allocator")["allocator"], 60)
    assert extender.restarts("allocator") == {"allocator": 1, "scheduler": 0}


def test_a_separate_stock_scheduler_uses_the_next_allocator(two_pods, tenants):
    two_pods.run_gpu_pod(tenants, "by-two-pods", schedulerName="drawbridge")
    first = two_pods.wait_for_leader()
    two_pods.cluster.delete(f"/api/v1/namespaces/{SYSTEM}/pods/{first}")
    two_pods.run_gpu_pod(tenants, "after-another-came", schedulerName="drawbridge")
    two_pods.cluster.until("another replica leads", lambda: two_pods.leader() not in ("", first), 60)
    assert two_pods.restarts("scheduler") == {"scheduler": 0}


def test_the_allocator_rejects_clients_without_the_schedulers_certificate(two_pods, certificates):
    """The allocator's own certificate is signed by the same authority, but has another name."""
    codes = {"scheduler": 404, "allocator": 403}
    for client, code in codes.items():
        context = ssl.create_default_context(cafile=str(certificates / "ca.crt"))
        context.load_cert_chain(certificates / f"{client}.crt", certificates / f"{client}.key")
        # A deleted pod may still be listed, and does not answer.
        two_pods.cluster.until(
            f"the allocator answers the client {client}",
            lambda code=code, context=context: f" {code} " in first_line_of_answer(two_pods, context),
        )
    assert (
        first_line_of_answer(two_pods, ssl.create_default_context(cafile=str(certificates / "ca.crt"))) == "turned away"
    )


def first_line_of_answer(two_pods, context):
    """Return the first line of the allocator's answer to an unknown path. In TLS 1.3 a client is rejected when it reads."""
    [address] = two_pods.addresses("drawbridge-allocator")
    with socket.create_connection((address, ALLOCATOR_PORT), timeout=30) as connection:
        try:
            with context.wrap_socket(connection, server_hostname=ALLOCATOR) as tls:
                tls.sendall(f"GET /nothing HTTP/1.1\r\nHost: {ALLOCATOR}\r\nConnection: close\r\n\r\n".encode())
                return tls.recv(4096).decode().partition("\r\n")[0] or "turned away"
        except (ssl.SSLError, ConnectionError):
            return "turned away"
