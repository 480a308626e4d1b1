"""A timer of CPU for work that holds the loop: whatever the work is doing, it ends with `Overtime` when its time is over.

It does not rely on the work looking at a clock. The kernel's timer interrupts the interpreter between two of its
instructions, wherever it is. The kernel counts the CPU of this process, in ticks, each in full for whatever runs when the tick
comes: on a crowded machine 10 ms were over after 5. So when the timer fires, the exact clock of this thread is asked, and
the timer fires again soon. The interrupted work must be pure: the catcher of Overtime drops what it had begun to remember. A
single instruction that takes long cannot be interrupted, so inputs must be small and numbers bounded (`DecisionLimits.inline`).

Only the work is interrupted. No flag says whether it goes on, for between the work and the flag there is always one more
instruction at which the timer may fire; the stack says it: where `_guard` is not on it, the signal is ignored.
"""

from __future__ import annotations

import gc
import signal
import threading
from importlib import import_module
from threading import get_ident
from time import thread_time
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

T = TypeVar("T")

# Seconds until the timer fires again: a destructor cannot be ended, and an import is not to be.
REPEAT_SECONDS = 0.005


class Overtime(BaseException):
    """The work took too long. No Exception, so that no handler in between takes it for its own fault."""


class CpuTimer:
    """The process's timer, for one piece of work at a time. Signals come to the main thread; elsewhere work is not timed."""

    def __init__(self) -> None:
        self._works = False

    def install(self) -> None:
        """Have the timer's signal handled here."""
        if threading.current_thread() is threading.main_thread():
            _COLLECTOR.watch()
            signal.signal(signal.SIGPROF, _fire)
            self._works = True

    def within(self, seconds: float, work: Callable[[], T]) -> T:
        """Do some work; raise Overtime when it has used so many seconds of CPU."""
        if not self._works:
            return work()
        _DEADLINE.at = thread_time() + seconds
        _COLLECTOR.is_running = False  # also where the callbacks were taken away in the middle of one
        try:
            signal.setitimer(signal.ITIMER_PROF, seconds, REPEAT_SECONDS)
            return _guard(work)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0.0)


def _guard(work: Callable[[], T]) -> T:
    """Do some work. While this stands on the stack, and only then, Overtime may be raised."""
    return work()


def _fire(number: int, frame: FrameType | None) -> None:
    """End the work that this frame belongs to. A stack is walked in microseconds, and only when the timer fires."""
    del number
    if _COLLECTOR.is_running:
        return
    while frame is not None:
        code = frame.f_code
        if code is _GUARDED:
            if thread_time() < _DEADLINE.at:
                return
            raise Overtime
        if code in _UNINTERRUPTIBLE or code.co_name == "__del__":
            return
        frame = frame.f_back
    # An exception of another signal came between the work and its end, and left the timer on.
    signal.setitimer(signal.ITIMER_PROF, 0.0)


class _Deadline:
    """When the work has had its time, by the exact clock."""

    def __init__(self) -> None:
        self.at = 0.0


class _Collector:
    """Whether the collector is at work. All that it calls swallows what is raised there: destructors, callbacks, the hook that tells of them.

    The work of another thread does not matter: signals come to the main thread alone.
    """

    def __init__(self) -> None:
        self.is_running = False

    def watch(self) -> None:
        """Be the first callback at its start, and the last at its end."""
        for callback in (self._begins, self._ends):
            if callback in gc.callbacks:
                gc.callbacks.remove(callback)
        gc.callbacks.insert(0, self._begins)
        gc.callbacks.append(self._ends)

    def _begins(self, phase: str, info: dict[str, int]) -> None:
        del info
        if phase == "start" and get_ident() == _MAIN:
            self.is_running = True

    def _ends(self, phase: str, info: dict[str, int]) -> None:
        del info
        if phase == "stop" and get_ident() == _MAIN:
            self.is_running = False


_MAIN = threading.main_thread().ident
_DEADLINE = _Deadline()
_COLLECTOR = _Collector()
_GUARDED = _guard.__code__
# What ends by itself, and soon. Every import stands on the first, which has no public name: a module that is half there, or its
# lock that is still held, would outlive the work. The second is called when a member of a set is gone, and would swallow what is
# raised in it; so would the two that say when the collector is at work, and every destructor.
_FINDING = import_module("importlib._bootstrap")._find_and_load.__code__  # noqa: SLF001
_FORGETTING = WeakSet[Any]()._remove.__code__  # type: ignore[attr-defined]  # noqa: SLF001
_UNINTERRUPTIBLE = frozenset((_FINDING, _FORGETTING, _Collector._begins.__code__, _Collector._ends.__code__))  # noqa: SLF001
