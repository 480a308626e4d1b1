"""A survey as findings about keys, for code hosts and test reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from analysis.findings import APPROXIMATED, AT_WEBHOOK, STAYS, USUAL_MEANING, WAITS, ObjectFindings
from analysis.survey.survey_report import why
from analysis.survey.verdicts import needs_decision
from dra import codes
from dra.finding import Finding, Place, Severity
from dra.texts import joined
from webhook.dialects import Outcome
from webhook.refusals import Code

if TYPE_CHECKING:
    from analysis.survey.overview import Overview
    from analysis.survey.verdicts import Key

# The code of an outcome, for keys whose decision has none. The code decides the severity.
CODES = {
    Outcome.APPROXIMATED: APPROXIMATED,
    Outcome.LEFT: STAYS,
    Outcome.UNKNOWN: "D211",
    Outcome.REFUSED: Code.NEVER.value,
}


def code_of(key: Key) -> str:
    """Return the code of the finding about a key; "" if it is simply translated or served."""
    key = key.enforced()
    if not needs_decision(key):
        return ""
    if key.code or key.outcome is Outcome.APPROXIMATED:
        return key.code or APPROXIMATED
    if key.until:
        return WAITS
    return AT_WEBHOOK if key.keep_reason else CODES[key.outcome]


def findings(overview: Overview) -> list[ObjectFindings]:
    """List the workloads, with a finding for each key that is not simply translated."""
    checked: list[ObjectFindings] = []
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
                place=replace(place, line=key.line or place.line),
                basis=USUAL_MEANING if key.meaning_assumed else "",
            )
            of_workload.append(finding)
        checked.append(ObjectFindings(name, workload.file, of_workload))
    return checked
