"""Objects that could not be digested: set aside one by one, so that none of them ends a process or hides another.

Whatever a tenant may store reaches every process that follows the cluster, so any decision about an object may fail: a
record nested a thousand levels deep, a number of four thousand digits, a list where a name should be. Such an object is
counted, named once in the log in a line of bounded length, shown by readiness and metrics, and left out until it
changes. Informers and work queues do this by themselves; others write

    with quarantine.guard("deployments.apps", namespace, name, version=version):
        ...

A process without memory and a cluster that cannot be used at all are not an object's fault, and pass.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec

from cluster.errors import ConfigError, StoreError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

logger = logging.getLogger("drawbridge.quarantine")
What = tuple[str, ...]  # the resource, the namespace ("" for cluster objects), the name
# Enough to see what is going on; a tenant who stores more objects like that is counted, not listed.
REMEMBERED = 1000
_LONGEST_PROBLEM = 300
_SHOWN = 3
# Not the fault of an object: they end what they happen in.
PASSED = (MemoryError, ConfigError, StoreError)


class Held(msgspec.Struct, frozen=True):
    """An object that is set aside, and why."""

    what: What
    problem: str
    version: str = ""

    def __str__(self) -> str:
        return f"{name(self.what)}: {self.problem}"


class Quarantine:
    """The objects that a process, or a part of it, has set aside."""

    def __init__(self) -> None:
        self.failures = 0  # since the start, repeated ones included
        self._held: OrderedDict[What, Held] = OrderedDict()
        self._named: OrderedDict[What, None] = OrderedDict()
        self.held: Mapping[What, Held] = MappingProxyType(self._held)

    def guard(self, *what: str, version: str = "") -> Guard:
        """Decide about an object inside a `with`: a failure sets it aside, success takes it back."""
        return Guard(self, what, version)

    def holds(self, *what: str, version: str = "") -> bool:
        """Say whether an object was set aside, and has not changed since."""
        held = self._held.get(what)
        return held is not None and held.version == version

    def hold(self, what: What, problem: str | Exception, version: str = "") -> None:
        """Set an object aside."""
        if isinstance(problem, Exception):
            text = describe(problem)
        else:
            text = line(problem)
        held = Held(what, text, version)
        self.failures += 1
        self._held[what] = held
        self._held.move_to_end(what)
        if len(self._held) > REMEMBERED:
            self._held.popitem(last=False)
        if what not in self._named:
            self._named[what] = None
            logger.error("%s is set aside until it changes: %s", name(what), held.problem)
        if len(self._named) > REMEMBERED:
            self._named.popitem(last=False)

    def release(self, what: What) -> None:
        """Take an object back: it was digested, or is gone."""
        self._held.pop(what, None)

    def note(self) -> str:
        """Say for readiness what is set aside; "" if nothing is."""
        return f"set aside: {self}" if self._held else ""

    def __str__(self) -> str:
        """One line; "" if nothing is set aside."""
        if not self._held:
            return ""
        shown = [str(held) for held in list(self._held.values())[-_SHOWN:]]
        rest = len(self._held) - len(shown)
        return "; ".join(shown) + (f"; and {rest} more" if rest else "")


class Guard:
    """The `with` around a decision about one object."""

    def __init__(self, quarantine: Quarantine, what: What, version: str) -> None:
        self._quarantine = quarantine
        self._what = what
        self._version = version
        self.failed = False

    def __enter__(self) -> None:
        """Nothing is needed before."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """Swallow what is the object's fault."""
        if error is None:
            self._quarantine.release(self._what)
            return False
        if not isinstance(error, Exception) or isinstance(error, PASSED):
            return False
        self.failed = True
        self._quarantine.hold(self._what, error, self._version)
        return True


def name(what: What) -> str:
    """An object in words: `pods default/train`."""
    resource, *rest = what
    return line(f"{resource} {'/'.join(part for part in rest if part)}".rstrip())


def line(text: str, longest: int = _LONGEST_PROBLEM) -> str:
    """A text as a part of one log line: printable, of bounded length."""
    cut = text[: longest + 1]
    printable = "".join(one if one.isprintable() else " " for one in cut)
    return printable if len(text) <= longest else f"{printable[:longest]}..."


def describe(error: Exception) -> str:
    """What went wrong and where, without the thousand lines that a recursion would print."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  the text of an error may fail like anything else that was made of an object
        text = "(its message cannot be written)"
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = ""
    if trace is not None:
        file = "/".join(trace.tb_frame.f_code.co_filename.split("/")[-3:])
        place = f" ({file}:{trace.tb_lineno})"
    return line(f"{type(error).__name__}: {text}") + place
