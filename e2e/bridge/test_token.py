"""Our scheduler calls the allocator with a wrong token: pods wait with an event, until the scheduler sends the right token."""

import pytest

from e2e.actors import fleet
from e2e.actors.bridge import SCHEDULER, scheduler_configuration
from e2e.actors.workloads import claim, pod, request, using
from e2e.ground.controlplane import free_port

pytestmark = pytest.mark.real
REPLICA = "allocator-0"
DRIVER, CLASS, NODE = "token.example.com", "token-gpu", "token-0"
RIGHT, WRONG = "the-allocators-own", "copied-from-elsewhere"


@pytest.fixture
def token_file(control_plane, bridge, tmp_path):
    """The file with the token that our scheduler sends, at first the right token."""
    allocator_file, file = tmp_path / "demanded", tmp_path / "shown"
    allocator_file.write_text(RIGHT)
    file.write_text(RIGHT)
    control_plane.add_fake_nodes(1, prefix="token-")
    objects = [
        fleet.device_class(CLASS, f"device.driver == '{DRIVER}'"),
        *fleet.slices(DRIVER, NODE, [fleet.device(f"gpu-{at}", {}) for at in range(4)], by_name=True),
    ]
    control_plane.create(*objects)
    bridge.processes[REPLICA].stop()
    address = f"127.0.0.1:{free_port()}"
    bridge.start(plugin=address, token_file=allocator_file)
    configuration = scheduler_configuration(bridge.socket)
    arguments = configuration["profiles"][0]["pluginConfig"][0]["args"]
    del arguments["socket"]
    arguments |= {"address": address, "tokenFile": str(file)}
    bridge.processes["scheduler"].stop()
    running = bridge.start_scheduler(profiles=configuration["profiles"])
    try:
        yield file
    finally:
        running.stop()
        bridge.processes[REPLICA].stop()
        control_plane.remove(*objects, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
        bridge.start()
        bridge.processes["scheduler"] = bridge.start_scheduler()


def place(control_plane, namespace, name):
    control_plane.create(
        claim(name, namespace, request("gpu", CLASS)),
        pod(name, namespace, schedulerName=SCHEDULER, resourceClaims=[using(name)]),
    )


def test_a_wrong_token_keeps_pods_waiting_with_an_event(control_plane, token_file, namespace):
    place(control_plane, namespace, "before")
    control_plane.wait_scheduled(namespace, "before")
    token_file.write_text(WRONG)
    place(control_plane, namespace, "meanwhile")
    words = "waits for the drawbridge allocator"
    messages = control_plane.until(
        "an event says that the pod waits for the allocator",
        lambda: [event for event in control_plane.events(namespace, "meanwhile") if words in event],
    )
    assert any("token" in message for message in messages)
    assert not any(secret in message for message in messages for secret in (RIGHT, WRONG))
    pod_ = control_plane.get(f"/api/v1/namespaces/{namespace}/pods/meanwhile")
    assert "nodeName" not in pod_["spec"]
    claim_ = control_plane.get(f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/meanwhile")
    assert "finalizers" not in claim_["metadata"]
    assert not claim_.get("status")
    token_file.write_text(f"{RIGHT}\n")
    control_plane.wait_scheduled(namespace, "meanwhile")
    control_plane.delete(f"/api/v1/namespaces/{namespace}/pods", gracePeriodSeconds=0)
