"""A survey by key: a row for each key for a spreadsheet, and findings for code hosts and test reports."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from analysis.survey.report import why
from analysis.survey.verdicts import needs_decision
from dra import codes
from dra.finding import Finding, Place, Severity
from dra.texts import joined
from rendering import formats
from rendering.report import Rows
from webhook.dialects import Outcome
from webhook.refusals import Code

if TYPE_CHECKING:
    from analysis.survey.overview import Overview
    from analysis.survey.verdicts import Key

_OF_WORKLOAD = (
    "namespace",
    "kind",
    "name",
    "outcome",
    "potential_outcome",
    "pods",
    "running_pods",
    "pods_with_claims",
    "file",
    "line",
)
_DECIDED = ("outcome", "potential_outcome", "mode", "code", "detail", "keep_reason", "until", "remedy")
_OF_KEY = ("container", "dialect", "key", "amount", *_DECIDED)


def table(overview: Overview) -> Rows:
    """Make a row for each key, for a spreadsheet."""
    rows: list[list[str | int]] = []
    of_workload, of_key, none = attrgetter(*_OF_WORKLOAD), attrgetter(*_OF_KEY), [""] * len(_OF_KEY)
    for workload in overview.workloads:
        workload_cells = ["" if value is None else value for value in of_workload(workload)]
        rows += [[*workload_cells, *of_key(key)] for key in workload.keys] or [[*workload_cells, *none]]
    headings = [_camel(name) for name in _OF_WORKLOAD]
    headings += [_camel(f"key_{name}" if name in _OF_WORKLOAD else name) for name in _OF_KEY]
    return Rows(headings, rows)


def _camel(name: str) -> str:
    """Return a name as `-o json` writes it."""
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


# The code of an outcome, for keys whose decision has none. The code decides the severity.
CODES = {
    Outcome.APPROXIMATED: formats.APPROXIMATED,
    Outcome.LEFT: formats.STAYS,
    Outcome.UNKNOWN: "D211",
    Outcome.REFUSED: Code.NEVER.value,
}


def code_of(key: Key) -> str:
    """Return the code of the finding about a key; "" if it is simply translated or served."""
    key = key.enforced()
    if not needs_decision(key):
        return ""
    if key.code or key.outcome is Outcome.APPROXIMATED:
        return key.code or formats.APPROXIMATED
    if key.until:
        return formats.WAITS
    return formats.AT_WEBHOOK if key.keep_reason else CODES[key.outcome]


def findings(overview: Overview) -> list[formats.ObjectFindings]:
    """List the workloads, with a finding for each key that is not simply translated."""
    checked: list[formats.ObjectFindings] = []
    for workload in overview.workloads:
        name = f"{workload.kind}/{workload.namespace}/{workload.name}"
        place = Place(file=workload.file, line=workload.line, column=1) if workload.file else Place()
        of_workload: list[Finding] = []
        for key in workload.keys:
            code = code_of(key)
            if not code:
                continue
            where = f"container {key.container}: " if key.container else ""
            severity = codes.CODES[code].severity
            if key.potential_outcome and severity is Severity.ERROR:  # the mode admits the pod
                severity = Severity.WARNING
            finding = Finding(
                code=code,
                severity=severity,
                object=name,
                path="",
                message=where + joined(key.key, why(key)),
                remedy=key.remedy,
                place=place,
                basis=formats.USUAL_MEANING if key.meaning_assumed else "",
            )
            of_workload.append(finding)
        checked.append(formats.ObjectFindings(name, workload.file, of_workload))
    return checked
