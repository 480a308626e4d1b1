"""Replaying a workload: pods arrive, wait, run and leave; what that does to a fleet under a strategy.

Time is a number that only this module moves. Pods that find no place wait; whenever one leaves, those that wait are tried
again by priority and arrival, and later ones may pass earlier ones that still do not fit.
"""

from __future__ import annotations

from bisect import insort
from heapq import heappop, heappush
from typing import TYPE_CHECKING

import msgspec

from allocator.simulation.placement import Placements, likeness
from allocator.strategies import best_node, fragmentation, utilisation
from dra.objects import ResourceClaim

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from allocator.simulation.placement import Ask
    from dra.stock import Stock


class Arrival(msgspec.Struct, frozen=True):
    """A pod that comes at a time, and leaves when it has run long enough. None: it stays."""

    pod: str
    at: float
    claims: tuple[ResourceClaim, ...]
    lasts: float | None = None
    priority: int = 0


class Sample(msgspec.Struct, frozen=True):
    """The fleet right after something happened."""

    at: float
    running: int
    pending: int
    utilisation: float
    fragmentation: float


class Replay(msgspec.Struct, frozen=True, rename="camel"):
    """What became of a workload. Times in the workload's own unit; averages weigh by time."""

    strategy: str
    pods: int
    placed: int
    at_once: int  # placed the moment they came
    never: tuple[str, ...]  # still waiting at the end
    pending_mean: float
    pending_worst: float
    utilisation: float
    fragmentation: float
    peak: int  # most pods running at the same time
    samples: tuple[Sample, ...]


def replay(
    stock: Stock,
    arrivals: Sequence[Arrival],
    *,
    strategy: str,
    ask: Ask,
    patience: float | None = None,
) -> Replay:
    """Play arrivals against a stock; a pod that waits longer than `patience` gives up."""
    return _Player(stock, arrivals, ask, patience).report(strategy)


class _Player:
    def __init__(
        self,
        stock: Stock,
        arrivals: Sequence[Arrival],
        ask: Ask,
        patience: float | None,
    ) -> None:
        self.fleet = Placements(stock, ask)
        self.arrivals = sorted(arrivals, key=lambda one: one.at)
        self.likeness = [likeness(arrival.claims) for arrival in self.arrivals]
        self.patience = patience
        self.waiting: list[int] = []  # numbers of arrivals, in the order in which they are tried
        self.leaving: list[tuple[float, int]] = []
        self.waited: dict[int, float] = {}
        self.running = self.peak = 0
        self.samples: list[Sample] = []
        for number, arrival in enumerate(self.arrivals):
            self._until(arrival.at)
            insort(self.waiting, number, key=lambda n: (-self.arrivals[n].priority, n))
            self._serve(arrival.at, [number])
        self._until(float("inf"))

    def report(self, strategy: str) -> Replay:
        waits = list(self.waited.values())
        return Replay(
            strategy,
            len(self.arrivals),
            len(waits),
            sum(wait == 0 for wait in waits),
            tuple(arrival.pod for number, arrival in enumerate(self.arrivals) if number not in self.waited),
            sum(waits) / len(waits) if waits else 0.0,
            max(waits, default=0.0),
            self._average(lambda sample: sample.utilisation),
            self._average(lambda sample: sample.fragmentation),
            self.peak,
            tuple(self.samples),
        )

    def _until(self, now: float) -> None:
        """Let the pods leave that end before a time, and serve those that wait for it."""
        leaving = self.leaving
        while leaving and leaving[0][0] <= now:
            at, _ = leaving[0]
            while leaving and leaving[0][0] == at:
                _, number = heappop(leaving)
                arrival = self.arrivals[number]
                for claim in arrival.claims:
                    self.fleet.stock = self.fleet.stock.without("ResourceClaim", claim.metadata.key)
                self.running -= 1
            if self.patience is not None:
                self.waiting = [number for number in self.waiting if at - self.arrivals[number].at <= self.patience]
            self._serve(at, tuple(self.waiting))

    def _serve(self, now: float, tried: Sequence[int]) -> None:
        """Place those that can be placed; one that asks like another that was just refused need not be tried."""
        refused: set[bytes] = set()
        for number in tried:
            arrival = self.arrivals[number]
            if self.likeness[number] in refused:
                continue
            answers = self.fleet.answers(arrival.claims)
            node = best_node(answers)
            if node is None:
                refused.add(self.likeness[number])
                continue
            self.fleet.hold(arrival.claims, answers[node].answer)
            self.waiting.remove(number)
            self.waited[number] = now - arrival.at
            self.running += 1
            if arrival.lasts is not None:
                heappush(self.leaving, (now + arrival.lasts, number))
        self.peak = max(self.peak, self.running)
        rooms = list(self.fleet.rooms())
        self.samples.append(Sample(now, self.running, len(self.waiting), utilisation(rooms), fragmentation(rooms)))

    def _average(self, value: Callable[[Sample], float]) -> float:
        """Average a value over the time in which pods still arrive: what comes after is only the emptying."""
        if not self.samples:
            return 0.0
        first = self.samples[0].at
        end = self.arrivals[-1].at
        if end <= first:
            return value(self.samples[-1])
        ends = [*(sample.at for sample in self.samples[1:]), end]
        areas = [
            value(sample) * max(0.0, min(end, after) - sample.at)
            for sample, after in zip(self.samples, ends, strict=True)
        ]
        return sum(areas) / (end - first)
