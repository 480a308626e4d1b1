"""The devices of plugins as devices of one driver: a pool a node, a device for each id, whichever plugin it is of.

A plugin that hands out one card several times ("replicas", written `ID::NUMBER`) has a device for each time, all with the attribute `card`:
the attribute tells which of them are one card, and the plugin decides what they share. A device that its plugin calls unhealthy is tainted,
and so are all devices of a plugin that is gone: pods that run go on running, and no new ones come.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec

from dra.objects import Device, DeviceAttribute, DeviceTaint
from node.inventory import Machine, Offer, PciDevice, label
from node.messages import PluginDevice

if TYPE_CHECKING:
    from collections.abc import Iterable

HEALTHY = "Healthy"
_STANDARD = "resource.kubernetes.io"
_LONGEST_NAME = 63
_LONGEST_TEXT = 64
_SIGNS = 8
_REPLICA = re.compile(r"(.+)::(\d+)").fullmatch
_PCI = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-1][0-9a-f]\.[0-7]").fullmatch
_UUID = re.compile(r"((GPU|MIG|NPU)-)?[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}").fullmatch


class Facts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """What is known of a device besides what its plugin says: from sysfs, or from a file."""

    numa_node: int | None = None
    pci_bus_id: str = msgspec.field(default="", name="pciBusID")
    pcie_root: str = ""
    uuid: str = ""
    product: str = ""


class Plugged(msgspec.Struct, frozen=True, kw_only=True):
    """A plugin as it is now: its devices, in the order in which it would rather hand them out."""

    resource: str
    devices: tuple[PluginDevice, ...] = ()
    connected: bool = True


class _Identity(msgspec.Struct, frozen=True):
    """How a plugin calls a device."""

    resource: str
    id: str


class Lore(msgspec.Struct, frozen=True):
    """What is known besides what plugins say: `told` in a file, by id or card, and `found` in sysfs, by PCI address."""

    told: Mapping[str, Facts] = {}
    found: Mapping[str, Facts] = {}


def machine_of(driver: str, plugins: Iterable[Plugged], lore: Lore) -> Machine:
    """Say what all plugins of a node offer together. Devices with a repeated or an invalid id are left out."""
    found: list[Device] = []
    for plugin in plugins:
        for one in plugin.devices:
            if not 0 < len(one.id) <= _LONGEST_TEXT or not one.id.isprintable():
                continue
            why = "" if one.health == HEALTHY else "unhealthy"
            if not plugin.connected:
                why = "disconnected"
            device = Device(
                name=name_of(plugin.resource, one.id),
                attributes=_attributes(plugin.resource, one, lore),
                taints=(DeviceTaint(key=f"{driver}/{why}", effect="NoSchedule"),) if why else (),
            )
            found.append(device)
    names = Counter(one.name for one in found)
    devices = tuple(one for one in found if names[one.name] == 1)
    return Machine(driver, devices, offers={device.name: Offer(device.name) for device in devices})


def facts_of(devices: Iterable[PciDevice]) -> dict[str, Facts]:
    """Say by their addresses where devices are plugged in."""
    return {one.address: Facts(numa_node=one.numa_node, pci_bus_id=one.address, pcie_root=one.root) for one in devices}


def identify(plugins: Iterable[Plugged]) -> dict[str, _Identity]:
    """Say by which resource and id a plugin knows each device."""
    return {
        name_of(plugin.resource, one.id): _Identity(plugin.resource, one.id)
        for plugin in plugins
        for one in plugin.devices
    }


def name_of(resource: str, id_: str) -> str:
    """Name a device. The name depends on nothing else, so it is the same after every restart."""
    readable = f"{label(resource)}-{label(id_)}"
    if label(id_) == id_ and len(readable) <= _LONGEST_NAME:
        return readable
    sign = sha256(f"{resource}\0{id_}".encode()).hexdigest()[:_SIGNS]
    short = readable[: _LONGEST_NAME - _SIGNS - 1].rstrip("-")
    return f"{short}-{sign}"


def _attributes(resource: str, one: PluginDevice, lore: Lore) -> dict[str, DeviceAttribute]:
    """What is known of a device: the file counts before the plugin, and the plugin before what sysfs has at its address."""
    replica = _REPLICA(one.id)
    card = replica[1] if replica else one.id
    told = lore.told.get(one.id) or lore.told.get(card) or Facts()
    bus_id = told.pci_bus_id or (card if _PCI(card) else "")
    found = lore.found.get(bus_id) or Facts()
    numa_node = told.numa_node
    near = [node.number for node in one.topology.nodes]
    # A device between two NUMA nodes has none that one attribute could say.
    if numa_node is None and len(near) == 1:
        [numa_node] = near
    if not near and numa_node is None:
        numa_node = found.numa_node
    texts = {
        "resource": resource,
        "id": one.id,
        "card": card if replica else "",
        "uuid": told.uuid or (card if _UUID(card) else ""),
        "product": told.product,
        f"{_STANDARD}/pciBusID": bus_id,
        f"{_STANDARD}/pcieRoot": told.pcie_root or found.pcie_root,
    }
    attributes = {name: DeviceAttribute(string=text[:_LONGEST_TEXT]) for name, text in texts.items() if text}
    if numa_node is not None and numa_node >= 0:
        attributes[f"{_STANDARD}/numaNode"] = DeviceAttribute(int_=numa_node)
    return attributes
