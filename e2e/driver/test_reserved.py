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
from e2e.actors.bridge import PLUGIN_SCHEDULER
from e2e.actors.webhook import SYSTEM
from e2e.actors.workloads import claim, container, pod, request, using
from e2e.driver.installed import PROGRAM, until_freed
from e2e.driver.test_node_agent import ACCOUNT, CLASS, DEVICES, DRIVER, RESOURCE, Auditor, device_of, gone, look, old
from e2e.ground.controlplane import free_port

pytestmark = [pytest.mark.real, pytest.mark.node]

AUDIENCE = "drawbridge-allocator"
NAMED = (f"{AUDIENCE}-reservations", f"{ACCOUNT}-reservations")
REASON = "DeviceReservedElsewhere"


class Seeing(Auditor):
    """An agent that reads an allocator's reservations, with the rights of the component.

    It sets no taints, so that a held device can be reserved.
    """

    def __init__(self, node, folder):
        super().__init__(node, SYSTEM)
        self.door = free_port()
        self.file = folder / "token"

    def rights(self):
        command = [
            PROGRAM,
            "manifests",
            "--image=x",
            "--scheduler-image=x",
            "--bridge",
            "--node-agent",
            "--reservations",
        ]
        printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
        roles = [document.object for document in parse(printed)]
        return [*super().rights(), *(role for role in roles if role["metadata"]["name"] in NAMED)]

    def mount(self, made):
        self.file.write_text(self.token_of(made, audiences=[AUDIENCE]))

    def command(self):
        options = ["--allocator", f"https://127.0.0.1:{self.door}", "--allocator-token", self.file, "--mark", "none"]
        return [*super().command(), *options]


@pytest.fixture(scope="module")
def believed(webhook, tmp_path_factory):
    """The folder with the certificate of the allocator's listener, which the authority of the webhook has signed."""
    folder = tmp_path_factory.mktemp("door")
    webhook.trust()  # fails if there is no certificate yet
    data = webhook.cluster.get(f"/api/v1/namespaces/{SYSTEM}/secrets/drawbridge")["data"]
    for name in ("tls.crt", "tls.key", "ca.crt"):
        (folder / name).write_bytes(b64decode(data[name]))
    return folder


@pytest.fixture(scope="module")
def seeing(control_plane, node_cluster, bridge, believed):
    """An agent, and the session's allocator with a listener for it; the test acts as the scheduler's plugin."""
    agent = Seeing(node_cluster, believed)
    agent.bridge, agent.plugin = bridge, free_port()
    with contextlib.ExitStack() as ending:
        made = [fleet.device_class(CLASS, f"device.driver == '{DRIVER}'"), *agent.rights()]
        control_plane.create(*made)
        ending.callback(control_plane.remove, *made)
        ending.callback(restart, bridge)
        restart(
            bridge,
            plugin=f"127.0.0.1:{agent.plugin}",
            reservations=f"127.0.0.1:{agent.door}",
            reservations_certs=str(believed),
        )
        look(agent, ending)
        yield agent


def restart(bridge, **changed):
    bridge.processes["allocator-0"].stop()
    bridge.start(**changed)


def call_plugin(seeing, call, **body):
    """Return the allocator's answer to a call of a scheduler's plugin."""
    code, answer = seeing.bridge.ask(f"/plugin/v1/{call}", seeing.plugin, body)
    assert code == 200, answer
    return answer


def test_a_reserved_device_held_by_a_plugin_pod_is_reported(control_plane, seeing, namespace, created):
    created(old(namespace, "old"))
    held = device_of(seeing, namespace, "old")
    waiting = pod("new", namespace, container(), resourceClaims=[using("mine")], schedulerName=PLUGIN_SCHEDULER)
    created(claim("mine", namespace, request("r", CLASS, count=2)), waiting)
    item = control_plane.get(f"/api/v1/namespaces/{namespace}/pods/new")

    def decided():
        answer = call_plugin(seeing, "prefilter", pod=item)
        return answer if answer.get("nodes") else None

    answer = control_plane.until("the allocator has read the claim", decided)
    reserved = call_plugin(seeing, "reserve", token=answer["token"], node=seeing.node.name)
    node = {"involvedObject.kind": "Node", "involvedObject.name": seeing.node.name, "reason": REASON}
    [message] = control_plane.until("the node's event", lambda: seeing.events_of("default", **node), 100)
    assert (
        f"{DRIVER}/{seeing.node.name}/{DEVICES[held]}: an allocator has reserved it for ResourceClaim {namespace}/mine"
        in message
    )
    assert f"and pod {namespace}/old has it as {RESOURCE} {held} of a device plugin" in message
    assert "drawbridge_node_reservations 1.0" in seeing.metrics()
    command = [PROGRAM, "doctor", "-o", "json", "--kubeconfig", control_plane.kubeconfig]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert ("O227", f"Node/{seeing.node.name}") in {(finding["code"], finding["object"]) for finding in json.loads(done.stdout)["findings"]}  # fmt: skip
    call_plugin(seeing, "unreserve", **reserved)
    control_plane.until("it is over", lambda: seeing.events_of("default", **node) == ["it is over"], 100)
    gone(seeing, namespace, "old", "new")
    until_freed(seeing.driver, set())


def test_a_token_shows_its_own_node_for_its_audience(seeing, created):
    elsewhere = "elsewhere-reservations"
    created({"apiVersion": "v1", "kind": "Node", "metadata": {"name": elsewhere}})
    other = pod("other", seeing.namespace, container(), nodeName=elsewhere)
    other["spec"]["serviceAccountName"] = ACCOUNT
    [made] = seeing.cluster.create(other)
    for token, status, words in (
        (seeing.file.read_text(), 200, f'"node":"{seeing.node.name}"'),
        (seeing.token_of(made, audiences=[AUDIENCE]), 200, f'"node":"{elsewhere}"'),
        (seeing.token, 401, "another audience"),
        (seeing.bridge.token("allocator-0"), 401, "another audience"),
    ):
        code, answer = shown(seeing, token)
        assert (code, words in answer) == (status, True), answer
    seeing.cluster.delete(f"/api/v1/namespaces/{seeing.namespace}/pods/other", gracePeriodSeconds=0)


def shown(seeing, token):
    """Return the answer of the reservations port to a token."""
    context = ssl.create_default_context(cafile=seeing.file.parent / "ca.crt")
    connection = http.client.HTTPSConnection("127.0.0.1", seeing.door, timeout=60, context=context)
    try:
        connection.request("GET", "/reservations", headers={"Authorization": f"Bearer {token}"})
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()
