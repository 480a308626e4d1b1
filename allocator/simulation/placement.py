"""Places claims on a fleet, one pod after another, and searches a node again only when it has changed.

A pod with the same requests as an earlier pod reuses the answers of all unchanged nodes. A placement changes one node, so simulating
thousands of pods takes seconds.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from allocator.answer import NodeAnswer, with_allocation
from allocator.strategies import Chosen, HardwareUnit, LooksAt, Room, room, units_of
from dra.stock import PoolUse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from dra.objects import ResourceClaim
    from dra.stock import PoolId, Stock

# Allocates claims on one node by a strategy.
Ask: TypeAlias = "Callable[[Stock, str, Sequence[ResourceClaim]], Chosen]"

_QUESTIONS = 256  # questions whose answers are cached


class _Rooms(msgspec.Struct, frozen=True):
    """The free parts of the units of a pool, while `use` is the pool's use."""

    use: PoolUse
    left: list[tuple[HardwareUnit, Room]]


class Placements:
    """A stock that changes, and the cached answers of its nodes. `ask` allocates claims on a node by a strategy."""

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
        """Return the answers of these nodes, or of all nodes. Answers of unchanged nodes to equal claims are reused.

        An answer and its score depend only on the node, unless the strategy reads the fleet (`NodeView`). A reused allocation has the names of
        the claims for which it was first made, in the same order.
        """
        key = likeness(claims)
        answers_by_node = self._answers.pop(key, {})
        self._answers[key] = answers_by_node
        if len(self._answers) > _QUESTIONS:  # drop the least recently used question
            oldest = next(iter(self._answers))
            for by_question in (self._answers, self._seen, self._asked):
                by_question.pop(oldest, None)
        last_stock = self._seen.get(key)
        changed = self.stock.changed_since(last_stock) if last_stock is not None else None
        if changed is None:
            answers_by_node.clear()
        else:
            read_fleet = [node for node, chosen in answers_by_node.items() if chosen.looks_at is LooksAt.FLEET]
            for node in chain(changed, read_fleet if self.stock is not last_stock else ()):
                answers_by_node.pop(node, None)
        self._seen[key] = self.stock
        same_claims = self._asked.setdefault(key, claims)  # the same objects each time, so that they are compiled once
        wanted_nodes = self.nodes if nodes is None else nodes
        for node in wanted_nodes:
            if node not in answers_by_node:
                answers_by_node[node] = self.ask(self.stock, node, same_claims)
        return {node: answers_by_node[node] for node in wanted_nodes}

    def hold(self, claims: Iterable[ResourceClaim], answer: NodeAnswer) -> None:
        """Put the allocations of the answer into the stock."""
        for claim, granted in zip(claims, answer.allocations, strict=True):
            self.stock = self.stock.with_object(with_allocation(claim, granted.allocation))

    def rooms(self) -> Iterator[tuple[HardwareUnit, Room]]:
        """Yield the free part of every unit of the fleet."""
        for pool, units in self._units.items():
            use = self.stock.use(pool)
            cached = self._rooms.get(pool)
            if cached is not None and cached.use is use:
                yield from cached.left
                continue
            left = [(unit, room(unit, use)) for unit in units]
            self._rooms[pool] = _Rooms(use, left)
            yield from left


def likeness(claims: Sequence[ResourceClaim]) -> bytes:
    """Return a key that is equal for claims with equal specs."""
    return msgspec.json.encode([claim.spec for claim in claims], enc_hook=str)
