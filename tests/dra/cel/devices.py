"""The devices on which expressions are evaluated, in the JSON form of the API and as typed views."""

from typing import Any

from dra import cel
from dra.objects.device import Device
from dra.wire import convert

GPU: dict[str, Any] = {
    "driver": "gpu.example.com",
    "allowMultipleAllocations": True,
    "attributes": {
        "model": {"string": "H100"},
        "uuid": {"string": "GPU-9a0b3f6e-0000-4b1d-8f0d-0123456789ab"},
        "driverVersion": {"version": "570.124.6"},
        "index": {"int": 0},
        "mig": {"bool": False},
        "ecc": {"bool": True},
        "profiles": {"strings": ["1g.10gb", "2g.20gb", "3g.40gb"]},
        "numa": {"ints": [0, 1]},
        "flags": {"bools": [True, False]},
        "firmwares": {"versions": ["1.2.3", "2.0.0-rc.1"]},
        "resource.kubernetes.io/pcieRoot": {"string": "pci0000:15"},
        "nic.example.com/address": {"string": "10.2.3.4"},
    },
    "capacity": {
        "memory": {"value": "80Gi"},
        "cores": {"value": "132"},
        "bandwidth": {"value": "3350G"},
        "nic.example.com/lanes": {"value": "16"},
    },
}
NIC = {
    "driver": "nic.example.com",
    "attributes": {
        "speed": {"int": 200},
        "rdma": {"bool": True},
        "address": {"string": "192.168.0.7"},
        "model": {"string": "CX7"},
    },
    "capacity": {"bandwidth": {"value": "200G"}},
}
BARE = {"driver": "bare.example.com"}
DEVICES = [GPU, NIC, BARE]


def view(device):
    fields = {key: value for key, value in device.items() if key != "driver"}
    return cel.view_of(device["driver"], convert({"name": "d", **fields}, Device))


VIEWS = [view(device) for device in DEVICES]

__all__ = ["BARE", "DEVICES", "GPU", "NIC", "VIEWS", "view"]
