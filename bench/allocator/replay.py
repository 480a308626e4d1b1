"""Replays a workload on a fleet under a strategy: pods arrive, wait, run and end.

Time is simulated. A pod that does not fit waits. Whenever a pod ends, the waiting pods are tried again in the order of priority and
arrival. A later pod that fits may be placed before an earlier pod that does not fit.
"""

from __future__ import annotations

from bisect import insort
from heapq import heappop, heappush
from typing import TYPE_CHECKING

import msgspec

from allocator import SearchOptions
from allocator.answer import as_granted
from allocator.decisions import Decider
from allocator.strategies import fragmentation, read_placement, rooms_of, utilisation
from dra.objects import ResourceClaim
from dra.wire import encode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dra.stock import Stock


class Arrival(msgspec.Struct, frozen=True):
    """A pod that arrives at the time `at`. It ends after it has run for `lasts`; with None it never ends."""

    pod: str
    at: float
    claims: tuple[ResourceClaim, ...]
    lasts: float | None = None
    priority: int = 0


class Sample(msgspec.Struct, frozen=True):
    """The fleet after an event."""

    at: float
    running: int
    pending: int
    utilisation: float
    fragmentation: float


class Replay(msgspec.Struct, frozen=True, rename="camel"):
    """The result of a replay. Times are in the workload's own unit; averages are weighted by time."""

    strategy: str
    pods: int
    placed: int
    at_once: int  # pods that were placed at their arrival
    never: tuple[str, ...]  # pods that were never placed
    pending_mean: float
    pending_worst: float
    utilisation: float
    fragmentation: float
    peak: int  # most pods running at the same time
    samples: tuple[Sample, ...]


def replay(stock: Stock, arrivals: Sequence[Arrival], *, strategy: str, patience: float | None = None) -> Replay:
    """Replay arrivals on a stock; a pod that waits longer than `patience` is dropped."""
    return _Player(stock, arrivals, strategy, patience).report()


class _Player:
    def __init__(self, stock: Stock, arrivals: Sequence[Arrival], strategy: str, patience: float | None) -> None:
        self.stock = stock
        self.strategy = strategy
        self.placement = read_placement(strategy)
        self.decider = Decider(SearchOptions())
        self.arrivals = sorted(arrivals, key=lambda arrival: arrival.at)
        self.specs = [encode([claim.spec for claim in arrival.claims]) for arrival in self.arrivals]
        self.patience = patience
        self.waiting: list[int] = []  # numbers of arrivals, in the order in which they are tried
        self.leaving: list[tuple[float, int]] = []
        self.waited: dict[int, float] = {}
        self.running = self.peak = 0
        self.samples: list[Sample] = []
        for number, arrival in enumerate(self.arrivals):
            self._end_pods_until(arrival.at)
            insort(self.waiting, number, key=lambda n: (-self.arrivals[n].priority, n))
            self._place_pods(arrival.at, [number])
        self._end_pods_until(float("inf"))

    def report(self) -> Replay:
        waits = list(self.waited.values())
        return Replay(
            self.strategy,
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

    def _end_pods_until(self, now: float) -> None:
        """End the pods that are due by `now`, and try the waiting pods after each end."""
        leaving = self.leaving
        while leaving and leaving[0][0] <= now:
            at, _ = leaving[0]
            while leaving and leaving[0][0] == at:
                _, number = heappop(leaving)
                arrival = self.arrivals[number]
                for claim in arrival.claims:
                    self.stock = self.stock.without("ResourceClaim", claim.metadata.key)
                self.running -= 1
            if self.patience is not None:
                self.waiting = [number for number in self.waiting if at - self.arrivals[number].at <= self.patience]
            self._place_pods(at, tuple(self.waiting))

    def _place_pods(self, now: float, numbers: Sequence[int]) -> None:
        """Place the pods that fit; skip a pod with the same claims as a pod that was just refused."""
        refused: set[bytes] = set()
        for number in numbers:
            arrival = self.arrivals[number]
            if self.specs[number] in refused:
                continue
            question = self.stock, arrival.claims, self.placement
            scores = self.decider.scores(self.decider.search_fleet(*question[:2]), *question)
            if not scores:
                refused.add(self.specs[number])
                continue
            node = max(scores, key=scores.__getitem__)
            granted = as_granted(arrival.claims, self.decider.choose_on(node, *question).answer)
            self.stock = self.stock.with_all(granted)
            self.waiting.remove(number)
            self.waited[number] = now - arrival.at
            self.running += 1
            if arrival.lasts is not None:
                heappush(self.leaving, (now + arrival.lasts, number))
        self.peak = max(self.peak, self.running)
        rooms = rooms_of(self.stock)
        self.samples.append(Sample(now, self.running, len(self.waiting), utilisation(rooms), fragmentation(rooms)))

    def _average(self, value: Callable[[Sample], float]) -> float:
        """Average a value over the time in which pods arrive. After that time the pods only end."""
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
