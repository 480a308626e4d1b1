"""The use of the fleet in the last day: a sample of each reading of the cluster, but at most one per minute.

Samples are kept in memory, so a new process has no samples.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from allocator.strategies import fragmentation, rooms_of
from dashboard.html import el
from dashboard.lines import WAITING, Line, draw
from dashboard.picture import count_devices, in_use
from dashboard.timeline import age
from dra.raw import moment

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dashboard.html import Html
    from dashboard.picture import Picture
    from dra.stock import Stock

DAY, APART = 86400.0, 60.0  # seconds: how long a sample is kept, and the shortest time between two samples


class Sample(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The fleet at one moment: devices by state, nodes of which every device is free, and pods that wait for devices."""

    at: str
    devices: dict[str, int]
    nodes: int
    idle_nodes: int
    # The part of the free hardware that is on cards in use, so that no pod can get it as a whole card.
    fragmentation: float = 0.0
    # None for an account that may not see all namespaces.
    waiting: int | None = None


def sample_of(picture: Picture, stock: Stock) -> Sample:
    """Return the sample of a reading."""
    rooms = rooms_of(stock)
    return Sample(
        at=picture.read_at,
        devices=count_devices(picture.nodes),
        nodes=len(picture.nodes),
        idle_nodes=sum(all(device.state == "free" for device in node.devices) for node in picture.nodes),
        fragmentation=round(fragmentation(rooms), 4),
        waiting=len(picture.waiting),
    )


class Samples:
    """The samples of the last day."""

    def __init__(self, apart: float = APART) -> None:
        self._samples: deque[Sample] = deque()
        self._apart = apart

    def is_due(self, at: str) -> bool:
        """Return whether the last sample is old enough for another one."""
        time, last = moment(at), moment(self._samples[-1].at) if self._samples else None
        return time is not None and (last is None or abs((time - last).total_seconds()) >= self._apart)

    def add(self, sample: Sample) -> None:
        """Remember a sample if it is due."""
        time = moment(sample.at)
        if time is None or not self.is_due(sample.at):
            return
        while self._samples and (moment(self._samples[-1].at) or time) > time:  # the clock was put back
            self._samples.pop()
        self._samples.append(sample)
        while (begun := moment(self._samples[0].at)) and (time - begun).total_seconds() >= DAY:
            self._samples.popleft()

    def samples(self, *, narrowed: bool = False) -> tuple[Sample, ...]:
        """Return the samples, the oldest first; with `narrowed`, without the number of waiting pods."""
        if not narrowed:
            return tuple(self._samples)
        return tuple(replace(sample, waiting=None) for sample in self._samples)


def lines_of(samples: Sequence[Sample]) -> list[Line]:
    """Make lines of samples. The line of waiting pods is drawn only if every sample has their number."""
    moments = [moment(sample.at) for sample in samples]
    times = [at.timestamp() if at else 0.0 for at in moments]

    def line(title: str, values: Sequence[float], most: float, *, is_part: bool = False) -> Line:
        return Line(title, list(zip(times, values, strict=True)), most, is_part)

    drawn = [
        line("Devices in use", [in_use(sample.devices) for sample in samples], max(sum(sample.devices.values()) for sample in samples)),
        line("Nodes with every device free", [sample.idle_nodes for sample in samples], max(sample.nodes for sample in samples)),
        line("Free hardware that is fragmented", [sample.fragmentation for sample in samples], 1.0, is_part=True),
    ]  # fmt: skip
    waiting = [sample.waiting for sample in samples if sample.waiting is not None]
    if len(waiting) == len(samples):
        drawn.append(line(WAITING, waiting, 0))
    return drawn


def page_of(samples: Sequence[Sample], begun: str) -> Iterator[Html]:
    """Draw the samples of this process, with the numbers below."""
    if len(samples) < 2:
        hint = "A line needs two readings of the cluster. The history begins again at each restart."
        yield el("p", hint, f" It began at {begun}.")
        return
    first, last = samples[0], samples[-1]
    yield el("p", f"{len(samples):,} readings since {first.at}, {age(first.at, moment(last.at))} ago.")
    yield from draw(lines_of(samples))
