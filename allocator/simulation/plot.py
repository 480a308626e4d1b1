"""A replay as a picture: hardware in use, what is broken up, and who waits, one line a strategy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from allocator.simulation import chart
from allocator.simulation.chart import HEIGHT, WIDTH, Line

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from allocator.simulation.replay import Replay, Sample

_POINTS = 400  # a line of more points than pixels says no more


def drawing(name: str, found: Sequence[Replay]) -> str:
    """Draw three charts over the same time, one below the other."""

    def each(value: Callable[[Sample], float]) -> list[Line]:
        series: list[Line] = []
        for one in found:
            points = [(sample.at, value(sample)) for sample in thin(one.samples)]
            line = Line(one.strategy, tuple(points), steps=True)
            series.append(line)
        return series

    used = each(lambda sample: 100 * sample.utilisation)
    broken = each(lambda sample: 100 * sample.fragmentation)
    waiting = each(lambda sample: float(sample.pending))
    in_use = f"{name}: hardware in use, %"
    broken_up = f"{name}: free, but broken up, %"
    pods = f"{name}: pods waiting"
    charts = [
        chart.lines(in_use, used, x="time", y="%", top=100),
        chart.lines(broken_up, broken, x="time", y="%", top=100),
        chart.lines(pods, waiting, x="time", y="pods"),
    ]
    return stack(charts)


def stack(charts: Sequence[str]) -> str:
    """Put charts below each other into one picture."""
    inner = "".join(
        one.replace("<svg ", f'<svg x="0" y="{at * HEIGHT}" width="{WIDTH}" height="{HEIGHT}" ', 1)
        for at, one in enumerate(charts)
    )
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT * len(charts)}">\n{inner}</svg>\n'


def thin(samples: Sequence[Sample]) -> list[Sample]:
    """Keep at most so many samples, evenly by number, the last one always."""
    step = max(1, len(samples) // _POINTS)
    return [*samples[:-1:step], *samples[-1:]]
