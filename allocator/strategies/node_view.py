"""A node as strategies see it: its hardware units, their topology, how much of each unit is free, and how much a plan would leave free."""

from __future__ import annotations

from enum import IntEnum
from itertools import combinations
from typing import TYPE_CHECKING

from allocator.problem import values_of
from allocator.strategies.hardware import HardwareUnit, Room, Scale, room, scale_of, units
from dra.stock import FREE, PoolId, PoolUse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from allocator.problem import CompileCache
    from dra.budget import Budget
    from dra.objects import Device, DeviceRequestAllocationResult
    from dra.stock import Page, Pool, Stock

_QUESTIONS = 64  # questions kept
_ENTRIES = 1 << 16  # entries kept in each table
_SEEDS = 16  # topologies that are tried as the start of a plan
DeviceId = tuple[str, str, str]  # driver, pool, device
Site = tuple[frozenset[object], ...]  # values per level

# The topology of devices. Drivers use different attribute names for buses, links and memory nodes. Names are compared without their
# domain, so that a GPU and a NIC of different drivers can be neighbours. A device without an attribute at a level does not count as
# further away.
# The nearest level is first; the number is the cost for two devices that do not share the level.
LEVELS: tuple[tuple[float, frozenset[str]], ...] = (
    (8.0, frozenset({"nvlinkdomain", "nvlinkclique", "cliqueid", "nvlink", "xgmihive", "hiveid", "fabricid"})),
    (4.0, frozenset({"pcieswitch", "pciswitch", "pcieroot", "pciroot", "pcierootcomplex", "pciebusroot"})),
    (2.0, frozenset({"numanode", "numanodeid", "numa", "numaid"})),
    (1.0, frozenset({"socket", "socketid", "cpusocketid", "cpusocket"})),
)
_WORST = sum(cost for cost, _ in LEVELS)


class LooksAt(IntEnum):
    """What a strategy reads of a node. Only one of several nodes that are equal in this is rated."""

    USE = 1  # units and their use, which are the same on nodes with equal fingerprints
    SITES = 2  # also topology: buses, links, memory nodes
    FLEET = 3  # also the node's labels and all other nodes; every node is rated again after each change of the fleet


class StrategyCache:
    """Results that are shared by questions about successive stocks (snapshots).

    The stocks must have the same DeviceClasses and DeviceCompatibilities; pools and devices in use may change. The latest results are kept,
    up to a number of entries.
    """

    def __init__(self) -> None:
        self._pages: Mapping[str, Page] = {}
        self._scale: Scale = {}
        self._compiled: dict[bytes, CompileCache] = {}
        self._units: dict[tuple[Page, ...], tuple[HardwareUnit, ...]] = {}
        self._sites: dict[Page, tuple[Site, ...]] = {}

    def cache_for(self, key: bytes, begin: Callable[[], CompileCache]) -> CompileCache:
        """Return the compile cache of a question; if there is none, `begin` makes it."""
        compiled = self._compiled
        compile_cache = compiled.pop(key, None)
        if compile_cache is None or compile_cache.size > _ENTRIES:
            compile_cache = begin()
        compiled[key] = compile_cache
        size = sum(kept.size for kept in compiled.values())
        while len(compiled) > 1:
            if len(compiled) <= _QUESTIONS and size <= _ENTRIES:
                break
            oldest = next(iter(compiled))
            size -= compiled.pop(oldest).size
        return compile_cache

    def units(self, stock: Stock, pools: Sequence[Pool]) -> tuple[HardwareUnit, ...]:
        """Group the devices of a node's pools into units. Weights are relative to the whole fleet, so that nodes can be compared."""
        if stock.pages is not self._pages:
            self._pages, before = stock.pages, self._scale
            self._scale = scale_of(stock.pages.values())
            if self._scale != before:
                self._units.clear()
        all_units: list[HardwareUnit] = []
        for pool in pools:
            pages = pool.pages()
            if pages not in self._units:
                if len(self._units) > _ENTRIES:
                    self._units.clear()
                self._units[pages] = units(pool, self._scale)
            all_units += self._units[pages]
        return tuple(all_units)

    def sites(self, page: Page) -> tuple[Site, ...]:
        sites = self._sites.get(page)
        if sites is None:
            if len(self._sites) > _ENTRIES:
                self._sites.clear()
            sites = self._sites[page] = tuple([site_of(device) for device in page.devices])
        return sites


def site_of(device: Device) -> Site:
    by_name = {name.rpartition("/")[2].lower(): attribute for name, attribute in device.attributes.items()}
    return tuple(
        frozenset(value for name in names & by_name.keys() for _, value in values_of(by_name[name]))
        for _, names in LEVELS
    )


def pair_cost(first: Site, second: Site) -> float:
    """The cost of using two devices together."""
    return sum(cost for (cost, _), a, b in zip(LEVELS, first, second, strict=True) if a and b and not a & b)


def spread(sites: Sequence[Site]) -> float:
    return sum(pair_cost(first, second) for first, second in combinations(sites, 2))


def highest_spread(sites: Sequence[Site]) -> float:
    """The highest possible `spread` of this number of devices."""
    return _WORST * len(sites) * (len(sites) - 1) / 2


def seeds_of(sites: Iterable[Site]) -> list[Site]:
    """List the distinct topologies of devices, in order of appearance."""
    return [site for site in dict.fromkeys(sites) if any(site)][:_SEEDS]


def split_equal_nodes(
    pools: Callable[[str], Iterable[Pool]],
    nodes: Sequence[str],
    looks_at: LooksAt,
    cache: StrategyCache,
    budget: Budget,
) -> list[list[str]]:
    """Split a group of nodes with equal fingerprints by their topology, or into single nodes, if the strategy reads that."""
    if looks_at is LooksAt.USE:
        return [[*nodes]]
    if looks_at is LooksAt.FLEET:
        return [[name] for name in nodes]
    groups: dict[object, list[str]] = {}
    for name in nodes:
        sites: list[Site] = []
        for pool in pools(name):
            for page in pool.pages():
                sites += cache.sites(page)
        budget.charge(1 + 2 * len(sites))
        groups.setdefault(_numbered(sites), []).append(name)
    return list(groups.values())


def _numbered(sites: Sequence[Site]) -> tuple[tuple[int, ...], ...]:
    """Replace the values of buses and links by numbers, because they are compared only within a node."""
    numbers: dict[object, int] = {}
    rows: list[tuple[int, ...]] = []
    for site in sites:
        for values in site:
            known = [numbers.setdefault(value, len(numbers)) for value in values]
            rows.append(tuple(sorted(known)))
    return tuple(rows)


class NodeView:
    """One node's hardware for strategies: units, topology, and what is free now.

    A view shows only what the strategy declares in `looks_at`, because the caches compare nodes only by that. Without FLEET, the only fact
    about other nodes is the size of the largest hardware, because a simulation keeps a node's answer until that node changes.
    """

    def __init__(self, stock: Stock, node: str, pools: Sequence[Pool], cache: StrategyCache, looks_at: LooksAt) -> None:
        self._looks_at = looks_at
        self._fleet = stock, node
        self.use: dict[PoolId, PoolUse] = {pool.id: stock.use(pool.id) for pool in pools}
        self.units = cache.units(stock, pools)
        self.rooms: list[Room] = []
        self.homes: dict[DeviceId, list[int]] = {}
        self._sites: dict[DeviceId, Site] = {}
        for at, unit in enumerate(self.units):
            self.rooms.append(room(unit, self.use[unit.pool]))
            for part in unit.parts:
                device = part.device
                id_ = (*unit.pool, device.name)
                self.homes.setdefault(id_, []).append(at)
                if looks_at >= LooksAt.SITES:
                    self._sites[id_] = site_of(device)

    @property
    def sites(self) -> Mapping[DeviceId, Site]:
        """The topology of each device."""
        if self._looks_at < LooksAt.SITES:
            raise LookupError("a strategy that reads sites must list them in `looks_at`")
        return self._sites

    @property
    def fleet(self) -> tuple[Stock, str]:
        """All nodes with their labels and devices, and the name of this node."""
        if self._looks_at < LooksAt.FLEET:
            raise LookupError("a strategy that reads other nodes or labels must list them in `looks_at`")
        return self._fleet

    def free(self, id_: DeviceId) -> float:
        """The free part of a device's unit."""
        return min((self.rooms[at].free for at in self.homes[id_]), default=0.0)

    def after(self, results: Sequence[DeviceRequestAllocationResult]) -> dict[int, Room]:
        """The free part of each unit that a plan uses, as it will be after the plan."""
        use = dict(self.use)
        touched: dict[int, None] = {}
        for result in results:
            pool = result.driver, result.pool
            device = result.device
            before = use.get(pool, FREE)
            if result.admin_access:
                use[pool] = before
            elif result.share_id is None:
                use[pool] = PoolUse(before.dedicated | {device}, before.shared, before.used)
            else:
                amounts = dict(before.used.get(device, {}))
                for name, amount in result.consumed_capacity.items():
                    amounts[name] = amounts.get(name, 0) + amount.nano
                use[pool] = PoolUse(before.dedicated, before.shared | {device}, {**before.used, device: amounts})
            homes = self.homes.get((*pool, device), ())
            touched.update(dict.fromkeys(homes))
        return {at: room(self.units[at], use[self.units[at].pool]) for at in touched}
