"""A finding: a problem, or a notable fact, about one object. Every check returns findings, and every report prints them.

A code never changes its meaning. `object` is Kind/namespace/name, or Kind/name of an object without a namespace. `path`
is a JSON pointer into the object. `remedy` is the action to take. `basis` names the evidence for the finding if the
object itself is not the evidence: an event, a trial, the usual meaning of a key.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from dra.codes import ACCEPTED, CODES, Severity
from dra.wire import Wire

__all__ = ["Finding", "Findings", "Place", "Severity", "finding_at", "make_finding", "recoded", "stated"]


class Place(Wire, frozen=True, kw_only=True, omit_defaults=False):
    """The position of an object, or of a part of the object, in the input files.

    Empty if a server returned the object.
    """

    file: str = ""
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.file else ""


class Finding(Wire, frozen=True, kw_only=True, omit_defaults=False):
    code: str
    severity: Severity
    object: str
    path: str
    message: str
    remedy: str = ""
    place: Place = Place()
    basis: str = ""

    def __str__(self) -> str:
        helps = f" ({self.remedy})" if self.remedy else ""
        return f"{self.message}{helps} [{self.code}]"

    @property
    def refuses(self) -> bool:
        """Whether the API server refuses the object because of the finding."""
        return self.severity is Severity.ERROR and self.code not in ACCEPTED

    def prefixed(self, opening: str) -> Finding:
        """Return the finding with a prefix before its message, for a warning."""
        return replace(self, message=f"{opening}{self.message}")


Findings = Iterator[Finding]


def finding_at(code: str, path: str, message: str, remedy: str = "") -> Finding:
    """Return a finding about a path of an object; the caller sets the object later."""
    return make_finding(code, "", message, remedy, path=path)


def stated(code: str, message: str, remedy: str = "") -> Finding:
    """Return a finding whose message names the object: a refusal or a warning. The remedy of the code is not used."""
    return Finding(code=code, severity=CODES[code].severity, object="", path="", message=message, remedy=remedy)


def recoded(finding: Finding, code: str) -> Finding:
    """Return the finding with another code and its severity. A remedy of the finding's own is kept."""
    remedy = "" if finding.remedy == CODES[finding.code].remedy else finding.remedy
    return make_finding(code, finding.object, finding.message, remedy, path=finding.path, basis=finding.basis)


def make_finding(
    code: str, reference: str, message: str, remedy: str = "", *, path: str = "", basis: str = ""
) -> Finding:
    """Return a finding about an object. The code gives the severity, and the remedy if none is given."""
    meaning = CODES[code]
    return Finding(
        code=code,
        severity=meaning.severity,
        object=reference,
        path=path,
        message=message,
        remedy=remedy or meaning.remedy,
        basis=basis,
    )
