"""Why nodes refuse, remembered: pods that ask alike get the very same refusal of a node while nothing happens there, and one look at it does for all.

What is remembered is said of each pod's own claims. What names claims in its words is not remembered, as where one has what another lacks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from allocator.answer import Answer, Reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dra.objects import ResourceClaim

REMEMBERED = 4096


class _Explained(msgspec.Struct, frozen=True):
    """Why a node refuses, with the names of the claims that asked first."""

    refused: Answer  # kept, so that no other one has its identity
    found: Answer
    names: list[str]


class ReasonsKnown:
    """What was found out about refusals, by their identity."""

    def __init__(self) -> None:
        self._known: dict[int, _Explained] = {}

    def find(self, refused: Answer, claims: Sequence[ResourceClaim]) -> Answer | None:
        """Say why claims are refused; None if nobody has looked."""
        known = self._known.get(id(refused))
        if known is None:
            return None
        names = _names(claims)
        own = dict(zip(known.names, names, strict=True))
        return _said_of(own, known.found)

    def keep(self, refused: Answer, found: Answer, claims: Sequence[ResourceClaim]) -> None:
        """Remember it, if it can be said of others."""
        if not found.explained or _tells_of(claims, found):
            return
        if len(self._known) >= REMEMBERED:
            self._known.clear()
        self._known[id(refused)] = _Explained(refused, found, _names(claims))


def _said_of(own: Mapping[str, str], answer: Answer) -> Answer:
    reasons: list[Reason] = []
    for reason in answer.reasons:
        claim = own.get(reason.claim, reason.claim)
        reasons.append(msgspec.structs.replace(reason, claim=claim))
    return msgspec.structs.replace(answer, reasons=tuple(reasons))


def _names(claims: Iterable[ResourceClaim]) -> list[str]:
    return [claim.metadata.key for claim in claims]


def _tells_of(claims: Iterable[ResourceClaim], answer: Answer) -> bool:
    words = [text for reason in answer.reasons for text in (reason.text, *reason.examples)]
    return any(claim.metadata.name in text for claim in claims for text in words)
