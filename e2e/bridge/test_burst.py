"""A burst of as many pods as there are devices, through the extender: all are placed, no device is held twice, and conflicts are few."""

from functools import partial

import pytest

from e2e.actors import fleet
from e2e.actors.bridge import SCHEDULER
from e2e.actors.workloads import claim, pod, request, using

pytestmark = pytest.mark.real
DRIVER, CLASS = "burst.example.com", "burst-gpu"
NODES, DEVICES_PER_NODE = 20, 5
PODS = NODES * DEVICES_PER_NODE


@pytest.fixture
def burst_nodes(control_plane):
    """Twenty nodes with five devices each."""
    names = control_plane.add_fake_nodes(NODES, prefix="burst-")
    devices = [fleet.device(f"gpu-{index}", {}) for index in range(DEVICES_PER_NODE)]
    slices = [slice_ for name in names for slice_ in fleet.slices(DRIVER, name, devices, by_name=True)]
    objects = [fleet.device_class(CLASS, f"device.driver == '{DRIVER}'"), *slices]
    control_plane.create(*objects)
    try:
        yield
    finally:
        nodes = [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}} for name in names]
        control_plane.remove(*objects, *nodes)


def held_devices(control_plane, namespace):
    claims = control_plane.get(f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims")["items"]
    return [
        (result["pool"], result["device"])
        for claim in claims
        if (allocation := claim.get("status", {}).get("allocation"))
        for result in allocation["devices"]["results"]
    ]


@pytest.mark.parametrize("strategy", ["first-fit", "CompactFirst"])
def test_a_burst_of_pods_has_fewer_conflicts_than_pods(control_plane, bridge, burst_nodes, namespace, strategy):
    """A conflict is a pod whose devices were allocated to another pod between the filter call and the bind call.

    A packing strategy sends all pods to the best node.
    """
    annotations = {"drawbridge.dev/strategy": strategy}
    control_plane.patch(f"/api/v1/namespaces/{namespace}", {"metadata": {"annotations": annotations}})
    names = [f"p{index}" for index in range(PODS)]
    control_plane.create_many(claim(name, namespace, request("gpu", CLASS)) for name in names)
    binds = partial(bridge.count, "drawbridge_extender_binds_total")
    bound, conflicts = binds("bound"), binds("conflict")
    control_plane.create_many(
        pod(name, namespace, schedulerName=SCHEDULER, resourceClaims=[using(name)]) for name in names
    )
    control_plane.until("every device is held", lambda: len(held_devices(control_plane, namespace)) == PODS, 60)
    for name in names:
        control_plane.wait_scheduled(namespace, name)
    assert len(set(held_devices(control_plane, namespace))) == PODS
    control_plane.until("all bindings are counted", lambda: binds("bound") - bound >= PODS)
    assert binds("conflict") - conflicts < PODS
    control_plane.delete(f"/api/v1/namespaces/{namespace}/pods", gracePeriodSeconds=0)
    control_plane.until("the devices are free", lambda: not held_devices(control_plane, namespace), 60)
