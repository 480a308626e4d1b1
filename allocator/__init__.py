"""Allocation: which devices each claim gets, or why it gets none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from allocator.all_nodes import FleetAnswer, FleetMemo, best_verdict, fleet
from allocator.answer import Granted, NodeAnswer, Rejection, SearchVerdict, Stage
from allocator.one_node import DEFAULTS, SearchOptions, decide, explain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dra.objects import ResourceClaim
    from dra.stock import Stock

__all__ = [
    "FleetAnswer",
    "FleetMemo",
    "Granted",
    "NodeAnswer",
    "Rejection",
    "SearchOptions",
    "SearchVerdict",
    "Stage",
    "allocate",
    "best_verdict",
    "fleet",
]


def allocate(
    stock: Stock,
    node_name: str,
    claims: Sequence[ResourceClaim],
    *,
    strategy: str = "first-fit",
    options: SearchOptions = DEFAULTS,
    reasons: bool = False,
) -> NodeAnswer:
    """Allocate claims on one node; with first-fit, exactly as the in-tree allocator does.

    Reasons for a refusal take several more searches.
    """
    if strategy == "first-fit":
        answer = decide(stock, node_name, claims, options)
    else:
        from allocator.strategies import choose_devices

        answer = choose_devices(stock, node_name, claims, strategy=strategy, options=options).answer
    return explain(answer, stock, node_name, claims, options) if reasons else answer
