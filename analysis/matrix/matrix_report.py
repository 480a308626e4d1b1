"""Makes a report of matrices: the tables, the rules that keep devices apart, and the claims that hold the devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analysis.report import Part, Report, Rows, Screen
from dra.texts import count_of, list_first

if TYPE_CHECKING:
    from collections.abc import Sequence

    from allocator.reasons import MatrixRow
    from analysis.matrix.fleet import EqualPools
    from analysis.report import Cell

_MAX_ROWS = 60
_MAX_KINDS = 8  # of pools
_POOLS = 3  # names of equal pools
_USES = 50  # rows
_ALL = "the JSON has all of them"
_KEY = "Row: a device in use; column: a device that is wanted as well; yes: both can be in use; otherwise the reason against it."
_NOTHING = "no devices to compare: no Node can reach a device of a ResourceSlice"


def report(kinds: Sequence[EqualPools]) -> Report:
    """Make the report; `_MAX_KINDS` limits the kinds of pools."""
    parts: list[Part] = []
    for kind in kinds[:_MAX_KINDS]:
        title = _title(kind)
        if instead := _instead_of_table(kind):
            parts.append(Screen(instead, title))
            continue
        cells: list[Sequence[Cell]] = []
        incompatible: list[Sequence[Cell]] = []
        for index, row in enumerate(kind.first.rows):
            cells.append((f"{index + 1}: {_heading(kind, row)}", *(str(cell.stage or "yes") for cell in row.cells)))
            for column, cell in enumerate(row.cells[index:], index):
                if not cell.together:
                    incompatible.append((f"{index + 1} and {column + 1}", str(cell.stage), cell.text))
        head = ("In use; wanted as well:", *(str(index + 1) for index in range(len(kind.first.rows))))
        parts += [
            Rows(head, cells, title),
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
            parts.append(f"and {count_of(len(uses) - _USES, 'device')} more in use; {_ALL}")
    if more := kinds[_MAX_KINDS:]:
        pools = sum(len(kind.pools) for kind in more)
        parts.append(f"and {count_of(pools, 'pool')} more, of {count_of(len(more), 'kind')} more; {_ALL}")
    return Report("Which devices can be in use together", parts, _KEY if kinds else _NOTHING)


def _title(kind: EqualPools) -> str:
    names = [pool.pool for pool in kind.pools]
    noun = "pool" if len(names) == 1 else f"{len(names)} equal pools:"
    return f"{noun} {list_first(names, _POOLS)} of driver {kind.first.driver}"


def _instead_of_table(kind: EqualPools) -> Sequence[str]:
    """Return why there is no table; empty if there is one."""
    pool = kind.first
    if pool.reason:
        return [f"cannot be used ({pool.status}): {pool.reason}"]
    if len(pool.rows) > _MAX_ROWS:
        return [f"{len(pool.rows)} kinds of devices are too many for a table; {_ALL}"]
    return () if pool.rows else pool.notes or ["no devices"]


def _heading(kind: EqualPools, row: MatrixRow) -> str:
    """Write the devices of a row, and how many of them are in use, if any device of the pools is."""
    devices = row.devices
    name = devices[0] if len(devices) == 1 else f"{devices[0]} .. {devices[-1]} ({len(devices)})"
    return f"{name}, {kind.used(devices)} in use" if kind.is_used else name
