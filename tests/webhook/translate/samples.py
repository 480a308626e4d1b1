"""A GPU request, a class that serves an extended resource name, and a dialect of network devices."""

from dra import wire
from dra.objects.claim import DeviceClass
from webhook.state.inventory import Inventory

GPU = {"nvidia.com/gpu": 1}


def annotations(value: dict) -> dict:
    return value["metadata"]["annotations"]


def fleet_serving(name: str, **metadata_fields) -> Inventory:
    """Return a fleet whose only class serves this extended resource."""
    metadata = {"name": "gpu.nvidia.com", **metadata_fields}
    return Inventory.gather(
        [wire.convert({"metadata": metadata, "spec": {"extendedResourceName": name}}, DeviceClass)], [], []
    )


NETWORK = {
    "name": "network",
    "title": "network",
    "target": "nic",
    "keys": [{"name": "example.com/nic", "meaning": "a NIC", "role": "nic"}],
}
PAIRED = {"dialects": [NETWORK], "joint": [{"primary": "nvidia.com/gpu", "secondary": "example.com/nic"}]}
