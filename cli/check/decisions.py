"""The webhook's decisions as findings, with their place in the input. `translate` and `survey` print them for code hosts, too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cli.check.reports import APPROXIMATED, AT_WEBHOOK, KNOWN, STAYS, Placed
from dra.finding import Finding, Severity
from dra.pointer import member, split
from dra.raw import Object, inside, mapping, members
from dra.validation import Problem, Reviewed, findings, name
from webhook.dialects import Action
from webhook.names import MODE_LABEL
from webhook.refusals import PAGES, Code
from webhook.state import mistake_of
from webhook.translate import Decision, at, find_placeholder, group_kind, paths

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from cli.manifest_files import SkippedFile
    from cluster.manifests import Document


# Where requests may be, relative to a container.
_REQUESTS = ("", "/limits", "/requests", "/resources/limits", "/resources/requests")


def add_webhook_findings(
    objects: Sequence[Object], decided: Sequence[Iterable[Decision]], found: Sequence[Reviewed]
) -> list[Reviewed]:
    """Add the webhook's findings about each object.

    Where the webhook and the rules of the API server find the same fault, the webhook's finding stays if it names the container's
    amount (R001), and the other one, which has its exact place, for all other codes.
    """
    codes = {(number, finding.code) for number, finding in found}
    # A fault at a placeholder becomes a D011 later (`name_placeholders`).
    codes |= {(number, "D011") for number, finding in found if finding.severity is Severity.ERROR}
    added: dict[Reviewed, None] = {}  # a set that keeps their order
    for number, value in enumerate(objects):
        if group_kind(value) == ("", "Namespace"):
            mode = inside(value, "metadata", "labels").get(MODE_LABEL, "")
            wrong = f"its label {MODE_LABEL} is not a string (YAML reads a bare off as false)"
            if isinstance(mode, str):
                wrong = mistake_of(mode)
            if wrong:
                problem = Problem("D214", member("/metadata/labels", MODE_LABEL), wrong)
                added |= dict.fromkeys(Reviewed(number, finding) for finding in findings([problem], name(value)))
        for decision in decided[number]:
            code = decision.code
            by_server = decision.action is Action.REFUSED and code not in PAGES
            if code and not (by_server and (number, code) in codes):
                added[Reviewed(number, finding_of(value, decision, code))] = None
    amounts = {(number, _amount(finding.path)) for number, finding in added if finding.code == Code.AMOUNT}
    return [
        *(
            one
            for one in found
            if one.finding.code != Code.AMOUNT or (one.number, _amount(one.finding.path)) not in amounts
        ),
        *added,
    ]


def _amount(path: str) -> tuple[str, str]:
    """Return the container of an amount and its key, for a path of its limit or its request."""
    container, _, key = path.rpartition("/resources/")
    return container, key.rpartition("/")[2]


def finding_of(value: Object, decision: Decision, code: str) -> Finding:
    """Make a finding of a decision, at the path of its key."""
    page = KNOWN[code]
    container = f"container {decision.container}: " if decision.container else ""
    is_place = decision.key.startswith("/")  # of a fault that the API server finds outside of requests
    key = f"{decision.key}: " if decision.key and not is_place else ""
    severity = page.severity
    if decision.action is not Action.REFUSED and severity is Severity.ERROR:
        severity = Severity.WARNING  # the namespace's mode admits the pod
    return Finding(
        code=code,
        severity=severity,
        object=name(value),
        path=decision.key if is_place else next(_places(value, decision), ""),
        message=f"{container}{key}{decision.detail}",
        remedy=decision.remedy or page.remedy,
    )


def _places(value: Object, decision: Decision) -> Iterator[str]:
    """List candidate paths for the key of a decision, best first: in the pod templates, then below the spec."""
    key = decision.key
    for path in paths(value):
        pod = mapping(at(value, path))
        spec = mapping(pod.get("spec"))
        for part in ("containers", "initContainers"):
            for index, raw in enumerate(members(spec.get(part))):
                container = mapping(raw)
                if container.get("name", "") != decision.container:
                    continue
                resources = mapping(container.get("resources"))
                container_path = f"{path}/spec/{part}/{index}"
                for kind in ("limits", "requests"):
                    if key in mapping(resources.get(kind)):
                        yield member(f"{container_path}/resources/{kind}", key)
                yield container_path
        resources = mapping(spec.get("resources"))  # of the whole pod
        for kind in ("limits", "requests"):
            if not decision.container and key in mapping(resources.get(kind)):
                yield member(f"{path}/spec/resources/{kind}", key)
        metadata = mapping(pod.get("metadata"))
        for part in ("annotations", "labels"):
            if key in mapping(metadata.get(part)):
                yield member(f"{path}/metadata/{part}", key)
        if key in mapping(spec.get("nodeSelector")):
            yield member(f"{path}/spec/nodeSelector", key)
        if key in mapping(spec.get("affinity")):
            yield member(f"{path}/spec/affinity", key)
        if key in spec:
            yield member(f"{path}/spec", key)
    inside = decision.container
    for place in (f"/spec/{inside}", f"/{inside}"):
        for requests in _REQUESTS:
            where = f"{place}{requests}"
            if key in mapping(at(value, where)):
                yield member(where, key)
        if inside and at(value, place) is not None:
            yield place
    for path in (*paths(value), ""):
        yield f"{path}/spec"


def findings_of_decisions(decided: Iterable[tuple[Document, Iterable[Decision]]]) -> list[Placed]:
    """Make one finding of each request that is refused, approximated, left or not understood."""
    found: dict[Placed, None] = {}  # a set that keeps their order
    for number, (document, decisions) in enumerate(decided):
        for decision in decisions:
            code = decision.code
            if not code and decision.action is Action.APPROXIMATED:
                code = APPROXIMATED
            if not code and decision.stays:
                code = AT_WEBHOOK
            # A key of no dialect stays whatever becomes of the request beside it.
            if not code and decision.action is Action.LEFT and decision.dialect:
                code = STAYS
            if not code:
                continue
            value: Object = document.object
            finding = finding_of(value, decision, code)
            place = document.place_of(finding.path)
            found[Placed(number, finding, *place)] = None
    return list(found)


def findings_of_skipped(skipped: Iterable[SkippedFile], first: int) -> list[Placed]:
    """Make a finding of each file that is not read as objects and requests devices; they are counted from `first` on."""
    placed: list[Placed] = []
    for number, one in enumerate(skipped, first):
        (finding,) = findings(
            [Problem("D012", "", f"{one.key} is requested here, and this file is not checked")], one.kind
        )
        placed.append(Placed(number, finding, one.file, one.line, 1))
    return placed


def locate(documents: Sequence[Document], found: Iterable[Reviewed]) -> list[Placed]:
    """Add the file, line and column to findings."""
    placed: list[Placed] = []
    for number, finding in found:
        where = documents[number].place_of(finding.path)
        placed.append(Placed(number, finding, *where))
    return placed


def name_placeholders(placed: Iterable[Placed], documents: Sequence[Document]) -> list[Placed]:
    """Replace findings about unfilled placeholders by one D011 for each file."""
    remaining: list[Placed] = []
    reported: set[str] = set()
    for one in placed:
        document = documents[one.number]
        found = _placeholder(document.object, one.finding.path)
        if not found:
            remaining.append(one)
            continue
        if one.file not in reported:
            reported.add(one.file)
            problem = Problem("D011", one.finding.path, f"{found} is a placeholder that is not filled in")
            (finding,) = findings([problem], name(document.object))
            remaining.append(one._replace(finding=finding))
    return remaining


def _placeholder(value: Any, path: str) -> str:
    """Return a placeholder in the value at a path, or in the last member name of the path."""
    written = at(value, path) if path else None
    for text in (written, *split(path)[-1:]):
        if found := find_placeholder(text):
            return found
    return ""
