"""Which devices of claims are the hardware that a device plugin hands out under another name.

Two names mean one device when they share a sign: the uuid, the PCI address, the name under which our adapter publishes a plugin's device,
or the number, where driver and resource are of one vendor. What is not that device, but made of the same hardware (partitions beside the
whole, by the shared counters of the pool), overlaps it, and is as little to be given out.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING

from node.audit.sight import DeviceId

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dra.objects import Device, ResourceSlice

_PCI = re.compile(r"(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]").fullmatch
_NUMBER = re.compile(r"[0-9]{1,9}").fullmatch
_REPLICA = re.compile(r"(.+?)::\d{1,6}").fullmatch
_UUIDS = ("uuid", "parentUUID")
_NUMBERS = ("index", "minor")
Sign = tuple[str, ...]
Counter = tuple[str, str, str, str]  # driver, pool, counter set, counter
Amounts = dict[Counter, int]


class Silicon:
    """The devices of a node's slices, by what they are made of."""

    def __init__(self, slices: Iterable[ResourceSlice]) -> None:
        self.devices: dict[DeviceId, Device] = {}
        self._by_sign: dict[Sign, set[DeviceId]] = defaultdict(set)
        self._uses: dict[DeviceId, Amounts] = {}
        self._users: dict[Counter, set[DeviceId]] = defaultdict(set)
        self._there: Amounts = {}
        for one in slices:
            self._add(one)

    def of_plugin(self, resource: str, id_: str) -> frozenset[DeviceId]:
        """Name the devices that cannot be had beside one that a plugin handed out."""
        found: set[DeviceId] = set()
        for sign in signs_of_plugin(resource, id_):
            found |= self._by_sign.get(sign, set())
        beside = [self._overlapping(where) for where in found]
        return frozenset(found.union(*beside))

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

    def _add(self, one: ResourceSlice) -> None:
        spec = one.spec
        driver, pool = spec.driver, spec.pool.name
        for counters in spec.shared_counters:
            for name, counter in counters.counters.items():
                self._there[driver, pool, counters.name, name] = counter.value.nano
        for device in spec.devices:
            where = DeviceId(driver, pool, device.name)
            self.devices[where] = device
            for sign in _signs(where, device):
                self._by_sign[sign].add(where)
            self._count(where, device)

    def _count(self, where: DeviceId, device: Device) -> None:
        uses = self._uses[where] = {}
        driver, pool, _ = where
        for consumption in device.consumes_counters:
            for name, counter in consumption.counters.items():
                key = driver, pool, consumption.counter_set, name
                uses[key] = counter.value.nano
        for key in uses:
            self._users[key].add(where)

    def _overlapping(self, where: DeviceId) -> set[DeviceId]:
        """Name the devices that do not fit beside one, by the counters alone. Of a counter that nobody declares there is nothing."""
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
    replica = _REPLICA(id_)
    card = replica[1] if replica else id_
    lower = card.lower()
    if _PCI(lower):
        yield "pci", _address(lower)
    elif _NUMBER(card):
        domain = resource.partition("/")[0]
        yield "number", domain, str(int(card))
    else:
        yield "uuid", lower


def _signs(where: DeviceId, device: Device) -> Iterator[Sign]:
    texts: dict[str, str] = {}
    for name, value in device.attributes.items():
        base = name.rpartition("/")[2]
        if value.string:
            texts[base] = value.string
        elif value.int_ is not None and base in _NUMBERS:
            yield from _numbered(where.driver, str(value.int_))
    for base in _UUIDS:
        if base in texts:
            yield "uuid", texts[base].lower()
    address = texts.get("pciBusID", "").lower()
    if _PCI(address):
        yield "pci", _address(address)
    if "resource" in texts and "id" in texts:
        yield "plugin", texts["resource"], texts["id"]


def _numbered(driver: str, number: str) -> Iterator[Sign]:
    """A number means a device among those of one vendor: of gpu.example.com, resources of gpu.example.com and of example.com."""
    labels = driver.split(".")
    for start in range(len(labels) - 1):
        yield "number", ".".join(labels[start:]), number


def _address(text: str) -> str:
    """Write a PCI address with a domain of four digits: 3b:00.0 and 00000000:3b:00.0 are 0000:3b:00.0."""
    front, _, slot = text.rpartition(":")
    domain, _, bus = front.rpartition(":")
    return f"{int(domain or '0', 16):04x}:{bus}:{slot}"
