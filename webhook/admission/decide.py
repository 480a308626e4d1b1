"""Decides about a pod: the outcome of each key by which it requests devices, and whether a node can serve the pod.

    decide_pod: translate ▶ judge_pod: is a template's name taken? ▶ _judge: nodes of a mixed fleet, plugin requests, claims

`decide_pod` decides about the pod of a review. `webhook.admission.decide_object` takes the same steps for the pod templates of a workload or of
an object in a file. Both decide as if the mode were `enforce`. The caller applies the mode at the end (`hold_back`).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import replace

from dra import step_limits
from dra.errors import OutOfBudget
from dra.objects import ResourceClaim
from dra.raw import inside
from webhook.claims import template_lifecycle
from webhook.dialects import REPLACED, Outcome
from webhook.placement import (
    DEFAULT_SCHEDULER,
    NO_PROBLEMS,
    Requested,
    add_stranded,
    all_claims,
    can_plugin_serve,
    choose_nodes,
    constraints_in,
    deny_or_warn,
    describe_plugin_alternative,
    extended_claims,
    find_claim,
    judge_quotas,
    judge_requests,
    judge_unchanged,
    own_claims,
    plugin_request,
    read_preference,
    why_cpus_unserved,
)
from webhook.refusals import Code
from webhook.state import Mode
from webhook.translate import STANDALONE, Decision, Operation, PodVerdict, Provenance, clean, is_skipped, translate
from webhook.unknown import unknown_resources

if TYPE_CHECKING:
    from collections.abc import Container

    from dra.budget import Budget
    from dra.objects import ResourceClaimSpec
    from dra.wire import Json
    from webhook.placement import Preference, Problems, ServingChoice
    from webhook.state import PodOwner, State


# One text for all limits (steps, time, the queue for a turn), because the load decides which limit a review exceeds first.
TOO_LATE: Final = "it could not be decided in time"


class ReviewedPod(NamedTuple):
    """A pod or a pod template as a webhook gets it, with what is known about its object."""

    pod: dict[str, Json]
    namespace: str
    owner: PodOwner
    name: str  # the object's name in decisions
    path: str = ""  # the pointer of the pod template in its object; "" for a pod
    origin: Provenance = STANDALONE
    # Whether a scheduler still has to place the pod. False for a pod in a dump that runs or has run: it has got its devices.
    is_pending: bool = True


def decide_pod(candidate: ReviewedPod, state: State, budget: Budget) -> PodVerdict:
    """Translate the pod of a review and sign the record of the translation, then judge whether a node can serve the pod."""
    return translate_and_judge(candidate, state, budget)[1]


def translate_and_judge(candidate: ReviewedPod, state: State, budget: Budget) -> tuple[PodVerdict, PodVerdict]:
    """Return what the translation of a pod is before `judge_pod`, and the verdict on the pod."""
    pod, namespace = candidate.pod, candidate.namespace
    origin = candidate.origin
    try:
        translated = partial(
            translate,
            pod,
            state,
            namespace=namespace,
            sign=True,
            budget=budget,
            origin=origin,
            judge_others=partial(unknown_resources, state=state, budget=budget),
        )
        translation = translated()
        if reason := why_cpus_left(candidate, translation, state, budget):
            translation = translated(cpus_left=reason)
        if not translation.refusals:
            budget.confirm()
    except OutOfBudget:
        verdict = give_up(f"drawbridge left this pod as it is: {TOO_LATE}", clean(pod, state, namespace=namespace))
        return verdict, verdict
    judge_budget = budget.separate(step_limits.REVIEW)
    verdict = judge_pod(candidate, translation, state, judge_budget)
    is_late = budget.is_late or judge_budget.is_late
    return translation, replace(verdict, is_late=True) if is_late else verdict


def give_up(text: str, cleaning: tuple[Operation, ...] = ()) -> PodVerdict:
    """Allow an object whose decision took too long. `cleaning` are operations that remove forged annotations with drawbridge's names."""
    return PodVerdict(operations=cleaning, cleaning=cleaning, problem_warnings=(text,), is_undecided=True)


def hold_back(verdict: PodVerdict, mode: Mode) -> PodVerdict:
    """Remove from the verdict what the mode does not do. Only `enforce` translates and refuses.

    | part of the verdict | enforce | warn | observe, off |
    |---|---|---|---|
    | the translation of keys, refusals | done | held back | held back |
    | the removal of forged annotations, and of translated keys that an update brings back | done | done | held back |
    """
    if mode is Mode.ENFORCE:
        return verdict
    operations = verdict.cleaning if mode is Mode.WARN else ()
    return replace(verdict, operations=operations, refusals=(), templates={}, added_claims=())


def why_cpus_left(candidate: ReviewedPod, verdict: PodVerdict, state: State, budget: Budget) -> str:
    """Explain why no node can serve a pod's claims together with those for its CPUs; "" if a node can, or if the pod gets no claims for CPUs."""
    if not verdict.claims_cpus:
        return ""
    return why_cpus_unserved(_requested(candidate, verdict, state), state, budget)


def judge_pod(candidate: ReviewedPod, verdict: PodVerdict, state: State, budget: Budget) -> PodVerdict:
    """Judge whether nodes can serve a pod, translated or not. The new verdict refuses the pod, warns, leaves it untranslated, or is the given one.

    If the budget ends before, the given verdict gets a warning.
    """
    if verdict.refusals or is_skipped(candidate.pod):
        return verdict
    if verdict.templates and state.confirmed:
        conflicts = template_lifecycle.name_conflicts(verdict.templates, candidate.namespace, state)
        if conflicts:
            return verdict.refuse([refused(candidate.name, "", text, Code.TAKEN) for text in conflicts])
    requested = _requested(candidate, verdict, state)
    if not requested.claims and requested.by_plugin is None:
        return verdict
    try:
        judged = _judge(candidate, verdict, requested, state, budget)
        if not judged.refusals:
            budget.confirm()
            judged = _judge_quotas(candidate, judged, state)
    except OutOfBudget:
        text = f"drawbridge did not check this pod: {TOO_LATE}"
        return replace(verdict, problem_warnings=(text, *verdict.problem_warnings), is_undecided=True)
    return judged


def _requested(candidate: ReviewedPod, verdict: PodVerdict, state: State) -> Requested:
    """Return what the translated pod requests: its claims, and the resources of device plugins."""
    pod = candidate.pod
    claims = all_claims(pod, verdict.added_claims)
    if state.fleet.extended:
        replaced = {
            (decision.container, decision.key) for decision in verdict.decisions if decision.outcome in REPLACED
        }
        operations = verdict.operations
        if path := candidate.path:  # the paths of operations begin at the object that contains the template
            operations = tuple(
                [{**operation, "path": str(operation["path"]).removeprefix(path)} for operation in operations]
            )
        claims += extended_claims(pod, state, operations, replaced)
    by_plugin = None
    if candidate.is_pending and state.fleet.handed_out_anywhere:
        by_plugin = plugin_request(pod, state, verdict.decisions)
    scheduler = ""
    if state.stock is not None and state.stock.compatibilities:
        scheduler = _final_scheduler(candidate, verdict)
    return Requested(claims, candidate.namespace, constraints_in(pod), scheduler, candidate.owner.kind, by_plugin)


def _judge(
    candidate: ReviewedPod, verdict: PodVerdict, requested: Requested, state: State, budget: Budget
) -> PodVerdict:
    """Judge a pod's requests of device plugins and its claims. If some nodes have device plugins and others drivers, first choose between them."""
    choice = None
    preference = _prefer_nodes(candidate, verdict, state)
    if preference is not None:
        choice = choose_nodes(preference, requested, state, budget)
    if choice is not None and not choice.by_claims:
        problems = judge_unchanged(_unchanged(candidate, verdict, requested, state), requested, state, budget)
        warnings = () if choice.preferred else (f"left as it is: {choice.why}",)
        untranslated = replace(verdict.leave(choice.why, warnings), served_by=choice.why)
        return add_problems(untranslated, problems, candidate.name)
    problems = judge_requests(requested, state, budget)
    if problems.decisions:
        untranslated_problems = NO_PROBLEMS
        if alternative := describe_plugin_alternative(problems, verdict.decisions, state):
            untranslated_problems = judge_requests(_unchanged(candidate, verdict, requested, state), state, budget)
            if not untranslated_problems.denials:
                reason = f"{alternative}, and no claim could replace it: {problems.denials[0]}"
                return verdict.leave(reason, (f"left as it is: {reason}",))
        problems = deny_or_warn(
            replace(problems, decisions=(*problems.decisions, *untranslated_problems.decisions)), state
        )
    if choice is not None:
        verdict = _add_choice(verdict, choice)
    scheduler_claims = [
        claim for claim in requested.claims if claim.requested_names
    ]  # claims that the scheduler creates
    if scheduler_claims:
        verdict = add_stranded(verdict, scheduler_claims, state, candidate.name)
    return add_problems(verdict, problems, candidate.name)


def _judge_quotas(candidate: ReviewedPod, verdict: PodVerdict, state: State) -> PodVerdict:
    """Judge the claims that will be created for a pod by the DeviceQuotas of its namespace."""
    namespace = candidate.namespace or "default"
    if namespace not in state.device_quotas or not candidate.is_pending:
        return verdict
    specs: list[ResourceClaimSpec] = []
    for pod_claim in _requested(candidate, verdict, state).claims:
        is_served_by_plugin = bool(pod_claim.extended_resources) and can_plugin_serve(pod_claim, state)[0]
        claim = find_claim(pod_claim, namespace, state)
        if isinstance(claim, ResourceClaim) and not pod_claim.claim and not is_served_by_plugin:
            specs.append(claim.spec)
    scope = namespace, str(inside(candidate.pod, "spec").get("priorityClassName") or "")
    return add_problems(verdict, judge_quotas(specs, scope, state), candidate.name)


def _unchanged(candidate: ReviewedPod, verdict: PodVerdict, requested: Requested, state: State) -> Requested:
    """Return what the untranslated pod requests: its own claims and, if drawbridge would add claims, the resources of device plugins."""
    by_plugin = plugin_request(candidate.pod, state) if candidate.is_pending and verdict.added_claims else None
    return requested._replace(claims=own_claims(candidate.pod, ()), by_plugin=by_plugin)


def add_problems(verdict: PodVerdict, problems: Problems, name: str) -> PodVerdict:
    """Add the problems to the verdict. A decision that does not refuse the pod is a doubt, which adds its reason to the decision about the key."""
    if problems is NO_PROBLEMS:
        return verdict
    decisions = [replace(decision, object=name) for decision in problems.decisions]
    refusals = [decision for decision in decisions if decision.outcome is Outcome.REFUSED]
    doubts = [decision for decision in decisions if decision.outcome is not Outcome.REFUSED]
    return (
        replace(verdict, problem_warnings=(*problems.warnings, *verdict.problem_warnings))
        .with_doubts(doubts)
        .refuse(refusals)
    )


def refused(name: str, key: str, text: str, code: str, remedy: str = "", *, container: str = "") -> Decision:
    return Decision(name, container, "", key, Outcome.REFUSED, text, code=code, remedy=remedy)


def _final_scheduler(candidate: ReviewedPod, verdict: PodVerdict) -> str:
    for operation in verdict.operations:
        if str(operation["path"]).endswith("/spec/schedulerName"):
            return str(operation["value"])
    return str(inside(candidate.pod, "spec").get("schedulerName") or DEFAULT_SCHEDULER)


def _prefer_nodes(candidate: ReviewedPod, verdict: PodVerdict, state: State) -> Preference | None:
    """Return which nodes of a mixed fleet a pod prefers; None if claims replace none of its keys, or if no device plugin serves these keys."""
    # Resources that device plugins offer on existing nodes, and would offer on nodes that an autoscaler can create.
    offered: list[Container[str]] = [state.fleet.handed_out_anywhere] if state.fleet.handed_out_anywhere else []
    if state.prospects is not None:
        offered += [node.status.allocatable for node in state.prospects.nodes.values()]
    if not offered or not (verdict.templates or verdict.stays):
        return None
    keys = {
        decision.key
        for decision in verdict.decisions
        if decision.outcome in REPLACED and state.configuration.resource(decision.key)
    }
    if not any(key in names for names in offered for key in keys):
        return None
    return read_preference(candidate.pod, candidate.owner, keys, state)


def _add_choice(verdict: PodVerdict, choice: ServingChoice) -> PodVerdict:
    """Add the reason for the chosen nodes to the decision about each key that claims replace."""
    decisions: list[Decision] = []
    for decision in verdict.decisions:
        basis = "; ".join(filter(None, (decision.basis, choice.why)))
        decisions.append(replace(decision, basis=basis) if decision.outcome in REPLACED else decision)
    notes = verdict.notes if choice.preferred else (choice.why, *verdict.notes)
    return replace(verdict, decisions=tuple(decisions), notes=notes, served_by=choice.why)
