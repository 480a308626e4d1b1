"""What an answer about all nodes need not name: the largest kind of them, those that fit with one score, or that one reason keeps away.

Left unnamed they are "all others", which is clear only if both sides know the same nodes. So the scheduler says in two numbers which it
knows. If those are not ours, the answer names every node that fits, and one that is not named does not.
"""

from __future__ import annotations

from collections import Counter
from operator import itemgetter
from typing import TYPE_CHECKING, TypeVar
from zlib import crc32

import msgspec

from dra.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Collection

    from allocator.decisions.decider import Outlooks

_K = TypeVar("_K")


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
    for one in found.hindrances:
        are_named = map(nodes.__contains__, one.nodes)
        reasons[one.message] += sum(are_named)
    judged = scores.total() + reasons.total()
    if not nodes or judged != len(nodes):
        return None
    score, liked = _largest(scores, 0)
    message, refused = _largest(reasons, "")
    if liked >= refused:
        return OtherNodes(fit=True, score=score)
    return OtherNodes(fit=False, message=message)


def _largest(kinds: Counter[_K], otherwise: _K) -> tuple[_K, int]:
    return max(kinds.items(), key=itemgetter(1), default=(otherwise, 0))
