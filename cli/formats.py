"""Writes findings for people, scripts, code hosts and test reports, and the meaning of their codes."""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote
from xml.sax.saxutils import escape, quoteattr

import msgspec

from analysis.errors import Broken
from analysis.findings import ObjectFindings, place_prefix
from analysis.printable import printable
from analysis.report import Marked, Own, Report, Rows
from cli.terminal import escaped_in_json
from dra.finding import Finding, Place, Severity
from dra.texts import count_of
from dra.validation import CODES, FindingCode, shape
from webhook.names import VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from analysis.report import Cell, Part


_SARIF_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
_SARIF_LEVELS: Final = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}
# All characters that a document of XML 1.0 cannot contain, even escaped (production 2).
_NOT_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_GITHUB_LEVELS: Final = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}


def for_hosts(
    output_format: str, checked: Sequence[ObjectFindings], command: str, unread: Iterable[Mapping[str, Any]] = ()
) -> str:
    """Write findings for a code host or as a test report; `unread` are the problems of the input."""
    findings = [finding for object_findings in checked for finding in object_findings.findings]
    match output_format:
        case "sarif":
            answer = msgspec.json.encode(sarif(findings))
            return escaped_in_json(msgspec.json.format(answer, indent=2).decode())
        case "junit":
            return junit(checked, command)
        case _:
            return "\n".join(filter(None, (github(findings), *map(_unread_annotation, unread))))


def sarif(findings: Sequence[Finding]) -> dict[str, Any]:
    """Write the Static Analysis Results Interchange Format, 2.1.0."""
    used = sorted({finding.code for finding in findings})
    rules = [
        {
            "id": code,
            "shortDescription": {"text": CODES[code].title},
            "help": {"text": CODES[code].remedy},
            "defaultConfiguration": {"level": _SARIF_LEVELS[CODES[code].severity]},
        }
        for code in used
    ]
    driver = {"name": "drawbridge", "version": VERSION, "rules": rules}
    results: list[dict[str, Any]] = []
    for finding in findings:
        place = finding.place
        location: dict[str, Any] = {"logicalLocations": [{"fullyQualifiedName": f"{finding.object}{finding.path}"}]}
        if place.file:  # an object that was read from a cluster has no file
            location["physicalLocation"] = {
                "artifactLocation": {"uri": "stdin" if place.file == "-" else quote(place.file)},
                "region": {"startLine": max(place.line, 1), "startColumn": max(place.column, 1)},
            }
        result = {
            "ruleId": finding.code,
            "ruleIndex": used.index(finding.code),
            "level": _SARIF_LEVELS[finding.severity],
            "message": {"text": f"{finding.message}. {finding.remedy}" if finding.remedy else finding.message},
            "locations": [location],
        }
        results.append(result)
    return {"$schema": _SARIF_SCHEMA, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": results}]}


def github(findings: Sequence[Finding]) -> str:
    """Write workflow commands that annotate the lines of a pull request."""
    return "\n".join(
        f"::{_GITHUB_LEVELS[finding.severity]} {_annotation_place(finding.place)}title={_escaped_property(finding.code)}"
        f"::{_escaped_data(f'{finding.object}{finding.path}: {finding.message}. {finding.remedy}')}"
        for finding in findings
    )


def _unread_annotation(problem: Mapping[str, Any]) -> str:
    """Annotate input that could not be read, because it makes the job fail."""
    file, line, column = (problem.get(key) for key in ("file", "line", "column"))
    message = f"{problem['message']}{f' ({remedy})' if (remedy := problem.get('remedy')) else ''}"
    where = _annotation_place(Place(file=str(file or ""), line=int(line or 1), column=int(column or 1)))
    # A folder of a kustomization, or an address, cannot be annotated; the text names it.
    return f"::error {where}title=unreadable::{_escaped_data(message if where or not file else f'{file}: {message}')}"


def _annotation_place(place: Place) -> str:
    """Return the place of an annotation; "" for input that is not a file in a pull request (standard input, addresses)."""
    path = Path(place.file)
    return f"file={_escaped_property(path.as_posix())},line={place.line},col={place.column}," if path.is_file() else ""


def _escaped_data(value: str) -> str:
    lines = map(printable, value.split("\n"))
    return "%0A".join(line.replace("%", "%25") for line in lines)


def _escaped_property(value: str) -> str:
    return _escaped_data(value).replace(":", "%3A").replace(",", "%2C")


def junit(checked: Sequence[ObjectFindings], command: str) -> str:
    """Write a test report with a case for each object; a case fails if the object has errors."""
    failed = sum(
        any(finding.severity is Severity.ERROR for finding in object_findings.findings) for object_findings in checked
    )
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<testsuites tests="{len(checked)}" failures="{failed}">',
        f'  <testsuite name="drawbridge {command}" tests="{len(checked)}" failures="{failed}">',
    ]
    for object_findings in checked:
        lines.append(
            f"    <testcase name={_attribute(object_findings.object)} classname={_attribute(object_findings.file)}>"
        )
        errors: list[str] = []
        other_lines: list[str] = []
        for finding in object_findings.findings:
            path = f" {finding.path}" if finding.path else ""
            line = f"{place_prefix(finding)}{finding.code}{path}: {finding.message}. {finding.remedy}"
            (errors if finding.severity is Severity.ERROR else other_lines).append(line)
        if errors:
            count = _attribute(count_of(len(errors), "error"))
            lines.append(f"      <failure message={count}>{_xml(errors)}</failure>")
        if other_lines:
            lines.append(f"      <system-out>{_xml(other_lines)}</system-out>")
        lines.append("    </testcase>")
    lines += ["  </testsuite>", "</testsuites>"]
    return "\n".join(lines)


def _xml(lines: Sequence[str]) -> str:
    return escape(_NOT_XML.sub("\ufffd", "\n".join(lines)), {"\r": "&#13;"})


def _attribute(value: str) -> str:
    return quoteattr(_NOT_XML.sub("\ufffd", value))


def as_json(checked: Sequence[ObjectFindings]) -> list[dict[str, Any]]:
    """Write findings as `-o json` lists them."""
    return [msgspec.to_builtins(finding) for object_findings in checked for finding in object_findings.findings]


def choose_codes(requested: str, further_words: tuple[str, ...] = ()) -> Mapping[str, FindingCode]:
    """Return the codes in `requested`, which are separated by blanks, or all codes for `all`. `further_words` are those to suggest for a misspelt code."""
    if requested == "all":
        return CODES
    names = [name.strip("[],").upper() for name in requested.split()]
    for name in names:
        if name not in CODES:
            similar = shape.nearest_name(name, [*further_words, *CODES])
            suggestion = f"did you mean {similar}? " if similar else ""
            objects = ", and `drawbridge explain KIND/NAME` explains an object" if further_words else ""
            remedy = f"{suggestion}`drawbridge explain all` lists them{objects}"
            raise Broken(f"no finding and no refusal has the code {name!r}", remedy)
    return {name: CODES[name] for name in names}


_ABOUT: Final = (
    "For authors of manifests and administrators: the code of every finding.",
    "`drawbridge explain CODE` prints the remedy, and so does each command that reports the finding.",
    "A code never changes its meaning.",
    "`drawbridge check` reports the codes D and R.",
    "A D error means that the API server of the newest supported Kubernetes refuses the object, except D002, D010 and D214; an R error, that the webhook refuses the object.",
    "A warning means that the object is accepted, but does not work as intended.",
    "The codes C are mistakes in the configuration.",
    "In the formats sarif, github and junit, `drawbridge translate` and `drawbridge survey` report outcomes as the codes M.",
    "`drawbridge doctor` reports the codes O, and `drawbridge survey` the codes S.",
)
_CHAPTERS: Final = {
    "D0": "Form of manifests",
    "D1": "What the API server refuses",
    "D2": "Pods and workloads",
    "D3": "Claims and classes on the fleet",
    "D4": "What drivers publish",
    "D5": "Compatibility rules",
    "D6": "What claims hold",
    "D7": "Driver parameters",
    "C0": "The configuration of drawbridge",
    "R0": "What the webhook refuses",
    "M0": "Outcomes of requests",
    "O0": "An installation of drawbridge",
    "O1": "Pods that wait",
    "O2": "Nodes, devices and claims of a fleet",
    "S0": "Obstacles to a migration",
}


def facts_of_codes(codes: Mapping[str, FindingCode]) -> list[dict[str, str]]:
    """Return the meaning of codes for programs."""
    return [
        {
            "code": name,
            "title": code.title,
            "severity": code.severity,
            "remedy": code.remedy,
            "withoutDrawbridge": code.without,
        }
        for name, code in codes.items()
    ]


def report_of_codes(codes: Mapping[str, FindingCode]) -> Report:
    """Return the meaning of codes as a report; the report of all codes is docs/findings.md."""
    head = ("Code", "Severity", "Meaning", "What helps", "Without drawbridge")
    is_whole = len(codes) == len(CODES)
    parts: list[Part] = [Own(" ".join(_ABOUT))] if is_whole else []
    for chapter, group in groupby(codes, key=lambda name: _CHAPTERS[name[:2]]):
        rows: list[Sequence[Cell]] = []
        lines: list[str] = []
        for name in group:
            code = codes[name]
            rows.append((name, Marked(code.severity.value), Own(code.title), Own(code.remedy), Own(code.without)))
            lines += [f"{name} {code.severity.value}: {code.title}", f"      {code.remedy}"]
            lines += [f"      without drawbridge: {code.without}"] if code.without else []
        parts.append(Rows(head, rows, chapter if is_whole else "", lines))
    return Report("Findings", parts)
