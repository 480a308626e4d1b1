"""The hardware of a machine, described in a file or discovered in sysfs, and the devices that the driver publishes for it."""

from node.inventory.described import KIND, VERSION, DeviceInventory
from node.inventory.discovered import PciDevice, SysfsNumaNode, discovered
from node.inventory.machine import (
    UNHEALTHY,
    DeviceAccess,
    Machine,
    label,
    machine_of,
    numbers_of,
    ranges_of,
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
    "PciDevice",
    "SysfsNumaNode",
    "discovered",
    "label",
    "machine_of",
    "numbers_of",
    "ranges_of",
    "read_inventory",
    "tainted",
    "taints_of",
    "unpublishable",
]
