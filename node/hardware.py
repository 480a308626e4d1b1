"""The identity of hardware: which published devices are the same hardware under other names, of a device plugin or of another inventory.

Two names mean the same device if they share an identity: the UUID, the PCI address, the network interface, the plugin device that
drawbridge's adapter publishes, or, for a driver and a resource of one vendor, the number. Two devices overlap if they share only a part of
their hardware, such as a partition and its GPU; the shared counters of the pool show this. Overlapping devices must not be allocated
together.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dra.objects import Device, ResourceSlice

_PCI = re.compile(r"(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]").fullmatch
_NUMBER = re.compile(r"[0-9]{1,9}").fullmatch
_UUID = re.compile(r"(?:[A-Z]{2,8}-)?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}").fullmatch  # GPU-…, MIG-…
_REPLICA = re.compile(r"(.+?)::\d{1,6}").fullmatch
_UUIDS = ("uuid", "parentUUID")
_NUMBERS = ("index", "minor")
_CONNECTIONS = ("interface", "rdmaDevice")
# The largest number of devices with one identity, or with one counter, that are compared. A card has a few dozen partitions.
MAX_BESIDE = 128
Identity = tuple[str, ...]
Counter = tuple[str, str, str, str]  # driver, pool, counter set, counter
Amounts = dict[Counter, int]


class DeviceId(NamedTuple):
    """The name of a published device, unique in the cluster."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


class ExporterIds(NamedTuple):
    """The names of a device in exporters' metrics: its UUID, the UUID of its card (its own for a whole card), and the PCI address."""

    uuid: str = ""
    card: str = ""
    pci: str = ""


class Hardware:
    """The devices of a node's slices, by identity and by the counters that they consume."""

    def __init__(self, slices: Iterable[ResourceSlice], max_beside: int = MAX_BESIDE) -> None:
        self._max_beside = max_beside
        self.devices: dict[DeviceId, Device] = {}
        self._by_identity: dict[Identity, set[DeviceId]] = defaultdict(set)
        self._identities: dict[DeviceId, tuple[Identity, ...]] = {}
        self._uses: dict[DeviceId, Amounts] = {}
        self._users: dict[Counter, set[DeviceId]] = defaultdict(set)
        self._declared: Amounts = {}
        self.crowded: set[Identity] = set()  # identities and counters with more devices than are compared
        for slice_ in slices:
            driver, pool = slice_.spec.driver, slice_.spec.pool.name
            for counters in slice_.spec.shared_counters:
                for name, counter in counters.counters.items():
                    self._declared[driver, pool, counters.name, name] = counter.value.nano
            for device in slice_.spec.devices:
                device_id = DeviceId(driver, pool, device.name)
                self.devices[device_id] = device
                self._identities[device_id] = tuple(identities_of(device))
                for identity in (*_numbers(device_id, device), *self._identities[device_id]):
                    self._join(self._by_identity[identity], device_id, identity)
                self._uses[device_id] = {(driver, pool, *key): amount for key, amount in _amounts(device).items()}
                for key in self._uses[device_id]:
                    self._join(self._users[key], device_id, key)

    def excluded_by_plugin(self, resource: str, id_: str) -> frozenset[DeviceId]:
        """Return the published devices that must not be allocated while a plugin has allocated its device `id_`."""
        devices = self._devices_of_plugin(resource, id_)
        overlapping = [self._overlapping(device_id) for device_id in devices]
        return frozenset(devices.union(*overlapping))

    def exporter_ids(self, device_id: DeviceId) -> ExporterIds:
        """Return the names that exporters use for a published device."""
        device = self.devices.get(device_id)
        if device is None:
            return ExporterIds()
        texts = _texts(device)
        uuid = texts.get("uuid", "")
        address = texts.get("pciBusID", "").lower()
        return ExporterIds(uuid, texts.get("parentUUID", uuid), _address(address) if _PCI(address) else "")

    def exporter_ids_of_plugin(self, resource: str, id_: str) -> ExporterIds:
        """Return the names that exporters use for a plugin's device: from its id, or from the published devices of its identity, if they agree."""
        published_ids = {self.exporter_ids(device_id) for device_id in self._devices_of_plugin(resource, id_)}
        card = _card(id_)
        if _PCI(card.lower()):
            published_ids.add(ExporterIds(pci=_address(card.lower())))
        uuid = card if _UUID(card) else _only(facts.uuid for facts in published_ids)
        return ExporterIds(
            uuid, _only(facts.card for facts in published_ids) or uuid, _only(facts.pci for facts in published_ids)
        )

    def _devices_of_plugin(self, resource: str, id_: str) -> set[DeviceId]:
        """Return the matching that share an identity with a plugin's device."""
        matching: set[DeviceId] = set()
        for identity in identities_of_plugin(resource, id_):
            matching |= self._by_identity.get(identity, set())
        return matching

    def same_hardware(self, device_id: DeviceId) -> frozenset[DeviceId]:
        """Return the devices of other drivers that are the same hardware."""
        devices: set[DeviceId] = set()
        for identity in self._identities.get(device_id, ()):
            if identity[0] in {"uuid", "pci"}:
                devices |= self._by_identity[identity]
        return frozenset(device for device in devices if device.driver != device_id.driver)

    def excluded_by_device(self, device_id: DeviceId) -> frozenset[DeviceId]:
        """Return the devices that must not be allocated while a device is: the device itself, overlapping devices, and the same hardware
        in other drivers.
        """
        if device_id not in self.devices:
            return frozenset({device_id})
        return frozenset({device_id, *self.same_hardware(device_id), *self._overlapping(device_id)})

    def identities_around(self, device_id: DeviceId) -> frozenset[Identity]:
        """Return the identities of a device and of the devices that exclude it."""
        devices = (device_id, *self._overlapping(device_id))
        return frozenset(identity for other in devices for identity in self._identities[other])

    def _join(self, group: set[DeviceId], device_id: DeviceId, key: Identity) -> None:
        """Add a device to the group of a key, unless the group is full."""
        if len(group) < self._max_beside:
            group.add(device_id)
        else:
            self.crowded.add(key)

    def _overlapping(self, device_id: DeviceId) -> set[DeviceId]:
        """Return the devices that, together with this one, exceed a shared counter. A counter that no counter set declares counts as 0."""
        overlapping: set[DeviceId] = set()
        for key, amount in self._uses[device_id].items():
            declared = self._declared.get(key, 0)
            for other_id in self._users[key]:
                if amount + self._uses[other_id][key] > declared:
                    overlapping.add(other_id)
        return overlapping


def identities_of_plugin(resource: str, id_: str) -> Iterator[Identity]:
    """Yield the identities of a plugin's device."""
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
    """Return the string attributes by their names without a domain."""
    return {name.rpartition("/")[2]: value.string for name, value in device.attributes.items() if value.string}


def _only(texts: Iterable[str]) -> str:
    """Return the only non-empty text; "" if there are several or none."""
    distinct = {text for text in texts if text}
    return distinct.pop() if len(distinct) == 1 else ""


def _numbers(device_id: DeviceId, device: Device) -> Iterator[Identity]:
    for name, value in device.attributes.items():
        if value.int_ is not None and name.rpartition("/")[2] in _NUMBERS:
            # A number is unique within a vendor: a device of the driver gpu.example.com matches resources of gpu.example.com and example.com.
            labels = device_id.driver.split(".")
            for start in range(len(labels) - 1):
                yield "number", ".".join(labels[start:]), str(value.int_)


def identities_of(device: Device) -> Iterator[Identity]:
    """Yield what identifies a device's hardware, and the card of a partition. The strongest kind comes first."""
    texts = _texts(device)
    for base in _UUIDS:
        if base in texts:
            yield "uuid", texts[base].lower()
    address = texts.get("pciBusID", "").lower()
    if _PCI(address):
        yield "pci", _address(address)
    for kind in _CONNECTIONS:
        if kind in texts:
            yield kind, texts[kind]
    if "resource" in texts and "id" in texts:
        yield "plugin", texts["resource"], texts["id"]


def _amounts(device: Device) -> dict[tuple[str, str], int]:
    """Return the amount that a device consumes of each counter, by counter set and counter."""
    return {
        (consumption.counter_set, name): counter.value.nano
        for consumption in device.consumes_counters
        for name, counter in consumption.counters.items()
    }


def covers(device: Device, other: Device) -> bool:
    """Report whether a device consumes all that another one consumes. A device without counters is the only one of its card."""
    amounts = _amounts(device)
    return not amounts or all(amounts.get(key, 0) >= amount for key, amount in _amounts(other).items())


def is_same(device: Device, other: Device) -> bool | None:
    """Compare two devices by the strongest kind of identity that both have; None if they have none in common."""
    identities, others = (list(identities_of(item)) for item in (device, other))
    common = {kind for kind, *_ in others}
    kind = next((kind for kind, *_ in identities if kind in common), None)
    if kind is None:
        return None
    first, second = ({identity for identity in items if identity[0] == kind} for items in (identities, others))
    return first == second


def _address(text: str) -> str:
    """Normalize a PCI address to a domain of four digits: 3b:00.0 and 00000000:3b:00.0 become 0000:3b:00.0."""
    front, _, slot = text.rpartition(":")
    domain, _, bus = front.rpartition(":")
    return f"{int(domain or '0', 16):04x}:{bus}:{slot}"
