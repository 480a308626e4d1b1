"""The devices of plugins as devices of one driver: a pool a node, a device for each id, whichever plugin it is of.

A plugin that hands out one card several times ("replicas", written `ID::NUMBER`) has a device for each time, all with the attribute `card`:
which of them are one card is told, and what they share is the plugin's business as before. What a plugin calls unhealthy is tainted,
and so is all that it had when it is gone: what runs goes on running, and nothing new comes there.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from dra.objects import Device, DeviceAttribute, DeviceTaint
from node.inventory import Machine, Offer, PciDevice, label
from node.messages import PluginDevice

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

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
    """Say what all plugins of a node offer together. What one cannot mean is left out: an id twice, one that is none."""
    found = [one for plugin in plugins for one in _devices(driver, plugin, lore)]
    names = Counter(one.name for one in found)
    devices = tuple(one for one in found if names[one.name] == 1)
    offers = {device.name: Offer(device.name) for device in devices}
    return Machine(driver, devices, offers=offers)


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


def _devices(driver: str, plugin: Plugged, lore: Lore) -> Iterator[Device]:
    for one in plugin.devices:
        if not 0 < len(one.id) <= _LONGEST_TEXT or not one.id.isprintable():
            continue
        known = _known(one, lore)
        yield Device(
            name=name_of(plugin.resource, one.id),
            attributes=_attributes(plugin.resource, one, known),
            taints=_taints(driver, one, plugin),
        )


def _known(one: PluginDevice, lore: Lore) -> Facts:
    """Put together what is known of a device: a file's word counts before the plugin's, and that before what sysfs has at its address."""
    card = _card(one.id)
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
    uuid = card if _UUID(card) else ""
    return replace(
        told,
        numa_node=numa_node,
        pci_bus_id=bus_id,
        pcie_root=told.pcie_root or found.pcie_root,
        uuid=told.uuid or uuid,
    )


def _card(id_: str) -> str:
    replica = _REPLICA(id_)
    return replica[1] if replica else id_


def _attributes(resource: str, one: PluginDevice, known: Facts) -> dict[str, DeviceAttribute]:
    texts = {
        "resource": resource,
        "id": one.id,
        "card": _card(one.id) if _REPLICA(one.id) else "",
        "uuid": known.uuid,
        "product": known.product,
        f"{_STANDARD}/pciBusID": known.pci_bus_id,
        f"{_STANDARD}/pcieRoot": known.pcie_root,
    }
    found = {name: DeviceAttribute(string=text[:_LONGEST_TEXT]) for name, text in texts.items() if text}
    if known.numa_node is not None and known.numa_node >= 0:
        found[f"{_STANDARD}/numaNode"] = DeviceAttribute(int_=known.numa_node)
    return found


def _taints(driver: str, one: PluginDevice, plugin: Plugged) -> tuple[DeviceTaint, ...]:
    why = ""
    if not plugin.connected:
        why = "disconnected"
    elif one.health != HEALTHY:
        why = "unhealthy"
    return (DeviceTaint(key=f"{driver}/{why}", effect="NoSchedule"),) if why else ()
