"""An inventory from what sysfs tells: PCI display, network and RDMA devices, virtual functions, and NUMA nodes.

Pure: what was read comes as values (`node.service.sysfs` reads it). Sysfs knows where a device is plugged in and what it is called, and
seldom how much memory it has: what is not known is published as 0, and a class that asks for memory passes it by.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from dra.quantity import Quantity
from node.inventory.described import DeviceInventory, Gpu, Nic, NumaNode, Place, VirtualFunction

if TYPE_CHECKING:
    from collections.abc import Iterable

DISPLAY, NETWORK, ACCELERATOR = 0x03, 0x02, 0x12  # the first byte of a PCI class
_GPUS = (DISPLAY, ACCELERATOR)
_MEGABITS = 10**6
_NO_MEMORY = Quantity.from_int(0, "BinarySI")


class PciDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A device on the PCI bus, as its folder in sysfs tells. `parent` is the address of the function that a virtual one is of."""

    address: str
    kind: int
    name: str = ""  # vendor and device, as numbers
    root: str = ""
    numa_node: int | None = None
    memory: int = 0
    files: tuple[str, ...] = ()
    interface: str = ""
    rdma_device: str = ""
    megabits: int = 0
    parent: str = ""


class NumaFound(msgspec.Struct, frozen=True, kw_only=True):
    """A NUMA node; `pages` by their size in KiB."""

    number: int
    cpus: str = ""
    pages: dict[int, int] = {}


def discovered(driver: str, devices: Iterable[PciDevice], numa_nodes: Iterable[NumaFound]) -> DeviceInventory:
    """Describe what was found."""
    found = sorted(devices, key=lambda device: device.address)
    whole = [device for device in found if not device.parent]
    gpus = [device for device in whole if device.kind in _GPUS]
    nics = [device for device in whole if device.kind == NETWORK]
    return DeviceInventory(
        api_version="drawbridge.dev/v1alpha1",
        kind="DeviceInventory",
        driver=driver,
        gpus=tuple(_gpu(device) for device in gpus),
        nics=tuple(_nic(device, found) for device in nics),
        numa_nodes=tuple(_numa_node(one) for one in numa_nodes),
    )


def _name(kind: str, address: str) -> str:
    """Name a device by its address, which stays when others come and go."""
    return f"{kind}-{address.replace(':', '-').replace('.', '-')}"


def _place(device: PciDevice) -> Place:
    return Place(
        pci_bus_id=device.address,
        pcie_root=device.root,
        numa_node=device.numa_node,
        device_nodes=device.files,
    )


def _gpu(device: PciDevice) -> Gpu:
    memory = Quantity.from_int(device.memory, "BinarySI") if device.memory else _NO_MEMORY
    name = _name("gpu", device.address)
    return Gpu(name=name, uuid=device.address, memory=memory, product=device.name, place=_place(device))


def _nic(device: PciDevice, found: Iterable[PciDevice]) -> Nic:
    functions = [one for one in found if one.parent == device.address]
    return Nic(
        name=_name("nic", device.address),
        interface=device.interface,
        rdma_device=device.rdma_device,
        product=device.name,
        bandwidth=_bandwidth(device.megabits),
        virtual_functions=tuple(_function(one) for one in functions),
        place=_place(device),
    )


def _function(device: PciDevice) -> VirtualFunction:
    return VirtualFunction(
        name=_name("vf", device.address),
        interface=device.interface,
        rdma_device=device.rdma_device,
        place=_place(device),
    )


def _bandwidth(megabits: int) -> Quantity | None:
    return Quantity.from_int(megabits * _MEGABITS) if megabits > 0 else None


def _numa_node(one: NumaFound) -> NumaNode:
    pages = {_size(kib): count for kib, count in sorted(one.pages.items()) if count}
    return NumaNode(number=one.number, cpus=one.cpus, hugepages=pages)


def _size(kib: int) -> str:
    return str(Quantity.from_int(kib << 10, "BinarySI"))
