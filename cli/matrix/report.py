"""Matrices as a report to hand on: the picture, the same as tables, what keeps devices apart, and who holds them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli.html import Html
from cli.matrix import text
from cli.matrix.drawing import draw
from cli.report import Drawn, Part, Report, Rows, Screen
from cli.terminal import count_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from cli.loading import Unread
    from cli.matrix.fleet import EqualPools

_USES = 200  # rows
_NAMESPACE = ' xmlns="http://www.w3.org/2000/svg"'  # which a picture inside of a page does not need


def report(kinds: Sequence[EqualPools], unread: Iterable[Unread]) -> Report:
    """Make the report, of as many kinds of pools as the picture has."""
    missing = Rows(("What", "Why"), [(one.kind, one.reason) for one in unread], "Not read, so something may be missing")
    picture = Drawn(Html(draw(kinds).replace(_NAMESPACE, "", 1)))
    shown = kinds[: text.MOST_KINDS]
    parts = [picture, *(part for kind in shown for part in _kind(kind)), text.rest(kinds), missing]
    return Report("Which devices can be in use together", parts)


def _kind(kind: EqualPools) -> Iterator[Part]:
    title = text.title(kind)
    if instead := text.instead_of_table(kind):
        yield Screen(instead, title)
        return
    rows = kind.first.rows
    cells = [
        (f"{at + 1}: {text.heading(kind, row)}", *(str(cell.stage or "yes") for cell in row.cells))
        for at, row in enumerate(rows)
    ]
    yield Rows(("In use; wanted as well:", *(str(at + 1) for at in range(len(rows)))), cells, title)
    apart = [
        (f"{at + 1} and {column + 1}", str(cell.stage), cell.text)
        for at, row in enumerate(rows)
        for column, cell in enumerate(row.cells[at:], at)
        if not cell.together
    ]
    yield Rows(("Pair", "What", "Why"), apart, f"What keeps them apart: {title}")
    yield from kind.first.notes
    uses = [
        (f"{pool.pool}/{use.device}", use.claim, use.pods, ", ".join(f"{what}={amount}" for what, amount in use.share.items()), use.since)
        for pool in kind.pools
        for use in pool.in_use
    ]  # fmt: skip
    yield Rows(("Device", "Claim", "Pods", "Share", "Since"), uses[:_USES], f"In use: {title}")
    if len(uses) > _USES:
        yield f"and {count_of(len(uses) - _USES, 'device')} more in use, in -o json"
