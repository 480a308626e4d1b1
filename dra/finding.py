"""A finding: a problem, or a notable fact, about one object. Every check returns findings, and every report prints them.

A code never changes its meaning. `path` is a JSON pointer into the object. `remedy` says what to do. `basis` says what the
finding rests on, where that is not the object itself: an event, a trial, the usual meaning of a key.
"""

from __future__ import annotations

from enum import StrEnum

from dra.wire import Wire


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Place(Wire, frozen=True, kw_only=True, omit_defaults=False):
    """Where the input has an object or a part of it. Empty if the object was read from a server."""

    file: str = ""
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.file else ""


class Finding(Wire, frozen=True, kw_only=True, omit_defaults=False):
    code: str
    severity: Severity
    object: str
    path: str
    message: str
    remedy: str = ""
    place: Place = Place()
    basis: str = ""
