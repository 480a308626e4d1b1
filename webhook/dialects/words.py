"""What a reader is given: one dialect's words on one pod.

A reader is pure arithmetic on this. It never sees the pod, the fleet or other dialects, so what it decides can be written
into a table of cases; finding the words, removing them and making claims is the engine's (`webhook.translate.translate`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Generic, NamedTuple, TypeVar

import msgspec

from webhook.dialects.demand import Left
from webhook.dialects.table import Dialect, Role, Row, Unit


class Mistake(NamedTuple):
    """What is wrong at a place of the configuration file, and what to do."""

    path: str  # JSON pointer
    message: str
    hint: str


class Options(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """How a system is set up where not by default; a field of the configuration file, under its dialect's name."""

    def mistakes(self) -> Iterable[Mistake]:
        """List what fits the shape but makes no sense, with pointers below the dialect's name."""
        return ()

    def of_host(self) -> Mapping[str, str]:
        """Name the resources of the pod itself that are asked for by claims, too: each with its kind of device."""
        return {}


# Stands for the text of a hint whose value nobody knows before the container starts.
UNREADABLE = "\0"
O = TypeVar("O", bound=Options)  # noqa: E741  as short as T, and it stands for Options


class Amount(msgspec.Struct, frozen=True, gc=False):
    """A resource key on a container: a whole number, already checked as the API server would have."""

    key: str
    row: Row
    value: int
    part: str = ""  # what stood for the `<…>` of the row's name


class Hint(msgspec.Struct, frozen=True, gc=False):
    """An annotation, label, variable or selector of the pod that a dialect knows."""

    key: str
    row: Row
    text: str
    # Of a list, its parts, trimmed, empty ones dropped: split once, since every container asks for them.
    entries: tuple[str, ...] = ()

    @classmethod
    def of(cls, key: str, row: Row, text: str) -> Hint:
        """Make a hint of what stands on the pod."""
        if row.unit is not Unit.LIST:
            return cls(key, row, text)
        parts = [part.strip() for part in text.split(",")]
        entries = tuple(part for part in parts if part)
        return cls(key, row, text, entries)


class Selection(NamedTuple):
    """What a pod demands of a label of its node, as a required affinity writes it."""

    key: str
    operator: str
    values: tuple[str, ...]


class Selected(NamedTuple):
    """All that a pod demands of its node's labels: what holds in any case, and alternatives of which one has to hold."""

    always: tuple[Selection, ...] = ()
    terms: tuple[tuple[Selection, ...], ...] = ()


class Said(msgspec.Struct, frozen=True, gc=False):
    """What one container says in a dialect. `ordinary_init`: it ends before the others begin."""

    container: str
    amounts: tuple[Amount, ...]
    ordinary_init: bool = False
    init: bool = False

    def of(self, role: Role) -> Amount | None:
        """Find the amount that plays a role, if there is one."""
        for amount in self.amounts:
            if amount.row.role is role:
                return amount
        return None

    def number(self, role: Role, default: int = 0) -> int:
        """Read the amount that plays a role."""
        amount = self.of(role)
        return default if amount is None else amount.value


class Meaning(msgspec.Struct, frozen=True, gc=False):
    """What a unit of a name is that several systems use: a whole device, a MIG device of a profile, a replica, or unclear."""

    profile: str = ""
    replica: bool = False
    left: Left | None = None
    basis: str = ""  # what this rests on, in words for people
    # It is left for a doubt only, which an administrator's word settles.
    doubt: bool = False


WHOLE = Meaning()


class Words(msgspec.Struct, Generic[O], frozen=True, kw_only=True, gc=False):
    """All that a reader may know: one container's words, or in pod scope those of every container that speaks."""

    table: Dialect
    said: tuple[Said, ...]
    options: O
    hints: Mapping[Role, Hint] = {}
    unit: Meaning = WHOLE  # of a bare count, where the vocabulary says what one can be
    host: Mapping[
        str, int
    ] = {}  # what the whole pod requests of resources that claims are made for (`of_host`), in billionths
