"""What an answer about all nodes need not name: the largest kind of them, those that fit with one score, or that one reason keeps away.

Left unnamed they are "all others", which is clear only if both sides know the same nodes. So the scheduler says in two numbers which it
knows. If those are not ours, the answer names every node that fits, and one that is not named does not. So schedulers and allocators of
different versions understand each other.
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

    from allocator.decisions.decider import Outlooks

_K = TypeVar("_K")
LONGEST_REASONS = 16


class KnownNodes(Wire, frozen=True, kw_only=True):
    """Which nodes a scheduler knows: how many, and the sum of their names' CRC-32.

    A scheduler takes it for each pod, so it is cheap, and in no order. Different nodes of equal sums are one chance in 2^32, and cost
    a reservation that is refused: the node that was tried does not exist here.
    """

    count: int
    sum: int


class OtherNodes(msgspec.Struct, frozen=True, omit_defaults=True):
    """What holds for every node that is not named."""

    fit: bool
    score: int = 0
    message: str = ""


def known_nodes(names: Collection[str]) -> KnownNodes:
    """Count nodes, and sum up their names."""
    checks = map(crc32, map(str.encode, names))
    return KnownNodes(count=len(names), sum=sum(checks))


def other_nodes(found: Outlooks, nodes: Collection[str]) -> OtherNodes | None:
    """Find the largest kind of these nodes; None if there is a node that the answer says nothing about."""
    scores = Counter(found.nodes.values())
    reasons: Counter[str] = Counter()
    for hindrance in found.hindrances:
        are_named = map(nodes.__contains__, hindrance.nodes)
        reasons[hindrance.message] += sum(are_named)
    judged = scores.total() + reasons.total()
    if not nodes or judged != len(nodes):
        return None
    score, liked = _largest(scores, 0)
    message, refused = _largest(reasons, "")
    if liked >= refused:
        return OtherNodes(fit=True, score=score)
    return OtherNodes(fit=False, message=message)


class CompactAnswers:
    """Puts outlooks into words. The names of nodes are summed up again only when there are other nodes."""

    def __init__(self) -> None:
        self._counted: Collection[str] = ()
        self._known = known_nodes(())

    def answer(self, token: str, found: Outlooks, known: KnownNodes | None, nodes: Collection[str]) -> dict[str, Any]:
        """Answer a scheduler that knows some nodes, where `nodes` are those that there are. `rest` says what holds for unnamed ones."""
        if nodes is not self._counted:  # one of them has changed: they are another mapping then
            self._counted, self._known = nodes, known_nodes(nodes)
        rest = other_nodes(found, nodes) if known == self._known else None
        liked = rest.score if rest is not None and rest.fit else None
        common_message = rest.message if rest is not None and not rest.fit else None
        hindrances = found.hindrances if liked is not None else found.hindrances[:LONGEST_REASONS]
        reasons: list[dict[str, Any]] = []
        for hindrance in hindrances:
            named = () if hindrance.message == common_message else hindrance.nodes
            reasons.append({"message": hindrance.message, "nodes": named, "count": hindrance.count})
        answer: dict[str, Any] = {
            "verdict": str(found.outlook),
            "token": token,
            "nodes": [{"name": name, "score": score} for name, score in found.nodes.items() if score != liked],
            "message": found.message,
            "reasons": reasons,
        }
        return answer if rest is None else answer | {"rest": rest}


def _largest(kinds: Counter[_K], otherwise: _K) -> tuple[_K, int]:
    return max(kinds.items(), key=itemgetter(1), default=(otherwise, 0))
