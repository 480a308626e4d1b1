"""The node agent reads, over TLS, the allocator's reservations that no claim has yet; the API server checks the agent's token."""

import contextlib
import http.client
import json
import ssl
import subprocess
from base64 import b64decode

import pytest

from cluster.manifests import parse
from e2e.actors import fleet
from e2e.actors.bridge import SCHEDULER
from e2e.actors.webhook import SYSTEM
from e2e.actors.workloads import claim, container, pod, request, using
from e2e.driver.installed import PROGRAM, until_freed
from e2e.driver.test_node_agent import (
    ACCOUNT,
    CLASS,
    DEVICES,
    DRIVER,
    Agent,
    delete_pods,
    device_of,
    plugin_pod,
    start_all,
)
from e2e.ground.controlplane import free_port
from tests.cli.running import run_manifests

pytestmark = [pytest.mark.real, pytest.mark.node]

AUDIENCE = "drawbridge-allocator"
ROLE_NAMES = (f"{AUDIENCE}-reservations", f"{ACCOUNT}-reservations")
REASON = "DeviceReservedElsewhere"


class ReadingAgent(Agent):
    """An agent that reads an allocator's reservations, with the rights of the component.

    It sets no taints, so that a held device can be reserved.
    """

    def __init__(self, node, folder):
        super().__init__(node, SYSTEM)
        self.reservations_port = free_port()
        self.file = folder / "token"

    def rights(self):
        printed = run_manifests("--image", "x", level="node", bridge={"schedulerImage": "x"}).stdout
        roles = [document.object for document in parse(printed)]
        return [*super().rights(), *(role for role in roles if role["metadata"]["name"] in ROLE_NAMES)]

    def mount(self, agent_pod):
        self.file.write_text(self.token_of(agent_pod, audiences=[AUDIENCE]))

    def command(self):
        options = [
            "--allocator",
            f"https://127.0.0.1:{self.reservations_port}",
            "--allocator-token",
            self.file,
            "--mark",
            "none",
        ]
        return [*super().command(), *options]


@pytest.fixture(scope="module")
def certificates(webhook, tmp_path_factory):
    """The folder with the certificate of the allocator's listener, which the authority of the webhook has signed."""
    folder = tmp_path_factory.mktemp("door")
    webhook.trust()  # fails if there is no certificate yet
    data = webhook.cluster.get(f"/api/v1/namespaces/{SYSTEM}/secrets/drawbridge")["data"]
    for name in ("tls.crt", "tls.key", "ca.crt"):
        (folder / name).write_bytes(b64decode(data[name]))
    return folder


@pytest.fixture(scope="module")
def reading_agent(control_plane, node_cluster, bridge, certificates):
    """An agent, and the session's allocator with a listener for it; the test acts as the scheduler's plugin."""
    agent = ReadingAgent(node_cluster, certificates)
    agent.bridge, agent.plugin = bridge, free_port()
    with contextlib.ExitStack() as stack:
        objects = [fleet.device_class(CLASS, f"device.driver == '{DRIVER}'"), *agent.rights()]
        control_plane.create(*objects)
        stack.callback(control_plane.remove, *objects)
        stack.callback(restart, bridge)
        restart(
            bridge,
            plugin=f"127.0.0.1:{agent.plugin}",
            reservations=f"127.0.0.1:{agent.reservations_port}",
            reservations_certs=str(certificates),
        )
        start_all(agent, stack)
        yield agent


def restart(bridge, **options):
    bridge.processes["allocator-0"].stop()
    bridge.start(**options)


def call_plugin(reading_agent, call, **body):
    """Return the allocator's answer to a call of a scheduler's plugin."""
    code, answer = reading_agent.bridge.ask(f"/plugin/v1/{call}", reading_agent.plugin, body)
    assert code == 200, answer
    return answer


def test_a_reserved_device_held_by_a_plugin_pod_is_reported(control_plane, reading_agent, namespace, created):
    created(plugin_pod(namespace, "old"))
    held = device_of(reading_agent, namespace, "old")
    new_pod = pod("new", namespace, container(), resourceClaims=[using("mine")], schedulerName=SCHEDULER)
    created(claim("mine", namespace, request("r", CLASS, count=2)), new_pod)
    item = control_plane.get(f"/api/v1/namespaces/{namespace}/pods/new")

    def prefiltered():
        answer = call_plugin(reading_agent, "prefilter", pod=item)
        return answer if answer.get("nodes") else None

    answer = control_plane.until("the allocator has read the claim", prefiltered)
    reserved = call_plugin(reading_agent, "reserve", token=answer["token"], node=reading_agent.node.name)
    node = {"involvedObject.kind": "Node", "involvedObject.name": reading_agent.node.name, "reason": REASON}
    [message] = control_plane.until(
        "the node has an event about the device", lambda: reading_agent.events_of("default", **node), 100
    )
    for words in (f"{DRIVER}/{reading_agent.node.name}/{DEVICES[held]}: ", f"{namespace}/mine", f"{namespace}/old"):
        assert words in message
    assert "drawbridge_node_reservations 1.0" in reading_agent.metrics()
    command = [PROGRAM, "doctor", "-o", "json", "--kubeconfig", control_plane.kubeconfig]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert ("O227", f"Node/{reading_agent.node.name}") in {(finding["code"], finding["object"]) for finding in json.loads(done.stdout)["findings"]}  # fmt: skip
    call_plugin(reading_agent, "unreserve", **reserved)
    control_plane.until(
        "the node's event says that it is over",
        lambda: reading_agent.events_of("default", **node) == ["it is over"],
        100,
    )
    delete_pods(reading_agent, namespace, "old", "new")
    until_freed(reading_agent.driver, set())


def test_a_token_gets_the_reservations_of_its_own_node(reading_agent, created):
    other_node = "elsewhere-reservations"
    created({"apiVersion": "v1", "kind": "Node", "metadata": {"name": other_node}})
    other_pod = pod("other", reading_agent.namespace, container(), nodeName=other_node)
    other_pod["spec"]["serviceAccountName"] = ACCOUNT
    [stored] = reading_agent.cluster.create(other_pod)
    for token, status, words in (
        (reading_agent.file.read_text(), 200, f'"node":"{reading_agent.node.name}"'),
        (reading_agent.token_of(stored, audiences=[AUDIENCE]), 200, f'"node":"{other_node}"'),
        (reading_agent.token, 401, "another audience"),
        (reading_agent.bridge.token("allocator-0"), 401, "another audience"),
    ):
        code, answer = get_reservations(reading_agent, token)
        assert (code, words in answer) == (status, True), answer
    reading_agent.cluster.delete(f"/api/v1/namespaces/{reading_agent.namespace}/pods/other", gracePeriodSeconds=0)


def get_reservations(reading_agent, token):
    """Return the answer of the reservations port to a token."""
    context = ssl.create_default_context(cafile=reading_agent.file.parent / "ca.crt")
    connection = http.client.HTTPSConnection("127.0.0.1", reading_agent.reservations_port, timeout=60, context=context)
    try:
        connection.request("GET", "/reservations", headers={"Authorization": f"Bearer {token}"})
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()
