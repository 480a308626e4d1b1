"""Draws values over time as lines. Below each line are its numbers as text, and below all lines is a table of the values."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from dashboard.html import chart, el, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dashboard.html import Html

WAITING = "Pods waiting"
_ROWS = 24


class Line(msgspec.Struct, frozen=True):
    """Values over time, as pairs of seconds and value. `most` is the largest possible value; 0 if there is no limit."""

    title: str
    points: list[tuple[float, float]]
    most: float
    is_part: bool = False  # whether the values are parts of 1


def draw(lines: Sequence[Line]) -> Iterator[Html]:
    for line in lines:
        values = [value for _, value in line.points]
        maximum = line.most or max(values)
        limit = f" of {line.most:,.0f}" if line.most and not line.is_part else ""
        yield el("h2", f"{line.title}: {_formatted(line, values[-1])}{limit}")
        caption = f"{line.title}: from {_formatted(line, values[0])} to {_formatted(line, values[-1])}, at least {_formatted(line, min(values))} and at most {_formatted(line, max(values))}"
        yield chart(line.points, maximum, caption)
        yield el("p", caption, class_="soft")
    if not lines:
        return
    times = sorted({time for line in lines for time, _ in line.points}, reverse=True)
    values_by_time = [dict(line.points) for line in lines]
    rows: list[Sequence[object]] = []
    for time in times[:: -(-len(times) // _ROWS)]:
        at = datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        numbers = [
            _formatted(line, numbers_at[time]) if time in numbers_at else ""
            for line, numbers_at in zip(lines, values_by_time, strict=True)
        ]
        rows.append((el("time", at, datetime=at), *numbers))
    yield el("details", el("summary", "Numbers"), table(("At", *(line.title for line in lines)), rows))


def _formatted(line: Line, value: float) -> str:
    return f"{value:.1%}" if line.is_part else f"{value:,.0f}"
