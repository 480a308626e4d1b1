"""How the time of some work grows with its input: said as a ratio, so that a slow or busy machine gives the same answer."""

import gc
import math
from collections.abc import Callable
from time import thread_time_ns
from typing import TypeVar

T = TypeVar("T")
# An input takes as long as so many of this part of it if the work is linear, and so many times as long if it is quadratic. Both are
# as much work, so that a busy machine slows one as it slows the other.
FACTOR = 16
ALLOWED = 4
# Nanoseconds a character of the longer text that need not be compared: work that grows faster takes far more.
QUICK = 100
# What a price is told in: counting so far, which takes a dozen milliseconds on a common machine.
COUNTED = range(1_000_000)


def growth(work: Callable[[str], object], text: Callable[[int], str], size: int) -> float:
    """How many times as long a text takes as FACTOR texts do that are as long together; the best of several, for others use the machine."""
    short, long = text(size), text(FACTOR * size)
    times = [(_time(work, short, FACTOR), _time(work, long)) for _ in range(5)]
    return min(after for _, after in times) / max(1, min(before for before, _ in times))


def assert_linear(work: Callable[[str], object], text: Callable[[int], str], size: int = 2_500) -> None:
    """Fail if the work grows faster than its input, which is `size` and FACTOR times as much, at the best of three tries."""
    if _time(work, text(FACTOR * size)) < QUICK * FACTOR * size:
        return
    tries: list[float] = []
    while len(tries) < 3 and min(tries, default=math.inf) >= ALLOWED:
        tries.append(growth(work, text, size))
    assert min(tries) < ALLOWED, f"a text takes {min(tries):.1f} times as long as {FACTOR} parts of it"


def assert_cheaper(work: Callable[[T], object], make: Callable[[], T], than: float) -> None:
    """Fail if some work takes longer than counting to a million so many times in the same moment, at the best of three tries."""
    prices = (_time(work, make()) / _time(sum, COUNTED) for _ in range(3))
    assert any(price < than for price in prices), f"dearer than counting to a million {than:g} times"


def _time(work: Callable[[T], object], given: T, times: int = 1) -> int:
    """Measure without the garbage collector, whose work grows with all that other tests have left in the process."""
    collects = gc.isenabled()
    gc.disable()
    try:
        begun = thread_time_ns()
        for _ in range(times):
            work(given)
        return thread_time_ns() - begun
    finally:
        if collects:
            gc.enable()
