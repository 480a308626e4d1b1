"""Compares the time of work for inputs of different sizes. The result is a ratio, so the speed and load of the machine do not matter."""

import gc
import math
from collections.abc import Callable
from time import thread_time_ns
from typing import TypeVar

T = TypeVar("T")
# Linear work takes as long for one input as for its FACTOR parts together; quadratic work takes FACTOR times as long. The whole and the
# parts have the same length, so that load on the machine slows both measurements equally.
FACTOR = 16
MAX_GROWTH = 4
# Nanoseconds per character of work that is not compared, because work that is not linear takes far longer.
QUICK_NANOSECONDS = 100
# The unit of a price is the time of a sum over this range, about a dozen milliseconds on a common machine.
SUMMED_NUMBERS = range(1_000_000)


def growth(work: Callable[[str], object], text: Callable[[int], str], size: int) -> float:
    """Return the time for one long text divided by the time for FACTOR short texts of the same total length.

    Each time is the best of five tries, because other processes use the machine.
    """
    short, long = text(size), text(FACTOR * size)
    times = [(_time(work, short, FACTOR), _time(work, long)) for _ in range(5)]
    return min(long_time for _, long_time in times) / max(1, min(short_time for short_time, _ in times))


def assert_linear(work: Callable[[str], object], text: Callable[[int], str], size: int = 2_500) -> None:
    """Fail if the time grows faster than the input, from `size` to FACTOR times `size`; the best of three tries counts."""
    if _time(work, text(FACTOR * size)) < QUICK_NANOSECONDS * FACTOR * size:
        return
    tries: list[float] = []
    while len(tries) < 3 and min(tries, default=math.inf) >= MAX_GROWTH:
        tries.append(growth(work, text, size))
    assert min(tries) < MAX_GROWTH, f"a text takes {min(tries):.1f} times as long as {FACTOR} parts of it"


def assert_cheaper(work: Callable[[T], object], make: Callable[[], T], than: float) -> None:
    """Fail if the work takes longer than counting to a million `than` times on the same machine now; the best of three attempts counts."""
    prices = (_time(work, make()) / _time(sum, SUMMED_NUMBERS) for _ in range(3))
    assert any(price < than for price in prices), f"the work takes longer than counting to a million {than:g} times"


def _time(work: Callable[[T], object], value: T, times: int = 1) -> int:
    """Return the nanoseconds of the work. The garbage collector is off, because its time depends on what other tests left in the process."""
    is_collecting = gc.isenabled()
    gc.disable()
    try:
        started_at = thread_time_ns()
        for _ in range(times):
            work(value)
        return thread_time_ns() - started_at
    finally:
        if is_collecting:
            gc.enable()
