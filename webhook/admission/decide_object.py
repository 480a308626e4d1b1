"""Decides about an object in a file or a dump, or about a workload in a review: about its pods, or about a claim.

    fill in what the API server fills in ▶ translate ▶ judge each pod (`webhook.admission.decide`) ▶ apply the mode ▶ check the API server's rules

The mode holds back what `hold_back` lists, but not refusals by the API server's rules. The canary chooses workloads by the name of the pods'
controller. For a CronJob or an unknown kind, this name exists only once pods are created, so this module assumes that the canary covers them.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from dra import step_limits, validation
from dra.budget import Budget
from dra.errors import OutOfBudget
from dra.finding import stated
from dra.objects import is_extended, template_site, versions
from dra.pointer import split
from dra.raw import Object, inside, mapping
from dra.wire import WireError
from webhook.admission.decide import (
    TOO_LATE,
    ReviewedPod,
    add_problems,
    give_up,
    hold_back,
    judge_pod,
    refused,
    why_cpus_left,
)
from webhook.admission.limit_ranges import fill_in
from webhook.dialects import REPLACED, Outcome
from webhook.placement import inspect_claim
from webhook.refusals import UNFILLED, Code
from webhook.state import Mode, PodOwner, mode_of, why_not, workload
from webhook.translate import (
    NOTHING,
    Decision,
    Operation,
    PodVerdict,
    apply_own,
    controller_kind,
    find_placeholder,
    group_kind,
    is_unknown_kind,
    merge,
    name_of,
    namespace_of,
    paths,
    resolve_pointer,
    scheduler_of,
    translate_template,
)
from webhook.unknown import NO_NODE_HAS_KEY, decide_unknown_kind, located, unanswered_requests

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dra.finding import Finding
    from webhook.admission.limit_ranges import Filled
    from webhook.state import State

# Kinds whose own name is the name of their pods' controller.
_KINDS_WITH_CONTROLLER_NAME = (
    ("", "Pod"),
    ("apps", "Deployment"),
    ("apps", "StatefulSet"),
    ("apps", "DaemonSet"),
    ("batch", "Job"),
)
# Kinds that have no pods, and that the webhook judges.
_CLAIM_KINDS = (("resource.k8s.io", "ResourceClaim"), ("resource.k8s.io", "ResourceClaimTemplate"))
# Outcomes that do not change the object, so no mode holds them back.
_UNCHANGING_OUTCOMES = (Outcome.LEFT, Outcome.SERVED, Outcome.UNKNOWN)
# Phases of a pod that no kubelet has started.
_PENDING_PHASES = (None, "", "Pending")


def decide_object(
    obj: Object,
    state: State,
    *,
    rewrite_unknown: bool = False,
    stored: bool = False,
    budget: Budget | None = None,
) -> PodVerdict:
    """Decide about a pod, the pods of a workload, or a claim. Pod templates in unknown kinds are rewritten only if `rewrite_unknown`.

    A refused object has no operations. If an object requests no device, only its extended resources are checked by the API server's rules.
    A `stored` object is not checked by these rules, because the API server has accepted it. Its decisions have no pointers.
    """
    budget = budget or Budget(step_limits.REVIEW)
    verdict = _decide_object(obj, state, budget, rewrite_unknown=rewrite_unknown, stored=stored)
    return verdict if stored else replace(verdict, decisions=located(obj, verdict.decisions))


def _decide_object(obj: Object, state: State, budget: Budget, *, rewrite_unknown: bool, stored: bool) -> PodVerdict:
    if group_kind(obj) in _CLAIM_KINDS:
        return _decide_claim(obj, state, budget)
    runtime_operations, conflict = changes_by_runtime_class(obj, state)
    if conflict:
        return conflict
    filled = fill_in(apply_own(obj, runtime_operations) if runtime_operations else obj, state)
    verdict = _decide_pods(filled.object, state, _mode_of(obj, state), budget, rewrite_unknown=rewrite_unknown)
    if _is_unfilled(verdict):
        verdict = _leave_unfilled(verdict)
    if not verdict.refusals and not stored:
        verdict = _judge_by_api_server(verdict, filled, rewrite_unknown=rewrite_unknown)
    if verdict.refusals:
        left_decisions = _with_outcome_left(verdict.decisions, "the object is refused; otherwise this key would be")
        verdict = replace(verdict, decisions=left_decisions)
    operations = filled.undo(verdict.operations)
    # The operations may be on fields that exist only after the API server has applied the RuntimeClass, so add these fields first.
    if runtime_operations and any(
        "/nodeSelector" in operation["path"] or "/tolerations" in operation["path"] for operation in operations
    ):
        operations = (*runtime_operations, *operations)
    if stored:
        return replace(verdict, operations=operations)
    # In a file, operations on annotations alone are edits too, so they are not set apart as `cleaning`.
    return _with_texts(replace(verdict, operations=operations, cleaning=()))


def changes_by_runtime_class(obj: Object, state: State) -> tuple[tuple[Operation, ...], PodVerdict | None]:
    """Return what the API server adds to an object's pods for their RuntimeClass, or the refusal if a pod conflicts with its RuntimeClass."""
    runtimes = state.fleet.installed.runtimes
    operations: list[Operation] = []
    for path in paths(obj) if runtimes else ():
        spec = inside(resolve_pointer(obj, path), "spec")
        name = spec.get("runtimeClassName")
        runtime = runtimes.get(name) if isinstance(name, str) else None
        changed, key = runtime.schedule(spec) if runtime else ({}, "")
        if key:
            text = f"RuntimeClass {name} and the pod have different values of {key} in nodeSelector: the API server refuses the pod"
            remedy = f"remove {key} from the pod's nodeSelector, or use another RuntimeClass"
            return (), NOTHING.refuse([refused(name_of(obj), key, text, Code.NEVER, remedy)])
        operations += [
            {"op": "add", "path": f"{path}/spec/{field}", "value": value} for field, value in changed.items()
        ]
    return tuple(operations), None


def _mode_of(obj: Object, state: State) -> Mode:
    mode = mode_of(state, _owner_of_pods(obj))
    is_canary = mode is Mode.WARN and not why_not(state, namespace_of(obj))
    return Mode.ENFORCE if is_canary and group_kind(obj) not in _KINDS_WITH_CONTROLLER_NAME else mode


def _owner_of_pods(obj: Object) -> PodOwner:
    """Return the controller that the pods of an object will have."""
    kind = group_kind(obj)
    namespace = namespace_of(obj)
    metadata = mapping(obj.get("metadata"))
    if kind == ("", "Pod"):
        return workload(namespace, metadata)
    return PodOwner(namespace, controller_kind(kind[1]), str(metadata.get("name") or ""))


def _with_texts(verdict: PodVerdict) -> PodVerdict:
    return replace(
        verdict, problem_warnings=tuple(map(str, verdict.problem_warnings)), notes=tuple(map(str, verdict.notes))
    )


def _decide_claim(obj: Object, state: State, budget: Budget) -> PodVerdict:
    """Decide about a claim or a claim template; NOTHING for an allocated claim, because it was accepted before."""
    claim = mapping(versions.upgrade(obj).value)
    namespace = namespace_of(obj)
    mode = mode_of(state, workload(namespace, mapping(obj.get("metadata"))))
    if mode is Mode.OFF or mapping(claim.get("status")).get("allocation"):
        return NOTHING
    with suppress(WireError, OutOfBudget):
        problems = inspect_claim(claim, namespace, state, budget)
        return _with_texts(apply_mode(add_problems(NOTHING, problems, name_of(obj)), mode, namespace, state))
    return NOTHING


# The pods of an object


def _decide_pods(obj: Object, state: State, mode: Mode, budget: Budget, *, rewrite_unknown: bool = False) -> PodVerdict:
    """Decide about each pod template of an object, and about requests outside of pod templates."""
    name, namespace, owner = name_of(obj), namespace_of(obj), _owner_of_pods(obj)
    # A pod in a dump that runs or has run needs no device plugin any more.
    is_pending = group_kind(obj) != ("", "Pod") or mapping(obj.get("status")).get("phase") in _PENDING_PHASES
    scheduler = scheduler_of(obj)

    def candidate_at(path: str) -> ReviewedPod:
        pod = mapping(resolve_pointer(obj, path))
        if path and scheduler:  # the controller writes this scheduler into the pods
            pod = pod | {"spec": {"schedulerName": scheduler} | mapping(pod.get("spec"))}
        return ReviewedPod(pod, namespace, owner, name, path, is_pending=is_pending)

    translate = partial(
        translate_template,
        obj,
        state=state,
        rewrite_unknown=rewrite_unknown,
        budget=budget.separate(step_limits.REVIEW),
    )
    translated: dict[str, PodVerdict] = {}
    try:
        for path in paths(obj):
            translated[path] = translate(path)
            if reason := why_cpus_left(candidate_at(path), translated[path], state, budget):
                translated[path] = translate(path, cpus_left=reason)
    except OutOfBudget:
        return give_up(f"left as it is: {TOO_LATE}")
    decided: list[PodVerdict] = []
    for path, translation in translated.items():
        verdict = _decide_template(candidate_at(path), translation, state, mode, budget)
        if len(translated) > 1:
            decisions = [replace(decision, template=path) for decision in verdict.decisions]
            verdict = replace(verdict, decisions=tuple(decisions))
        decided.append(_leave_to_webhook(verdict, translation.stays))
    # Requests outside of pod templates stay in the object. Decide about the pods that its controller will create from them.
    outside = decide_unknown_kind(obj, state)
    if outside.verdict.decisions or outside.verdict.warnings:
        decided.append(apply_mode(outside.verdict, mode, namespace, state))
    for container, made in outside.pods.items():
        pod_verdict = _decide_pods(made.pod, state, mode, budget)
        verdict = PodVerdict(
            decisions=_for_object(located(made.pod, pod_verdict.decisions), name, container, made.pointers),
            refusals=pod_verdict.refusals,
            problem_warnings=pod_verdict.problem_warnings,
            notes=pod_verdict.notes,
        )
        decided.append(_leave_to_webhook(verdict, f"it is read by {outside.reader}"))
    return merge(decided)


def _decide_template(
    candidate: ReviewedPod, translated: PodVerdict, state: State, mode: Mode, budget: Budget
) -> PodVerdict:
    """Judge the pods of a translated template, and add a decision for each key that no dialect knows."""
    unanswered = unanswered_requests(candidate.pod, state, translated.decisions, is_template=bool(candidate.path))
    # A decision that no node has the key repeats the reason of the earlier decision about the key, so the earlier one is dropped.
    repeated_keys = {(entry.container, entry.key) for entry in unanswered if entry.code == NO_NODE_HAS_KEY}
    all_decisions = (*translated.decisions, *[replace(entry, object=candidate.name) for entry in unanswered])
    decisions = [
        decision
        for decision in all_decisions
        if decision.code or (decision.container, decision.key) not in repeated_keys
    ]
    verdict = replace(translated, decisions=tuple(decisions))
    if mode is not Mode.OFF:
        verdict = judge_pod(candidate, verdict, state, budget.separate(step_limits.REVIEW))
    # In every mode, warn about values on the pod that drawbridge does not understand.
    warnings = [
        str(stated(entry.code, f"{entry.key}: {entry.outcome}: {entry.detail}")) for entry in unanswered if entry.code
    ]
    verdict = replace(verdict, notes=tuple(dict.fromkeys((*verdict.notes, *warnings))))
    if mode is not Mode.ENFORCE and _is_unfilled(verdict):
        verdict = _leave_unfilled(verdict)  # a placeholder leaves the object unchanged in every mode
    return apply_mode(verdict, mode, candidate.namespace, state)


def _for_object(
    decisions: Iterable[Decision], name: str, container: str, pointers: Mapping[str, str]
) -> tuple[Decision, ...]:
    """Return the decisions about a pod as decisions about the object that creates the pod. `container` replaces the container of each."""
    moved: list[Decision] = []
    for decision in decisions:
        # A pointer into the pod means nothing in the object.
        key = split(decision.key)[-1] if decision.key.startswith("/") else decision.key
        pointer = pointers.get(key, pointers[""])
        moved.append(replace(decision, object=name, container=container, key=key, pointer=pointer))
    return tuple(moved)


# Refusals by the API server, and placeholders


def _judge_by_api_server(verdict: PodVerdict, filled: Filled, *, rewrite_unknown: bool) -> PodVerdict:
    """Refuse an object that the API server would refuse after the translation.

    Only extended resources are checked if the object requests no device, or if its kind is unknown: a template in an unknown kind may be only a
    part of a pod, such as the pattern of a policy.
    """
    written_object = filled.written
    patched = apply_own(filled.object, verdict.operations)
    if filled.defaulted and group_kind(written_object) != ("", "Pod"):  # a workload is stored as it is written
        patched = apply_own(written_object, filled.undo(verdict.operations))
    template_paths = paths(written_object)
    requests_devices = verdict.decisions or any(
        inside(resolve_pointer(written_object, path), "spec").get("resourceClaims") for path in template_paths
    )
    extended_only = not requests_devices or (is_unknown_kind(written_object) and not rewrite_unknown)
    faults, unfilled = _refused_by_api_server(patched, template_paths, extended_only=extended_only)
    if unfilled is not None and not faults and all(decision.code != unfilled.code for decision in verdict.decisions):
        return _leave_unfilled(replace(verdict, decisions=(*verdict.decisions, unfilled)))
    return verdict.refuse(faults)


def _refused_by_api_server(
    obj: Object, pointers: Sequence[str], *, extended_only: bool
) -> tuple[list[Decision], Decision | None]:
    """List the fields that the API server would refuse in the pod templates at these pointers; with `extended_only`, only extended resources.

    The second value is a decision about the first placeholder that is not filled in. Others are not listed, because they have the same cause.
    """
    name = name_of(obj)
    unfilled: Decision | None = None
    faults: dict[Decision, None] = {}
    for pointer in pointers:
        for fault in answer_of_api_server(obj, pointer):
            container, key = "", fault.path
            container_pointer, *field_parts = key.rsplit("/", 3)
            (resource,) = (
                split(f"/{field_parts[2]}") if len(field_parts) == 3 and field_parts[0] == "resources" else ("",)
            )
            if extended_only and not is_extended(resource):
                continue
            if placeholder := find_placeholder(resolve_pointer(obj, key)):
                text = f"{placeholder} is a placeholder that is not filled in"
                remedy = validation.CODES[UNFILLED].remedy
                unfilled = unfilled or Decision(name, "", "", key, Outcome.UNKNOWN, text, code=UNFILLED, remedy=remedy)
                continue
            if resource:
                container, key = str(mapping(resolve_pointer(obj, container_pointer)).get("name") or ""), resource
            text = f"the API server refuses it: {fault.message}"
            fault_decision = refused(name, key, text, fault.code, fault.remedy, container=container)
            faults[replace(fault_decision, template=pointer if len(pointers) > 1 and container else "")] = None
    return list(faults), unfilled


def answer_of_api_server(obj: Object, path: str = "") -> list[Finding]:
    """List why the API server would refuse an object of a known kind, or the pod that is created from the template at `path`."""
    checked_object = obj
    prefix = ""
    if path and template_site(obj) is None:  # a kind of another project: its operator makes a pod of the template
        template = mapping(resolve_pointer(obj, path))
        # The operator takes labels and annotations over, and names the pod itself.
        template_metadata = mapping(template.get("metadata"))
        copied = {name: template_metadata[name] for name in ("labels", "annotations") if name in template_metadata}
        metadata = {"name": "of-a-template"} | copied
        checked_object = {"apiVersion": "v1", "kind": "Pod"} | template | {"metadata": metadata}
        prefix = path
    [findings] = validation.review([checked_object])
    return [replace(finding, path=prefix + finding.path) for finding in findings if finding.refuses]


def _is_unfilled(verdict: PodVerdict) -> bool:
    return any(refusal.code == UNFILLED for refusal in verdict.refusals)


def _leave_unfilled(verdict: PodVerdict) -> PodVerdict:
    """Make the outcome of keys with a placeholder `unknown`. Unless the object is refused for another reason, it is not changed."""
    other_refusals = tuple([refusal for refusal in verdict.refusals if refusal.code != UNFILLED])
    all_decisions = verdict.decisions
    if not other_refusals:
        all_decisions = _with_outcome_left(all_decisions, "a placeholder is not filled in; otherwise this key would be")
    decisions = [
        replace(decision, outcome=Outcome.UNKNOWN) if decision.code == UNFILLED else decision
        for decision in all_decisions
    ]
    if other_refusals:
        return replace(verdict, decisions=tuple(decisions), refusals=other_refusals)
    warnings = [
        str(stated(decision.code, f"{decision.key}: {decision.detail}", decision.remedy))
        for decision in decisions
        if decision.code == UNFILLED
    ]
    return PodVerdict(
        decisions=tuple(decisions),
        operations=verdict.cleaning,
        cleaning=verdict.cleaning,
        problem_warnings=(*warnings, *verdict.problem_warnings),
        notes=verdict.notes,
    )


# The mode


def apply_mode(verdict: PodVerdict, mode: Mode, namespace: str, state: State) -> PodVerdict:
    """Apply a mode to the verdict on an object in a file. A key that the mode holds back is left; `potential_outcome` is its outcome in `enforce`."""
    applied = hold_back(verdict, mode)
    if applied is verdict:
        return verdict
    reason = why_not(state, namespace) or "the canary does not cover it"
    left_warning = f"left as it is: {reason}"
    if mode is Mode.OFF:
        if not verdict.decisions:
            return NOTHING
        changes = {"outcome": Outcome.LEFT, "detail": reason, "mode": mode.value, "code": "", "remedy": "", "basis": ""}
        return PodVerdict(
            decisions=tuple([replace(decision, **changes) for decision in verdict.decisions]), notes=(left_warning,)
        )
    if not verdict.refusals and all(decision.outcome in _UNCHANGING_OUTCOMES for decision in verdict.decisions):
        return replace(verdict, operations=applied.operations)
    refusals = [str(refusal.prefixed("mode enforce would refuse it: ")) for refusal in verdict.refusals]
    all_decisions = verdict.decisions
    if refusals:
        all_decisions = _with_outcome_left(all_decisions, "the object would be refused; otherwise this key would be")
    decisions = [
        decision
        if decision.outcome in _UNCHANGING_OUTCOMES
        else replace(decision, outcome=Outcome.LEFT, potential_outcome=decision.outcome.value, mode=mode.value)
        for decision in all_decisions
    ]
    return replace(
        applied, decisions=tuple(decisions), problem_warnings=(left_warning, *refusals, *verdict.problem_warnings)
    )


def _leave_to_webhook(verdict: PodVerdict, keep_reason: str) -> PodVerdict:
    """Mark keys that the webhook will translate in the pods only; `keep_reason` says why the object itself keeps these keys."""
    if not keep_reason:
        return verdict
    decisions = [
        replace(decision, keep_reason=keep_reason) if decision.outcome in REPLACED else decision
        for decision in verdict.decisions
    ]
    return replace(verdict, decisions=tuple(decisions))


def _with_outcome_left(decisions: Iterable[Decision], prefix: str) -> tuple[Decision, ...]:
    """Replace each outcome that changes the object by `left`. The new detail is `prefix`, followed by the replaced outcome."""
    left: list[Decision] = []
    for decision in decisions:
        if decision.outcome in REPLACED:
            detail = f"{prefix} {decision.outcome}" + (f": {decision.detail}" if decision.detail else "")
            decision = replace(decision, outcome=Outcome.LEFT, detail=detail, potential_outcome=decision.outcome.value)  # noqa: PLW2901
        left.append(decision)
    return tuple(left)
