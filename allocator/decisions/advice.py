"""Finds the smallest change that would help a pod that fits on no node. The nodes that are nearest to a fit are tried first."""

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

if TYPE_CHECKING:
    from collections.abc import Sequence

    from allocator.decisions.decider import Hindrance
    from dra.objects import Pod, ResourceClaim
    from dra.stock import Stock

TRIES = 32
NODES = 4  # nodes that are tried: the first node of each of the first hindrances


def advice(pod: Pod, stock: Stock, hindrances: Sequence[Hindrance]) -> str:
    """Describe a change after which a refused pod would fit; return "" if no such change was found within the budget."""
    claims = find_claims(pod, stock)
    candidates = [stock.nodes[hindrance.nodes[0]] for hindrance in hindrances[:NODES]]
    reachable = [
        node.metadata.name
        for node in candidates
        if not (node_obstacle(claims, node) or refusal(pod, node, {}, claims.by_claim))
    ]
    if not reachable or not claims.open:
        return ""
    budget = Budget(step_limits.ADVICE)
    options = SearchOptions(budget=budget)
    distances: dict[str, tuple[int, int, int, int]] = {}
    for name in reachable:
        distances[name] = distance(allocate(stock, name, claims.open, options=options))

    def fits(node: str, tried: Stock, claims_subset: Sequence[ResourceClaim]) -> bool | None:
        return allocate(tried, node, claims_subset, options=options).decided

    for node in sorted(reachable, key=distances.__getitem__):
        for hint in nearest_fits(stock, node, claims.open, fits=partial(fits, node), tries=TRIES):
            if hint.kind is not Kind.NEVER:
                return f"nearest is {node}: {hint.text}"
    return ""
