"""An answer in the making, which each step of the reading adds to."""

from __future__ import annotations

import msgspec

from webhook.dialects.demand import Demand, Keyed, Left, Note, Refusal
from webhook.dialects.systems.koordinator.pod_words import PodWords

# The pod is refused, or stays as it is, and the rest of it does not matter.
Stop = Refusal | Left


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """What the pod says, what it asks for, and what becomes of its keys."""

    words: PodWords
    gpus: Demand | None = None
    networks: Demand | None = None
    asked: tuple[Keyed, ...] = ()
    notes: tuple[Note, ...] = ()

    def and_(self, *notes: Note) -> Draft:
        """Say more."""
        return msgspec.structs.replace(self, notes=(*self.notes, *notes))


def several(count: int, what: str) -> str:
    """Count things."""
    return f"{count} {what}{'s' if count > 1 else ''}"
