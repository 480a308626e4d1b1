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
from webhook.admission.modes import workload_in_files
from webhook.admission.parameters import parameter_warnings, warnings_of_pod
from webhook.admission.risk import unheld
from webhook.claims import template, upkeep
from webhook.dialects import Action
from webhook.refusals import Code, sentence
from webhook.sides import choose, read_preference
from webhook.translate import Decision, Given, at, given_earlier, mapping, origin_of, paths, replay, translate

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dra.budget import Budget
    from dra.wire import Json
    from webhook.admission.admission_review import Request
    from webhook.admission.feasibility import Judgement
    from webhook.sides import Choice, Preference
    from webhook.state import State, Workload
    from webhook.translate import Translation


class Found(msgspec.Struct, frozen=True):
    """What to refuse an object for, and what to say about it."""

    denials: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    # The same as the denials, in parts.
    decisions: tuple[Decision, ...] = ()


NOTHING = Found()
DEFAULT_SCHEDULER = "default-scheduler"
_TAKEN_AWAY = (Action.TRANSLATED, Action.APPROXIMATED)
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
            return _judge_claim(claim, "/spec/devices", state, budget)
        case "resource.k8s.io", "resourceclaimtemplates":
            template = wire.convert(obj, ResourceClaimTemplate)
            claim = _claim(template.spec.spec, namespace, _name(template.metadata))
            return _judge_claim(claim, "/spec/spec/devices", state, budget)
        case (("apps" | "batch"), _):
            return _workload(obj, namespace, state, budget)
        case (("resource.k8s.io" | names.DOMAIN), _):
            return _object(obj, state, budget)
    return NOTHING


def _judge_claim(claim: ResourceClaim, path: str, state: State, budget: Budget) -> Found:
    """Judge a claim, or one that a template makes."""
    found = _fits([claim], state, budget)
    told = parameter_warnings(claim.spec.devices, path, state, budget)
    return msgspec.structs.replace(found, warnings=(*found.warnings, *told))


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
    """Judge all claims of a pod that nobody judged before."""
    annotations = pod.metadata.annotations
    sealed = annotations.get(names.TEMPLATES)
    warnings: tuple[str, ...] = ()
    proven: dict[str, Json] = {}
    earlier: tuple[Given, ...] = ()
    if sealed and state.keys:
        whose = template.bearer(pod, namespace)
        try:
            proven = template.unseal(sealed, whose, *state.keys)
            earlier = given_earlier(obj, state, namespace=namespace)
        except template.TemplatesError as error:
            # It proves nothing, so nothing is made of it; what the pod's claims refer to is judged as it is stored.
            warning = f"{error}: drop the {names.DOMAIN}/ annotations"
            warnings = (warning,)
    asked: list[Given] = []
    for one in brought(obj, earlier):
        spec = proven.get(one.template, one.spec)
        claim = msgspec.structs.replace(one, spec=spec)
        asked.append(claim)
    found = serve(asked, namespace, state, budget, pod.spec.scheduler_name or DEFAULT_SCHEDULER)
    all_warnings = (*warnings, *found.warnings)
    return msgspec.structs.replace(found, warnings=all_warnings)


def _entries(value: Json) -> list[dict[str, Json]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def brought(pod: dict[str, Json], ours: Iterable[Given] = ()) -> tuple[Given, ...]:
    """Name the claims that a pod comes with; some of them may be `ours`."""
    spec = mapping(pod.get("spec"))
    entries = _entries(spec.get("resourceClaims"))
    known = {one.name: one for one in ours}
    claims: list[Given] = []
    for entry in entries:
        own = _own(entry)
        claim = known.get(own.name, own)
        claims.append(claim)
    return tuple(claims)


def _own(entry: dict[str, Json]) -> Given:
    name = str(entry.get("name", ""))
    template_name = entry.get("resourceClaimTemplateName") or ""
    claim_name = entry.get("resourceClaimName") or ""
    return Given(name, template=str(template_name), claim=str(claim_name))


def all_claims(pod: dict[str, Json], given: Iterable[Given]) -> tuple[Given, ...]:
    """Name all claims that a pod has when it was `given` what it was: its own first."""
    given = tuple(given)
    there = brought(pod, given)
    known = {one.name for one in there}
    new = [one for one in given if one.name not in known]
    return (*there, *new)


def serve(asked: Iterable[Given], namespace: str, state: State, budget: Budget, scheduler: str = "") -> Found:
    """Judge all claims of a pod together, as a scheduler would have to serve them; where it is known, that one."""
    claims: list[ResourceClaim] = []
    warnings: list[str] = []
    ours: list[Given] = []
    for one in asked:
        if one.spec is not None:
            ours.append(one)
        claim = _claim_of(one, namespace, state)
        if isinstance(claim, str):
            warnings.append(claim)
        elif claim is not None:
            claims.append(claim)
    found = _fits(claims, state, budget, ours)
    told = warnings_of_pod(claims, state, budget)
    stock = state.stock
    ruled = stock is not None and bool(stock.compatibilities)
    if ruled and scheduler and claims:
        risks = _risks(claims, state, budget, scheduler)
        warnings += risks
    return msgspec.structs.replace(found, warnings=(*found.warnings, *warnings, *told))


def _risks(claims: Sequence[ResourceClaim], state: State, budget: Budget, scheduler: str) -> list[str]:
    """Say what the scheduler of a pod may do because it does not know our rules."""
    bridge = state.configuration.file.bridge
    if state.stock is None or (bridge is not None and scheduler == bridge.scheduler_name):
        return []
    risk = unheld(state.stock, claims, budget, state.memo)
    if not risk:
        return []
    return [f"{risk}: scheduler {scheduler} does not know DeviceCompatibility, only drawbridge's own keeps to it"]


def serve_all(pod: dict[str, Json], done: Translation, namespace: str, state: State, budget: Budget) -> Found:
    """Judge all claims of a pod as it was translated, its own beside those that it was given."""
    return serve(all_claims(pod, done.given), namespace, state, budget)


def _claim_of(one: Given, namespace: str, state: State) -> ResourceClaim | str | None:
    """Find the claim that is to be judged; or say why there is none, nothing if it has its devices already."""
    # What is made from a template has no namespace here: equal pods of all namespaces are one question.
    if one.spec is not None:
        return ResourceClaim(metadata=ObjectMeta(name=one.name), spec=upkeep.read(one.spec))
    spec = state.templates.get((namespace, one.template))
    if spec is not None:
        return _claim(spec, "", one.name)
    if state.stock is None:
        return None
    existing = state.stock.claims.get(f"{namespace}/{one.claim}")
    if existing is not None:
        return existing if existing.status.allocation is None else None
    kind = "ResourceClaimTemplate" if one.template else "ResourceClaim"
    said = "does not exist yet: the pod waits until it does"
    if kind in state.incomplete:
        said = "is not among those that could be read, and was not judged"
    return f"{kind} {one.template or one.claim} {said}"


def _workload(obj: dict[str, Json], namespace: str, state: State, budget: Budget) -> Found:
    """Tell who applies a workload what its pods will meet. A workload itself is never refused."""
    found = paths(obj)
    if not found:
        return NOTHING
    path = found[0]
    pod = at(obj, path)
    origin = origin_of(obj, state.configuration)
    done = translate(pod, state, namespace=namespace, path=path, origin=origin)
    warnings = [f"its pods will be refused: {text}" for text in done.refusals]
    preference = prefer_side(pod, done, workload_in_files(obj), state)
    choice = choose_side(preference, done.given, namespace, state, budget)
    if choice is not None and not choice.moved:
        return Found()  # its pods stay as they are, and would now find a device, or wait where the policy wants them
    warnings += foresee(done, state, budget)
    warnings += done.warnings
    return Found(warnings=tuple(warnings))


def foresee(done: Translation, state: State, budget: Budget) -> tuple[str, ...]:
    """Say what the claims of a translation would meet, were they asked for now; nothing if there is no time to look."""
    found = _foreseen(done, state, budget)
    opening = "such a pod will be refused"
    if still := find_legacy(done.decisions, state):
        opening = f"such a pod will be left as it is, for {still}"
    refusals = [f"{opening}: {text}" for text in found.denials]
    return (*refusals, *found.warnings)


def find_legacy(decisions: Iterable[Decision], state: State) -> str:
    """Say where a pod may still be served as it was written: then it is not ours to say that it never will be."""
    for decision in decisions:
        nodes = state.fleet.handed_out.get(decision.key)
        if nodes:
            return f"node {min(nodes)} still hands out {decision.key} through a device plugin"
    return ""


def leave_all(decisions: Iterable[Decision], reason: str) -> tuple[Decision, ...]:
    """Say of what was to be taken away that it stays, after all."""
    left: list[Decision] = []
    for decision in decisions:
        stays = decision
        if decision.action in _TAKEN_AWAY:
            stays = msgspec.structs.replace(decision, action=Action.LEFT, detail=reason)
        left.append(stays)
    return tuple(left)


def choose_side(
    preference: Preference | None, given: Iterable[Given], namespace: str, state: State, budget: Budget
) -> Choice | None:
    """Choose on which side of a mixed fleet a pod is served that would be given these claims; None if it has no choice."""
    if preference is None:
        return None
    claims = [_claim_of(one, namespace, state) for one in given]
    return choose(preference, [claim for claim in claims if isinstance(claim, ResourceClaim)], state, budget)


def prefer_side(pod: Json, done: Translation, who: Workload, state: State) -> Preference | None:
    """Read on which side a pod would rather be served that is translated now."""
    if not state.configuration.file.mixed or not done.templates:
        return None
    view = mapping(pod)
    known = {decision.key for decision in done.decisions if decision.action in _TAKEN_AWAY}
    asked = [key for key in known if state.configuration.resource(key)]
    return read_preference(view, who, asked, state)


def tell_side(decisions: Iterable[Decision], choice: Choice) -> tuple[Decision, ...]:
    """Say with each word that claims replace why it is served on nodes that have moved."""
    told: list[Decision] = []
    for decision in decisions:
        stays = decision
        if decision.action in _TAKEN_AWAY:
            known = f"{decision.basis}; " if decision.basis else ""
            stays = msgspec.structs.replace(decision, basis=known + choice.why)
        told.append(stays)
    return tuple(told)


def refuses(done: Translation, state: State, budget: Budget) -> bool:
    """Say whether the claims of a translation would be turned back, were they asked for now; not if there is no time to look."""
    return bool(_foreseen(done, state, budget).denials)


def _foreseen(done: Translation, state: State, budget: Budget) -> Found:
    try:
        return serve(done.given, "", state, budget)
    except OutOfBudget:
        return NOTHING


def _object(obj: dict[str, Json], state: State, budget: Budget) -> Found:
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
    problems = validation.problems(obj, state.features.likely.gates)
    for finding in validation.findings(problems, kind):
        text = f"{finding.code} {finding.path}: {finding.message}"
        if finding.hint:
            text = f"{text} ({finding.hint})"
        if ours and finding.severity == Severity.ERROR:
            denials.append(sentence(Code.OBJECT, text))
        else:
            warnings.append(text)
    return Found(tuple(denials), tuple(warnings))


def _fits(claims: Iterable[ResourceClaim], state: State, budget: Budget, given: Iterable[Given] = ()) -> Found:
    claims = tuple(claims)
    if state.stock is None or not claims:
        return NOTHING
    ours = {one.name: one for one in given}
    asked_by = {name: one.asker for name, one in ours.items()}
    answer = judge(state.stock, claims, budget=budget, asked_by=asked_by, memo=state.memo, prospects=state.prospects)
    match answer.verdict:
        case Feasibility.NEVER:
            text = sentence(answer.code, answer.text, answer.remedy)
            if state.unseen:
                unseen = f"some {' and '.join(f'{kind} objects' for kind in state.unseen)} could not be read"
                return Found(warnings=(f"this may never work, but {unseen}: {text}",))
            if state.configuration.file.impossible == "warn":
                return Found(warnings=(f"this can never work: {text}",))
            asker = ours.get(answer.claim)
            decision = _decision(answer, asker)
            return Found(denials=(text,), decisions=(decision,))
        case Feasibility.BUSY:
            return Found(warnings=(answer.text,))
        case Feasibility.UNKNOWN:
            budget.charge()  # says so if it was the review's budget that ran out, and not one search's
    return NOTHING


def _decision(answer: Judgement, asked: Given | None) -> Decision:
    """Say a refusal by the fleet as one about a key: the first word of the container whose claim is at fault."""
    container = key = ""
    if asked is not None:
        container = next(iter(asked.users), "")
        key = next(iter(asked.words), "")
    return Decision("", container, "", key, Action.REFUSED, answer.text, code=answer.code, remedy=answer.remedy)


def _claim(spec: ResourceClaimSpec, namespace: str, name: str) -> ResourceClaim:
    return ResourceClaim(metadata=ObjectMeta(namespace=namespace, name=name), spec=claim_spec(spec))


def _name(metadata: ObjectMeta) -> str:
    return metadata.name or metadata.generate_name
