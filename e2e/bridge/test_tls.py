"""Mutual TLS between our scheduler and the allocator, on a real control plane."""

import http.client
import re
import socket
import ssl
import subprocess
import tempfile
import threading
from pathlib import Path

import pytest

from certs.mutual import Files, Mutual
from e2e.actors import fleet
from e2e.actors.bridge import SCHEDULER, scheduler_configuration
from e2e.actors.workloads import claim, pod, request, using
from e2e.ground.controlplane import free_port
from tests.certs.peers import Peers, certificate, pem
from tests.limits import PATIENCE

pytestmark = pytest.mark.real
DRIVER = "tls.example.com"
CLASS = "tls-gpu"
NODE = "tls-0"
REPLICA = "allocator-0"
PAGE = Path(__file__).parents[2] / "docs" / "bridge.md"


@pytest.fixture
def peers():
    with tempfile.TemporaryDirectory() as folder:
        yield Peers(Path(folder))


@pytest.fixture
def tls_scheduler(control_plane, bridge, peers):
    """Our scheduler, which has a certificate, as has the allocator; there is a fake node with enough devices."""
    control_plane.add_fake_nodes(1, prefix="tls-")
    objects = [
        fleet.device_class(CLASS, f"device.driver == '{DRIVER}'"),
        *fleet.slices(DRIVER, NODE, [fleet.device(f"gpu-{at}", {}) for at in range(8)], by_name=True),
    ]
    control_plane.create(*objects)
    for process in (REPLICA, "scheduler"):
        bridge.processes[process].stop()
    address = f"127.0.0.1:{free_port()}"
    bridge.start(plugin=address, tls_cert=peers.cert, tls_key=peers.key, client_ca=peers.client_ca)
    configuration = scheduler_configuration(bridge.socket)
    arguments = configuration["profiles"][0]["pluginConfig"][0]["args"]
    del arguments["socket"]
    arguments |= {"address": address, "tls": scheduler_files(peers)}
    running = bridge.start_scheduler(profiles=configuration["profiles"])
    try:
        yield address
    finally:
        for process in (running, bridge.processes[REPLICA]):
            process.stop()
        control_plane.remove(*objects, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
        bridge.start()
        bridge.processes["scheduler"] = bridge.start_scheduler()


def scheduler_files(peers):
    """The certificate files of a scheduler."""
    return {"caFile": str(peers.ca), "certFile": str(peers.scheduler_cert), "keyFile": str(peers.scheduler_key)}


@pytest.fixture
def ours(control_plane, namespace):
    """A namespace whose pods are deleted after the test, because no kubelet ends them."""
    yield namespace
    control_plane.delete(f"/api/v1/namespaces/{namespace}/pods", gracePeriodSeconds=0)


def place(control_plane, namespace, name):
    control_plane.create(
        claim(name, namespace, request("gpu", CLASS)),
        pod(name, namespace, schedulerName=SCHEDULER, resourceClaims=[using(name)]),
    )


def port_of(address):
    return int(address.rpartition(":")[2])


def is_answered(port, context):
    """Return whether a request gets any response."""
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=60, context=context)
    try:
        connection.request("GET", "/plugin/v1/state")
        return bool(connection.getresponse().status)
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def test_only_a_scheduler_with_a_certificate_gets_answers(control_plane, bridge, tls_scheduler, peers, ours):
    place(control_plane, ours, "p")
    assert control_plane.wait_scheduled(ours, "p")["spec"]["nodeName"] == NODE
    for port in (port_of(tls_scheduler), bridge.api_port):
        assert is_answered(port, peers.context())
        assert not is_answered(port, peers.context(has_certificate=False))
        with pytest.raises((OSError, http.client.HTTPException)):
            bridge.ask("/api/v1/claims", port)


def test_the_scheduler_follows_a_change_of_authorities_while_running(control_plane, tls_scheduler, peers, ours):
    """First the scheduler's certificate and the trusted authority change, then the allocator's certificate."""
    port = port_of(tls_scheduler)
    clients = certificate("new clients")
    peers.client_ca.write_bytes(pem(clients[0]))
    old_context = peers.context()
    peers.replace_client_certificate("scheduler", clients)
    control_plane.until(
        "the allocator refuses certificates of the old authority", lambda: not is_answered(port, old_context), 60
    )
    place(control_plane, ours, "a")
    control_plane.wait_scheduled(ours, "a", 60)
    peers.renew()
    control_plane.until("the allocator uses its new certificate", lambda: is_answered(port, peers.context()), 60)
    place(control_plane, ours, "b")
    control_plane.wait_scheduled(ours, "b", 60)


def test_the_commands_of_the_page_create_matching_certificates(tmp_path):
    section = PAGE.read_text().partition("## A scheduler in another pod")[2]
    commands = re.search(r"```sh\n(.*?)```", section, re.DOTALL)[1]
    subprocess.run(["sh", "-e", "-c", commands], cwd=tmp_path, check=True, capture_output=True, timeout=60)
    files = Files(*(str(tmp_path / name) for name in ("allocator.crt", "allocator.key", "ca.crt")))
    scheduler = ssl.create_default_context(cafile=tmp_path / "ca.crt")
    scheduler.load_cert_chain(tmp_path / "scheduler.crt", tmp_path / "scheduler.key")
    client_certificate = shake_hands(Mutual(files).context, scheduler, "drawbridge-allocator.drawbridge-system.svc")
    assert client_certificate["subject"] == ((("commonName", "scheduler"),),)


def shake_hands(server, client, name):
    """Perform a TLS handshake; return the client certificate that the server has seen."""
    server_socket, client_socket = socket.socketpair()

    def answer():
        with server.wrap_socket(server_socket, server_side=True) as connection:
            certificates.append(connection.getpeercert())
            connection.sendall(b"x")

    certificates = []
    thread = threading.Thread(target=answer)
    thread.start()
    with client.wrap_socket(client_socket, server_hostname=name) as connection:
        assert connection.recv(1) == b"x"
    thread.join(PATIENCE)
    return certificates[0]
