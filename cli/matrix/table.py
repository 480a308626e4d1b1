"""Matrices for a screen: the table, what is in the way, and who is in use. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from allocator.reasons import Row
    from cli.matrix.fleet import InUse, Likeness, PoolMatrix

MOST_ROWS = 60
MOST_KINDS = 8  # of pools
_POOLS = 3  # names of pools that look alike
_USES = 12


def lines(kinds: Sequence[Likeness], columns: int | None) -> Iterator[str]:
    """Write matrices, a few kinds of pools at most."""
    for number, alike in enumerate(kinds[:MOST_KINDS]):
        if number:
            yield ""
        yield from _of_kind(alike, columns)
    if more := rest(kinds):
        yield ""
        yield more


def rest(kinds: Sequence[Likeness]) -> str:
    """Say how many pools are not shown; "" if all are."""
    left = sum(len(alike.pools) for alike in kinds[MOST_KINDS:])
    return (
        f"and {left} more pools, of {len(kinds) - MOST_KINDS} more kinds: choose with --pool or --node, or take -o json"
        if left
        else ""
    )


def title(alike: Likeness) -> str:
    """Name the pools of a kind."""
    names = [pool.pool for pool in alike.pools]
    more = f" and {len(names) - _POOLS} more" if len(names) > _POOLS else ""
    what = "pool" if len(names) == 1 else f"{len(names)} pools alike:"
    return f"{what} {', '.join(names[:_POOLS])}{more} of driver {alike.first.driver}"


def uses_of(alike: Likeness) -> Iterator[tuple[PoolMatrix, InUse]]:
    """Everybody who has a device of these pools, and the pool."""
    for pool in alike.pools:
        for use in pool.in_use:
            yield pool, use


def said(pool: PoolMatrix, use: InUse, *, alone: bool) -> str:
    """Say who has a device."""
    name = use.device if alone else f"{pool.pool}/{use.device}"
    share = "".join(f", {amount} {what}" for what, amount in use.share.items())
    pods = f" for {', '.join(use.pods[:_POOLS])}" if use.pods else ""
    since = f" since {use.since}" if use.since else ""
    return f"{name}{share}: claim {use.claim}{pods}{since}"


def name_of(devices: Sequence[str]) -> str:
    """Name the devices of a row."""
    return devices[0] if len(devices) == 1 else f"{devices[0]} .. {devices[-1]} ({len(devices)})"


def used(alike: Likeness, row: Row) -> str:
    """Say how many of the devices of a row are in use, in all pools of a kind."""
    every = len(row.devices) * len(alike.pools)
    return f"{alike.used(row.devices)} of {every}"


def _of_kind(alike: Likeness, columns: int | None) -> Iterator[str]:
    one = alike.first
    yield title(alike)
    if one.reason:
        yield f"  cannot be used ({one.status}): {one.reason}"
        return
    if not one.rows:
        yield from (f"  {note}" for note in one.notes or ("no devices",))
        return
    if len(one.rows) > MOST_ROWS:
        yield f"  {len(one.rows)} kinds of devices are too many for a table; choose with --counter-set, or take -o json"
        return
    yield "  in use (row), wanted as well (column):  yes = both can be in use, otherwise what is in the way"
    yield ""
    yield from _table(alike, columns)
    yield ""
    yield from _reasons(one.rows)
    yield from (f"  {note}" for note in one.notes)
    yield from _uses(alike)


def _uses(alike: Likeness) -> Iterator[str]:
    alone = len(alike.pools) == 1
    uses = list(uses_of(alike))
    for pool, use in uses[:_USES]:
        yield f"  in use: {said(pool, use, alone=alone)}"
    if len(uses) > _USES:
        yield f"  and {len(uses) - _USES} more in use, in -o json"


def _table(alike: Likeness, columns: int | None) -> Iterator[str]:
    """Draw the table, cut into parts that each fit the terminal and repeat the names of the rows."""
    rows = alike.first.rows
    names = [_name(alike, row) for row in rows]
    wide = max(map(len, names))
    number = len(str(len(rows)))
    cells: list[list[str]] = []
    for row in rows:
        line = [str(cell.stage or "yes") for cell in row.cells]
        cells.append(line)
    widths: list[int] = []
    for at in range(len(rows)):
        heading = len(str(at + 1))
        longest = max(len(line[at]) for line in cells)
        widths.append(max(longest, heading))
    room = None
    if columns is not None:
        room = columns - number - wide - 6
    for part, shown in enumerate(_parts(widths, room)):
        if part:
            yield ""
        headings = [str(at + 1).ljust(widths[at]) for at in shown]
        head = "  ".join(headings)
        yield f"  {'':{number}}  {'':{wide}}  {head}".rstrip()
        for at, name in enumerate(names):
            line = cells[at]
            padded = [line[column].ljust(widths[column]) for column in shown]
            body = "  ".join(padded)
            yield f"  {at + 1:>{number}}  {name:{wide}}  {body}".rstrip()


def _parts(widths: Sequence[int], room: int | None) -> Iterator[list[int]]:
    """Cut columns into runs that fit the room, two blanks between them; each run has one column at least."""
    run: list[int] = []
    taken = 0
    for column, width in enumerate(widths):
        if run and room is not None and taken + width > room:
            yield run
            run, taken = [], 0
        run.append(column)
        taken += width + 2
    if run:
        yield run


def _reasons(rows: Sequence[Row]) -> Iterator[str]:
    """Say why, once for each pair that is refused."""
    for at, row in enumerate(rows):
        for column, cell in enumerate(row.cells):
            if cell.together or column < at:
                continue
            yield f"  {at + 1} and {column + 1}: {cell.stage}: {cell.text}"


def _name(alike: Likeness, row: Row) -> str:
    name = name_of(row.devices)
    return f"{name}, {used(alike, row)} in use" if alike.is_used else name
