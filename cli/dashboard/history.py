"""How use of the fleet went: a sample of each reading, one a minute at most, for a day; in memory, so it begins anew with the process."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import msgspec

from cli.dashboard.picture import count_devices, in_use
from cli.dashboard.timeline import ago
from cli.html import chart, el, table
from dra.raw import moment

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cli.dashboard.picture import Picture
    from cli.html import Html

DAY, APART = 86400.0, 60.0  # seconds that samples are kept, and between two
_ROWS = 24


class Sample(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The fleet at one moment: devices by state, nodes of which every device is free, and pods that wait for devices."""

    at: str
    devices: dict[str, int]
    nodes: int
    idle_nodes: int
    # Not told to who sees some namespaces only.
    waiting: int | None = None


class History:
    """The samples of the last day."""

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque()

    def add(self, picture: Picture) -> None:
        """Remember a reading, unless the last one is younger than a minute."""
        then, last = moment(picture.read_at), moment(self._samples[-1].at) if self._samples else None
        if then is None or (last is not None and abs((then - last).total_seconds()) < APART):
            return
        while self._samples and (moment(self._samples[-1].at) or then) > then:  # the clock was put back
            self._samples.pop()
        sample = Sample(
            at=picture.read_at,
            devices=count_devices(picture.nodes),
            nodes=len(picture.nodes),
            idle_nodes=sum(all(one.state == "free" for one in node.devices) for node in picture.nodes),
            waiting=len(picture.waiting),
        )
        self._samples.append(sample)
        while (begun := moment(self._samples[0].at)) and (then - begun).total_seconds() >= DAY:
            self._samples.popleft()

    def samples(self, *, narrowed: bool = False) -> tuple[Sample, ...]:
        """Give the samples, the oldest first."""
        if not narrowed:
            return tuple(self._samples)
        return tuple(msgspec.structs.replace(one, waiting=None) for one in self._samples)


def page_of(samples: Sequence[Sample]) -> Iterator[Html]:
    """Draw the samples, with the numbers below."""
    if len(samples) < 2:
        yield el(
            "p",
            "There is one reading, or none: two make a line. It goes on while a page is open; a restart begins anew.",
        )
        return
    first, last = samples[0], samples[-1]
    times = [(moment(one.at) or moment(first.at)).timestamp() for one in samples]  # type: ignore[union-attr]  # all were read
    whole = max(sum(one.devices.values()) for one in samples)
    used = [in_use(one.devices) for one in samples]
    lines: list[tuple[str, list[int], int]] = [
        ("Devices in use", used, whole),
        ("Nodes with every device free", [one.idle_nodes for one in samples], max(one.nodes for one in samples)),
    ]
    waiting = [one.waiting for one in samples if one.waiting is not None]
    if len(waiting) == len(samples):
        lines.append(("Pods waiting", waiting, max(waiting)))
    yield el("p", f"{len(samples):,} readings since {first.at}, {ago(first.at, moment(last.at))}.")
    for title, values, most in lines:
        yield el("h2", f"{title}: {values[-1]:,}{f' of {most:,}' if most and title != 'Pods waiting' else ''}")
        said = f"{title}: from {values[0]:,} to {values[-1]:,}, at least {min(values):,} and at most {max(values):,}"
        yield chart(list(zip(times, values, strict=True)), most, said)
        yield el("p", said, class_="soft")
    step = -(-len(samples) // _ROWS)
    rows = [(el("time", samples[at].at, datetime=samples[at].at), *(values[at] for _, values, _ in lines)) for at in range(len(samples) - 1, -1, -step)]  # fmt: skip
    yield el("details", el("summary", "Numbers"), table(("At", *(title for title, _, _ in lines)), rows))
