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
STEPS = {"minimum": "1Gi", "step": "1Gi", "default": "40Gi"}
CORES = {"minimum": "1", "step": "1", "default": "100"}


def described(**parts):
    """Return an inventory as in a file."""
    head = {"apiVersion": "drawbridge.dev/v1alpha1", "kind": "DeviceInventory", "driver": DRIVER}
    return head | parts


def gpu(number=0, **parts):
    return {"name": f"gpu-{number}", "uuid": f"GPU-{number}", "memory": "40Gi"} | parts


def shared_gpu(number=0, **parts):
    return gpu(number, sharing={"memory": STEPS, "cores": CORES}) | parts


def inventory(**parts):
    described_inventory, problems = read_inventory(described(**parts))
    assert problems == []
    return described_inventory


def machine(**parts):
    return machine_of(inventory(**parts))


def result(device, request="r", share="", **consumed):
    shared = {"shareID": share, "consumedCapacity": consumed} if share else {}
    return objects.result(device, driver=DRIVER, pool=NODE, request=request, **shared)


def claim(name, *results, reserved=True, allocated=True, admin=False):
    """Return a claim of the uid `uid-NAME` with these results, and with adminAccess if `admin`."""
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
