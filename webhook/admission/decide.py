"""The one decision about a pod: what becomes of its keys, and whether a node can serve it. Pure.

    translate ▶ is a template's name taken ▶ nodes of a mixed fleet ▶ claims and plugin requests together ▶ apply the mode

The webhook decides about the pod of a review (`decide_pod`), and about the pods of a workload's template or of an object in a file
(`decide_object`), with the same steps. An object in a file is first filled in as the API server fills it in, and last judged by
the rules of the API server. The mode is applied last:

| decided | enforce | warn | observe | off |
|---|---|---|---|---|
| translated, refused | done | left: `warn: would be …` | left: `observe: would be …` | left |
| left, served, unknown | told | told | told | left |

Only `enforce` changes or refuses an object; the API server refuses in every mode. A canary is chosen by the controller's name. Pods of a
CronJob, or of an unknown kind, get that name only when they are created, so the canary is taken to cover them.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import replace

from cluster.patch import apply_json_patch
from dra import validation
from dra.budget import Budget
from dra.errors import OutOfBudget
from dra.finding import Finding, Severity
from dra.objects import is_extended, template_site, versions
from dra.pointer import split
from dra.raw import Object, inside, mapping
from dra.wire import WireError
from webhook.admission import template_lifecycle
from webhook.admission.behind_fence import add_stranded
from webhook.admission.judge import (
    NOTHING_FOUND,
    all_claims,
    choose_nodes,
    claims_of_pod,
    find_plugin_fallback,
    inspect_claim,
    judge_requests,
    judge_unchanged,
    place_in,
    why_cpus_unserved,
)
from webhook.admission.limit_ranges import fill_in
from webhook.admission.plugin_requests import plugin_request
from webhook.admission.unanswered_requests import NO_NODE, unanswered_requests
from webhook.admission.unknown_kinds import decide_unknown_kind
from webhook.dialects import REPLACED, Outcome
from webhook.mixed_fleet import read_preference
from webhook.refusals import Code, Denial
from webhook.state import Mode, PodOwner, mode_of, why_not, workload
from webhook.translate import (
    NOTHING,
    PLACEHOLDER,
    STANDALONE,
    Decision,
    Operation,
    Provenance,
    Verdict,
    at,
    clean,
    controller_kind,
    find_placeholder,
    group_kind,
    is_passed_by,
    is_unknown_kind,
    merge,
    name_of,
    namespace_of,
    paths,
    translate,
    translate_each,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable

    from dra.wire import Json
    from webhook.admission.judge import Found
    from webhook.admission.plugin_requests import PluginRequest
    from webhook.mixed_fleet import Choice, Preference
    from webhook.state import State
    from webhook.translate import PodClaim, Rewrite

    CpuCheck = Callable[[Rewrite], str]


# About a second of work: for the keys of a pod, and for its claims. The deadline of the webhook is much shorter.
STEPS: Final = 1_000_000
# Which of its limits a review meets first (steps, time, a place among others) depends on how busy the machine is.
TOO_LATE: Final = "it could not be decided in time"
DEFAULT_SCHEDULER: Final = "default-scheduler"
_UNFILLED: Final = "D011"
# Kinds whose own name is the one that their pods give as their controller's.
_NAMED = (("", "Pod"), ("apps", "Deployment"), ("apps", "StatefulSet"), ("apps", "DaemonSet"), ("batch", "Job"))
# Kinds that the webhook judges although they are no pods and make none.
_CLAIMS = (("resource.k8s.io", "ResourceClaim"), ("resource.k8s.io", "ResourceClaimTemplate"))
# Outcomes that every mode leaves as they are.
_STAYING = (Outcome.LEFT, Outcome.SERVED, Outcome.UNKNOWN)
# Phases of a pod that no kubelet has begun.
_NOT_YET = (None, "", "Pending")


class Candidate(NamedTuple):
    """A pod, or the template of pods, as webhooks see it, and where it comes from."""

    pod: dict[str, Json]
    namespace: str
    owner: PodOwner
    name: str  # of the object, for the decisions
    path: str = ""  # of the template in its object
    origin: Provenance = STANDALONE
    # False for a pod of a dump that runs or has run: nothing that it requests of device plugins is missing.
    waits: bool = True


# One pod


def decide_pod(candidate: Candidate, state: State, budget: Budget) -> Verdict:
    """Decide about the pod of a review, as if its mode were `enforce`; the record on the pod is sealed."""
    pod, namespace = candidate.pod, candidate.namespace
    check = _cpu_check(candidate, state, budget) if state.configuration.claims_cpus else None
    try:
        verdict = translate(
            pod, state, namespace=namespace, seal=True, budget=budget, origin=candidate.origin, cpus_unserved=check
        )
        if not verdict.refusals:
            budget.confirm()
    except OutOfBudget:
        return give_up(f"drawbridge left this pod as it is: {TOO_LATE}", clean(pod, state, namespace=namespace))
    judging = budget.separate(STEPS)
    verdict = judge_pod(candidate, verdict, state, judging)
    return replace(verdict, is_late=True) if budget.is_late or judging.is_late else verdict


def give_up(text: str, cleaning: tuple[Operation, ...] = ()) -> Verdict:
    """Allow an object that took too long, without annotations in the name of drawbridge that it did not write."""
    return Verdict(operations=cleaning, cleaning=cleaning, warnings=(text,), problems=(text,), is_undecided=True)


def _cpu_check(candidate: Candidate, state: State, budget: Budget) -> CpuCheck:
    """Make the check whether a node can serve the claims of a pod together with those for its CPUs."""

    def check(change: Rewrite) -> str:
        after = apply_json_patch(candidate.pod, _on_pod(change.operations, candidate.path))
        claims = claims_of_pod(after, change.given, state)
        return why_cpus_unserved(after, claims, candidate.namespace, state, budget)

    return check


def _on_pod(operations: Iterable[Operation], path: str) -> tuple[Operation, ...]:
    """Turn operations on an object into operations on its pod template at `path`."""
    if not path:
        return tuple(operations)
    return tuple([{**one, "path": str(one["path"]).removeprefix(path)} for one in operations])


def judge_pod(candidate: Candidate, verdict: Verdict, state: State, budget: Budget) -> Verdict:
    """Add to the translation of a pod whether a node can serve it, and which nodes of a mixed fleet do.

    A pod that cannot be judged within the budget is translated all the same, with a warning.
    """
    pod = candidate.pod
    if verdict.refusals or is_passed_by(pod):
        return verdict
    if verdict.templates and state.confirmed:
        taken = template_lifecycle.name_conflicts(verdict.templates, candidate.namespace, state)
        if taken:
            return verdict.refuse([_refused(candidate.name, "", text, Code.TAKEN) for text in taken])
    # Of a template that stays, the scheduler makes claims for the pods that the webhook translates.
    if verdict.stays or not state.fleet.extended:
        claims = all_claims(pod, verdict.given)
    else:
        replaced = {(one.container, one.key) for one in verdict.decisions if one.outcome in REPLACED}
        claims = claims_of_pod(pod, verdict.given, state, _on_pod(verdict.operations, candidate.path), replaced)
    by_plugin = unchanged = None
    if candidate.waits and state.fleet.handed_out_anywhere:
        by_plugin = plugin_request(pod, state, verdict.decisions)
        unchanged = plugin_request(pod, state) if verdict.given else None
    if not claims and by_plugin is None:
        return verdict
    requested = _Requested(claims, by_plugin, unchanged)
    try:
        judged = _judge(candidate, verdict, requested, state, budget)
        if not judged.refusals:
            budget.confirm()
    except OutOfBudget:
        text = f"drawbridge did not check this pod: {TOO_LATE}"
        warnings, problems = (text, *verdict.warnings), (*verdict.problems, text)
        return replace(verdict, warnings=warnings, problems=problems, is_undecided=True)
    return judged


class _Requested(NamedTuple):
    """What a translated pod requests: all its claims, and of device plugins; and what it would request of them unchanged."""

    claims: tuple[PodClaim, ...]
    by_plugin: PluginRequest | None
    unchanged: PluginRequest | None


def _judge(candidate: Candidate, verdict: Verdict, requested: _Requested, state: State, budget: Budget) -> Verdict:
    pod, namespace, controller = candidate.pod, candidate.namespace, candidate.owner.kind
    claims, by_plugin, unchanged = requested
    choice = None
    if state.fleet.handed_out_anywhere or state.prospects is not None:
        choice = choose_nodes(_prefer_nodes(candidate, verdict, state), claims, namespace, state, budget)
    if choice is not None and not choice.moved:
        found = judge_unchanged(unchanged, claims, namespace, state, budget, controller=controller)
        warnings = () if choice.preferred else (f"left as it is: {choice.why}",)
        left = replace(verdict.leave(choice.why, warnings), side=choice.why)
        return add_found(left, found, candidate.name)
    found = judge_requests(
        claims,
        namespace,
        state,
        budget,
        # Another scheduler than drawbridge's knows no DeviceCompatibility.
        _scheduler_of(candidate, verdict) if state.stock is not None and state.stock.compatibilities else "",
        by_plugin=by_plugin,
        place=place_in(pod),
        controller=controller,
    )
    if found.decisions:
        plugin_reason, found = find_plugin_fallback(found, verdict.decisions, unchanged, state, budget)
        if plugin_reason:
            reason = f"{plugin_reason}, and no claim could replace it: {found.denials[0]}"
            return verdict.leave(reason, (f"left as it is: {reason}",))
    named = [one for one in claims if one.asks]  # claims that the scheduler makes
    if found is NOTHING_FOUND and choice is None and not named:
        return verdict
    decisions, stranded = add_stranded(verdict.decisions, named, state, candidate.name)
    side = choice.why if choice is not None else ""
    if choice is not None:
        decisions = _add_choice(decisions, choice)
    notes = (side,) if choice is not None and not choice.preferred else ()
    judged = replace(verdict, decisions=decisions, warnings=(*notes, *verdict.warnings, *stranded), side=side)
    return add_found(judged, found, candidate.name)


def add_found(verdict: Verdict, found: Found, name: str) -> Verdict:
    """Refuse a pod for what was found, or keep in mind what is only warned of."""
    if found is NOTHING_FOUND:
        return verdict
    decisions = [replace(one, object=name) for one in found.decisions]
    refused = [one for one in decisions if one.outcome is Outcome.REFUSED]
    doubts = tuple([one for one in decisions if one.outcome is not Outcome.REFUSED])
    warned = replace(
        verdict,
        warnings=(*found.warnings, *verdict.warnings),
        problems=(*verdict.problems, *found.warnings),
        doubts=(*verdict.doubts, *doubts),
    )
    return warned.refuse(refused)


def _scheduler_of(candidate: Candidate, verdict: Verdict) -> str:
    """Return the scheduler of a pod after its translation."""
    for one in verdict.operations:
        if str(one["path"]).endswith("/spec/schedulerName"):
            return str(one["value"])
    return str(inside(candidate.pod, "spec").get("schedulerName") or DEFAULT_SCHEDULER)


def _prefer_nodes(candidate: Candidate, verdict: Verdict, state: State) -> Preference | None:
    """Read which nodes of a mixed fleet a pod prefers; None if it is not translated now, or no device plugin serves its keys."""
    if not (verdict.templates or verdict.stays):
        return None
    keys = {one.key for one in verdict.decisions if one.outcome in REPLACED and state.configuration.resource(one.key)}
    # Whether a device plugin hands a name out on a node, or would on one that an autoscaler can make.
    handed_out: list[Container[str]] = [state.fleet.handed_out_anywhere]
    if state.prospects is not None:
        handed_out += [node.status.allocatable for node in state.prospects.nodes.values()]
    if not any(key in names for names in handed_out if names for key in keys):
        return None
    return read_preference(candidate.pod, candidate.owner, keys, state)


def _add_choice(decisions: Iterable[Decision], choice: Choice) -> tuple[Decision, ...]:
    """Add to each key that claims replace why nodes that have moved serve it."""
    marked: list[Decision] = []
    for decision in decisions:
        known = f"{decision.basis}; " if decision.basis else ""
        marked.append(replace(decision, basis=known + choice.why) if decision.outcome in REPLACED else decision)
    return tuple(marked)


# One object


def decide_object(
    obj: dict[str, Json],
    state: State,
    *,
    rewrite_unknown: bool = False,
    about_devices: bool = False,
    stored: bool = False,
    budget: Budget | None = None,
) -> Verdict:
    """Decide about a pod, the pods of a workload, or a claim; templates of unknown kinds are rewritten only if `rewrite_unknown`.

    A refused object has no operations: its fields stay as they are. With `about_devices` nothing is told of what the API server refuses
    of an object that asks for no device. The API server has accepted an object that is `stored`.
    """
    budget = budget or Budget(STEPS)
    if group_kind(obj) in _CLAIMS:
        return _decide_claim(obj, state, budget)
    given, conflict = given_by_runtime(obj, state)
    if conflict:
        return conflict
    if given:
        obj = apply_json_patch(obj, given)
    mode = mode_of(state, owner_of_pods(obj))
    if mode is Mode.WARN and group_kind(obj) not in _NAMED and not why_not(state, namespace_of(obj)):
        mode = Mode.ENFORCE
    filled = fill_in(obj, state)
    verdict = _decide(filled.object, state, mode, budget, rewrite_unknown=rewrite_unknown)
    if verdict.refusals and all(one.remedy == PLACEHOLDER for one in verdict.refusals):
        verdict = _leave_unfilled(verdict)
    # A template of an unknown kind may be a part of a pod, such as the pattern of a policy.
    if not verdict.refusals and not stored and (rewrite_unknown or not is_unknown_kind(obj)):
        patched = apply_json_patch(filled.object, verdict.operations)
        if filled.given and group_kind(obj) != ("", "Pod"):  # a workload is stored as it is written
            patched = apply_json_patch(filled.written, filled.undo(verdict.operations))
        places = paths(obj)
        asks = verdict.decisions or any(inside(at(obj, path), "spec").get("resourceClaims") for path in places)
        refused, unfilled = _refused_by_api_server(patched, places, of_devices_alone=about_devices and not asks)
        if unfilled is not None and not refused and all(one.code != unfilled.code for one in verdict.decisions):
            verdict = _leave_unfilled(replace(verdict, decisions=(*verdict.decisions, unfilled)))
        verdict = verdict.refuse(refused)
    if verdict.refusals:
        # All keys of a refused object stay.
        stays = _as_left(verdict.decisions, "the object is refused; otherwise it would be", REPLACED)
        verdict = replace(verdict, decisions=stays)
    operations = filled.undo(verdict.operations)
    # Where an operation is on what the RuntimeClass gives, that has to be there.
    if given and any("/nodeSelector" in one["path"] or "/tolerations" in one["path"] for one in operations):
        operations = (*given, *operations)
    if stored:
        return replace(verdict, operations=operations)
    # A file is edited for annotations alone, too.
    return replace(verdict, operations=operations, cleaning=(), warnings=tuple(map(str, verdict.warnings)))


def given_by_runtime(obj: Object, state: State) -> tuple[tuple[Operation, ...], Verdict | None]:
    """Give what the API server adds to pods of an object by their RuntimeClass, or the refusal where both do not agree."""
    runtimes = state.fleet.installed.runtimes
    operations: list[Operation] = []
    for path in paths(obj) if runtimes else ():
        spec = inside(at(obj, path), "spec")
        name = spec.get("runtimeClassName")
        runtime = runtimes.get(name) if isinstance(name, str) else None
        changed, key = runtime.schedule(spec) if runtime else ({}, "")
        if key:
            text = f"the API server refuses it: RuntimeClass {name} sets a different {key} in its nodeSelector"
            remedy = "remove one of the two"
            return (), NOTHING.refuse([_refused(name_of(obj), key, text, Code.NEVER, remedy)])
        operations += [{"op": "add", "path": f"{path}/spec/{one}", "value": value} for one, value in changed.items()]
    return tuple(operations), None


def owner_of_pods(obj: dict[str, Json]) -> PodOwner:
    """Name the controller of the pods of an object, as the pods will name it."""
    kind = group_kind(obj)
    namespace = namespace_of(obj)
    metadata = mapping(obj.get("metadata"))
    if kind == ("", "Pod"):
        return workload(namespace, metadata)
    return PodOwner(namespace, controller_kind(kind[1]), str(metadata.get("name") or ""))


def _decide_claim(obj: Object, state: State, budget: Budget) -> Verdict:
    """Decide about a claim, or those that a template makes; one that has its devices was let in already."""
    claim = mapping(versions.upgrade(obj).value)
    if mapping(claim.get("status")).get("allocation"):
        return NOTHING
    namespace = namespace_of(obj)
    mode = mode_of(state, workload(namespace, mapping(obj.get("metadata"))))
    if mode is not Mode.OFF:
        with suppress(WireError, OutOfBudget):
            found = inspect_claim(claim, namespace, state, budget)
            verdict = apply_mode(add_found(NOTHING, found, name_of(obj)), mode, namespace, state)
            return replace(verdict, warnings=tuple(map(str, verdict.warnings)))
    return NOTHING


def _decide(obj: Object, state: State, mode: Mode, budget: Budget, *, rewrite_unknown: bool = False) -> Verdict:
    name, namespace, owner = name_of(obj), namespace_of(obj), owner_of_pods(obj)
    is_pod = group_kind(obj) == ("", "Pod")
    # A pod of a dump that runs, or has run, was let in.
    waits = not is_pod or mapping(obj.get("status")).get("phase") in _NOT_YET

    def candidate_at(path: str) -> Candidate:
        return Candidate(mapping(at(obj, path)), namespace, owner, name, path, waits=waits)

    def cpu_check(path: str) -> CpuCheck:
        return _cpu_check(candidate_at(path), state, budget)

    try:
        translated = translate_each(
            obj, state, rewrite_unknown=rewrite_unknown, budget=budget.separate(STEPS), cpus_unserved=cpu_check
        )
    except OutOfBudget:
        return give_up(f"left as it is: {TOO_LATE}")
    judged: list[Verdict] = []
    for path, one in translated.items():
        # The keys that no table has.
        others = unanswered_requests(at(obj, path), state, one.decisions, is_template=bool(path))
        # "No node has it" repeats why the key is left.
        repeated = {(other.container, other.key) for other in others if other.detail.startswith(NO_NODE)}
        every = (*one.decisions, *[replace(other, object=name) for other in others])
        decisions = [each for each in every if each.code or (each.container, each.key) not in repeated]
        warnings: dict[str, None] = {}
        for other in others:
            if other.code:
                warnings[str(Denial(other.code, f"{other.key}: {other.outcome}: {other.detail}"))] = None
        verdict = replace(one, decisions=tuple(decisions))
        if mode is not Mode.OFF:
            verdict = judge_pod(candidate_at(path), verdict, state, budget.separate(STEPS))
        # Words on the pod that are not understood are named in every case.
        verdict = replace(verdict, warnings=tuple(dict.fromkeys((*verdict.warnings, *warnings))))
        judged.append(_leave_to_webhook(apply_mode(verdict, mode, namespace, state), one.stays))
    # Requests outside of pod templates: the object keeps them, and its pods are decided about as they will be made.
    outside = decide_unknown_kind(obj, state)
    if outside.verdict.decisions or outside.verdict.warnings:
        judged.append(apply_mode(outside.verdict, mode, namespace, state))
    for place, pod in outside.pods.items():
        of_pod = _decide(pod, state, mode, budget)
        pod_verdict = Verdict(
            decisions=_for_object(of_pod.decisions, name, place),
            refusals=of_pod.refusals,
            warnings=of_pod.warnings,
            doubts=_for_object(of_pod.doubts, name, place),
            problems=of_pod.problems,
        )
        judged.append(_leave_to_webhook(pod_verdict, f"it is read by {outside.reader}"))
    return merge(judged)


def _refused(name: str, key: str, text: str, code: str, remedy: str = "", *, container: str = "") -> Decision:
    return Decision(name, container, "", key, Outcome.REFUSED, text, code=code, remedy=remedy)


def _leave_unfilled(verdict: Verdict) -> Verdict:
    """Leave an object that is refused for placeholders alone: what becomes of it is known when they are filled in."""
    left = _as_left(verdict.decisions, "a placeholder is not filled in; otherwise it would be", REPLACED)
    unknown = {"outcome": Outcome.UNKNOWN, "code": _UNFILLED}
    decisions = tuple([replace(one, **unknown) if one.outcome is Outcome.REFUSED else one for one in left])
    warnings = [
        str(Denial(one.code, f"{one.key}: {one.detail}", one.remedy)) for one in decisions if one.code == _UNFILLED
    ]
    return Verdict(
        decisions=decisions,
        operations=verdict.cleaning,
        cleaning=verdict.cleaning,
        warnings=(*warnings, *verdict.warnings),
        doubts=verdict.doubts,
    )


def _refused_by_api_server(
    obj: Object, places: Iterable[str], *, of_devices_alone: bool
) -> tuple[list[Decision], Decision | None]:
    """Say what the API server would refuse of an object with pod templates at these paths, or of their requests for devices alone.

    The first placeholder that is not filled in is returned by itself: each further one has the same cause.
    """
    name = name_of(obj)
    unfilled: Decision | None = None
    refused: dict[Decision, None] = {}
    for place in places:
        for fault in answer_of_api_server(obj, place):
            container, key = "", fault.path
            around, *inner = key.rsplit("/", 3)
            (resource,) = split(f"/{inner[2]}") if len(inner) == 3 and inner[0] == "resources" else ("",)
            if of_devices_alone and not is_extended(resource):
                continue
            if placeholder := find_placeholder(at(obj, key)):
                text = f"{placeholder} is a placeholder that is not filled in"
                hint = validation.CODES[_UNFILLED].remedy
                unfilled = unfilled or Decision(name, "", "", key, Outcome.UNKNOWN, text, code=_UNFILLED, remedy=hint)
                continue
            if resource:
                container, key = str(mapping(at(obj, around)).get("name") or ""), resource
            text = f"the API server refuses it: {fault.message}"
            refused[_refused(name, key, text, fault.code, fault.remedy, container=container)] = None
    return list(refused), unfilled


def _for_object(decisions: Iterable[Decision], name: str, place: str) -> tuple[Decision, ...]:
    """Say what was decided of a pod of the object that makes it, which has its request at `place`."""
    moved: list[Decision] = []
    for one in decisions:
        # A pointer into the pod means nothing in the object.
        key = split(one.key)[-1] if one.key.startswith("/") else one.key
        moved.append(replace(one, object=name, container=place, key=key))
    return tuple(moved)


def answer_of_api_server(obj: Object, path: str = "") -> list[Finding]:
    """Find why the API server would refuse an object for the pod template at `path`, or an object of a kind that it knows."""
    judged = obj
    before = ""
    if path and template_site(obj) is None:  # a kind of another project: its operator makes a pod of the template
        template = mapping(at(obj, path))
        metadata = {"name": "of-a-template"} | mapping(template.get("metadata"))
        judged = {"apiVersion": "v1", "kind": "Pod"} | template | {"metadata": metadata}
        before = path
    errors: list[Finding] = []
    [found] = validation.review([judged])
    for finding in found:
        if finding.severity is Severity.ERROR:
            placed = replace(finding, path=before + finding.path)
            errors.append(placed)
    return errors


# What is held back


def apply_mode(verdict: Verdict, mode: Mode, namespace: str, state: State) -> Verdict:
    """Apply a mode to the verdict on an object in a file, by the table above."""
    if mode is Mode.ENFORCE:
        return verdict
    reason = why_not(state, namespace) or "the canary does not cover it"
    left = f"left as it is: {reason}"
    if mode is Mode.OFF:
        if not verdict.decisions:
            return NOTHING
        decisions = [
            replace(one, outcome=Outcome.LEFT, detail=reason, code="", remedy="", basis="") for one in verdict.decisions
        ]
        return Verdict(decisions=tuple(decisions), warnings=(left,))
    operations = verdict.cleaning if mode is Mode.WARN else ()
    if not verdict.refusals and all(one.outcome in _STAYING for one in verdict.decisions):
        return replace(verdict, operations=operations)
    would = f"{mode}: would be"
    refused = [str(one.prefixed(f"{would} refused: ")) for one in verdict.refusals]
    return Verdict(
        decisions=_as_left(verdict.decisions, would, (*REPLACED, Outcome.REFUSED)),
        operations=operations,
        cleaning=verdict.cleaning,
        warnings=(left, *refused, *verdict.warnings),
        doubts=verdict.doubts,
        problems=verdict.problems,
    )


def _leave_to_webhook(verdict: Verdict, stays: str) -> Verdict:
    """Mark keys that the webhook, not this object, will have translated; `stays` is why the object keeps them."""
    if not stays:
        return verdict
    decisions = [replace(one, stays=stays) if one.outcome in REPLACED else one for one in verdict.decisions]
    return replace(verdict, decisions=tuple(decisions))


def _as_left(decisions: Iterable[Decision], would: str, outcomes: Container[Outcome]) -> tuple[Decision, ...]:
    """Say of decisions with these outcomes what the keys, which stay, would be."""
    left: list[Decision] = []
    for one in decisions:
        if one.outcome not in outcomes:
            left.append(one)
            continue
        detail = f": {one.detail}" if one.detail else ""
        left.append(
            replace(one, outcome=Outcome.LEFT, detail=f"{would} {one.outcome}{detail}", would=one.outcome.value)
        )
    return tuple(left)
