"""`make bench`: run the benchmarks that the command line names, or all of them, and print one table.

Each module of SUITES has `rows()`, which yields `bench.row.Row`s. If a suite cannot run, for example without Go or root, the table has
its error.
"""

from __future__ import annotations

import sys
import time
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.row import Row

SUITES = {
    module.rpartition(".")[2]: f"bench.{module}"
    for module in (
        "dra.cel",
        "allocator.allocation",
        "allocator.scheduling",
        "webhook.admission",
        "webhook.start",
        "cli.commandline",
        "webhook.throughput",
    )
}


def main(names: list[str]) -> int:
    """Run the suites and print the table; return 1 if a suite failed, and 2 for an unknown name."""
    unknown = [name for name in names if name not in SUITES]
    if unknown:
        print(f"bench: no suite is named {', '.join(unknown)}; suites: {', '.join(SUITES)}", file=sys.stderr)
        return 2
    failed = 0
    print(f"{'what':<64} {'ours':>12} {'peer':>12} {'ratio':>7}  target")
    for name in names or SUITES:
        started = time.monotonic()
        print(f"-- {name}")
        try:
            for row in import_module(SUITES[name]).rows():
                print(row_text(row), flush=True)
        except Exception as error:  # noqa: BLE001  one broken suite must not hide the figures of the others
            failed += 1
            print(f"   {name} did not run: {type(error).__name__}: {error}")
        print(f"   {name} took {time.monotonic() - started:.0f} s")
    return 1 if failed else 0


def row_text(row: Row) -> str:
    theirs = "" if row.theirs is None else f"{three_digits(row.theirs)} {row.unit}"
    ratio = "" if row.ratio is None else f"{three_digits(row.ratio)}x"
    tail = "  ".join(part for part in (row.target, f"[{row.peer}]" if row.peer else "", row.note) if part)
    return f"{row.what:<64} {three_digits(row.ours) + ' ' + row.unit:>12} {theirs:>12} {ratio:>7}  {tail}"


def three_digits(value: float) -> str:
    """Write a number with three significant digits and without an exponent."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
