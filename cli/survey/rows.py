"""A survey key by key: a row for each as CSV for a spreadsheet, and findings for code hosts and test reports. Pure.

A spreadsheet takes a cell that begins with =, +, - or @ for a formula, and runs it. Such a cell is given an apostrophe.
"""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

from cli.check import reports
from cli.survey.verdicts import MoveOutlook
from cli.terminal import printable
from dra.finding import Finding
from dra.texts import joined
from webhook.dialects import Action
from webhook.refusals import Code

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cli.survey.overview import Overview

_OF_WORKLOAD = ("namespace", "kind", "name", "fate", "pods", "running", "moved", "file", "line")
_OF_KEY = ("container", "dialect", "key", "amount", "fate", "code", "detail", "remedy")
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def table(overview: Overview) -> str:
    """Write the rows, with a head."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    of_key = ["keyFate" if name == "fate" else name for name in _OF_KEY]
    writer.writerow([*_OF_WORKLOAD, *of_key])
    for workload in overview.workloads:
        mine = [_cell(getattr(workload, name)) for name in _OF_WORKLOAD]
        for key in workload.keys or (None,):
            values = [getattr(key, name, "") for name in _OF_KEY]
            writer.writerow([*mine, *map(_cell, values)])
    return out.getvalue()


def _cell(value: object) -> str:
    text = printable(str(value))
    return f"'{text}" if text.startswith(_FORMULA) else text


# The code of a fate, which says how bad it is. A refused or unclear key has its own code as well.
CODES = {
    MoveOutlook.DIFFERS: reports.APPROXIMATED,
    MoveOutlook.WEBHOOK: reports.AT_WEBHOOK,
    MoveOutlook.STAYS: reports.STAYS,
    MoveOutlook.WAITS: reports.WAITS,
    MoveOutlook.UNCLEAR: "D211",
    MoveOutlook.REFUSED: Code.NEVER.value,
}


def findings(overview: Overview) -> Iterator[tuple[int, Finding, str, int, int]]:
    """Give each key that does not simply move as a finding, each with the number of its workload, and file, line and column if it is in one."""
    for number, workload in enumerate(overview.workloads):
        for key in workload.keys:
            code = reports.APPROXIMATED if key.pods == Action.APPROXIMATED else CODES.get(key.fate, "")
            if not code:
                continue
            severity = reports.KNOWN[code].severity
            where = f"container {key.container}: " if key.container else ""
            if key.code and key.fate in (MoveOutlook.UNCLEAR, MoveOutlook.REFUSED):
                code = key.code
            finding = Finding(
                code=code,
                severity=severity,
                object=f"{workload.kind}/{workload.namespace}/{workload.name}",
                path="",
                message=where + joined(key.key, key.detail),
                hint=key.remedy,
            )
            yield number, finding, workload.file, workload.line, 1
