"""What systems share whose pods ask by annotation alone: nothing on a container asks.

Their schedulers place such pods by annotations, and their webhooks rewrite them. A claim beside the annotations would be a second
request, so the pod stays, with the reason, unless an administrator has it translated: then the annotations are taken off. Labels stay,
because selectors of controllers may name them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from webhook.dialects.table import Dialect, Outcome, Position, Role, Row, left
from webhook.dialects.vocabulary import Hint, Options, Refusal, Stop, Untranslated
from webhook.names import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

OUTPUT: Final = "written by the system itself"
UNLIMITED: Final = "compute is neither reserved nor limited"
SHOWN: Final = 40  # letters of a text that a message repeats
is_number = re.compile(r"[0-9]{1,19}").fullmatch


class ShareOptions(Options, frozen=True, kw_only=True):
    """What becomes of pods that ask by annotation."""

    # `translate` makes claims of them and takes the annotations off; the system's own scheduler and webhook lose such pods
    # (docs/configuration.md#pods-that-ask-kai-or-tensor-fusion-by-annotation).
    fractions: Literal["leave", "translate"] = "leave"

    def table(self, table: Dialect) -> Dialect:
        if self.fractions == "leave":
            return table
        new = "enforced from now on, unlike before"
        keys = []
        for row in table.keys:
            moves = row.role is Role.ASKS
            keys.append(msgspec.structs.replace(row, outcome=Outcome.APPROXIMATED, because=new) if moves else row)
        return msgspec.structs.replace(table, keys=tuple(keys))


def asks(name: str, meaning: str, because: str) -> Row:
    """Make the row of an annotation that asks for a device."""
    return left(name, meaning, because, Position.ANNOTATION, role=Role.ASKS)


def modifier(name: str, meaning: str, place: Position = Position.ANNOTATION, because: str = "") -> Row:
    """Make the row of a key that changes a request and makes none."""
    return left(name, meaning, because or "stays with the request that it refers to", place)


def opt_in(name: str) -> str:
    """Name the option by which the pods of a system are translated."""
    return f"an administrator can declare `{name}: {{fractions: translate}}` ({TABLES})"


def leave_unserved(texts: Mapping[str, Hint], reasons: Iterable[tuple[str, str, str]]) -> Untranslated | None:
    """Leave a pod for the first of these names that it has with this value, "" for any, and say why."""
    for name, value, why in reasons:
        if (hint := texts.get(name)) and value in ("", hint.text):
            return Untranslated(hint.key, why)
    return None


def number_of_gpus(counted: Hint | None, most: int = 0) -> int | Stop:
    """Read a number of GPUs: one where none is written."""
    if counted is None:
        return 1
    count = int(counted.text) if is_number(counted.text) else 0
    if count and (not most or count <= most):
        return count
    reason = f"{counted.text[:SHOWN]!r} is not a number of GPUs"
    span = f"from 1 to {most}" if most else "from 1 up"
    return Refusal(counted.key, reason, f"write a whole number {span}")
