"""Matrices as one SVG picture: it stands alone in a file and in an <img>, light or dark, on a screen or on paper. Pure.

It has no scripts, fonts or addresses. The letter in a cell says the same as its colour, and its <title> says why. Coordinates are
whole numbers, so equal data give equal files. Names from the cluster are escaped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from allocator.answer import Stage
from analysis.matrix import text
from rendering.terminal import escaped, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from analysis.matrix.fleet import EqualPools

_CELL, _LINE, _LETTER = 24, 18, 7
_MARGIN = 16
_LONGEST = 120  # characters of a line
# The letter and the colour of a cell: the letter serves readers who cannot tell red from green.
_MARKS: Final = {
    None: ("✓", "#2d8a4a", "both can be in use"),
    Stage.IN_USE: ("1", "#777777", "one device, which cannot be shared"),
    Stage.GROUPS: ("g", "#c04040", "compatibility groups keep them apart"),
    Stage.COMPATIBILITY: ("r", "#b0509e", "a DeviceCompatibility keeps them apart"),
    Stage.COUNTERS: ("c", "#b8761c", "the hardware does not suffice for both"),
}
_STYLE: Final = (
    "text{font:12px system-ui,sans-serif;fill:#222}.t{font-size:14px;font-weight:600}.m{fill:#fff;text-anchor:middle}"
    "@media(prefers-color-scheme:dark){text{fill:#ddd}.m{fill:#fff}}"
)


def draw(kinds: Sequence[EqualPools]) -> str:
    """Draw matrices, one below the other, and what the marks mean."""
    body: list[str] = []
    wide = 480
    down = _LINE
    for kind in kinds[: text.MOST_KINDS]:
        heading = _cut(text.title(kind))
        body.append(_say(8, down, heading, "t"))
        down += _LINE
        longest = heading
        if instead := text.instead_of_table(kind):
            note = _cut(instead[0])
            body.append(_say(8, down, note))
            longest = max(heading, note, key=len)
            down += _LINE
        else:
            cells, width, height = _grid(kind, down)
            body += cells
            wide = max(wide, width)
            down += height
        wide = max(wide, _width(longest))
        down += _LINE
    if more := text.left_out_text(kinds):
        body.append(_say(8, down, more))
        down += _LINE
    for letter, colour, meaning in _MARKS.values():
        body.append(f'<rect x="8" y="{down}" width="14" height="14" rx="3" fill="{colour}"/>')
        body.append(f'<text class="m" x="15" y="{down + 12}">{letter}</text>')
        body.append(_say(30, down + 12, meaning))
        down += _LINE
    down += _LINE
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {down}" width="{wide}" height="{down}" role="img">'
    return "\n".join([head, f"<style>{_STYLE}</style>", *body, "</svg>"]) + "\n"


def _grid(kind: EqualPools, top: int) -> tuple[list[str], int, int]:
    """Draw the cells of one kind of pools; with their width and height."""
    rows = kind.first.rows
    names = [f"{at + 1}  {_cut(text.heading(kind, row))}" for at, row in enumerate(rows)]
    left = _width(max(names, key=len))
    parts = [_say(left + at * _CELL + 6, top, str(at + 1)) for at in range(len(rows))]
    down = top + _LINE // 2
    for name, row in zip(names, rows, strict=True):
        parts.append(_say(8, down + _LINE, name))
        for column, cell in enumerate(row.cells):
            letter, colour, meaning = _MARKS[cell.stage]
            across = left + column * _CELL
            pair = f"{text.name_of(row.devices)} and {text.name_of(rows[column].devices)}"
            parts += (
                f"<g><title>{escaped(pair)}: {escaped(cell.text or meaning)}</title>",
                f'<rect x="{across}" y="{down}" width="{_CELL - 2}" height="{_CELL - 2}" rx="3" fill="{colour}"/>',
                f'<text class="m" x="{across + _CELL // 2 - 1}" y="{down + 16}">{letter}</text></g>',
            )
        down += _CELL
    return parts, left + _CELL * (len(rows) + 1), down - top


def _width(words: str) -> int:
    return _MARGIN + (_LETTER + 1) * len(words)


def _cut(words: str) -> str:
    whole = printable(words)
    return whole if len(whole) <= _LONGEST else whole[: _LONGEST - 1] + "…"


def _say(across: int, down: int, words: str, kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text{named} x="{across}" y="{down}">{escaped(words)}</text>'
