"""The census: how many devices there are of each look and on which nodes, counted in pools that can be used.

A look is everything about a device that facts are drawn from (`webhook.state.inventory`) or that a DeviceClass reads; two devices
of one look are the same to both. What a slice holds is counted once and kept with the slice, since slices never change
but are replaced: the next census of a fleet looks only at what is new.

Nodes are kept by what they hold together, so that the question what most nodes show (`webhook.state.inventory`) counts few
kinds of node and not many nodes.
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

_Look = tuple[object, ...]
CPU = "cpu"


class Group(msgspec.Struct, frozen=True, eq=False):
    """Devices of one look, by a sample."""

    sample: Device
    driver: str
    product: str
    profile: str
    memory: int
    bandwidth: int  # of a device that can be shared; 0 if it publishes none
    cpus: int  # of a device that can be shared
    rootless: bool  # its pcieRoot is the empty text, which equals every other empty one
    parted: bool  # who names no amounts is given a part of it


class Reading(msgspec.Struct, frozen=True):
    """Which attributes tell devices apart beside what we look at ourselves: (domain, name), or all of them."""

    names: tuple[tuple[str, str], ...] = ()
    everything: bool = False

    @classmethod
    def of(cls, reads: Iterable[cel.Reads]) -> Reading:
        """Join what several expressions read, and what tells kinds of device of one class apart; capacities are in every look."""
        reads = tuple(reads)
        names = {(domain, name) for one in reads for kind, domain, name in one.names if kind == "attributes"}
        names |= {(target.driver, name) for target in TARGETS.values() for name in target.where}
        return cls(tuple(sorted(names)), any(one.everything for one in reads))


class Census(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Devices by look, nodes by the looks of their devices, and what was counted in each slice, by its name."""

    reading: Reading = Reading()
    groups: Mapping[Group, int] = {}
    nodes: Mapping[frozenset[Group], tuple[str, ...]] = {}
    looks: Mapping[_Look, Group] = {}
    counted: Mapping[str, tuple[ResourceSlice, Mapping[Group, int]]] = {}

    @classmethod
    def of(cls, slices: Iterable[ResourceSlice], reading: Reading, earlier: Census | None = None) -> Census:
        """Count; slices that an earlier census of the same reading has seen are not looked at again."""
        known = cls(reading=reading)
        if earlier is not None and earlier.reading == reading:
            known = earlier
        looks = dict(known.looks)
        counted: dict[str, tuple[ResourceSlice, Mapping[Group, int]]] = {}
        groups: Counter[Group] = Counter()
        holdings: dict[str, set[Group]] = {}
        for slice_ in usable(slices):
            name = slice_.metadata.name
            before, counts = known.counted.get(name, (None, {}))
            if before is not slice_:
                counts = _count(slice_, reading, looks)
            counted[name] = slice_, counts
            # A slice is the word of its node; devices of no node are their driver's, however many pools it makes of them.
            holder = slice_.spec.node_name or f"driver {slice_.spec.driver}"
            holdings.setdefault(holder, set()).update(counts)
            groups.update(counts)
        by_holding: dict[frozenset[Group], list[str]] = {}
        for node, held in holdings.items():
            by_holding.setdefault(frozenset(held), []).append(node)
        nodes = {holding: tuple(names) for holding, names in by_holding.items()}
        current = {look: group for look, group in looks.items() if group in groups}
        return cls(reading=reading, groups=groups, nodes=nodes, looks=current, counted=counted)


def _count(slice_: ResourceSlice, reading: Reading, looks: dict[_Look, Group]) -> Mapping[Group, int]:
    driver = slice_.spec.driver
    counts: Counter[Group] = Counter()
    for device in slice_.spec.devices:
        look = _look(driver, device, reading)
        group = looks.get(look)
        if group is None:
            group = looks[look] = _group(driver, device)
        counts[group] += 1
    return counts


def _look(driver: str, device: Device, reading: Reading) -> _Look:
    attributes = device.attributes
    root = attributes.get(PCIE_ROOT)
    return (
        driver,
        device.own(driver, "productName"),
        device.own(driver, "profile"),
        tuple(attributes),
        tuple((name, capacity.value.nano) for name, capacity in device.capacity.items()),
        device.allow_multiple_allocations,
        _is_parted(device),
        root is not None and root.string == "",
        CPU in device.node_allocatable_resources,
        *(
            device.own(driver, name) if domain == driver else attributes.get(f"{domain}/{name}")
            for domain, name in reading.names
        ),
        *(attributes.values() if reading.everything else ()),
    )


def _group(driver: str, device: Device) -> Group:
    root = device.attributes.get(PCIE_ROOT)

    def amount_of(name: str) -> int:
        capacity = device.capacity.get(name) or device.capacity.get(f"{driver}/{name}")
        return capacity.value.value() if capacity else 0

    return Group(
        sample=device,
        driver=driver,
        product=device.own_text(driver, "productName"),
        profile=device.own_text(driver, "profile"),
        memory=amount_of("memory"),
        bandwidth=amount_of("bandwidth") if device.allow_multiple_allocations else 0,
        cpus=amount_of(CPU) if device.allow_multiple_allocations else 0,
        rootless=root is not None and root.string == "",
        parted=_is_parted(device),
    )


def _is_parted(device: Device) -> bool:
    """Whether others may still have of a device of which a claim has asked for no amount: no capacity is taken whole then."""
    if not device.allow_multiple_allocations:
        return False
    for capacity in device.capacity.values():
        policy = capacity.request_policy
        if policy is None or policy.default is None or policy.default >= capacity.value:
            return False
    return True
