"""A burst of as many pods as there are devices, through the extender: all are placed, no device is held twice, and conflicts are few."""

from functools import partial

import pytest

from e2e.actors import fleet
from e2e.actors.bridge import SCHEDULER
from e2e.actors.workloads import claim, pod, request, using

pytestmark = pytest.mark.real
DRIVER, CLASS = "burst.example.com", "burst-gpu"
NODES, EACH = 20, 5
PODS = NODES * EACH


@pytest.fixture
def full_use(control_plane):
    """Twenty nodes with five devices each."""
    names = control_plane.add_fake_nodes(NODES, prefix="burst-")
    devices = [fleet.device(f"gpu-{at}", {}) for at in range(EACH)]
    slices = [slice_ for name in names for slice_ in fleet.slices(DRIVER, name, devices, by_name=True)]
    made = [fleet.device_class(CLASS, f"device.driver == '{DRIVER}'"), *slices]
    control_plane.create(*made)
    try:
        yield
    finally:
        nodes = [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}} for name in names]
        control_plane.remove(*made, *nodes)


def held(control_plane, namespace):
    claims = control_plane.get(f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims")["items"]
    return [
        (result["pool"], result["device"])
        for claim in claims
        if (allocation := claim.get("status", {}).get("allocation"))
        for result in allocation["devices"]["results"]
    ]


@pytest.mark.parametrize("strategy", ["first-fit", "CompactFirst"])
def test_pods_that_arrive_at_once_conflict_less_than_once_each(control_plane, bridge, full_use, namespace, strategy):
    """A conflict is a pod whose devices were allocated to another pod between the filter call and the bind call.

    A packing strategy sends all pods to the best node.
    """
    annotations = {"drawbridge.dev/strategy": strategy}
    control_plane.patch(f"/api/v1/namespaces/{namespace}", {"metadata": {"annotations": annotations}})
    names = [f"p{at}" for at in range(PODS)]
    control_plane.create_many(claim(name, namespace, request("gpu", CLASS)) for name in names)
    counted = partial(bridge.count, "drawbridge_extender_binds_total")
    bound, conflicts = counted("bound"), counted("conflict")
    control_plane.create_many(
        pod(name, namespace, schedulerName=SCHEDULER, resourceClaims=[using(name)]) for name in names
    )
    control_plane.until("every device is held", lambda: len(held(control_plane, namespace)) == PODS, 60)
    for name in names:
        control_plane.wait_scheduled(namespace, name)
    assert len(set(held(control_plane, namespace))) == PODS
    control_plane.until("all bindings are counted", lambda: counted("bound") - bound >= PODS)
    assert counted("conflict") - conflicts < PODS
    control_plane.delete(f"/api/v1/namespaces/{namespace}/pods", gracePeriodSeconds=0)
    control_plane.until("the devices are free", lambda: not held(control_plane, namespace), 60)
