"""A node as strategies look at it: units of hardware, who is where, how full they are, and what a plan would leave."""

from __future__ import annotations

from typing import TYPE_CHECKING

from allocator.strategies import topology
from allocator.strategies.hardware import HardwareUnit, Room, Scale, room, scale_of, units
from dra.stock import FREE, PoolId, PoolUse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from allocator.problem import CompileCache
    from allocator.strategies.topology import Site
    from dra.objects import DeviceRequestAllocationResult
    from dra.stock import Page, Pool, Stock

DeviceId = tuple[str, str, str]  # driver, pool, device


class StrategyCache:
    """What many questions to stocks of one line share. `scale` makes the nodes of a fleet comparable.

    Only for stocks with the same classes and rules; pools may change, and what is in use.
    """

    def __init__(self, scale: Scale | None = None) -> None:
        self.scale = scale
        self.compiled: dict[bytes, CompileCache] = {}
        self.spoilt: dict[object, float] = {}
        self._units: dict[tuple[Page, ...], tuple[HardwareUnit, ...]] = {}

    def units(self, pools: Sequence[Pool]) -> tuple[HardwareUnit, ...]:
        """Put the devices of a node's pools together into units."""
        scale = self.scale if self.scale is not None else scale_of(page for pool in pools for page in pool.pages())
        found: list[HardwareUnit] = []
        for pool in pools:
            if pool.pages() not in self._units:
                self._units[pool.pages()] = units(pool, scale)
            found += self._units[pool.pages()]
        return tuple(found)


class NodeView:
    """One node's hardware as strategies look at it: units, who is where, and how full they are now."""

    def __init__(self, stock: Stock, node: str, kept: StrategyCache) -> None:
        pools = stock.pools(node)
        self.kept = kept
        self.use: dict[PoolId, PoolUse] = {pool.id: stock.use(pool.id) for pool in pools}
        self.units: tuple[HardwareUnit, ...] = kept.units(pools)
        self.rooms: list[Room] = [room(unit, self.use[unit.pool]) for unit in self.units]
        self.homes: dict[DeviceId, list[int]] = {}
        self.sites: dict[DeviceId, Site] = {}
        self.shareable: set[DeviceId] = set()
        for at, unit in enumerate(self.units):
            for part in unit.parts:
                id_ = (*unit.pool, part.device.name)
                self.homes.setdefault(id_, []).append(at)
                self.sites[id_] = topology.site(part.device)
                if part.device.allow_multiple_allocations:
                    self.shareable.add(id_)

    def free(self, id_: DeviceId) -> float:
        """Say how much of a device's hardware is left."""
        return min((self.rooms[at].free for at in self.homes[id_]), default=0.0)

    def value(self, at: int, one: Room) -> float:
        """Say what the options left on a unit are worth; a unit of twice the size is worth four times as much."""
        return self.units[at].weight ** 2 * (one.options if one.busy else 1.0)

    def spoilt(self, id_: DeviceId) -> float:
        """Say what taking a device would take from the options of its hardware."""
        return sum(self._spoilt(at, id_) for at in self.homes[id_])

    def _spoilt(self, at: int, id_: DeviceId) -> float:
        unit, use = self.units[at], self.use[id_[0], id_[1]]
        names = [part.device.name for part in unit.parts]
        held = tuple(number for number, name in enumerate(names) if use.holds(name))
        key = None if use.shared else (unit.shape, held, names.index(id_[2]), unit.weight)
        if key is None or key not in self.kept.spoilt:
            taken = PoolUse(use.dedicated | {id_[2]}, use.shared, use.used)
            found = self.value(at, self.rooms[at]) - self.value(at, room(unit, taken))
            if key is None:
                return found
            self.kept.spoilt[key] = found
        return self.kept.spoilt[key]

    def after(self, results: Sequence[DeviceRequestAllocationResult]) -> dict[int, Room]:
        """Say what would be left of the units that a plan touches."""
        use = dict(self.use)
        touched: dict[int, None] = {}
        for result in results:
            pool, id_ = (result.driver, result.pool), (result.driver, result.pool, result.device)
            use[pool] = _with(use.get(pool, FREE), result)
            touched.update(dict.fromkeys(self.homes.get(id_, ())))
        return {at: room(self.units[at], use[self.units[at].pool]) for at in touched}


def _with(use: PoolUse, result: DeviceRequestAllocationResult) -> PoolUse:
    if result.admin_access:
        return use
    if result.share_id is None:
        return PoolUse(use.dedicated | {result.device}, use.shared, use.used)
    amounts = dict(use.used.get(result.device, {}))
    for name, amount in result.consumed_capacity.items():
        amounts[name] = amounts.get(name, 0) + amount.nano
    return PoolUse(use.dedicated, use.shared | {result.device}, {**use.used, result.device: amounts})
