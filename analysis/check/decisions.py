"""The webhook's decisions as findings, with their place in the input. `translate` prints them for code hosts, too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from analysis.findings import APPROXIMATED, AT_WEBHOOK, STAYS, USUAL_MEANING, ObjectFindings
from dra.codes import CODES
from dra.finding import Finding, Place, Severity, make_finding
from dra.pointer import member, split
from dra.raw import Object, inside
from dra.validation import name
from webhook.dialects import Outcome
from webhook.names import MODE_LABEL
from webhook.refusals import REFUSALS, Code
from webhook.state import mistake_of
from webhook.translate import Decision, find_placeholder, group_kind, resolve_pointer

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from analysis.skipped import SkippedFile
    from cluster.manifests import Document


# Findings about a key, whatever its amount is.
_OF_KEYS = ("D211", "D221", "D222")


def add_webhook_findings(
    objects: Sequence[Object], decided: Sequence[Iterable[Decision]], findings: Sequence[Sequence[Finding]]
) -> list[list[Finding]]:
    """Add the webhook's findings about each object.

    If the webhook and the API server's rules find the same fault, one finding stays: for R001 that of the webhook, which names the amount
    of the container; for all other codes that of the rules, which has the exact place.
    """
    combined: list[list[Finding]] = []
    for value, decisions, of_object in zip(objects, decided, findings, strict=True):
        codes = {finding.code for finding in of_object}
        if any(finding.severity is Severity.ERROR for finding in of_object):
            codes.add("D011")  # a fault at a placeholder becomes a D011 later (`name_placeholders`)
        added: dict[Finding, None] = {}  # a set that keeps their order
        wrong = mistake_of(inside(value, "metadata", "labels").get(MODE_LABEL))
        if wrong and group_kind(value) == ("", "Namespace"):
            added[make_finding("D214", name(value), wrong, path=member("/metadata/labels", MODE_LABEL))] = None
        for decision in decisions:
            code = decision.code
            by_server = decision.outcome is Outcome.REFUSED and code not in REFUSALS
            if code and not (by_server and code in codes):
                added[finding_of(value, decision, code)] = None
        amounts = {_amount(finding.path) for finding in added if finding.code == Code.AMOUNT}
        others = [
            finding for finding in of_object if finding.code != Code.AMOUNT or _amount(finding.path) not in amounts
        ]
        combined.append([*others, *added])
    return combined


def _amount(path: str) -> tuple[str, str]:
    """Return the container of an amount and its key, for a path of its limit or its request."""
    container, _, key = path.rpartition("/resources/")
    return container, key.rpartition("/")[2]


def finding_of(value: Object, decision: Decision, code: str) -> Finding:
    """Make a finding of a decision, at the path of its key."""
    page = CODES[code]
    container = f"container {decision.container}: " if decision.container else ""
    key = f"{decision.key}: " if decision.key not in ("", decision.pointer) else ""
    severity = page.severity
    if decision.outcome is not Outcome.REFUSED and severity is Severity.ERROR:
        severity = Severity.WARNING  # the namespace's mode admits the pod
    return Finding(
        code=code,
        severity=severity,
        object=name(value),
        path=decision.pointer,
        message=f"{container}{key}{decision.reason}",
        remedy=decision.remedy or page.remedy,
        basis=decision.basis or (USUAL_MEANING if decision.meaning_assumed else ""),
    )


def findings_of_decisions(value: Object, decisions: Iterable[Decision]) -> list[Finding]:
    """Make a finding for each request of an object that is refused, approximated, kept unchanged or not understood."""
    findings: dict[Finding, None] = {}  # a set that keeps their order
    for decision in decisions:
        code = decision.code
        if not code and decision.outcome is Outcome.APPROXIMATED:
            code = APPROXIMATED
        if not code and decision.keep_reason:
            code = AT_WEBHOOK
        # A key of no dialect stays in any case, so it gets no finding.
        if not code and decision.outcome is Outcome.LEFT and decision.dialect:
            code = STAYS
        if code:
            findings[finding_of(value, decision, code)] = None
    return list(findings)


def findings_of_skipped(skipped: Iterable[SkippedFile]) -> list[ObjectFindings]:
    """Make a finding for each file that requests devices and is not read as objects."""
    checked: list[ObjectFindings] = []
    for skip in skipped:
        finding = make_finding("D012", skip.kind, f"{skip.key} is requested here, and this file is not checked")
        position = Place(file=skip.file, line=skip.line, column=1)
        checked.append(ObjectFindings(skip.kind, skip.file, [msgspec.structs.replace(finding, place=position)]))
    return checked


def locate(document: Document, findings: Iterable[Finding]) -> list[Finding]:
    """Add the file, line and column to the findings about an object, and put them in that order."""
    located: list[Finding] = []
    for key, line in document.duplicates:  # found by the YAML reader
        message = f"the key {key!r} is given twice, the later one counts"
        finding = make_finding("D005", name(document.object), message)
        located.append(msgspec.structs.replace(finding, place=Place(file=document.file, line=line, column=1)))
    for finding in findings:
        file, line, column = document.place_of(finding.path)
        located.append(msgspec.structs.replace(finding, place=Place(file=file, line=line, column=column)))
    return sorted(located, key=lambda finding: (finding.place.line, finding.place.column))


def name_placeholders(checked: Iterable[ObjectFindings], documents: Sequence[Document]) -> list[ObjectFindings]:
    """Replace findings about unfilled placeholders by one D011 for each file."""
    renamed: list[ObjectFindings] = []
    reported: set[str] = set()
    for of_object, document in zip(checked, documents, strict=True):
        remaining: list[Finding] = []
        for finding in of_object.findings:
            placeholder = _placeholder(document.object, finding.path)
            if not placeholder or finding.code in _OF_KEYS:
                remaining.append(finding)
            if placeholder and finding.place.file not in reported:
                reported.add(finding.place.file)
                message = f"{placeholder} is a placeholder that is not filled in"
                instead = make_finding("D011", name(document.object), message, path=finding.path)
                remaining.append(msgspec.structs.replace(instead, place=finding.place))
        renamed.append(of_object._replace(findings=remaining))
    return renamed


def _placeholder(value: Any, path: str) -> str:
    """Return a placeholder in the value at a path, or in the last member name of the path."""
    written = resolve_pointer(value, path) if path else None
    for text in (written, *split(path)[-1:]):
        if placeholder := find_placeholder(text):
            return placeholder
    return ""
