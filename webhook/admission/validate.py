"""What can never work is refused at the gate; what is only busy now is a warning. Pure.

The question is put to the allocator over an *empty* fleet: nothing in use, so a "no" there cannot be cured by waiting. Only
then does a second look at the fleet as it is decide whether to warn. Without a stock that is complete and fresh nothing
is ever refused here (`State.stock` is None then): a pod must not be turned away because we were not told of a slice. Nor
is it where one that we were told of could not be read (`State.unseen`): then it is a warning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from dra import validation, wire
from dra.errors import OutOfBudget
from dra.finding import Severity
from dra.objects import ObjectMeta, Pod, ResourceClaim, ResourceClaimSpec, ResourceClaimTemplate, claim_spec
from webhook import names
from webhook.admission.feasibility import Feasibility, judge
from webhook.claims import template, upkeep
from webhook.refusals import Code, sentence
from webhook.translate import at, mapping, paths, replay, translate

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dra.budget import Budget
    from dra.wire import Json
    from webhook.admission.admission_review import Request
    from webhook.state import State
    from webhook.translate import Given


class Found(msgspec.Struct, frozen=True):
    """What to refuse an object for, and what to say about it."""

    denials: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


NOTHING = Found()
# Steps for an object that is judged by the rules of `drawbridge check`: more than who shares a thread has for one piece.
OBJECT = 100_000


def inspect(request: Request, obj: dict[str, Json], state: State, budget: Budget) -> Found:
    """Look at one object of a validating review."""
    namespace = request.namespace
    resource = request.resource
    match resource.group, resource.resource:
        case "", "pods":
            pod = wire.convert(obj, Pod)
            found = _twice(pod, obj, namespace, state)
            return found or _pod(pod, obj, namespace, state, budget)
        case "resource.k8s.io", "resourceclaims":
            stored = wire.convert(obj, ResourceClaim)
            claim = _claim(stored.spec, namespace, _name(stored.metadata))
            return _fits([claim], state, budget)
        case "resource.k8s.io", "resourceclaimtemplates":
            template = wire.convert(obj, ResourceClaimTemplate)
            claim = _claim(template.spec.spec, namespace, _name(template.metadata))
            return _fits([claim], state, budget)
        case (("apps" | "batch"), _):
            return _workload(obj, namespace, state, budget)
        case (("resource.k8s.io" | names.DOMAIN), _):
            return _object(obj, budget)
    return NOTHING


def _twice(pod: Pod, obj: dict[str, Json], namespace: str, state: State) -> Found | None:
    """Turn back a pod that would ask twice: what we took away is there again, put back by a webhook that came last."""
    if not any(entry.name.startswith(names.PREFIX) for entry in pod.spec.resource_claims):
        return None
    back = [
        operation["path"]
        for operation in replay(obj, obj, state, namespace=namespace).operations
        if operation["op"] == "remove"
    ]
    if not back:
        return None
    what = f"{', '.join(back)}: another webhook put back what had become a claim, so the pod would ask twice for its devices"
    return Found(denials=(sentence(Code.TWICE, what, "switch that injection off"),))


def _pod(pod: Pod, obj: dict[str, Json], namespace: str, state: State, budget: Budget) -> Found:
    """Judge all claims of a pod together, as a scheduler would have to serve them."""
    sealed = pod.metadata.annotations.get(names.TEMPLATES)
    claims, warnings = [], []
    proven: dict[str, Json] = {}
    try:
        if sealed and state.keys:
            proven = template.unseal(sealed, template.bearer(pod, namespace), *state.keys)
    except template.TemplatesError as error:
        # It proves nothing, so nothing is made of it; what the pod's claims refer to is judged as it is stored.
        warnings.append(f"{error}: drop the {names.DOMAIN}/ annotations")
    for entry in pod.spec.resource_claims:
        name = entry.resource_claim_template_name or ""
        spec = _template_spec(proven.get(name)) or state.templates.get((namespace, name))
        if spec is not None:
            claims.append(_claim(spec, "", entry.name))  # equal pods of all namespaces are one question
        elif state.stock is None:
            continue
        elif existing := state.stock.claims.get(f"{namespace}/{entry.resource_claim_name}"):
            if existing.status.allocation is None:
                claims.append(existing)
        else:
            kind = "ResourceClaimTemplate" if name else "ResourceClaim"
            said = "does not exist yet: the pod waits until it does"
            if kind in state.incomplete:
                said = "is not among those that could be read, and was not judged"
            warnings.append(f"{kind} {name or entry.resource_claim_name} {said}")
    found = _fits(claims, state, budget, _askers(obj))
    return Found(found.denials, (*found.warnings, *warnings))


def _askers(pod: dict[str, Json]) -> dict[str, str]:
    """Say by name of a claim of ours which containers ask for it: their author never heard of the claim."""
    spec = mapping(pod.get("spec"))
    users: dict[str, list[str]] = {}
    for part in ("initContainers", "containers"):
        containers = spec.get(part)
        if not isinstance(containers, list):
            continue
        for container in map(mapping, containers):
            resources = mapping(container.get("resources"))
            claims = resources.get("claims")
            if not isinstance(claims, list):
                continue
            user = str(container.get("name"))
            for claim in map(mapping, claims):
                name = str(claim.get("name"))
                if name.startswith(names.PREFIX):
                    of_claim = users.setdefault(name, [])
                    of_claim.append(user)
    askers: dict[str, str] = {}
    for name, of_claim in users.items():
        some = " and ".join(of_claim[:3])
        askers[name] = f"container {some}"
    return askers


def serve(given: Iterable[Given], state: State, budget: Budget) -> Found:
    """Judge the claims that a pod was given by us, as `inspect` judges those of a pod that comes with its own."""
    claims: list[ResourceClaim] = []
    users: dict[str, str] = {}
    for one in given:
        claims.append(_claim(upkeep.read(one.spec), "", one.name))
        users[one.name] = f"container {' and '.join(one.users[:3])}"
    return _fits(claims, state, budget, users)


def _workload(obj: dict[str, Json], namespace: str, state: State, budget: Budget) -> Found:
    """Tell who applies a workload what its pods will meet. A workload itself is never refused."""
    path = next(iter(paths(obj)), None)
    if path is None:
        return NOTHING
    pod = at(obj, path)
    done = translate(pod, state, namespace=namespace, path=path)
    warnings = [f"its pods will be refused: {text}" for text in done.refusals]
    warnings += foresee(done.templates, state, budget)
    warnings += done.warnings
    return Found(warnings=tuple(warnings))


def foresee(templates: Mapping[str, Json], state: State, budget: Budget) -> tuple[str, ...]:
    """Say what claims made of these templates would meet, were they asked for now; nothing if there is no time to look."""
    found = _foreseen(templates, state, budget)
    refusals = [f"such a pod will be refused: {text}" for text in found.denials]
    return (*refusals, *found.warnings)


def refuses(templates: Mapping[str, Json], state: State, budget: Budget) -> bool:
    """Say whether claims made of these templates would be turned back, were they asked for now; not if there is no time to look."""
    return bool(_foreseen(templates, state, budget).denials)


def _foreseen(templates: Mapping[str, Json], state: State, budget: Budget) -> Found:
    claims: list[ResourceClaim] = []
    for name, content in templates.items():
        spec = _template_spec(content)
        if spec is not None:
            claims.append(_claim(spec, "", name))
    askers = dict.fromkeys(templates, "the pod")
    try:
        return _fits(claims, state, budget, askers)
    except OutOfBudget:
        return NOTHING


def _object(obj: dict[str, Json], budget: Budget) -> Found:
    """Judge a slice, a class, or an object of our own by the rules of `drawbridge check`.

    A driver is only ever told: what is wrong with a slice the API server refuses by itself, and the rest must not stop it.
    Our own kinds have nobody else to judge them.
    """
    budget.charge_whole(OBJECT)  # its selectors are compiled by rules that know no budget
    denials: list[str] = []
    warnings: list[str] = []
    version = str(obj.get("apiVersion", ""))
    ours = version.startswith(f"{names.DOMAIN}/")
    kind = str(obj.get("kind", ""))
    problems = validation.problems(obj)
    for finding in validation.findings(problems, kind):
        text = f"{finding.code} {finding.path}: {finding.message}"
        if finding.hint:
            text = f"{text} ({finding.hint})"
        if ours and finding.severity == Severity.ERROR:
            denials.append(sentence(Code.OBJECT, text))
        else:
            warnings.append(text)
    return Found(tuple(denials), tuple(warnings))


def _fits(
    claims: Iterable[ResourceClaim], state: State, budget: Budget, asked_by: Mapping[str, str] | None = None
) -> Found:
    claims = tuple(claims)
    if state.stock is None or not claims:
        return NOTHING
    answer = judge(state.stock, claims, budget=budget, asked_by=asked_by, memo=state.memo, prospects=state.prospects)
    match answer.verdict:
        case Feasibility.NEVER:
            text = sentence(answer.code, answer.text, answer.remedy)
            if state.unseen:
                unseen = f"some {' and '.join(f'{kind} objects' for kind in state.unseen)} could not be read"
                return Found(warnings=(f"this may never work, but {unseen}: {text}",))
            if state.configuration.file.impossible == "warn":
                return Found(warnings=(f"this can never work: {text}",))
            return Found(denials=(text,))
        case Feasibility.BUSY:
            return Found(warnings=(answer.text,))
        case Feasibility.UNKNOWN:
            budget.charge()  # says so if it was the review's budget that ran out, and not one search's
    return NOTHING


def _template_spec(spec: Json) -> ResourceClaimSpec | None:
    return wire.convert(spec.get("spec") or {}, ResourceClaimSpec) if isinstance(spec, dict) else None


def _claim(spec: ResourceClaimSpec, namespace: str, name: str) -> ResourceClaim:
    return ResourceClaim(metadata=ObjectMeta(namespace=namespace, name=name), spec=claim_spec(spec))


def _name(metadata: ObjectMeta) -> str:
    return metadata.name or metadata.generate_name
