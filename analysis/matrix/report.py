"""Matrices as a report to hand on: the picture, the same as tables, what keeps devices apart, and who holds them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analysis.matrix import text
from analysis.matrix.drawing import draw
from dra.texts import count_of
from rendering.html import Html
from rendering.report import Drawn, Part, Report, Rows, Screen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from analysis.matrix.fleet import EqualPools
    from rendering.report import Cell

_USES = 50  # rows
_NAMESPACE = ' xmlns="http://www.w3.org/2000/svg"'  # which a picture inside of a page does not need
_KEY = "In use (row), wanted as well (column): yes = both can be in use, otherwise what is in the way."


def report(kinds: Sequence[EqualPools], columns: int | None = None) -> Report:
    """Make the report, of as many kinds of pools as the picture has; `columns` are those of the terminal."""
    parts: list[Part] = [Drawn(Html(draw(kinds).replace(_NAMESPACE, "", 1)))]
    for kind in kinds[: text.MOST_KINDS]:
        title = text.title(kind)
        if instead := text.instead_of_table(kind):
            parts.append(Screen(instead, title))
            continue
        cells: list[Sequence[Cell]] = []
        incompatible: list[Sequence[Cell]] = []
        for at, row in enumerate(kind.first.rows):
            cells.append((f"{at + 1}: {text.heading(kind, row)}", *(str(cell.stage or "yes") for cell in row.cells)))
            for column, cell in enumerate(row.cells[at:], at):
                if not cell.together:
                    incompatible.append((f"{at + 1} and {column + 1}", str(cell.stage), cell.text))
        head = ("In use; wanted as well:", *(str(at + 1) for at in range(len(kind.first.rows))))
        parts += [
            Rows(head, cells, title, list(text.table_lines(kind, columns))),
            Rows(("Pair", "What", "Why"), incompatible, "What keeps them apart"),
        ]
        parts += kind.first.notes
        uses: list[Sequence[Cell]] = []
        for pool in kind.pools:
            for use in pool.in_use:
                share = ", ".join(f"{name}={amount}" for name, amount in use.share.items())
                uses.append((f"{pool.pool}/{use.device}", use.claim, ", ".join(use.pods), share, use.since))
        parts.append(Rows(("Device", "Claim", "Pods", "Share", "Since"), uses[:_USES], "In use"))
        if len(uses) > _USES:
            parts.append(f"and {count_of(len(uses) - _USES, 'device')} more in use, in -o json")
    return Report("Which devices can be in use together", (*parts, text.left_out_text(kinds)), _KEY)
