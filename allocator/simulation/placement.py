"""Placing claims on a fleet, one pod after another: each node is asked again only when it has changed.

A pod that asks like an earlier one gets the earlier answers for all nodes that nothing happened to since. That is what makes
a simulation of thousands of pods a matter of seconds: a placement changes one node, the others have answered already.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import msgspec

from allocator.answer import Answer, with_allocation
from allocator.strategies import Chosen, HardwareUnit, Room, room, units_of
from dra.stock import PoolUse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from dra.objects import ResourceClaim
    from dra.stock import PoolId, Stock

# Puts claims to the allocator, on one node, under a strategy.
Ask: TypeAlias = "Callable[[Stock, str, Sequence[ResourceClaim]], Chosen]"

_QUESTIONS = 256  # questions whose answers are remembered


class _Rooms(msgspec.Struct, frozen=True):
    """What is left of the units of a pool, as long as it is used like this."""

    use: PoolUse
    left: list[tuple[HardwareUnit, Room]]


class Placements:
    """A stock that changes, and the answers of its nodes. `ask` allocates claims on a node by a strategy."""

    def __init__(self, stock: Stock, ask: Ask) -> None:
        self.stock = stock
        self.ask = ask
        self.nodes = list(stock.nodes)
        self._answers: dict[bytes, dict[str, Chosen]] = {}
        self._seen: dict[bytes, Stock] = {}
        self._asked: dict[bytes, Sequence[ResourceClaim]] = {}
        self._units = units_of(stock)
        self._rooms: dict[PoolId, _Rooms] = {}

    def answers(self, claims: Sequence[ResourceClaim], nodes: Sequence[str] | None = None) -> dict[str, Chosen]:
        """Return the answers of nodes, all by default; unchanged nodes that answered equal claims before are not asked again.

        An answer is of its node alone, its score included (`NodeView`). Allocations carry the names of the claims that asked first, in
        the order of these.
        """
        key = likeness(claims)
        known = self._answers.pop(key, {})
        self._answers[key] = known
        if len(self._answers) > _QUESTIONS:  # the question that was not asked for longest is forgotten
            oldest = next(iter(self._answers))
            for by_question in (self._answers, self._seen, self._asked):
                by_question.pop(oldest, None)
        earlier = self._seen.get(key)
        changed = self.stock.changed_since(earlier) if earlier is not None else None
        if changed is None:
            known.clear()
        else:
            for node in changed:
                known.pop(node, None)
        self._seen[key] = self.stock
        same_claims = self._asked.setdefault(key, claims)  # always the same ones, so that they are read once
        wanted = self.nodes if nodes is None else nodes
        for node in wanted:
            if node not in known:
                known[node] = self.ask(self.stock, node, same_claims)
        return {node: known[node] for node in wanted}

    def hold(self, claims: Iterable[ResourceClaim], answer: Answer) -> None:
        """Add an answer's allocations to the stock."""
        for claim, granted in zip(claims, answer.allocations, strict=True):
            self.stock = self.stock.with_object(with_allocation(claim, granted.allocation))

    def rooms(self) -> Iterator[tuple[HardwareUnit, Room]]:
        """Yield the free part of every unit of the fleet."""
        for pool, found in self._units.items():
            use = self.stock.use(pool)
            known = self._rooms.get(pool)
            if known is not None and known.use is use:
                yield from known.left
                continue
            left = [(unit, room(unit, use)) for unit in found]
            self._rooms[pool] = _Rooms(use, left)
            yield from left


def likeness(claims: Sequence[ResourceClaim]) -> bytes:
    """Return a key that is equal for claims with equal specs."""
    return msgspec.json.encode([claim.spec for claim in claims], enc_hook=str)
