"""Words about a matrix, for its report and its picture, and its table as a terminal shows it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dra.texts import list_first

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from allocator.reasons import MatrixRow
    from analysis.matrix.fleet import EqualPools

MOST_ROWS = 60
MOST_KINDS = 8  # of pools
_POOLS = 3  # names of equal pools


def left_out_text(kinds: Sequence[EqualPools]) -> str:
    """Say how many pools are not shown; "" if all are."""
    left = sum(len(kind.pools) for kind in kinds[MOST_KINDS:])
    more = len(kinds) - MOST_KINDS
    return f"and {left} more pools, of {more} more kinds: choose with --pool or --node, or take -o json" if left else ""


def title(kind: EqualPools) -> str:
    """Name the pools of a kind."""
    names = [pool.pool for pool in kind.pools]
    noun = "pool" if len(names) == 1 else f"{len(names)} equal pools:"
    return f"{noun} {list_first(names, _POOLS)} of driver {kind.first.driver}"


def instead_of_table(kind: EqualPools) -> Sequence[str]:
    """Say why there is no table; empty if there is one."""
    pool = kind.first
    if pool.reason:
        return [f"cannot be used ({pool.status}): {pool.reason}"]
    if len(pool.rows) > MOST_ROWS:
        return [f"{len(pool.rows)} kinds of devices are too many to show; choose with --counter-set, or take -o json"]
    return () if pool.rows else pool.notes or ["no devices"]


def name_of(devices: Sequence[str]) -> str:
    """Name the devices of a row."""
    return devices[0] if len(devices) == 1 else f"{devices[0]} .. {devices[-1]} ({len(devices)})"


def heading(kind: EqualPools, row: MatrixRow) -> str:
    """Name the devices of a row, with how many are in use if any is."""
    name = name_of(row.devices)
    return f"{name}, {kind.used(row.devices)} in use" if kind.is_used else name


def table_lines(kind: EqualPools, columns: int | None) -> Iterator[str]:
    """Draw the table for a terminal, cut into parts that each fit its columns and repeat the names of the rows."""
    rows = kind.first.rows
    names = [heading(kind, row) for row in rows]
    wide = max(map(len, names))
    number = len(str(len(rows)))
    cells = [[str(cell.stage or "yes") for cell in row.cells] for row in rows]
    widths = [max(len(str(at + 1)), *[len(line[at]) for line in cells]) for at in range(len(rows))]
    # A part has one column at least, and two blanks between columns.
    room = None if columns is None else columns - number - wide - 6
    parts: list[list[int]] = []
    taken = 0
    for column, width in enumerate(widths):
        if not parts or (room is not None and taken + width > room):
            parts.append([])
            taken = 0
        parts[-1].append(column)
        taken += width + 2
    for shown in parts:
        if shown is not parts[0]:
            yield ""
        head = "  ".join(str(at + 1).ljust(widths[at]) for at in shown)
        yield f"  {'':{number}}  {'':{wide}}  {head}".rstrip()
        for at, (name, line) in enumerate(zip(names, cells, strict=True)):
            body = "  ".join(line[column].ljust(widths[column]) for column in shown)
            yield f"  {at + 1:>{number}}  {name:{wide}}  {body}".rstrip()
