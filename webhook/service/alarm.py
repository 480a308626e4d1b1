"""An alarm clock for work that holds the loop: whatever the work is doing, it ends when the time is over.

It does not trust the work to look at a clock. The kernel's timer interrupts the interpreter between two of its
instructions, wherever it is, and what was asked for ends with `Overtime`. The timer counts the CPU of this process, so a
crowded machine makes nobody late. The interrupted work must be pure: what it had begun to remember is to be forgotten by
who catches Overtime. A single instruction that takes long cannot be interrupted, so the input must be small, and numbers
bounded, for that not to happen (`Limits.inline`).
"""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

T = TypeVar("T")

# Some code, a destructor for one, cannot be ended; then the clock rings again.
AGAIN = 0.005


class Overtime(BaseException):
    """The work took too long. No Exception, so that nothing in between takes it for a fault of its own."""


class Alarm:
    """The process's alarm clock. Only the main thread can be woken; elsewhere work is not timed."""

    def __init__(self) -> None:
        self._armed = False
        self._works = False

    def install(self) -> None:
        """Take the signal."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGPROF, self._ring)
            self._works = True

    def within(self, seconds: float, work: Callable[[], T]) -> T:
        """Do some work; raise Overtime when it has used so many seconds of CPU."""
        if not self._works:
            return work()
        try:
            self._armed = True
            signal.setitimer(signal.ITIMER_PROF, seconds, AGAIN)
            try:
                return work()
            finally:
                self._disarm()
        except Overtime:
            # It may have rung while it was being switched off.
            self._disarm()
            raise

    def _disarm(self) -> None:
        self._armed = False
        signal.setitimer(signal.ITIMER_PROF, 0.0)

    def _ring(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self._armed:
            raise Overtime
