"""Finds the smallest change that would help a pod that fits on no node.

Nodes with devices that no pod uses are tried first, then those that are nearest to a fit.
"""

from __future__ import annotations

from functools import partial
from itertools import chain, islice
from types import MappingProxyType
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
from dra.stock import targets

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from allocator.pods import Amounts
    from dra.objects import Pod, ResourceClaim
    from dra.reason import Harm, Reason
    from dra.stock import Stock

TRIES = 32
NODES = 4  # nodes that are tried: one node of each of the first reasons


def advice(
    pod: Pod, stock: Stock, reasons: Sequence[Reason], used: Mapping[str, Amounts] = MappingProxyType({})
) -> tuple[Harm, str] | None:
    """Return a change after which a refused pod would fit, and its harm; None if no such change was found within the budget.

    `used` has the requests of the pods on each node. Of equal nodes, one with devices that no pod uses is preferred if it has room for the pod.
    """
    claims = find_claims(pod, stock)
    has_unused = find_unused(stock)

    def takes(name: str, used_there: Amounts) -> bool:
        node = stock.nodes[name]
        return not (node_obstacle(claims, node) or refusal(pod, node, used_there, claims.by_claim))

    reachable: list[str] = []
    for reason in reasons[:NODES]:
        with_room = (name for name in reason.nodes if has_unused(name) and takes(name, used.get(name, {})))
        others = (name for name in reason.nodes[:1] if takes(name, {}))
        reachable += islice(chain(with_room, others), 1)
    if not reachable or not claims.open:
        return None
    budget = Budget(step_limits.ADVICE)
    options = SearchOptions(budget=budget)
    distances: dict[str, tuple[bool, tuple[int, int, int, int]]] = {}
    for name in reachable:
        nearness = distance(allocate(stock, name, claims.open, options=options))
        distances[name] = (not has_unused(name), nearness)

    def fits(node: str, tried: Stock, claims_subset: Sequence[ResourceClaim]) -> bool | None:
        return allocate(tried, node, claims_subset, options=options).decided

    for node in sorted(reachable, key=distances.__getitem__):
        for hint in nearest_fits(stock, node, claims.open, fits=partial(fits, node), tries=TRIES):
            if hint.kind is not Kind.NEVER:
                return hint.harm, f"nearest is {node}: {hint.text}"
    return None


def find_unused(stock: Stock) -> Callable[[str], bool]:
    """Return a function: whether a node reaches a pool with devices that a claim holds, although it is reserved for no pod."""
    pools = {
        (result.driver, result.pool)
        for claim in stock.claims.values()
        if not claim.status.reserved_for
        for result in results_of(claim)
    }
    pages = [page for pool in pools for page in stock.newest_pages(pool)]

    def has_unused(node: str) -> bool:
        try:
            return any(targets(page, stock.nodes[node]) for page in pages)
        except NodeSelectorError:  # it is unknown which pools the node can reach
            return False

    return has_unused
