"""A finding: a problem, or a notable fact, about one object. Every check returns findings, and every report prints them.

A code never changes its meaning; `path` is a JSON pointer into the object; `remedy` says what to do.
"""

from __future__ import annotations

from enum import StrEnum

from dra.wire import Wire


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Finding(Wire, frozen=True, kw_only=True, omit_defaults=False):
    code: str
    severity: Severity
    object: str
    path: str
    message: str
    remedy: str = ""
