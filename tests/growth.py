"""How the time of some work grows with its input: said as a ratio, so that a slow or busy machine gives the same answer."""

import gc
import math
from collections.abc import Callable
from time import thread_time_ns
from typing import TypeVar

T = TypeVar("T")
# Four times the input takes four times as long if the work is linear, and sixteen times if it is quadratic.
FACTOR = 4
ALLOWED = 9
# Nanoseconds a character of the longer text that need not be compared: work that grows faster takes far more.
QUICK = 100
# What a price is told in: counting so far, which takes a dozen milliseconds on a common machine.
COUNTED = range(1_000_000)


def growth(work: Callable[[str], object], text: Callable[[int], str], size: int) -> float:
    """How many times as long a text takes that is FACTOR times as long; the best of several, for others use the machine."""
    short, long = text(size), text(FACTOR * size)
    times = [(_time(work, short), _time(work, long)) for _ in range(5)]
    return min(after for _, after in times) / max(1, min(before for before, _ in times))


def assert_linear(work: Callable[[str], object], text: Callable[[int], str], size: int = 10_000) -> None:
    """Fail if the work grows faster than its input, at the best of three tries: other processes of the machine can slow each time of one."""
    if _time(work, text(FACTOR * size)) < QUICK * FACTOR * size:
        return
    tries: list[float] = []
    while len(tries) < 3 and min(tries, default=math.inf) >= ALLOWED:
        tries.append(growth(work, text, size))
    assert min(tries) < ALLOWED, f"{FACTOR} times the input takes {min(tries):.1f} times as long"


def assert_cheaper(work: Callable[[T], object], make: Callable[[], T], than: float) -> None:
    """Fail if some work takes longer than counting to a million so many times in the same moment, at the best of three tries."""
    prices = (_time(work, make()) / _time(sum, COUNTED) for _ in range(3))
    assert any(price < than for price in prices), f"dearer than counting to a million {than:g} times"


def _time(work: Callable[[T], object], given: T) -> int:
    """Measure without the garbage collector, whose work grows with all that other tests have left in the process."""
    collects = gc.isenabled()
    gc.disable()
    try:
        begun = thread_time_ns()
        work(given)
        return thread_time_ns() - begun
    finally:
        if collects:
            gc.enable()
