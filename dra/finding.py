"""A finding: something wrong, or worth knowing, about one object. What every check returns, and every report prints.

A code never changes its meaning; `path` is a JSON pointer into the object; `hint` says what to do.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from dra.wire import Wire

if TYPE_CHECKING:
    from dra.objects.meta import ObjectMeta


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"
    INFO = "info"

    @property
    def rank(self) -> int:
        """Order of severity, the worst first."""
        return list(Severity).index(self)


class Finding(Wire, frozen=True, kw_only=True, omit_defaults=False):
    code: str
    severity: Severity
    object: str
    path: str
    message: str
    hint: str = ""


def reference(kind: str, meta: ObjectMeta, *, namespaced: bool = True) -> str:
    """Name an object the way every report does: Kind/namespace/name, or Kind/name for cluster objects."""
    name = meta.name or f"{meta.generate_name}*"
    return f"{kind}/{meta.namespace or 'default'}/{name}" if namespaced else f"{kind}/{name}"
