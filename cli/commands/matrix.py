"""`drawbridge matrix`: which devices of a pool can be in use together, and what keeps the others apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cli import contract as inputs
from cli.contract import Broken, Exit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from allocator.reasons import Matrix, Row
    from dra.stock import Pool

_MOST_ROWS = 60


@inputs.command("matrix", empty={"pools": []})
@inputs.files()
@click.option("--node", metavar="NAME", help="Only pools that this node can reach.")
@click.option("--pool", "pools", multiple=True, metavar="DRIVER/POOL|POOL", help="Only this pool. May be repeated.")
@click.option("--counter-set", "sets", multiple=True, metavar="NAME", help="Only devices that draw on this counter set. May be repeated.")  # fmt: skip
@inputs.output("text", "json", default="text")
def command(
    files: tuple[str, ...], node: str | None, pools: tuple[str, ...], sets: tuple[str, ...], output: str
) -> Exit:
    """Say for every two devices of a pool whether they can be in use together, and name the rule in the way.

    Reads ResourceSlice, Node and DeviceCompatibility objects. What is in use now does not matter; the matrix is about
    devices two by two.
    """
    from allocator.reasons import matrix
    from cli.devices import read_objects
    from dra.policy import Rules
    from dra.wire import builtins

    stock = read_objects(inputs.read(files)).stock()
    if node and node not in stock.nodes:
        raise Broken(f"no Node {node} in what was read", f"there are: {', '.join(stock.nodes) or 'none'}")
    reachable: dict[tuple[str, str], Pool] = {}
    for name in [node] if node else stock.nodes:
        for pool in stock.pools(name):
            reachable.setdefault(pool.id, pool)
    wanted: list[Pool] = []
    names: list[str] = []
    for (driver, name), pool in sorted(reachable.items()):
        full_name = f"{driver}/{name}"
        names.append(full_name)
        if not pools or full_name in pools or name in pools:
            wanted.append(pool)
    if not wanted:
        have = ", ".join(names) or "none that one of the given nodes can reach"
        raise Broken("no pool to look at", f"there are: {have}")
    rules = Rules(stock.compatibilities.values())
    found = [(pool, matrix(pool, rules, only=sets)) for pool in wanted]
    if output == "json":
        documents = [{**builtins(one), "status": pool.status, "reason": pool.reason} for pool, one in found]
        inputs.write_json({"pools": documents})
    else:
        for pool, one in found:
            inputs.tell(_text(pool, one, inputs.width()))
    return Exit.FINE


def _text(pool: Pool, one: Matrix, columns: int | None) -> Iterator[str]:
    yield f"pool {one.pool} of driver {one.driver}"
    if pool.reason:
        yield f"  cannot be used ({pool.status}): {pool.reason}"
        return
    if not one.rows:
        yield "  no devices"
        return
    if len(one.rows) > _MOST_ROWS:
        yield f"  {len(one.rows)} kinds of devices are too many for a table; choose with --counter-set, or take -o json"
        return
    yield "  in use (row), wanted as well (column):  yes = both can be in use, otherwise what is in the way"
    yield ""
    yield from _table(one.rows, columns)
    yield ""
    yield from _reasons(one.rows)
    yield from (f"  {note}" for note in one.notes)


def _table(rows: Sequence[Row], columns: int | None) -> Iterator[str]:
    """Draw the table, cut into parts that each fit the terminal and repeat the names of the rows."""
    names = [_name(row.devices) for row in rows]
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


def _name(devices: Sequence[str]) -> str:
    return devices[0] if len(devices) == 1 else f"{devices[0]} .. {devices[-1]} ({len(devices)})"
