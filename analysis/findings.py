"""The findings about objects, and the report of them."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from analysis.report import Marked, Report, Rows, Why
from dra.finding import Finding, Severity
from dra.texts import count_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from analysis.report import Cell

    Notes = Mapping[Finding, Sequence[str]]

APPROXIMATED, STAYS, WAITS, AT_WEBHOOK = "M001", "M002", "M003", "M004"
# The basis of a decision if no object of the input defines the meaning of the key.
USUAL_MEANING: Final = "the usual meaning of the key"
# If an object has at least two more findings with one code, text output shows only so many of them.
_SHOWN: Final = 3


class ObjectFindings(NamedTuple):
    """A checked object, its file ("" if the object was read from a server), and the findings about it."""

    object: str
    file: str
    findings: Sequence[Finding]


def _text(checked: Sequence[ObjectFindings], notes: Notes) -> list[str]:
    """Write findings for a terminal, by object. Of many findings with one code about one object, write the first `_SHOWN`."""
    lines: list[str] = []
    for object_findings in checked:
        if not object_findings.findings:
            continue
        lines.append(object_findings.findings[0].object)
        numbers_by_code = Counter(finding.code for finding in object_findings.findings)
        shown: Counter[str] = Counter()
        for finding in object_findings.findings:
            shown[finding.code] += 1
            hidden = numbers_by_code[finding.code] - _SHOWN
            if hidden > 1 and shown[finding.code] > _SHOWN:
                if shown[finding.code] == _SHOWN + 1:
                    lines.append(f"  ... and {hidden} more {finding.code}, which `-o json` lists")
                continue
            where = f" at {finding.path}" if finding.path and not finding.place.file else ""
            lines.append(f"  {place_prefix(finding)}{finding.severity.value} {finding.code}{where}: {finding.message}")
            if finding.remedy:
                lines.append(f"      {finding.remedy}")
            lines += [f"      {note}" for note in notes.get(finding, ())]
        lines.append("")
    return lines


def summary_of(checked: Sequence[ObjectFindings], objects: int, skipped: int) -> str:
    """Count the objects, the files with device requests that were not checked, and the findings by severity."""
    number = Counter(finding.severity for object_findings in checked for finding in object_findings.findings)
    unchecked = f", {count_of(skipped, 'file')} with device requests not checked" if skipped else ""
    errors, warnings = count_of(number[Severity.ERROR], "error"), count_of(number[Severity.WARNING], "warning")
    return f"{count_of(objects, 'object')} checked{unchecked}: {errors}, {warnings}, {number[Severity.INFO]} info"


def place_prefix(finding: Finding) -> str:
    """Return a finding's file, line and column as the beginning of a line; "" if the object was read from a server."""
    return f"{finding.place}: " if finding.place.file else ""


def report_of_findings(
    title: str, checked: Sequence[ObjectFindings], summary: str, notes: Notes = MappingProxyType({})
) -> Report:
    """Make the report of findings, in the order of the input; `notes` are lines below a finding."""
    return Report(title, ("", table_of_findings(checked, notes)), summary)


def table_of_findings(checked: Sequence[ObjectFindings], notes: Notes = MappingProxyType({}), title: str = "") -> Rows:
    """Make the table of findings in a report."""
    head = ["Severity", "Code", "Object", "Finding, and what to do"]
    has_places = any(object_findings.file for object_findings in checked)
    head += ["Where"] if has_places else []
    head += ["Repair"] if notes else []
    rows: list[list[Cell]] = []
    for finding in (finding for object_findings in checked for finding in object_findings.findings):
        row: list[Cell] = [Marked(finding.severity.value), finding.code, finding.object + finding.path]
        row.append(Why(finding.message, finding.remedy))
        row += [str(finding.place)] if has_places else []
        row += [tuple(notes.get(finding, ()))] if notes else []
        rows.append(row)
    return Rows(head, rows, title, _text(checked, notes))


def by_object(findings: Iterable[Finding]) -> list[ObjectFindings]:
    """Group consecutive findings about one object, without files."""
    return [
        ObjectFindings(name, "", list(group)) for name, group in groupby(findings, key=lambda finding: finding.object)
    ]
