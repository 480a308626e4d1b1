"""Common parts of the systems whose pods request devices by annotation, without a resource key.

The scheduler of such a system places pods by their annotations, and its webhook rewrites the pods. A claim would be a second request beside
the annotations. So the pod stays as it is, unless an administrator has such pods translated (`fractions: translate`). Then a claim replaces the
annotations. Labels stay, because selectors of controllers may use them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from webhook.dialects.table import Dialect, Outcome, Position, Role, Row, untranslated
from webhook.dialects.vocabulary import DialectOptions, Hint, leave, refuse
from webhook.names import CONFIGURATION_PAGE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dra.reason import Reason

OUTPUT: Final = "written by the system itself"
UNLIMITED: Final = "compute is neither reserved nor limited"
SHOWN: Final = 40  # letters of a user's text in a message
is_number = re.compile(r"[0-9]{1,19}").fullmatch


class ShareOptions(DialectOptions, frozen=True, kw_only=True):
    """What becomes of pods that request devices by annotation."""

    # `translate` replaces the annotations by claims; the system's own scheduler and webhook then no longer handle such pods
    # (docs/configuration.md#pods-that-ask-kai-or-tensor-fusion-by-annotation).
    fractions: Literal["leave", "translate"] = "leave"

    def table(self, table: Dialect) -> Dialect:
        if self.fractions == "leave":
            return table
        new = "enforced from now on, unlike before"
        keys = []
        for row in table.keys:
            moves = row.role is Role.REQUESTS_DEVICES
            keys.append(msgspec.structs.replace(row, outcome=Outcome.APPROXIMATED, because=new) if moves else row)
        return msgspec.structs.replace(table, keys=tuple(keys))


def asks(name: str, meaning: str, because: str) -> Row:
    """Return the row of an annotation that requests a device."""
    return untranslated(name, meaning, because, Position.ANNOTATION, role=Role.REQUESTS_DEVICES)


def modifier(name: str, meaning: str, place: Position = Position.ANNOTATION, because: str = "") -> Row:
    """Return the row of a key that modifies a request."""
    return untranslated(name, meaning, because or "stays with the request that it refers to", place)


def opt_in(name: str) -> str:
    """Return the remedy that names the option for translating a system's pods."""
    return f"an administrator can declare `{name}: {{fractions: translate}}` ({CONFIGURATION_PAGE})"


def leave_unserved(texts: Mapping[str, Hint], reasons: Iterable[tuple[str, str, str]]) -> Reason | None:
    """Return why a pod stays as it is, by the first of `reasons` that applies: annotation, value ("" for any) and text. None if none applies."""
    for name, value, why in reasons:
        if (hint := texts.get(name)) and value in ("", hint.text):
            return leave(hint.key, why)
    return None


def number_of_gpus(counted: Hint | None, most: int = 0) -> int | Reason:
    """Return the number of GPUs in an annotation; 1 without the annotation."""
    if counted is None:
        return 1
    count = int(counted.text) if is_number(counted.text) else 0
    if count and (not most or count <= most):
        return count
    reason = f"{counted.text[:SHOWN]!r} is not a number of GPUs"
    span = f"from 1 to {most}" if most else "from 1 up"
    return refuse(counted.key, reason, f"write a whole number {span}")
