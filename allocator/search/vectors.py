"""Vectors of small counts packed into integers, and whether vectors can sum up to a demand.

A vector has one field of `WIDTH` bits for each dimension. The top bit of a field is a guard. `guards` arguments hold the guard bits of all
dimensions.
"""

from __future__ import annotations

from operator import add
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

WIDTH = 13
LOW = (1 << WIDTH - 1) - 1
_CHARGED = 1024  # comparisons between two charges of the budget


def field(vector: int, dimension: int) -> int:
    return vector >> dimension * WIDTH & LOW


def guard_bits(dimensions: int) -> int:
    return sum(1 << n * WIDTH + WIDTH - 1 for n in range(dimensions))


def minus(vector: int, other: int, guards: int) -> int:
    """Return the difference of each field, at least 0."""
    difference = (vector | guards) - other
    borrow_free = difference & guards
    return difference & (borrow_free - (borrow_free >> WIDTH - 1))


def smaller_of_each(vector: int, top: int, guards: int) -> int:
    """Return the minimum of each field."""
    return vector - minus(vector, top, guards)


def undominated(vectors: Iterable[int], guards: int, spend: Callable[[int], None]) -> tuple[int, ...]:
    """Return the maximal vectors: those for which no other vector is at least as large in every dimension."""
    distinct = set(vectors)
    if len(distinct) < 2:
        return tuple(distinct)
    maximal: list[int] = []
    compared = 0
    for vector in sorted(distinct, reverse=True):
        compared += len(maximal)
        if compared > _CHARGED:
            spend(compared >> 4)
            compared = 0
        for other in maximal:
            if (other | guards) - vector & guards == guards:
                break
        else:
            maximal.append(vector)
    spend(compared >> 4)
    return tuple(sorted(maximal))


def least(vectors: Iterable[int], guards: int) -> list[int]:
    """Return the minimal vectors: those that are not at least as large as another vector in every dimension."""
    minimal: list[int] = []
    for vector in sorted(vectors):
        if not any((vector | guards) - other & guards == guards for other in minimal):
            minimal.append(vector)
    return minimal


def largest_within(counts: Sequence[int], top: int) -> Iterator[tuple[int, ...]]:
    """Yield the largest vectors that are nowhere larger than `counts` and whose sum is at most `top`."""
    if sum(counts) <= top:
        yield tuple(counts)
        return
    if len(counts) == 1:
        yield (top,)
        return
    for count in range(min(counts[0], top) + 1):
        for rest in largest_within(counts[1:], top - count):
            yield (count, *rest)


def covers(
    bags: Sequence[tuple[int, ...]],
    demand: int,
    guards: int,
    weights: Sequence[Sequence[int]],
    *,
    work: int,
    spend: Callable[[int], None],
) -> bool:
    """Return whether a choice of one vector from each bag can sum up to a demand. Also return True if that takes too much work.

    This is a depth-first search with a memo of failed remainders. The bound is the maximum that each dimension, and each weighting of the
    dimensions, can still gain. It is valid for any non-negative weights.
    """
    most, gains = _bounds(bags, demand, guards, weights)
    dimensions = range(0, guards.bit_length(), WIDTH)
    done = 0
    charged = 0
    failed: set[tuple[int, int]] = set()
    stack: list[Iterator[tuple[int, int]]] = [iter([(0, demand)])]
    while stack:
        at, rest = next(stack[-1], (-1, 0))
        if at < 0:
            stack.pop()
            continue
        if not rest:
            spend((done >> 4) - charged)
            return True
        if at == len(bags) or (at, rest) in failed:
            continue
        failed.add((at, rest))  # added before the attempt: if it succeeds, the search ends
        done += len(bags[at])
        if done >> 4 > charged + 64:
            spend((done >> 4) - charged)
            charged = done >> 4
        if done > work:
            return True
        reachable: set[int] = set()
        for vector in bags[at]:
            remaining = minus(rest, vector, guards)
            if not minus(remaining, most[at + 1], guards):
                reachable.add(remaining)
        tried = least(reachable, guards) if 1 < len(reachable) < 200 else list(reachable)
        tried = [
            vector
            for vector in tried
            if all(
                _value(vector, weight, dimensions) <= gain for weight, gain in zip(weights, gains[at + 1], strict=True)
            )
        ]
        tried.sort(key=lambda vector: _value(vector, weights[-1], dimensions))
        stack.append(iter([(at + 1, vector) for vector in tried]))
    spend((done >> 4) - charged)
    return False


def _value(vector: int, weight: Sequence[int], dimensions: Iterable[int]) -> int:
    return sum((vector >> at & LOW) * each for at, each in zip(dimensions, weight, strict=False))


def _bounds(
    bags: Sequence[tuple[int, ...]],
    demand: int,
    guards: int,
    weights: Sequence[Sequence[int]],
) -> tuple[list[int], list[tuple[int, ...]]]:
    """Return, for every suffix of the bags, the maximum of each dimension and of each weighting."""
    dimensions = range(0, guards.bit_length(), WIDTH)
    tops: dict[tuple[int, ...], int] = {}
    values: dict[tuple[int, ...], list[int]] = {}
    most = [0]
    gains = [(0,) * len(weights)]
    for options in reversed(bags):
        if options not in tops:
            tops[options] = sum(max(vector >> start & LOW for vector in options) << start for start in dimensions)
            values[options] = [max(_value(vector, weight, dimensions) for vector in options) for weight in weights]
        most.append(smaller_of_each(most[-1] + tops[options], demand, guards))
        gains.append(tuple(map(add, gains[-1], values[options])))
    most.reverse()
    gains.reverse()
    return most, gains
