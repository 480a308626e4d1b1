"""Machines and claims for the tests of the node."""

from pathlib import Path

from node.inventory import machine_of, read_inventory
from node.messages import ClaimReference
from tests import objects
from tests.objects import typed

EXAMPLES = Path(__file__).parents[2] / "manifests" / "examples" / "inventories"
DRIVER = "devices.example.com"
NODE = "node-1"
LAYOUT = {
    "name": "small",
    "slices": 4,
    "compute": 3,
    "partitions": [
        {"profile": "1g", "memory": "10Gi", "slices": 1, "compute": 1, "at": [0, 1, 2]},
        {"profile": "2g", "memory": "20Gi", "slices": 2, "compute": 2, "at": [0, 2]},
    ],
}
MEMORY_STEPS = {"minimum": "1Gi", "step": "1Gi", "default": "40Gi"}
CORE_STEPS = {"minimum": "1", "step": "1", "default": "100"}


def inventory_document(**parts):
    """Return an inventory as a file contains it."""
    head = {"apiVersion": "drawbridge.dev/v1alpha1", "kind": "DeviceInventory", "driver": DRIVER}
    return head | parts


def gpu(number=0, **parts):
    return {"name": f"gpu-{number}", "uuid": f"GPU-{number}", "memory": "40Gi"} | parts


def shared_gpu(number=0, **parts):
    return gpu(number, sharing={"memory": MEMORY_STEPS, "cores": CORE_STEPS}) | parts


def inventory(**parts):
    parsed, problems = read_inventory(inventory_document(**parts))
    assert problems == []
    return parsed


def machine(**parts):
    return machine_of(inventory(**parts))


def result(device, request="r", share="", **consumed):
    shared = {"shareID": share, "consumedCapacity": consumed} if share else {}
    return objects.result(device, driver=DRIVER, pool=NODE, request=request, **shared)


def claim(name, *results, reserved=True, allocated=True, admin=False):
    """Return a claim with the uid `uid-NAME` and these allocation results. `admin` requests adminAccess."""
    names = {result["request"].partition("/")[0] for result in results} or {"r"}
    requests = [objects.exactly("c", name=name, adminAccess=admin) for name in sorted(names)]
    status = {}
    if allocated:
        status["allocation"] = {"devices": {"results": list(results)}}
    if reserved:
        status["reservedFor"] = [{"resource": "pods", "name": "p", "uid": f"pod-{name}"}]
    return typed(objects.claim(name, *requests, namespace="ns", uid=f"uid-{name}", status=status))


def reference(name):
    return ClaimReference(namespace="ns", name=name, uid=f"uid-{name}")
