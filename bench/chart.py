"""Draws line charts and bar charts as SVG text, which works in a file of its own and in an <img>.

The text has no scripts and loads no fonts. Colours follow the reader's colour scheme, light or dark. Every line and bar has a <title> that
a browser shows on hovering. Coordinates are rounded, so that equal data give equal files.
"""

from __future__ import annotations

from math import ceil, floor, log10
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Point = tuple[float, float]
Points = tuple[Point, ...]

WIDTH, HEIGHT = 720, 340
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 60, 44
# Distinguishable for people with red-green blindness, on white and on dark grey.
COLOURS = ("#3b76c4", "#d9822b", "#3d9a6c", "#b0509e", "#8a8a2e", "#d0514a")
_STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#333}.t{font-size:15px;font-weight:600}.a{stroke:#888;stroke-width:1}"
    ".g{stroke:#8884;stroke-width:1}.l{fill:none;stroke-width:2;stroke-linejoin:round}"
    "@media(prefers-color-scheme:dark){text{fill:#ddd}}"
)


class ChartLine(msgspec.Struct, frozen=True):
    """One named line."""

    name: str
    points: Points


class Bars(msgspec.Struct, frozen=True):
    """One named group of bars, with a value for each series."""

    name: str
    values: tuple[float, ...]


def lines(
    title: str,
    series: Sequence[ChartLine],
    *,
    x: str,
    y: str,
    log: bool = False,
) -> str:
    """Draw lines over a common axis; `log` makes both axes logarithmic, and omits points with a value of 0 or less."""
    shown = [[point for point in line.points if not log or min(point) > 0] for line in series]
    xs = [x_value for points in shown for x_value, _ in points]
    ys = [y_value for points in shown for _, y_value in points]
    x_axis = _Axis(xs, _LEFT, WIDTH - _RIGHT, log=log)
    y_axis = _Axis(ys, HEIGHT - _BOTTOM, _TOP, log=log)
    body = list(_frame(title, x, y))
    body += _grid(x_axis, y_axis)
    for number, (line, points) in enumerate(zip(series, shown, strict=True)):
        path = ""
        for x_value, y_value in points:
            path += (
                f"{'L' if path else 'M'}{_rounded(x_axis.coordinate(x_value))} {_rounded(y_axis.coordinate(y_value))}"
            )
        body.append(f'<path class="l" stroke="{_colour(number)}" d="{path}"><title>{escape(line.name)}</title></path>')
    body += _legend([line.name for line in series])
    return _svg(title, body)


def bars(title: str, series_names: Sequence[str], groups: Sequence[Bars], *, y: str) -> str:
    """Draw groups of bars; `names` are the series."""
    heights = [0.0]
    for group in groups:
        heights += group.values
    y_axis = _Axis(heights, HEIGHT - _BOTTOM, _TOP)
    base = y_axis.coordinate(0.0)
    body = list(_frame(title, "", y))
    body += _grid(None, y_axis)
    group_width = (WIDTH - _LEFT - _RIGHT) / max(1, len(groups))
    bar_room = group_width * 0.8 / max(1, len(series_names))
    width = _rounded(bar_room * 0.92)
    for index, group in enumerate(groups):
        group_left = _LEFT + index * group_width + group_width * 0.1
        for number, value in enumerate(group.values):
            top = y_axis.coordinate(value)
            left = _rounded(group_left + number * bar_room)
            upper = _rounded(min(top, base))
            height = _rounded(abs(base - top))
            label = escape(f"{group.name}, {series_names[number]}: {value:g}")
            attributes = f'x="{left}" y="{upper}" width="{width}" height="{height}"'
            body.append(f'<rect {attributes} fill="{_colour(number)}"><title>{label}</title></rect>')
        middle = _rounded(_LEFT + (index + 0.5) * group_width)
        label_y = HEIGHT - _BOTTOM + 18
        body.append(f'<text x="{middle}" y="{label_y}" text-anchor="middle">{escape(group.name)}</text>')
    body += _legend(series_names)
    return _svg(title, body)


def stack(charts: Sequence[str]) -> str:
    """Put charts below each other into one picture."""
    drawings = "".join(
        picture.replace("<svg ", f'<svg x="0" y="{index * HEIGHT}" width="{WIDTH}" height="{HEIGHT}" ', 1)
        for index, picture in enumerate(charts)
    )
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT * len(charts)}">\n{drawings}</svg>\n'


class _Axis:
    """Places values between two coordinates, with round ticks."""

    def __init__(self, values: Sequence[float], start: float, end: float, *, log: bool = False) -> None:
        self.start = start
        self.end = end
        self.log = log
        low = min(values, default=0.0)
        high = max(values, default=1.0)
        if log:
            self.low = 10.0 ** floor(log10(low or 1))
            self.high = 10.0 ** ceil(log10(high or 1))
            if self.high <= self.low:
                self.high = self.low * 10
            decades = round(log10(self.high / self.low))
            self.ticks = [self.low * 10.0**n for n in range(decades + 1)]
            return
        if high <= low:
            high = low + 1
        low = min(low, 0.0)
        rough = (high - low) / 5
        base = 10.0 ** floor(log10(rough))
        step = next(base * factor for factor in (1, 2, 5, 10) if base * factor >= rough * 0.999)
        self.low = floor(low / step) * step
        self.high = ceil(high / step) * step
        steps = round((self.high - self.low) / step)
        self.ticks = [self.low + step * n for n in range(steps + 1)]

    def coordinate(self, value: float) -> float:
        if self.log:
            share = log10(value / self.low) / log10(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)


def _grid(x_axis: _Axis | None, y_axis: _Axis) -> Iterator[str]:
    for tick in y_axis.ticks:
        y = _rounded(y_axis.coordinate(tick))
        yield f'<line class="g" x1="{_LEFT}" y1="{y}" x2="{WIDTH - _RIGHT}" y2="{y}"/>'
        yield f'<text x="{_LEFT - 6}" y="{_rounded(y_axis.coordinate(tick) + 4)}" text-anchor="end">{_label(tick)}</text>'
    for tick in x_axis.ticks if x_axis else ():
        x = _rounded(x_axis.coordinate(tick)) if x_axis else ""
        yield f'<line class="g" x1="{x}" y1="{_TOP}" x2="{x}" y2="{HEIGHT - _BOTTOM}"/>'
        yield f'<text x="{x}" y="{HEIGHT - _BOTTOM + 18}" text-anchor="middle">{_label(tick)}</text>'


def _frame(title: str, x: str, y: str) -> Iterator[str]:
    yield f'<text class="t" x="{_LEFT}" y="18">{escape(title)}</text>'
    yield f'<line class="a" x1="{_LEFT}" y1="{HEIGHT - _BOTTOM}" x2="{WIDTH - _RIGHT}" y2="{HEIGHT - _BOTTOM}"/>'
    yield f'<text x="{WIDTH - _RIGHT}" y="{HEIGHT - 8}" text-anchor="end">{escape(x)}</text>'
    middle = (HEIGHT - _BOTTOM + _TOP) // 2
    yield f'<text x="14" y="{middle}" text-anchor="middle" transform="rotate(-90 14 {middle})">{escape(y)}</text>'


def _legend(names: Sequence[str]) -> Iterator[str]:
    x, y = _LEFT, 26
    for number, name in enumerate(names):
        entry_width = 30 + round(7.6 * len(name))
        if x + entry_width > WIDTH and x > _LEFT:
            x, y = _LEFT, y + 15
        yield f'<rect x="{x}" y="{y}" width="10" height="10" fill="{_colour(number)}"/>'
        yield f'<text x="{x + 14}" y="{y + 9}">{escape(name)}</text>'
        x += entry_width


def _svg(title: str, body: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(title, {chr(34): "&quot;"})}">\n<style>{_STYLE}</style>\n'
        + "\n".join(body)
        + "\n</svg>\n"
    )


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def _label(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) and abs(value) >= 1000 else f"{value:.6g}"


def _rounded(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
