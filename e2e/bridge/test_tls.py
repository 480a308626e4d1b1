"""Mutual TLS between schedulers and the allocator, on a real control plane: the stock scheduler and ours."""

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
from e2e.actors.bridge import PLUGIN_SCHEDULER, SCHEDULER, plugin_configuration
from e2e.actors.workloads import claim, pod, request, using
from e2e.build import program
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
def tls_schedulers(control_plane, bridge, peers):
    """The two schedulers, which have certificates, as has the allocator; there is a fake node with enough devices."""
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
    configuration = plugin_configuration(bridge.socket)
    arguments = configuration["profiles"][0]["pluginConfig"][0]["args"]
    del arguments["socket"]
    arguments |= {"address": address, "tls": scheduler_files(peers)}
    running = [
        bridge.start_scheduler(tls=scheduler_files(peers)),
        control_plane.start_scheduler(configuration, name="tls-scheduler", binary=program("drawbridge-scheduler")),
    ]
    try:
        yield running
    finally:
        for process in (*running, bridge.processes[REPLICA]):
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


def place(control_plane, namespace, name, scheduler):
    control_plane.create(
        claim(name, namespace, request("gpu", CLASS)),
        pod(name, namespace, schedulerName=scheduler, resourceClaims=[using(name)]),
    )


def is_answered(port, context):
    """Return whether a request gets any response."""
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=60, context=context)
    try:
        connection.request("GET", "/extender/filter")
        return bool(connection.getresponse().status)
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def test_only_schedulers_with_a_certificate_get_answers(control_plane, bridge, tls_schedulers, peers, ours):
    for scheduler in (SCHEDULER, PLUGIN_SCHEDULER):
        place(control_plane, ours, scheduler, scheduler)
    for scheduler in (SCHEDULER, PLUGIN_SCHEDULER):
        assert control_plane.wait_scheduled(ours, scheduler)["spec"]["nodeName"] == NODE
    for port in (bridge.port, bridge.api_port):
        assert is_answered(port, peers.context())
        assert not is_answered(port, peers.context(has_certificate=False))
        with pytest.raises((OSError, http.client.HTTPException)):
            bridge.ask("/api/v1/claims", port)


def test_both_schedulers_follow_a_change_of_authorities_while_running(
    control_plane, bridge, tls_schedulers, peers, ours
):
    """First the schedulers' certificate and the trusted authority change, then the allocator's certificate.

    The stock scheduler trusts the allocator's new certificate only after a restart of the scheduler.
    """
    clients = certificate("new clients")
    peers.client_ca.write_bytes(pem(clients[0]))
    old_context = peers.context()
    peers.replace_client_certificate("scheduler", clients)
    control_plane.until(
        "the allocator refuses certificates of the old authority", lambda: not is_answered(bridge.port, old_context), 60
    )
    for scheduler in (SCHEDULER, PLUGIN_SCHEDULER):
        place(control_plane, ours, f"a-{scheduler}", scheduler)
    for scheduler in (SCHEDULER, PLUGIN_SCHEDULER):
        control_plane.wait_scheduled(ours, f"a-{scheduler}", 60)
    peers.renew()
    control_plane.until("the allocator uses its new certificate", lambda: is_answered(bridge.port, peers.context()), 60)
    for scheduler in (SCHEDULER, PLUGIN_SCHEDULER):
        place(control_plane, ours, f"b-{scheduler}", scheduler)
    control_plane.wait_scheduled(ours, f"b-{PLUGIN_SCHEDULER}", 60)
    words = "unknown authority"
    control_plane.until(words, lambda: has_event(control_plane, ours, f"b-{SCHEDULER}", words), 60)
    tls_schedulers[0].stop()
    tls_schedulers[0] = bridge.start_scheduler(tls=scheduler_files(peers))
    control_plane.wait_scheduled(ours, f"b-{SCHEDULER}", 60)


def has_event(control_plane, namespace, name, words):
    return any(words in event for event in control_plane.events(namespace, name))


def test_the_commands_of_the_page_create_matching_certificates(tmp_path):
    section = PAGE.read_text().partition("## By address, with certificates")[2]
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
