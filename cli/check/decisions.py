"""What the webhook decides about pods and workloads, as findings: so that `translate` and `survey` speak to code hosts as `check` does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from cli.check.reports import APPROXIMATED, AT_WEBHOOK, KNOWN, STAYS, Placed
from dra.finding import Finding, Severity
from dra.pointer import member
from dra.validation import Problem, Reviewed, findings, name
from webhook.dialects import Action
from webhook.names import MODE_LABEL
from webhook.refusals import INVALID, PAGES
from webhook.state import mistake_of
from webhook.translate import Decision, at, group_kind, mapping, paths

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from cluster.manifests import Document

    _Object = dict[str, Any]

# Where requests stand, from the place that is said.
_SIDES = ("", "/limits", "/requests", "/resources/limits", "/resources/requests")


def at_the_webhook(
    objects: Sequence[_Object], decided: Sequence[Iterable[Decision]], found: Sequence[Reviewed]
) -> list[Reviewed]:
    """Add the webhook's findings about each object; it may know a better remedy for one of the API server's."""
    refused_anyway = {number for number, finding in found if finding.severity is Severity.ERROR}
    remedies: dict[tuple[int, str], str] = {}
    told: list[Reviewed] = []
    for number, value in enumerate(objects):
        if group_kind(value) == ("", "Namespace"):
            word = mapping(mapping(value.get("metadata")).get("labels")).get(MODE_LABEL, "")
            wrong = f"its label {MODE_LABEL} is not a string (YAML reads a bare off as false)"
            if isinstance(word, str):
                wrong = mistake_of(word)
            if wrong:
                problem = Problem("D214", member("/metadata/labels", MODE_LABEL), wrong)
                told += [Reviewed(number, finding) for finding in findings([problem], name(value))]
        said: set[Finding] = set()
        for decision in decided[number]:
            if not decision.code:
                continue
            finding = finding_of(value, decision, decision.code)
            # A refusal that the API server makes by itself needs no second finding.
            refused = decision.action is Action.REFUSED and number in refused_anyway
            if refused and (decision.code not in PAGES or decision.code in INVALID):
                remedies[number, finding.path] = finding.hint
            elif finding not in said:
                said.add(finding)
                told.append(Reviewed(number, finding))
    helped: list[Reviewed] = []
    for number, finding in found:
        place = number, finding.path
        better = finding
        if finding.code == "D209" and place in remedies:
            hint = remedies[place]
            better = msgspec.structs.replace(finding, hint=hint)
        helped.append(Reviewed(number, better))
    return [*helped, *told]


def finding_of(value: _Object, decision: Decision, code: str) -> Finding:
    """Say a decision as a finding, at the place where its key stands."""
    page = KNOWN[code]
    who = f"container {decision.container}: " if decision.container else ""
    key = f"{decision.key}: " if decision.key else ""
    severity = page.severity
    if decision.action is not Action.REFUSED and severity is Severity.ERROR:
        severity = Severity.WARNING  # the mode of the namespace lets it pass
    return Finding(
        code=code,
        severity=severity,
        object=name(value),
        path=next(_places(value, decision), ""),
        message=f"{who}{key}{decision.detail}",
        hint=decision.remedy or page.hint,
    )


def _places(value: _Object, decision: Decision) -> Iterator[str]:
    """Find where the key of a decision stands: in the pod templates, else mostly below the spec."""
    key = decision.key
    for path in paths(value):
        pod = mapping(at(value, path))
        spec = mapping(pod.get("spec"))
        for part in ("containers", "initContainers"):
            containers = spec.get(part)
            for index, raw in enumerate(containers if isinstance(containers, list) else ()):
                container = mapping(raw)
                if container.get("name", "") != decision.container:
                    continue
                resources = mapping(container.get("resources"))
                here = f"{path}/spec/{part}/{index}"
                for side in ("limits", "requests"):
                    if key in mapping(resources.get(side)):
                        yield member(f"{here}/resources/{side}", key)
                yield here
        metadata = mapping(pod.get("metadata"))
        for part in ("annotations", "labels"):
            if key in mapping(metadata.get(part)):
                yield member(f"{path}/metadata/{part}", key)
        if key in mapping(spec.get("nodeSelector")):
            yield member(f"{path}/spec/nodeSelector", key)
    inside = decision.container
    for place in (f"/spec/{inside}", f"/{inside}"):
        for side in _SIDES:
            where = f"{place}{side}"
            if key in mapping(at(value, where)):
                yield member(where, key)
        if inside and at(value, place) is not None:
            yield place
    for path in (*paths(value), ""):
        yield f"{path}/spec"


def place_decisions(decided: Iterable[tuple[Document, Iterable[Decision]]]) -> list[Placed]:
    """Make findings of what does not simply become a claim: refused, approximated, left or not understood, each once."""
    found: dict[Placed, None] = {}  # a set that keeps their order
    for number, (document, decisions) in enumerate(decided):
        for decision in decisions:
            code = decision.code
            if not code and Action.APPROXIMATED in (decision.action, decision.pods):
                code = APPROXIMATED
            if not code and decision.action is Action.AT_WEBHOOK:
                code = AT_WEBHOOK
            # A key of no dialect stays whatever becomes of the request beside it.
            if not code and decision.action is Action.LEFT and decision.dialect:
                code = STAYS
            if not code:
                continue
            value: _Object = document.object
            finding = finding_of(value, decision, code)
            place = document.place_of(finding.path)
            found[Placed(number, finding, *place)] = None
    return list(found)


def place(documents: Sequence[Document], found: Iterable[Reviewed]) -> list[Placed]:
    """Give findings their places."""
    placed: list[Placed] = []
    for number, finding in found:
        where = documents[number].place_of(finding.path)
        placed.append(Placed(number, finding, *where))
    return placed
