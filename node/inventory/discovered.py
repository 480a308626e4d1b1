"""Builds an inventory from sysfs: PCI display, network and RDMA devices, virtual functions, and NUMA nodes.

`node.service.sysfs` reads the files. A device without a kernel driver is left out, because no container could use it; the vendor's module
may be loaded later. Sysfs has the location and the name of a device, but seldom its memory. An unknown amount is published
as 0, so a class that requires memory does not select the device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from dra.quantity import Quantity
from node.inventory.described import DeviceInventory, DevicePlace, Gpu, Nic, NumaNode, VirtualFunction

if TYPE_CHECKING:
    from collections.abc import Iterable

DISPLAY, NETWORK, ACCELERATOR = 0x03, 0x02, 0x12  # the first byte of a PCI class
_GPUS = (DISPLAY, ACCELERATOR)
_MEGABITS = 10**6


class PciDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A PCI device as sysfs describes it. For a virtual function, `parent` is the address of its physical function."""

    address: str
    kind: int
    is_bound: bool = True  # to a kernel driver
    name: str = ""  # vendor and device, as numbers
    root: str = ""
    numa_node: int | None = None
    memory: int = 0
    files: tuple[str, ...] = ()
    interface: str = ""
    rdma_device: str = ""
    megabits: int = 0
    parent: str = ""


class SysfsNumaNode(msgspec.Struct, frozen=True, kw_only=True):
    """A NUMA node, with the number of huge pages (`pages`) by their size in KiB."""

    number: int
    cpus: str = ""
    pages: dict[int, int] = {}


def discovered(driver: str, devices: Iterable[PciDevice], numa_nodes: Iterable[SysfsNumaNode]) -> DeviceInventory:
    """Return an inventory of these devices. A device is named by its address, so its name does not depend on other devices."""
    in_order = sorted((device for device in devices if device.is_bound), key=lambda device: device.address)
    gpus: list[Gpu] = []
    nics: list[Nic] = []
    for device in in_order:
        if not device.parent and device.kind in _GPUS:
            gpus.append(
                Gpu(
                    name=_name("gpu", device.address),
                    uuid=device.address,
                    memory=Quantity.from_int(device.memory, "BinarySI"),
                    product=device.name,
                    place=_place(device),
                )
            )
        elif not device.parent and device.kind == NETWORK:
            functions = [
                VirtualFunction(
                    name=_name("vf", function.address),
                    interface=function.interface,
                    rdma_device=function.rdma_device,
                    place=_place(function),
                )
                for function in in_order
                if function.parent == device.address
            ]
            nics.append(
                Nic(
                    name=_name("nic", device.address),
                    interface=device.interface,
                    rdma_device=device.rdma_device,
                    product=device.name,
                    bandwidth=Quantity.from_int(device.megabits * _MEGABITS) if device.megabits > 0 else None,
                    virtual_functions=tuple(functions),
                    place=_place(device),
                )
            )
    nodes: list[NumaNode] = []
    for node in numa_nodes:
        pages = {
            str(Quantity.from_int(kib << 10, "BinarySI")): count for kib, count in sorted(node.pages.items()) if count
        }
        nodes.append(NumaNode(number=node.number, cpus=node.cpus, hugepages=pages))
    return DeviceInventory(
        api_version="drawbridge.dev/v1alpha1",
        kind="DeviceInventory",
        driver=driver,
        gpus=tuple(gpus),
        nics=tuple(nics),
        numa_nodes=tuple(nodes),
    )


def _name(kind: str, address: str) -> str:
    return f"{kind}-{address.replace(':', '-').replace('.', '-')}"


def _place(device: PciDevice) -> DevicePlace:
    return DevicePlace(
        pci_bus_id=device.address,
        pcie_root=device.root,
        numa_node=device.numa_node,
        device_nodes=device.files,
    )
