"""A survey as CSV for a spreadsheet: a row for every key of every workload. Pure.

A spreadsheet takes a cell that begins with =, +, - or @ for a formula, and runs it. Such a cell is given an apostrophe.
"""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

from cli.terminal import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cli.survey.overview import Asking, Overview
    from cli.survey.verdicts import Key

_OF_WORKLOAD = ("namespace", "kind", "name", "fate", "pods", "running", "moved", "file", "line")
_OF_KEY = ("container", "dialect", "key", "amount", "fate", "code", "detail", "remedy")
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
_NOTHING = dict.fromkeys(_OF_KEY, "")


def table(seen: Overview) -> str:
    """Write the rows, with a head."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    of_key = ["keyFate" if name == "fate" else name for name in _OF_KEY]
    writer.writerow([*_OF_WORKLOAD, *of_key])
    for workload in seen.workloads:
        writer.writerows(_rows(workload))
    return out.getvalue()


def _rows(workload: Asking) -> Iterator[list[str]]:
    mine = [_cell(getattr(workload, name)) for name in _OF_WORKLOAD]
    keys: tuple[Key | None, ...] = workload.keys or (None,)
    for key in keys:
        values = [_NOTHING[name] if key is None else getattr(key, name) for name in _OF_KEY]
        yield [*mine, *map(_cell, values)]


def _cell(value: object) -> str:
    text = printable(str(value))
    return f"'{text}" if text.startswith(_FORMULA) else text
