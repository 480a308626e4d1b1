"""Finds a DeviceCompatibility that a scheduler may break, because only drawbridge's schedulers know this kind.

Its rules (`compatibleOnlyWith`) forbid certain devices beside others. If another scheduler could choose forbidden devices for a pod, the author
gets a warning when the pod is created. The pod is not refused, because its devices are not chosen yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from allocator import SearchOptions, SearchVerdict, fleet
from dra import step_limits
from dra.policy import Rules, conflicting, conflicting_elsewhere

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from allocator import FleetMemo, NodeAnswer
    from dra.budget import Budget
    from dra.objects import ResourceClaim
    from dra.stock import PoolId, Stock

GROUPS = 16  # the most groups of equal nodes that are checked


def find_broken_rule(
    stock: Stock, claims: Sequence[ResourceClaim], budget: Budget, memo: FleetMemo | None = None
) -> str:
    """Return a text about a node on which a scheduler that ignores the rules may break one of them with these claims; "" if there is none."""
    if not any(rule.spec.compatible_only_with for rule in stock.compatibilities.values()):
        return ""
    options = SearchOptions(steps=step_limits.VERDICT, budget=budget)
    stock_without_rules = replace(stock, compatibilities={})
    with_rules = fleet(stock, claims, options=options, memo=memo)
    without_rules = fleet(stock_without_rules, claims, options=options, memo=memo)
    for nodes in with_rules.equal_nodes()[:GROUPS]:
        node = nodes[0]
        if without_rules.verdict(node) is not SearchVerdict.FEASIBLE:
            continue
        chosen_devices = _devices(without_rules[node])
        if with_rules.verdict(node) is SearchVerdict.FEASIBLE and chosen_devices == _devices(with_rules[node]):
            continue
        conflict = _conflict(stock, node, chosen_devices, budget)
        if conflict:
            return f"on {node} {conflict}"
    return ""


def _devices(answer: NodeAnswer) -> list[tuple[PoolId, str]]:
    results = [result for granted in answer.allocations for result in granted.allocation.devices.results]
    return [((result.driver, result.pool), result.device) for result in results]


def _conflict(stock: Stock, node: str, chosen: Iterable[tuple[PoolId, str]], budget: Budget) -> str:
    """Return a text about the first chosen device that a rule forbids beside a device in use; "" if there is none."""
    rules = Rules(stock.compatibilities.values())
    node_pools = stock.pools(node)
    pools = {pool.id: pool for pool in node_pools}
    across = rules.conflicts_across(node_pools, node, budget)
    for id_, device in chosen:
        conflicts = rules.conflicts(pools[id_], budget)
        in_pool = conflicting(device, conflicts, stock.use(id_))
        in_other_pools = conflicting_elsewhere(across, id_, stock.use)
        others = [(*id_, other) for other in in_pool]
        others += in_other_pools.get(device, ())
        if others:
            first = others[0]
            driver, pool, name = first
            device_id = (*id_, device)
            rule = rules.between(device_id, first, node_pools)
            where = "" if (driver, pool) == id_ else f" of pool {pool}"
            return f"it may allocate {device} together with {name}{where}, which {rule} forbids"
    return ""
