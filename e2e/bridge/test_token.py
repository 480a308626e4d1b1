"""Our scheduler calls the allocator with a wrong token: pods wait with an event, until the scheduler sends the right token."""

import pytest

from e2e.actors import fleet
from e2e.actors.bridge import PLUGIN_SCHEDULER, plugin_configuration
from e2e.actors.workloads import claim, pod, request, using
from e2e.build import program
from e2e.ground.controlplane import free_port

pytestmark = pytest.mark.real
REPLICA = "allocator-0"
DRIVER, CLASS, NODE = "token.example.com", "token-gpu", "token-0"
RIGHT, WRONG = "the-allocators-own", "copied-from-elsewhere"


@pytest.fixture
def shown(control_plane, bridge, tmp_path):
    """The file with the token that our scheduler sends, at first the right token."""
    demanded, file = tmp_path / "demanded", tmp_path / "shown"
    demanded.write_text(RIGHT)
    file.write_text(RIGHT)
    control_plane.add_fake_nodes(1, prefix="token-")
    made = [
        fleet.device_class(CLASS, f"device.driver == '{DRIVER}'"),
        *fleet.slices(DRIVER, NODE, [fleet.device(f"gpu-{at}", {}) for at in range(4)], by_name=True),
    ]
    control_plane.create(*made)
    bridge.processes[REPLICA].stop()
    address = f"127.0.0.1:{free_port()}"
    bridge.start(plugin=address, token_file=demanded)
    configuration = plugin_configuration(bridge.socket)
    arguments = configuration["profiles"][0]["pluginConfig"][0]["args"]
    del arguments["socket"]
    arguments |= {"address": address, "tokenFile": str(file)}
    running = control_plane.start_scheduler(
        configuration, name="token-scheduler", binary=program("drawbridge-scheduler")
    )
    try:
        yield file
    finally:
        running.stop()
        bridge.processes[REPLICA].stop()
        control_plane.remove(*made, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
        bridge.start()


def place(control_plane, namespace, name):
    control_plane.create(
        claim(name, namespace, request("gpu", CLASS)),
        pod(name, namespace, schedulerName=PLUGIN_SCHEDULER, resourceClaims=[using(name)]),
    )


def test_a_wrong_token_keeps_pods_waiting_with_an_event(control_plane, shown, namespace):
    place(control_plane, namespace, "before")
    control_plane.wait_scheduled(namespace, "before")
    shown.write_text(WRONG)
    place(control_plane, namespace, "meanwhile")
    words = "waits for the drawbridge allocator"
    messages = control_plane.until(
        "the event", lambda: [event for event in control_plane.events(namespace, "meanwhile") if words in event]
    )
    assert any("token" in message for message in messages)
    assert not any(secret in message for message in messages for secret in (RIGHT, WRONG))
    waiting = control_plane.get(f"/api/v1/namespaces/{namespace}/pods/meanwhile")
    assert "nodeName" not in waiting["spec"]
    untouched = control_plane.get(f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/meanwhile")
    assert "finalizers" not in untouched["metadata"]
    assert not untouched.get("status")
    shown.write_text(f"{RIGHT}\n")
    control_plane.wait_scheduled(namespace, "meanwhile")
    control_plane.delete(f"/api/v1/namespaces/{namespace}/pods", gracePeriodSeconds=0)
