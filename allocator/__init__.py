"""Which devices each claim gets, or why not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from allocator.answer import Answer, Fatal, Granted, Reason, Stage, Verdict
from allocator.compile import Compiler
from allocator.search import DEFAULTS, Options, answer, find
from allocator.shape import shape_of
from dra.compat import Rules
from dra.errors import NodeSelectorError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dra.claim import ResourceClaim
    from dra.stock import Stock

__all__ = ["Answer", "Granted", "Options", "Reason", "Stage", "Verdict", "allocate"]


def allocate(
    stock: Stock,
    node_name: str,
    claims: Sequence[ResourceClaim],
    *,
    options: Options = DEFAULTS,
) -> Answer:
    """Say which devices claims get on one node, first fit: exactly what the in-tree allocator would choose."""
    node = stock.nodes[node_name]
    try:
        shape = shape_of(claims, stock.classes)
        pools = stock.pools(node_name)
    except (Fatal, NodeSelectorError) as error:
        return Answer(Verdict.ERROR, error=str(error))
    compiler = Compiler(shape, Rules(stock.compatibilities.values()))
    return answer(compiler, node, find(compiler, node, pools, stock.use, options), options)
