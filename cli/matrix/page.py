"""Matrices as one HTML page: it prints, asks no network for anything, and runs nothing. Pure.

Everything that others wrote is escaped; a policy in the page forbids scripts, pictures and addresses all the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cli.matrix import table
from cli.matrix.drawing import MARKS, WORDS, text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from allocator.reasons import Row
    from cli.matrix.fleet import Likeness
    from cli.survey import Unread

_USES = 200  # that are listed of one kind of pools
_STYLE: Final = """
body{font:15px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:75rem;padding:0 1rem;color:#1a1a1a}
h1{font-size:1.6rem}h2{font-size:1.15rem;margin-top:2rem;border-bottom:1px solid #bbb;overflow-wrap:anywhere}
table{border-collapse:collapse}th,td{text-align:left;padding:.2rem .5rem;border:1px solid #ddd;overflow-wrap:anywhere}
td.c{text-align:center;color:#fff;print-color-adjust:exact;-webkit-print-color-adjust:exact}small{color:#555}
@media print{body{margin:0;max-width:none;font-size:11px}tr{break-inside:avoid}h2{break-after:avoid}}
"""
_HEAD: Final = (
    '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
    '<meta name="viewport" content="width=device-width, initial-scale=1">'
    f"<title>Devices that can be in use together</title><style>{_STYLE}</style></head><body>"
)


def page(kinds: Sequence[Likeness], unread: Sequence[Unread]) -> str:
    """Write the page."""
    parts = [_HEAD, "<h1>Devices that can be in use together</h1>"]
    parts += _legend()
    for alike in kinds[: table.MOST_KINDS]:
        parts += _kind(alike)
    if more := table.rest(kinds):
        parts.append(f"<p>{text(more)}</p>")
    if unread:
        parts.append("<h2>Not read, so this is not whole</h2><ul>")
        parts += [f"<li>{text(one.kind)}: {text(one.reason)}</li>" for one in unread[:_USES]]
        parts.append("</ul>")
    return "\n".join([*parts, "</body></html>"]) + "\n"


def _legend() -> Iterator[str]:
    yield "<p>In use (row), wanted as well (column). "
    told = [f'<b style="color:{colour}">{letter}</b> {WORDS[stage]}' for stage, (letter, colour) in MARKS.items()]
    yield "; ".join(told) + ".</p>"


def _kind(alike: Likeness) -> Iterator[str]:
    one = alike.first
    yield f"<h2>{text(table.title(alike))}</h2>"
    if one.reason:
        yield f"<p>cannot be used ({text(one.status)}): {text(one.reason)}</p>"
    elif not one.rows:
        yield f"<p>{text(one.notes[0] if one.notes else 'no devices')}</p>"
    elif len(one.rows) > table.MOST_ROWS:
        yield f"<p>{len(one.rows)} kinds of devices are too many for a table; choose with --counter-set, or take -o json</p>"
    else:
        yield from _table(alike)
        yield from (f"<p>{text(note)}</p>" for note in one.notes)
    yield from _uses(alike)


def _table(alike: Likeness) -> Iterator[str]:
    rows = alike.first.rows
    numbers = [f"<th>{at + 1}</th>" for at in range(len(rows))]
    yield f"<table><thead><tr><th></th><th>Devices</th><th>In use</th>{''.join(numbers)}</tr></thead><tbody>"
    for at, row in enumerate(rows):
        name = text(table.name_of(row.devices))
        head = f"<td>{at + 1}</td><th>{name}</th><td>{table.used(alike, row)}</td>"
        yield f"<tr>{head}{''.join(_cells(row))}</tr>"
    yield "</tbody></table>"
    yield from _reasons(rows)


def _cells(row: Row) -> Iterator[str]:
    for cell in row.cells:
        letter, colour = MARKS[cell.stage]
        why = text(cell.text or WORDS[cell.stage])
        yield f'<td class="c" style="background:{colour}" title="{why}">{letter}</td>'


def _reasons(rows: Sequence[Row]) -> Iterator[str]:
    """Say why, once for each pair: on paper nothing can be pointed at."""
    told: list[str] = []
    for at, row in enumerate(rows):
        for column, cell in enumerate(row.cells):
            if column >= at and not cell.together:
                told.append(f"<li>{at + 1} and {column + 1}: {text(cell.text)}</li>")
    if told:
        yield f"<ul>{''.join(told)}</ul>"


def _uses(alike: Likeness) -> Iterator[str]:
    alone = len(alike.pools) == 1
    uses = list(table.uses_of(alike))
    if not uses:
        return
    yield "<p>In use:</p><ul>"
    yield from (f"<li>{text(table.said(pool, use, alone=alone))}</li>" for pool, use in uses[:_USES])
    if len(uses) > _USES:
        yield f"<li>and {len(uses) - _USES} more, in -o json</li>"
    yield "</ul>"
