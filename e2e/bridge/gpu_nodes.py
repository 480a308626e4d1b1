"""Two fake nodes with GPUs that the allocator serves, and helpers for tests on them."""

import pytest

from e2e.actors import fleet
from e2e.actors.bridge import SCHEDULER
from e2e.actors.workloads import claim, pod, request, template, using, using_template

REPLICA = "allocator-0"
CLASS = "bridge-gpu"
SHARED = "bridge-share"
NODES = ("bridge-0", "bridge-1")


@pytest.fixture(scope="module")
def gpus(control_plane, bridge):
    """Two fake nodes with two whole GPUs each, and a GPU that is shared by memory on the first."""
    control_plane.add_fake_nodes(2, prefix="bridge-")
    objects = [
        fleet.device_class(CLASS, f"device.driver == '{fleet.NVIDIA}'"),
        fleet.device_class(SHARED, f"device.driver == '{fleet.HAMI}'"),
        *(slice_ for name in NODES for slice_ in fleet.slices(fleet.NVIDIA, name, fleet.whole_gpus(2), by_name=True)),
        *fleet.slices(fleet.HAMI, NODES[0], fleet.hami_gpus(1), by_name=True),
    ]
    control_plane.create(*objects)
    try:
        yield
    finally:
        nodes = [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}} for name in NODES]
        control_plane.remove(*objects, *nodes)


@pytest.fixture
def ours(control_plane, bridge, namespace):
    """A namespace whose pods are deleted after the test, because no kubelet ends them. The next test finds all devices free."""
    yield namespace
    control_plane.delete(f"/api/v1/namespaces/{namespace}/pods", gracePeriodSeconds=0)
    control_plane.until("the allocator reports no held device", lambda: held(bridge) == 0, 60)


def held(bridge):
    """Return how many devices of these nodes are held by claims according to the allocator; None if it gives no list."""
    devices = bridge.held_devices()
    return None if devices is None else sum(device["pool"].startswith(NODES) for device in devices)


def until_reason(control_plane, namespace, name, words):
    """Wait until the scheduler reports these words for a pod; earlier messages may be based on older copies of the objects."""
    control_plane.until(words, lambda: words in control_plane.wait_unschedulable(namespace, name)["message"])


def claim_pod(name, namespace, *claims, node="", **spec):
    """A pod with claims for the scheduler of the bridge."""
    return pod(name, namespace, node=node, schedulerName=SCHEDULER, resourceClaims=list(claims), **spec)


def claims_of(control_plane, namespace):
    return control_plane.get(f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims")["items"]


def devices(claim):
    """The devices of a claim, as pool/device."""
    allocation = claim.get("status", {}).get("allocation")
    return [f"{result['pool']}/{result['device']}" for result in allocation["devices"]["results"]] if allocation else []


def read_claim(control_plane, namespace, name):
    return control_plane.get(f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{name}")


def delete(control_plane, namespace, *pods):
    for name in pods:
        control_plane.delete(f"/api/v1/namespaces/{namespace}/pods/{name}", gracePeriodSeconds=0)


def allocate_and_free(control_plane, ours):
    """Create a pod with two claims, one of them from a template, and delete the pod. Return the claims as they were allocated.

    Check that both claims are allocated on one node, and freed after the deletion of the pod.
    """
    control_plane.create(
        claim("kept", ours, request("gpu", CLASS)),
        template("made", ours, request("gpu", CLASS)),
        claim_pod("p", ours, using("kept"), using_template("made")),
    )
    pod_ = control_plane.wait_scheduled(ours, "p")
    claims = claims_of(control_plane, ours)
    allocated = {device for claim in claims for device in devices(claim)}
    assert len(allocated) == 2
    assert {device.partition("-fleet/")[0] for device in allocated} == {pod_["spec"]["nodeName"]}
    for claim_ in claims:
        assert claim_["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]
        assert [consumer["name"] for consumer in claim_["status"]["reservedFor"]] == ["p"]
    delete(control_plane, ours, "p")
    control_plane.until("the claims are free", lambda: not any(map(devices, claims_of(control_plane, ours))), 30)
    return claims


def quota(namespace, devices, device_class=CLASS):
    return {
        "apiVersion": "drawbridge.dev/v1alpha1",
        "kind": "DeviceQuota",
        "metadata": {"name": "team", "namespace": namespace},
        "spec": {"hard": {f"{device_class}/devices": devices}},
    }


def status_of(control_plane, namespace):
    path = f"/apis/drawbridge.dev/v1alpha1/namespaces/{namespace}/devicequotas/team"
    return control_plane.get(path).get("status", {})
