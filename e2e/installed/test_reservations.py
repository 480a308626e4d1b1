"""The node agent's pod reads the allocator's reservations that no claim has yet: over TLS, with a mounted token."""

import http.client
import json
import os
import socket
from contextlib import closing
from urllib.request import urlopen

import pytest

from e2e.actors import fleet
from e2e.actors.webhook import SYSTEM
from e2e.actors.workloads import claim, container, pod, request, using
from tests.limits import PATIENCE

pytestmark = [pytest.mark.real, pytest.mark.node, pytest.mark.timeout(480)]  # fmt: skip

SERVICE = "drawbridge-reservations"
AGENTS = f"{SYSTEM}-nodes"
PLUGIN = "volumes/kubernetes.io~empty-dir/run/allocator"


@pytest.fixture
def reservation_of_a_pod(node, installation):
    """A reservation for a pod that its scheduler ignores; yields the allocator's answer."""
    cluster = node.cluster
    # After the previous test a pod may still be starting.
    cluster.until("both replicas are ready", lambda: len(installation.addresses(SERVICE)) == 2, PATIENCE)
    name = cluster.namespace("reserved")
    spec = {"schedulerName": "drawbridge", "schedulingGates": [{"name": "example.com/later"}]}
    pod_ = pod("p", name, container(), resourceClaims=[using("mine")], **spec)
    cluster.create(claim("mine", name, request("gpu", fleet.NVIDIA)), pod_)
    item = cluster.read(pod_)
    [leader] = [pod for pod in installation.pods() if pod["metadata"]["name"] == installation.leader()]

    def call_plugin(call, **body):
        return call_plugin_socket(node, leader["metadata"]["uid"], call, body)

    answer = cluster.until("the allocator has read the claim", lambda: answer_with_nodes(call_plugin("prefilter", pod=item)), PATIENCE)  # fmt: skip
    reservation = call_plugin("reserve", token=answer["token"], node=node.name)
    yield reservation
    call_plugin("unreserve", **reservation)
    cluster.delete(f"/api/v1/namespaces/{name}")


def answer_with_nodes(answer):
    return answer if answer.get("nodes") else None


def call_plugin_socket(node, uid, call, body):
    """Return an allocator's answer at the socket that it shares with its scheduler. The socket's full path is too long for an address."""
    folder = os.open(f"/proc/{node.box.init}/root/var/lib/kubelet/pods/{uid}/{PLUGIN}", os.O_PATH)
    connection = http.client.HTTPConnection("allocator", timeout=60)
    try:
        with closing(socket.socket(socket.AF_UNIX)) as connection.sock:
            connection.sock.connect(f"/proc/self/fd/{folder}/plugin.sock")
            connection.request("POST", f"/plugin/v1/{call}", json.dumps(body))
            response = connection.getresponse()
            text = response.read().decode()
    finally:
        os.close(folder)
    assert response.status == 200, text
    return json.loads(text)


def test_the_agents_pod_sees_reservations_of_the_leading_allocator(node, installation, reservation_of_a_pod):
    cluster = node.cluster
    [agent] = [pod for pod in installation.pods(AGENTS) if "deletionTimestamp" not in pod["metadata"]]
    url = f"http://{agent['status']['podIP']}:9092"
    cluster.until(
        "the agent's metrics count the reservation",
        lambda: "drawbridge_node_reservations 1.0" in read(f"{url}/metrics"),
        PATIENCE,
    )
    assert "allocator" not in read(f"{url}/readyz?verbose")


def read(url):
    with urlopen(url, timeout=30) as answer:
        return answer.read().decode()
