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
    options: SearchOptions = DEFAULTS,
    reasons: bool = False,
) -> NodeAnswer:
    """Allocate claims on one node, exactly as the in-tree allocator does.

    Reasons for a refusal take several more searches.
    """
    answer = decide(stock, node_name, claims, options)
    return explain(answer, stock, node_name, claims, options) if reasons else answer
