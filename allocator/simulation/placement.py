"""Places claims on a fleet, one pod after another, and searches a node again only when it has changed.

A pod with the same requests as an earlier pod reuses the answers of all unchanged nodes. A placement changes one node, so simulating
thousands of pods takes seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from allocator.strategies import Chosen, LooksAt
from dra.objects import ResourceClaim
from dra.stock import Stock

if TYPE_CHECKING:
    from collections.abc import Callable


# Allocates claims on one node by a strategy.
Ask: TypeAlias = "Callable[[Stock, str, Sequence[ResourceClaim]], Chosen]"

_QUESTIONS = 256  # questions whose answers are cached


class _Question(msgspec.Struct):
    """Claims, and the answers of nodes to them. An answer holds until its node changes after `stock`."""

    claims: Sequence[ResourceClaim]  # the same objects each time, so that they are compiled once
    stock: Stock | None = None
    answers: dict[str, Chosen] = {}


class Placements:
    """A stock that changes, and the cached answers of its nodes. `ask` allocates claims on a node by a strategy."""

    def __init__(self, stock: Stock, ask: Ask) -> None:
        self.stock = stock
        self.ask = ask
        self._questions: dict[bytes, _Question] = {}

    def answers(self, claims: Sequence[ResourceClaim], nodes: Sequence[str] | None = None) -> dict[str, Chosen]:
        """Return the answers of these nodes, or of all nodes. Answers of unchanged nodes to equal claims are reused.

        An answer and its score depend only on the node, unless the strategy reads the fleet (`NodeView`). A reused allocation has the names of
        the claims for which it was first made, in the same order.
        """
        key = likeness(claims)
        question = self._questions.pop(key, None) or _Question(claims)
        self._questions[key] = question
        if len(self._questions) > _QUESTIONS:  # drop the least recently used question
            del self._questions[next(iter(self._questions))]
        stock, answers = self.stock, question.answers
        changed = stock.changed_since(question.stock) if question.stock is not None else None
        if changed is None:
            answers.clear()
        elif stock is not question.stock:
            read_fleet = [node for node, chosen in answers.items() if chosen.looks_at is LooksAt.FLEET]
            for node in chain(changed, read_fleet):
                answers.pop(node, None)
        question.stock = stock
        wanted_nodes = stock.nodes if nodes is None else nodes
        for node in wanted_nodes:
            if node not in answers:
                answers[node] = self.ask(stock, node, question.claims)
        return {node: answers[node] for node in wanted_nodes}


def likeness(claims: Sequence[ResourceClaim]) -> bytes:
    """Return a key that is equal for claims with equal specs."""
    return msgspec.json.encode([claim.spec for claim in claims], enc_hook=str)
