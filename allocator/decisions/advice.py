"""Finds the smallest change that would help a pod that fits on no node.

Nodes with devices that no pod uses are tried first, then those that are nearest to a fit.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from allocator import allocate
from allocator.decisions.pod_claims import find_claims, node_obstacle
from allocator.one_node import SearchOptions
from allocator.pods import refusal
from allocator.reasons import Kind, distance, nearest_fits
from dra import step_limits
from dra.budget import Budget
from dra.errors import NodeSelectorError
from dra.objects import results_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from allocator.decisions.decider import Hindrance
    from dra.objects import Pod, ResourceClaim
    from dra.stock import PoolId, Stock

TRIES = 32
NODES = 4  # nodes that are tried: one node of each of the first hindrances


def advice(pod: Pod, stock: Stock, hindrances: Sequence[Hindrance]) -> str:
    """Describe a change after which a refused pod would fit; return "" if no such change was found within the budget."""
    claims = find_claims(pod, stock)
    unused = pools_in_vain(stock)
    candidates = [stock.nodes[first_with_pool(hindrance.nodes, unused, stock)] for hindrance in hindrances[:NODES]]
    reachable = [
        node.metadata.name
        for node in candidates
        if not (node_obstacle(claims, node) or refusal(pod, node, {}, claims.by_claim))
    ]
    if not reachable or not claims.open:
        return ""
    budget = Budget(step_limits.ADVICE)
    options = SearchOptions(budget=budget)
    distances: dict[str, tuple[bool, tuple[int, int, int, int]]] = {}
    for name in reachable:
        nearness = distance(allocate(stock, name, claims.open, options=options))
        distances[name] = (not _has_pool(name, unused, stock), nearness)

    def fits(node: str, tried: Stock, claims_subset: Sequence[ResourceClaim]) -> bool | None:
        return allocate(tried, node, claims_subset, options=options).decided

    for node in sorted(reachable, key=distances.__getitem__):
        for hint in nearest_fits(stock, node, claims.open, fits=partial(fits, node), tries=TRIES):
            if hint.kind is not Kind.NEVER:
                return f"nearest is {node}: {hint.text}"
    return ""


def pools_in_vain(stock: Stock) -> frozenset[PoolId]:
    """Return the pools of devices that a claim holds though it is reserved for no pod."""
    return frozenset(
        [
            (result.driver, result.pool)
            for claim in stock.claims.values()
            if not claim.status.reserved_for
            for result in results_of(claim)
        ]
    )


def first_with_pool(nodes: Sequence[str], pools: frozenset[PoolId], stock: Stock) -> str:
    """Return the first node that reaches one of the pools, otherwise the first node."""
    return next((node for node in nodes if _has_pool(node, pools, stock)), nodes[0])


def _has_pool(node: str, pools: frozenset[PoolId], stock: Stock) -> bool:
    try:
        return bool(pools) and any(pool.id in pools for pool in stock.pools(node))
    except NodeSelectorError:  # it is unknown which pools the node can reach
        return False
