"""Hardware units: how much of each unit is free.

A unit is what an administrator calls one GPU: all devices that consume one counter set, or one device that consumes none. The search for
an allocation does not use these units. Strategies, reports and charts use them, because packing is about keeping whole units free. Amounts
here are fractions for comparing plans, never for deciding whether a claim fits.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from dra.errors import NodeSelectorError
from dra.objects import Device
from dra.stock import PoolId

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dra.stock import Page, Pool, PoolUse, Stock

Scale = dict[tuple[str, str], int]  # (driver, name of a counter or capacity) → the largest unit's value


class UnitPart(msgspec.Struct, frozen=True, eq=False):
    """A device as a part of a unit: its share of the unit, and its consumption of the unit's counters."""

    device: Device
    size: float
    needs: dict[str, int] = {}


class HardwareUnit(msgspec.Struct, frozen=True, eq=False):
    """One hardware unit. `weight` is its size relative to the largest unit of its kind, which has weight 1."""

    pool: PoolId
    name: str
    parts: tuple[UnitPart, ...]
    declared: dict[str, int] = {}
    weight: float = 1.0


class Room(msgspec.Struct, frozen=True):
    """The part of a unit that is free, from 0 to 1, and whether a device of the unit is in use."""

    free: float
    busy: bool


def scale_of(pages: Iterable[Page]) -> Scale:
    """Return the largest value of every counter and capacity, for comparing units of different size."""
    scale: Scale = {}

    def note(driver: str, name: str, amount: int) -> None:
        largest = scale.get((driver, name), 0)
        scale[driver, name] = max(amount, largest)

    for page in {page.content: page for page in pages}.values():  # a fleet has many equal slices
        driver = page.pool[0]
        for counter_set in page.slice.spec.shared_counters:
            for name, counter in counter_set.counters.items():
                note(driver, name, counter.value.nano)
        for device in dict(zip(page.bodies, page.devices, strict=True)).values():
            for name, capacity in device.capacity.items():
                note(driver, name, capacity.value.nano)
    return scale


def units(pool: Pool, scale: Scale | None = None) -> tuple[HardwareUnit, ...]:
    """Group the devices of a pool into units, in the order of their first device."""
    if scale is None:
        scale = scale_of(pool.pages())
    parts: dict[tuple[bool, str], list[UnitPart]] = {}
    for page in pool.pages():
        for device in page.devices:
            if not device.consumes_counters:
                parts[False, device.name] = [UnitPart(device, 1.0)]
            for consumption in device.consumes_counters:
                name = consumption.counter_set
                needs = {key: counter.value.nano for key, counter in consumption.counters.items()}
                size = _mean(needs, pool.counters[name])
                part = UnitPart(device, size, needs)
                parts.setdefault((True, name), []).append(part)
    units: list[HardwareUnit] = []
    driver = pool.id[0]
    for (has_counters, name), unit_parts in parts.items():
        counters = pool.counters[name] if has_counters else {}
        sizes = counters
        if not sizes:
            capacities = unit_parts[0].device.capacity
            sizes = {key: capacity.value.nano for key, capacity in capacities.items()}
        largest = {key: scale.get((driver, key), 0) for key in sizes}
        weight = _mean(sizes, largest) if any(largest.values()) else 1.0
        units.append(HardwareUnit(pool.id, name, tuple(unit_parts), counters, weight))
    return tuple(units)


def rooms_of(stock: Stock) -> list[tuple[HardwareUnit, Room]]:
    """List the units of a fleet, each with its free part."""
    scale = scale_of(stock.pages.values())
    pools: dict[PoolId, Pool] = {}
    for node in stock.nodes:
        with suppress(NodeSelectorError):  # no device is allocated on such a node
            pools |= {pool.id: pool for pool in stock.pools(node) if pool.id not in pools}
    return [(unit, room(unit, stock.use(id_))) for id_, pool in pools.items() for unit in units(pool, scale)]


def room(unit: HardwareUnit, use: PoolUse) -> Room:
    busy = any(use.holds(part.device.name) for part in unit.parts)
    if not busy:
        return Room(1.0, busy=False)
    left = dict(unit.declared)
    shares: list[float] = []
    for part in unit.parts:
        if use.holds(part.device.name):
            for name, amount in part.needs.items():
                left[name] -= amount
            shares.append(part.size * _share_left(part.device, use))
    free_of_counters = _mean(left, unit.declared) if unit.declared else 0.0
    return Room(min(1.0, free_of_counters + sum(shares)), busy=True)


def fragmentation(rooms: Iterable[tuple[HardwareUnit, Room]]) -> float:
    """The part of the free capacity that is on units in use, so that no whole unit can be allocated there."""
    free = broken = 0.0
    for unit, part_free in rooms:
        free += unit.weight * part_free.free
        broken += unit.weight * part_free.free if part_free.busy else 0.0
    return broken / free if free else 0.0


def utilisation(rooms: Iterable[tuple[HardwareUnit, Room]]) -> float:
    """The part of all hardware that is in use."""
    total = used = 0.0
    for unit, part_free in rooms:
        total += unit.weight
        used += unit.weight * (1.0 - part_free.free)
    return used / total if total else 0.0


def _share_left(device: Device, use: PoolUse) -> float:
    """The part of a device in use that can still be allocated as a share."""
    if device.name in use.dedicated or not device.allow_multiple_allocations:
        return 0.0
    if not device.capacity:
        return 1.0
    used = use.used.get(device.name, {})
    total = {name: capacity.value.nano for name, capacity in device.capacity.items()}
    return _mean({name: whole - used.get(name, 0) for name, whole in total.items()}, total)


def _mean(amounts: Mapping[str, int], of: Mapping[str, int]) -> float:
    # The fraction is at most 1. It is computed in integers first, because an amount of hundreds of digits does not fit a float.
    shares = [min(max(0, amounts.get(name, 0)), whole) / whole for name, whole in of.items() if whole > 0]
    return sum(shares) / len(shares) if shares else 0.0
