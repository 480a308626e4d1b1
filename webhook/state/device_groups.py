"""Counts the devices of a fleet by groups, and the nodes that publish each group.

The devices of a group are equal in all properties that the inventory (`webhook.state.inventory`) or a DeviceClass reads. A slice object is never
changed, only replaced, so the counts of each slice are cached and the next census counts only new slices.

Nodes that publish the same set of groups are counted together, so that it is cheap to find what most nodes publish.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from dra.objects import Device, ResourceSlice
from dra.stock import usable
from webhook.dialects import PCIE_ROOT, TARGETS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dra import cel

_Key = tuple[object, ...]
CPU = "cpu"


class Group(msgspec.Struct, frozen=True, eq=False):
    """Devices that are equal for all decisions, with one of them as a sample."""

    sample: Device
    driver: str
    product: str
    profile: str
    memory: int
    bandwidth: int  # 0 unless claims can share the device and it publishes a bandwidth
    cpus: int  # 0 unless claims can share the device and it publishes CPUs
    rootless: bool  # whether pcieRoot is the empty string, so that it equals the pcieRoot of every other such device
    parted: bool  # whether a claim without amounts gets only a part of the device

    @classmethod
    def from_device(cls, driver: str, device: Device) -> Group:
        def amount_of(name: str) -> int:
            capacity = device.capacity.get(name) or device.capacity.get(f"{driver}/{name}")
            return capacity.value.value() if capacity else 0

        return cls(
            sample=device,
            driver=driver,
            product=device.own_text(driver, "productName"),
            profile=device.own_text(driver, "profile"),
            memory=amount_of("memory"),
            bandwidth=amount_of("bandwidth") if device.allow_multiple_allocations else 0,
            cpus=amount_of(CPU) if device.allow_multiple_allocations else 0,
            rootless=_is_rootless(device),
            parted=_is_parted(device),
        )


class ReadAttributes(msgspec.Struct, frozen=True):
    """The attributes that the selectors of DeviceClasses read: (domain, name), or all."""

    names: tuple[tuple[str, str], ...] = ()
    everything: bool = False

    @classmethod
    def combine(cls, reads: Iterable[cel.Reads]) -> ReadAttributes:
        """Combine the attributes that selectors read with those of `Target.where`. Capacities are not needed, because `key` includes all."""
        reads = tuple(reads)
        names = {(domain, name) for reads_ in reads for kind, domain, name in reads_.names if kind == "attributes"}
        names |= {(target.driver, name) for target in TARGETS.values() for name in target.where}
        return cls(tuple(sorted(names)), any(reads_.everything for reads_ in reads))

    def key(self, driver: str, device: Device) -> _Key:
        attributes = device.attributes
        return (
            driver,
            device.own(driver, "productName"),
            device.own(driver, "profile"),
            tuple(attributes),
            tuple((name, capacity.value.nano) for name, capacity in device.capacity.items()),
            device.allow_multiple_allocations,
            _is_parted(device),
            _is_rootless(device),
            CPU in device.node_allocatable_resources,
            *(
                device.own(driver, name) if domain == driver else attributes.get(f"{domain}/{name}")
                for domain, name in self.names
            ),
            *(attributes.values() if self.everything else ()),
        )


class Census(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The number of devices in each group, the nodes by the groups that they publish, and the counts of each slice by the slice's name."""

    reading: ReadAttributes = ReadAttributes()
    groups: Mapping[Group, int] = {}
    nodes: Mapping[frozenset[Group], tuple[str, ...]] = {}
    by_key: Mapping[_Key, Group] = {}
    counted: Mapping[str, tuple[ResourceSlice, Mapping[Group, int]]] = {}

    @classmethod
    def count(cls, slices: Iterable[ResourceSlice], reading: ReadAttributes, earlier: Census | None = None) -> Census:
        """Count the devices in usable pools. Slices that an earlier census with the same `reading` has counted are not counted again."""
        earlier_census = earlier if earlier is not None and earlier.reading == reading else cls(reading=reading)
        by_key = dict(earlier_census.by_key)
        counted: dict[str, tuple[ResourceSlice, Mapping[Group, int]]] = {}
        groups: Counter[Group] = Counter()
        holdings: dict[str, set[Group]] = {}
        for slice_ in usable(slices):
            name, driver = slice_.metadata.name, slice_.spec.driver
            counted_slice, counts = earlier_census.counted.get(name, (None, {}))
            if counted_slice is not slice_:
                counts = Counter[Group]()
                for device in slice_.spec.devices:
                    key = reading.key(driver, device)
                    group = by_key.get(key)
                    if group is None:
                        group = by_key[key] = Group.from_device(driver, device)
                    counts[group] += 1
            counted[name] = slice_, counts
            # All devices of a driver without a node count as one node, even if they are in several pools.
            holdings.setdefault(slice_.spec.node_name or f"driver {driver}", set()).update(counts)
            groups.update(counts)
        by_holding: dict[frozenset[Group], list[str]] = {}
        for node, node_devices in holdings.items():
            by_holding.setdefault(frozenset(node_devices), []).append(node)
        nodes = {holding: tuple(names) for holding, names in by_holding.items()}
        current = {key: group for key, group in by_key.items() if group in groups}
        return cls(reading=reading, groups=groups, nodes=nodes, by_key=current, counted=counted)


def _is_rootless(device: Device) -> bool:
    root = device.attributes.get(PCIE_ROOT)
    return root is not None and root.string == ""


def _is_parted(device: Device) -> bool:
    """Return whether a claim without amounts leaves a part of each capacity of a shared device to other claims."""
    if not device.allow_multiple_allocations:
        return False
    for capacity in device.capacity.values():
        policy = capacity.request_policy
        if policy is None or policy.default is None or policy.default >= capacity.value:
            return False
    return True
