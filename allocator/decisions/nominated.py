"""The stock as it would be if other pods came first: for nominated pods. As it would be without some: `allocator.preemption`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from allocator import allocate
from allocator.answer import with_allocation
from allocator.decisions.pod_claims import find_claims

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dra.objects import Pod
    from dra.stock import Stock


def reaches_shared_pool(stock: Stock, node: str) -> bool:
    """Say whether a node reaches devices that other nodes may reach as well."""
    if node not in stock.nodes or not stock.pages_on.get(""):
        return False
    pages = (page for pool in stock.pools(node) for page in stock.pages_of.get(pool.id, ()))
    return any(not page.node_name for page in pages)


def with_pods(stock: Stock, node: str, pods: Sequence[Pod]) -> Stock:
    """Answer with the stock after some pods have taken what they want on a node; a pod that no longer fits there takes nothing."""
    for pod in pods:
        wanted = find_claims(pod, stock).open
        answer = allocate(stock, node, wanted) if wanted else None
        for claim, granted in zip(wanted, answer.allocations if answer else (), strict=False):
            stock = stock.with_(with_allocation(claim, granted.allocation))
    return stock
