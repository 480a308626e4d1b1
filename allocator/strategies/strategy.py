"""Strategies: which devices to allocate, and on which node, if several would do.

A strategy proposes orders in which devices are tried, and rates the resulting plans; the search is exact in any order. First-fit
decides whether claims fit at all. Only then are other plans tried, with the alternatives of firstAvailable that first-fit chose. The plan
of first-fit is always among the rated plans. So a strategy can neither find a fit where there is none nor lose one, and by its own rating
its choice is never worse than that of first-fit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import msgspec

from allocator.answer import NodeAnswer
from allocator.strategies.hardware import Room, utilisation
from allocator.strategies.node_view import LooksAt, highest_spread, pair_cost, seeds_of, spread
from dra.objects import DeviceRequestAllocationResult

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from allocator.strategies.node_view import DeviceId, NodeView, Site


Cost = tuple[float, ...]
Order: TypeAlias = "Callable[[DeviceId], Cost]"
_Level = tuple[int, object]  # a level of the topology, and a value at this level

DEFAULT = "first-fit"


class DevicePlan(msgspec.Struct, frozen=True, eq=False):
    """The allocation that one order led to."""

    answer: NodeAnswer
    results: tuple[DeviceRequestAllocationResult, ...]
    rooms: dict[int, Room]  # the free part of each used unit afterwards


class Strategy:
    """Preferences for devices and nodes; the base class has none."""

    name = DEFAULT
    summary = "the devices that Kubernetes' own allocator takes"
    # What the strategy reads of a node. Only one of several nodes that are equal in this is rated, and a `NodeView` shows nothing else.
    looks_at = LooksAt.USE

    def orders(self, view: NodeView) -> Iterator[Order]:  # noqa: ARG002
        """Propose orders in which devices are tried, as sort keys."""
        return iter(())

    def cost(self, view: NodeView, plan: DevicePlan) -> Cost:  # noqa: ARG002
        """Rate a plan for a node. The plan with the lowest cost wins; among equal costs, the earliest."""
        return ()

    def score(self, view: NodeView, plan: DevicePlan) -> float:  # noqa: ARG002
        """Score a node by its plan, from 0 to 100."""
        return 0.0


class CompactFirst(Strategy):
    name = "CompactFirst"
    summary = "fill hardware and nodes that are already in use"

    def orders(self, view: NodeView) -> Iterator[Order]:
        yield lambda id_: (view.free(id_), float(view.homes[id_][0]))

    def cost(self, view: NodeView, plan: DevicePlan) -> Cost:
        opened = sum(not view.rooms[at].busy for at in plan.rooms)
        return float(opened), sum(room.free for room in plan.rooms.values())

    def score(self, view: NodeView, plan: DevicePlan) -> float:
        return 100 * _load(view, plan)


class LowLoadFirst(Strategy):
    name = "LowLoadFirst"
    summary = "take the least used hardware and nodes, and spread over them"

    def orders(self, view: NodeView) -> Iterator[Order]:
        # The first partitions of all units come before any second partition.
        rank = {
            (*unit.pool, part.device.name): float(number)
            for unit in view.units
            for number, part in enumerate(unit.parts)
        }
        yield lambda device: (-view.free(device), rank[device])
        yield lambda device: (rank[device], -view.free(device))

    def cost(self, view: NodeView, plan: DevicePlan) -> Cost:
        before = sum((1 - view.rooms[at].free) ** 2 for at in plan.rooms)
        return (sum((1 - room.free) ** 2 for room in plan.rooms.values()) - before,)

    def score(self, view: NodeView, plan: DevicePlan) -> float:
        return 100 * (1 - _load(view, plan))


class NodeCompactGPULowLoad(LowLoadFirst):
    name = "NodeCompactGPULowLoad"
    summary = "fill nodes that are already in use, but take the least used hardware there"

    def score(self, view: NodeView, plan: DevicePlan) -> float:
        return 100 * _load(view, plan)


class Topology(Strategy):
    """Where two neighbours are free, every claim of two GPUs gets neighbours; with first-fit and CompactFirst, 49 % of the claims do.

    `bench/allocator/fragmentation.py` measures this. The webhook translates HAMi's and Koordinator's topology keys to this strategy.
    """

    name = "topology"
    summary = "prefer devices that share NVLink, PCIe root or NUMA node"
    looks_at = LooksAt.SITES

    def orders(self, view: NodeView) -> Iterator[Order]:
        def around(seed: Site) -> Callable[[DeviceId], Cost]:
            return lambda id_: (pair_cost(seed, view.sites[id_]), view.free(id_), float(view.homes[id_][0]))

        seeds = seeds_of(view.sites.values())
        for seed in seeds:
            yield around(seed)
        if not seeds:
            yield from CompactFirst().orders(view)

    def cost(self, view: NodeView, plan: DevicePlan) -> Cost:
        return spread(_sites(view, plan)), *_neighbours(view, plan), *CompactFirst().cost(view, plan)

    def score(self, view: NodeView, plan: DevicePlan) -> float:
        sites = _sites(view, plan)
        highest = highest_spread(sites)
        closeness = 1 - spread(sites) / highest if highest else 1.0
        return 90 * closeness + 10 * _load(view, plan)


STRATEGIES: dict[str, Strategy] = {
    strategy.name: strategy
    for strategy in (
        Strategy(),
        CompactFirst(),
        LowLoadFirst(),
        NodeCompactGPULowLoad(),
        Topology(),
    )
}


def _load(view: NodeView, plan: DevicePlan) -> float:
    """The used part of the hardware of the plan's drivers on the node, as it will be after the plan."""
    drivers = {result.driver for result in plan.results}
    rooms = [
        (unit, plan.rooms.get(at, view.rooms[at])) for at, unit in enumerate(view.units) if unit.pool[0] in drivers
    ]
    return utilisation(rooms)


def _sites(view: NodeView, plan: DevicePlan) -> list[Site]:
    ids = dict.fromkeys((result.driver, result.pool, result.device) for result in plan.results)
    return [view.sites[id_] for id_ in ids if id_ in view.sites]


def _neighbours(view: NodeView, plan: DevicePlan) -> Cost:
    """Return a cost that is higher the more a plan uses of idle neighbourhoods, which should stay idle."""
    by_site: dict[_Level, list[float]] = {}
    for at, unit in enumerate(view.units):
        free = plan.rooms.get(at, view.rooms[at]).free
        site = view.sites[*unit.pool, unit.parts[0].device.name]
        for level, values in enumerate(site):
            for value in values:
                by_site.setdefault((level, value), []).append(free)
    return (-round(sum((sum(free) / len(free)) ** 2 for free in by_site.values()), 9),)
