"""Matrices as one SVG text, by hand: it stands alone in a file and in an <img>, light or dark, on a screen or on paper. Pure.

No scripts, no fonts, no addresses. A cell says in a letter what its colour says, and in its <title> why. Coordinates are whole numbers, so equal data give equal
files. Everything that others wrote is escaped.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final

from allocator.answer import Stage
from cli.matrix import table
from cli.terminal import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from allocator.reasons import Row
    from cli.matrix.fleet import Likeness, PoolMatrix

_CELL, _LINE, _LETTER = 24, 18, 7
_LONGEST = 60  # letters of a name
# What a cell says, and in which colour; told apart by people who cannot tell red from green by the letter.
MARKS: Final = {
    None: ("✓", "#2d8a4a"),
    Stage.IN_USE: ("1", "#777777"),
    Stage.GROUPS: ("g", "#c04040"),
    Stage.COMPATIBILITY: ("r", "#b0509e"),
    Stage.COUNTERS: ("c", "#b8761c"),
}
WORDS: Final = {
    None: "both can be in use",
    Stage.IN_USE: "one device, which cannot be shared",
    Stage.GROUPS: "compatibility groups keep them apart",
    Stage.COMPATIBILITY: "a DeviceCompatibility keeps them apart",
    Stage.COUNTERS: "the hardware does not suffice for both",
}
_STYLE: Final = (
    "text{font:12px system-ui,sans-serif;fill:#222}.t{font-size:14px;font-weight:600}.m{fill:#fff;text-anchor:middle}"
    "@media(prefers-color-scheme:dark){text{fill:#ddd}.m{fill:#fff}}"
)


def text(value: object) -> str:
    """Write what others wrote, so that nobody obeys it."""
    return escape(printable(str(value)), quote=True)


def draw(kinds: Sequence[Likeness]) -> str:
    """Draw matrices, one below the other."""
    body: list[str] = []
    wide = 480
    down = _LINE
    for alike in kinds[: table.MOST_KINDS]:
        parts, width, height = _kind(alike, down)
        body += parts
        wide = max(wide, width)
        down += height + _LINE
    if more := table.rest(kinds):
        body.append(_say(8, down, more))
        down += _LINE
    body += _legend(down)
    down += _LINE * (len(MARKS) + 1)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {down}" width="{wide}" height="{down}" role="img">'
    return "\n".join([head, f"<style>{_STYLE}</style>", *body, "</svg>"]) + "\n"


def _kind(alike: Likeness, top: int) -> tuple[list[str], int, int]:
    """Draw one kind of pools; with how wide and how high it is."""
    heading = _cut(table.title(alike))
    parts = [_say(8, top, heading, "t")]
    note = _note(alike.first)
    below = top + _LINE
    if note:
        parts.append(_say(8, below, note))
        width = _width(max(heading, note, key=len))
        return parts, width, 2 * _LINE
    drawn, width, height = _grid(alike, below)
    parts += drawn
    return parts, max(width, _width(heading)), height + _LINE


def _grid(alike: Likeness, top: int) -> tuple[list[str], int, int]:
    rows = alike.first.rows
    names: list[str] = []
    for at, row in enumerate(rows):
        name = _name(alike, row)
        names.append(f"{at + 1}  {name}")
    longest = max(names, key=len)
    left = _width(longest)
    parts = list(_numbers(len(rows), left, top))
    down = top + _LINE // 2
    for name, row in zip(names, rows, strict=True):
        named = _say(8, down + _LINE, name)
        parts.append(named)
        parts += _cells(row, rows, left, down)
        down += _CELL
    width = left + _CELL * (len(rows) + 1)
    return parts, width, down - top


def _width(words: str) -> int:
    """How wide words are at most, with a margin."""
    return 16 + (_LETTER + 1) * len(words)


def _note(pool: PoolMatrix) -> str:
    """Say why there is no table; "" if there is one."""
    if pool.reason:
        return _cut(f"cannot be used ({pool.status}): {pool.reason}")
    if not pool.rows:
        return _cut(pool.notes[0] if pool.notes else "no devices")
    if len(pool.rows) > table.MOST_ROWS:
        return f"{len(pool.rows)} kinds of devices are too many for a picture"
    return ""


def _cells(row: Row, rows: Sequence[Row], left: int, top: int) -> Iterator[str]:
    for column, cell in enumerate(row.cells):
        letter, colour = MARKS[cell.stage]
        across = left + column * _CELL
        pair = f"{table.name_of(row.devices)} and {table.name_of(rows[column].devices)}"
        why = cell.text or WORDS[cell.stage]
        yield f"<g><title>{text(pair)}: {text(why)}</title>"
        yield f'<rect x="{across}" y="{top}" width="{_CELL - 2}" height="{_CELL - 2}" rx="3" fill="{colour}"/>'
        yield f'<text class="m" x="{across + _CELL // 2 - 1}" y="{top + 16}">{letter}</text></g>'


def _numbers(count: int, left: int, down: int) -> Iterator[str]:
    for column in range(count):
        yield _say(left + column * _CELL + 6, down, str(column + 1))


def _legend(top: int) -> Iterator[str]:
    for number, (stage, (letter, colour)) in enumerate(MARKS.items()):
        down = top + number * _LINE
        yield f'<rect x="8" y="{down}" width="14" height="14" rx="3" fill="{colour}"/>'
        yield f'<text class="m" x="15" y="{down + 12}">{letter}</text>'
        yield _say(30, down + 12, WORDS[stage])


def _name(alike: Likeness, row: Row) -> str:
    name = table.name_of(row.devices)
    told = f"{name}, {table.used(alike, row)} in use" if alike.is_used else name
    return _cut(told)


def _cut(words: str) -> str:
    whole = printable(words)
    return whole if len(whole) <= 2 * _LONGEST else whole[: 2 * _LONGEST - 1] + "…"


def _say(across: int, down: int, words: str, kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text{named} x="{across}" y="{down}">{text(words)}</text>'
