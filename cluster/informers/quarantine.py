"""The quarantine: an object whose processing fails is left out, so that it neither ends the process nor affects other objects.

Every object that a tenant stores reaches every process that watches the cluster, so processing an object may always fail: it may have a record
nested a thousand levels deep, a number of four thousand digits, or a list in place of a name. Such an object is counted, logged once in a line
of bounded length, reported by readiness and metrics, and left out until it changes. Informers and work queues do this themselves; other code writes

    with quarantine.guard("deployments.apps", namespace, name):
        ...

Errors that are no object's fault, such as MemoryError or an unusable cluster (`PASSED`), are raised.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from types import MappingProxyType
from typing import TYPE_CHECKING

from cluster.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

logger = logging.getLogger("drawbridge.quarantine")
ObjectId = tuple[str, ...]  # the resource, the namespace ("" for cluster objects), the name
REMEMBERED = 1000  # the most objects that are listed; the oldest failures are dropped
_LONGEST_PROBLEM = 300
_SHOWN = 3
# Raised, because they are no object's fault.
PASSED = (MemoryError, ConfigError)


class Quarantine:
    """The quarantined objects of a process or of a part of it."""

    def __init__(self) -> None:
        self._objects: OrderedDict[ObjectId, str] = OrderedDict()  # each object's problem
        self._logged: OrderedDict[ObjectId, None] = OrderedDict()
        self.objects: Mapping[ObjectId, str] = MappingProxyType(self._objects)

    def guard(self, *object_id: str) -> QuarantineGuard:
        """Return a context for processing an object: an error quarantines it, success releases it."""
        return QuarantineGuard(self, object_id)

    def hold(self, object_id: ObjectId, problem: str | Exception) -> None:
        text = describe(problem) if isinstance(problem, Exception) else line(problem)
        self._objects[object_id] = text
        self._objects.move_to_end(object_id)
        if len(self._objects) > REMEMBERED:
            self._objects.popitem(last=False)
        if object_id not in self._logged:
            self._logged[object_id] = None
            logger.error("%s is set aside until it changes: %s", name(object_id), text)
        if len(self._logged) > REMEMBERED:
            self._logged.popitem(last=False)

    def release(self, object_id: ObjectId) -> None:
        """Release an object that was processed or is deleted."""
        self._objects.pop(object_id, None)

    def note(self) -> str:
        """Return a note for readiness; "" if nothing is quarantined."""
        return f"set aside: {self}" if self._objects else ""

    def __str__(self) -> str:
        """Return one line; "" if nothing is quarantined."""
        if not self._objects:
            return ""
        shown = [f"{name(object_id)}: {problem}" for object_id, problem in list(self._objects.items())[-_SHOWN:]]
        rest = len(self._objects) - len(shown)
        return "; ".join(shown) + (f"; and {rest} more" if rest else "")


class QuarantineGuard:
    def __init__(self, quarantine: Quarantine, object_id: ObjectId) -> None:
        self._quarantine = quarantine
        self._object_id = object_id
        self.failed = False

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """Suppress errors that are the object's fault, and quarantine it."""
        if error is None:
            self._quarantine.release(self._object_id)
            return False
        if not isinstance(error, Exception) or isinstance(error, PASSED):
            return False
        self.failed = True
        self._quarantine.hold(self._object_id, error)
        return True


def name(object_id: ObjectId) -> str:
    """Return an object's name in messages: `pods default/train`."""
    resource, *rest = object_id
    return line(f"{resource} {'/'.join(part for part in rest if part)}".rstrip())


def line(text: str, longest: int = _LONGEST_PROBLEM) -> str:
    """Return text that fits into a log line: printable and of bounded length."""
    cut = text[: longest + 1]
    printable = "".join(character if character.isprintable() else " " for character in cut)
    return printable if len(text) <= longest else f"{printable[:longest]}..."


def describe(error: Exception) -> str:
    """Return the error and where it was raised, without the thousand lines of a RecursionError's traceback."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  formatting an error may fail on the object, too
        text = "(its message cannot be written)"
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    source = ""
    if trace is not None:
        file = "/".join(trace.tb_frame.f_code.co_filename.split("/")[-3:])
        source = f" ({file}:{trace.tb_lineno})"
    return line(f"{type(error).__name__}: {text}") + source
