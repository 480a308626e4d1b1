"""The hardware of a machine, described in a file or discovered in sysfs, and the devices that the driver publishes for it."""

from node.inventory.described import KIND, VERSION, DeviceInventory
from node.inventory.discovered import NumaFound, PciDevice, discovered
from node.inventory.machine import (
    UNHEALTHY,
    DeviceAccess,
    Machine,
    label,
    listed,
    machine_of,
    numbers_of,
    tainted,
    taints_of,
)
from node.inventory.reading import read_inventory, unpublishable

__all__ = [
    "KIND",
    "UNHEALTHY",
    "VERSION",
    "DeviceAccess",
    "DeviceInventory",
    "Machine",
    "NumaFound",
    "PciDevice",
    "discovered",
    "label",
    "listed",
    "machine_of",
    "numbers_of",
    "read_inventory",
    "tainted",
    "taints_of",
    "unpublishable",
]
