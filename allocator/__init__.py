"""Which devices each claim gets, or why not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from allocator.all_nodes import FleetAnswer, fleet
from allocator.answer import Answer, Granted, Reason, Stage, Verdict
from allocator.one_node import DEFAULTS, Options, decide, explained

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dra.objects import ResourceClaim
    from dra.stock import Stock

__all__ = ["Answer", "FleetAnswer", "Granted", "Options", "Reason", "Stage", "Verdict", "allocate", "ever", "fleet"]


def allocate(
    stock: Stock,
    node_name: str,
    claims: Sequence[ResourceClaim],
    *,
    strategy: str = "first-fit",
    options: Options = DEFAULTS,
    reasons: bool = False,
) -> Answer:
    """Say which devices claims get on one node; with first-fit, exactly what the in-tree allocator would choose.

    Giving reasons for a refusal takes several searches more.
    """
    if strategy == "first-fit":
        found = decide(stock, node_name, claims, options)
    else:
        from allocator.strategies import serve

        found = serve(stock, node_name, claims, strategy=strategy, options=options).answer
    refused = found.verdict is Verdict.INFEASIBLE
    return explained(found, stock, node_name, claims, options) if reasons and refused else found


def ever(stock: Stock, claims: Sequence[ResourceClaim], *, options: Options = DEFAULTS) -> Answer:
    """Say whether claims could fit somewhere if nothing were in use; the first node's answer that says so.

    A refusal carries the reasons of the node that came nearest. Taints count: what nobody tolerates is not to be had.
    """
    answers = fleet(stock, claims, options=options, idle=True)
    verdicts = {node: answers.verdict(node) for node in answers}
    for wanted in (Verdict.FEASIBLE, Verdict.UNDECIDED):
        for node, verdict in verdicts.items():
            if verdict is wanted:
                return answers[node]
    refused = answers.one_of_each()
    return min(refused, key=_distance) if refused else Answer(Verdict.INFEASIBLE)


def _distance(refused: Answer) -> tuple[bool, int]:
    """How far a node is from serving the claims: by how late the last devices were lost."""
    late = max((list(Stage).index(reason.stage) for reason in refused.reasons), default=-1)
    return refused.verdict is Verdict.ERROR, -late
