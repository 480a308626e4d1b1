"""Shortens an answer about all nodes: the largest group of nodes with the same answer is not named.

A group is all nodes that fit with the same score, or all nodes with the same reason. `rest` is the answer for all unnamed nodes. The
short form is correct only if the scheduler and the allocator know the same nodes, so the scheduler sends count and checksum of its
nodes. If these differ from the allocator's, the answer names every fitting node, and unnamed nodes do not fit. A scheduler of another
version that sends no count and checksum gets this long form, too.
"""

from __future__ import annotations

from collections import Counter
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar
from zlib import crc32

import msgspec

from dra.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Collection

    from allocator.decisions.decider import FleetOutlook

_K = TypeVar("_K")
LONGEST_REASONS = 16


class KnownNodes(Wire, frozen=True, kw_only=True):
    """Count and checksum of a scheduler's nodes; the checksum is the sum of the names' CRC-32.

    A scheduler computes the checksum for each pod, so a sum is used: it is cheap and does not depend on the order of the names. Different
    sets of nodes have equal sums with a chance of 1 in 2^32. The scheduler may then choose a node that does not exist here, and the
    reservation is refused.
    """

    count: int
    sum: int


class OtherNodes(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer for every unnamed node."""

    fit: bool
    score: int = 0
    message: str = ""


def known_nodes(names: Collection[str]) -> KnownNodes:
    checks = map(crc32, map(str.encode, names))
    return KnownNodes(count=len(names), sum=sum(checks))


def other_nodes(fleet_outlook: FleetOutlook, nodes: Collection[str]) -> OtherNodes | None:
    """Return the answer for the largest group of nodes, or None if some node has no answer."""
    scores = Counter(fleet_outlook.nodes.values())
    reasons: Counter[str] = Counter()
    for reason in fleet_outlook.reasons:
        are_named = map(nodes.__contains__, reason.nodes)
        reasons[reason.text] += sum(are_named)
    answered_nodes = scores.total() + reasons.total()
    if not nodes or answered_nodes != len(nodes):
        return None
    score, fitting_count = _largest(scores, 0)
    message, refusing_count = _largest(reasons, "")
    if fitting_count >= refusing_count:
        return OtherNodes(fit=True, score=score)
    return OtherNodes(fit=False, message=message)


class CompactAnswers:
    """Converts a FleetOutlook to JSON. The checksum of the nodes is kept until the nodes change."""

    def __init__(self) -> None:
        self._nodes: Collection[str] = ()
        self._own_nodes = known_nodes(())

    def answer(
        self, token: str, fleet_outlook: FleetOutlook, scheduler_nodes: KnownNodes | None, nodes: Collection[str]
    ) -> dict[str, Any]:
        """Return the answer for a scheduler that knows the nodes `scheduler_nodes`; `nodes` are all nodes of the stock."""
        if nodes is not self._nodes:  # the stock makes a new mapping when a node changes
            self._nodes, self._own_nodes = nodes, known_nodes(nodes)
        rest = other_nodes(fleet_outlook, nodes) if scheduler_nodes == self._own_nodes else None
        common_score = rest.score if rest is not None and rest.fit else None
        common_message = rest.message if rest is not None and not rest.fit else None
        reasons: list[dict[str, Any]] = []
        for reason in fleet_outlook.reasons[: None if common_score is not None else LONGEST_REASONS]:
            named_nodes = () if reason.text == common_message else reason.nodes
            reasons.append({"message": reason.text, "nodes": named_nodes, "count": len(reason.nodes)})
        answer: dict[str, Any] = {
            "verdict": str(fleet_outlook.outlook),
            "token": token,
            "nodes": [
                {"name": name, "score": score} for name, score in fleet_outlook.nodes.items() if score != common_score
            ],
            "message": str(fleet_outlook.reason),
            "reasons": reasons,
        }
        return answer if rest is None else answer | {"rest": rest}


def _largest(kinds: Counter[_K], otherwise: _K) -> tuple[_K, int]:
    return max(kinds.items(), key=itemgetter(1), default=(otherwise, 0))
