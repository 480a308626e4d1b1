"""The identity of hardware: devices of claims that a device plugin hands out under another name.

Two names mean one device when they share a sign: the uuid, the PCI address, the name under which our adapter publishes a plugin's device,
or the number, where driver and resource are of one vendor. What is not that device, but made of the same hardware (partitions beside the
whole, by the shared counters of the pool), overlaps it, and is as little to be given out.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from node.audit.snapshot import DeviceId

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dra.objects import Device, ResourceSlice

_PCI = re.compile(r"(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]").fullmatch
_NUMBER = re.compile(r"[0-9]{1,9}").fullmatch
_UUID = re.compile(r"(?:[A-Z]{2,8}-)?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}").fullmatch  # GPU-…, MIG-…
_REPLICA = re.compile(r"(.+?)::\d{1,6}").fullmatch
_UUIDS = ("uuid", "parentUUID")
_NUMBERS = ("index", "minor")
# Devices of one sign or counter: the partitions of a card are some dozens. Of larger groups not all pairs are looked at.
MOST_BESIDE = 128
Sign = tuple[str, ...]
Counter = tuple[str, str, str, str]  # driver, pool, counter set, counter
Amounts = dict[Counter, int]


class ExporterIds(NamedTuple):
    """By what exporters know a device: its uuid, that of the card that it is a part of (its own for a whole card), and the PCI address."""

    uuid: str = ""
    card: str = ""
    pci: str = ""


class Hardware:
    """The devices of a node's slices, by what they are made of."""

    def __init__(self, slices: Iterable[ResourceSlice]) -> None:
        self.devices: dict[DeviceId, Device] = {}
        self._by_sign: dict[Sign, set[DeviceId]] = defaultdict(set)
        self._uses: dict[DeviceId, Amounts] = {}
        self._users: dict[Counter, set[DeviceId]] = defaultdict(set)
        self._there: Amounts = {}
        self.crowded: set[Sign] = set()  # signs and counters of which not all devices are looked at
        for one in slices:
            driver, pool = one.spec.driver, one.spec.pool.name
            for counters in one.spec.shared_counters:
                for name, counter in counters.counters.items():
                    self._there[driver, pool, counters.name, name] = counter.value.nano
            for device in one.spec.devices:
                where = DeviceId(driver, pool, device.name)
                self.devices[where] = device
                for sign in _signs(where, device):
                    self._join(self._by_sign[sign], where, sign)
                uses = self._uses[where] = {}
                for consumption in device.consumes_counters:
                    for name, counter in consumption.counters.items():
                        uses[driver, pool, consumption.counter_set, name] = counter.value.nano
                for key in uses:
                    self._join(self._users[key], where, key)

    def of_plugin(self, resource: str, id_: str) -> frozenset[DeviceId]:
        """Name the devices that cannot be had beside one that a plugin handed out."""
        found = self._named(resource, id_)
        beside = [self._overlapping(where) for where in found]
        return frozenset(found.union(*beside))

    def exporter_ids(self, where: DeviceId) -> ExporterIds:
        """Say by what exporters know a device that is published."""
        device = self.devices.get(where)
        if device is None:
            return ExporterIds()
        texts = _texts(device)
        uuid = texts.get("uuid", "")
        address = texts.get("pciBusID", "").lower()
        return ExporterIds(uuid, texts.get("parentUUID", uuid), _address(address) if _PCI(address) else "")

    def exporter_ids_of_plugin(self, resource: str, id_: str) -> ExporterIds:
        """Say by what exporters know what a plugin handed out: as far as the devices that it names agree, else by its id alone."""
        known = {self.exporter_ids(where) for where in self._named(resource, id_)}
        card = _card(id_)
        if _PCI(card.lower()):
            known.add(ExporterIds(pci=_address(card.lower())))
        uuid = card if _UUID(card) else _only(one.uuid for one in known)
        return ExporterIds(uuid, _only(one.card for one in known) or uuid, _only(one.pci for one in known))

    def _named(self, resource: str, id_: str) -> set[DeviceId]:
        """Name the devices that share a sign with one of a plugin."""
        found: set[DeviceId] = set()
        for sign in signs_of_plugin(resource, id_):
            found |= self._by_sign.get(sign, set())
        return found

    def of_device(self, where: DeviceId) -> frozenset[DeviceId]:
        """Name the devices of other drivers that are the same hardware."""
        device = self.devices.get(where)
        if device is None:
            return frozenset()
        found: set[DeviceId] = set()
        for sign in _signs(where, device):
            if sign[0] in {"uuid", "pci"}:
                found |= self._by_sign[sign]
        return frozenset(one for one in found if one.driver != where.driver)

    def beside(self, where: DeviceId) -> frozenset[DeviceId]:
        """Name the devices that cannot be had beside one: what overlaps it, and what another driver publishes of it."""
        if where not in self.devices:
            return frozenset({where})
        return frozenset({where, *self.of_device(where), *self._overlapping(where)})

    def _join(self, group: set[DeviceId], where: DeviceId, key: Sign) -> None:
        """Add a device to a group, unless the group is larger than that of any card."""
        if len(group) < MOST_BESIDE:
            group.add(where)
        else:
            self.crowded.add(key)

    def _overlapping(self, where: DeviceId) -> set[DeviceId]:
        """Name the devices that do not fit beside one, by the counters alone. Of a counter that no counter set declares there is nothing."""
        found: set[DeviceId] = set()
        for key, amount in self._uses[where].items():
            there = self._there.get(key, 0)
            for other in self._users[key]:
                if amount + self._uses[other][key] > there:
                    found.add(other)
        return found


def signs_of_plugin(resource: str, id_: str) -> Iterator[Sign]:
    """Say by what a device of a plugin would be known elsewhere."""
    yield "plugin", resource, id_
    card = _card(id_)
    lower = card.lower()
    if _PCI(lower):
        yield "pci", _address(lower)
    elif _NUMBER(card):
        domain = resource.partition("/")[0]
        yield "number", domain, str(int(card))
    else:
        yield "uuid", lower


def _card(id_: str) -> str:
    replica = _REPLICA(id_)
    return replica[1] if replica else id_


def _texts(device: Device) -> dict[str, str]:
    """Read the attributes that are texts, by their names without a domain."""
    return {name.rpartition("/")[2]: value.string for name, value in device.attributes.items() if value.string}


def _only(texts: Iterable[str]) -> str:
    """Give the one text that is not empty; "" if there are several."""
    said = {text for text in texts if text}
    return said.pop() if len(said) == 1 else ""


def _signs(where: DeviceId, device: Device) -> Iterator[Sign]:
    texts = _texts(device)
    for name, value in device.attributes.items():
        if value.int_ is not None and name.rpartition("/")[2] in _NUMBERS:
            # A number means a device among those of one vendor: of gpu.example.com, resources of gpu.example.com and of example.com.
            labels = where.driver.split(".")
            for start in range(len(labels) - 1):
                yield "number", ".".join(labels[start:]), str(value.int_)
    for base in _UUIDS:
        if base in texts:
            yield "uuid", texts[base].lower()
    address = texts.get("pciBusID", "").lower()
    if _PCI(address):
        yield "pci", _address(address)
    if "resource" in texts and "id" in texts:
        yield "plugin", texts["resource"], texts["id"]


def _address(text: str) -> str:
    """Write a PCI address with a domain of four digits: 3b:00.0 and 00000000:3b:00.0 are 0000:3b:00.0."""
    front, _, slot = text.rpartition(":")
    domain, _, bus = front.rpartition(":")
    return f"{int(domain or '0', 16):04x}:{bus}:{slot}"
