"""Judges whether nodes can serve a pod's requests: its claims, and its requests of device plugins.

A pod is refused only if no node could serve it even if all devices were free, so that waiting cannot help. If the devices are only in use now,
the pod gets a warning. While the copy of the cluster is stale, `State.stock` is None and nothing is refused. A refusal becomes a warning if
objects could not be read (`State.unseen`), or if an autoscaler may create nodes that are not declared (`problems.deny_or_warn`).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec.structs import replace

from allocator.decisions import redact
from allocator.pods import plugin_could_serve, plugin_may_serve, reaches
from dra import validation, wire
from dra.errors import OutOfBudget
from dra.finding import Severity
from dra.objects import ResourceClaim, ResourceClaimTemplate
from dra.raw import mapping
from webhook.dialects import REPLACED
from webhook.placement.choice import choose
from webhook.placement.feasibility import can_any_node_serve
from webhook.placement.impossible import UNKNOWN, Feasibility
from webhook.placement.plugin_requests import judge_plugin_request
from webhook.placement.pod_claims import find_claim, make_claim
from webhook.placement.problems import NO_PROBLEMS, MayServe, Problems, denied, deny_or_warn
from webhook.placement.quota_check import judge_quotas
from webhook.placement.risk import find_broken_rule
from webhook.state import node_constraints, reach_ignoring_taints

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dra.budget import Budget
    from dra.finding import Finding
    from dra.objects import DeviceClaim
    from dra.wire import Json
    from webhook.placement.choice import ServingChoice
    from webhook.placement.impossible import FeasibilityAnswer
    from webhook.placement.plugin_requests import PluginRequest
    from webhook.placement.preference import Preference
    from webhook.state import State
    from webhook.translate import Decision, PodClaim

ANYWHERE: Mapping[str, Any] = {}  # no constraints on a pod's node
_NO_CLAIMS: Mapping[str, PodClaim] = {}
_NODE_FIELDS = frozenset(
    ("nodeName", "nodeSelector", "affinity")
)  # fields of a pod's spec that constrain its node, besides tolerations
_WAITS_FOR_NODES = "its pods for such nodes wait"
# The most steps for judging whether a node can serve a pod's claims together with those for CPUs.
_CPU_STEPS = 1_000_000
# _PARAMETER_STEPS: the most steps for checking all driver parameters of one object. _ENTRY_STEPS: the steps charged for each entry, whose names are
# compared with a dozen others. Selectors are charged separately.
_PARAMETER_STEPS: Final = 100_000
_ENTRY_STEPS: Final = 2_000


class Requested(NamedTuple):
    """The requests of a pod, and the constraints on its node."""

    claims: Sequence[PodClaim]
    namespace: str
    constraints: Mapping[str, Any] = ANYWHERE  # the pod's constraints on its node
    scheduler: str = ""  # "" if it does not matter
    controller: str = ""  # the kind of the pod's controller
    by_plugin: PluginRequest | None = None


def why_cpus_unserved(requested: Requested, state: State, budget: Budget) -> str:
    """Explain why no node could ever serve these claims of a pod, some of which are for CPUs; "" if a node could, or if that is unknown."""
    if state.stock is None:
        return ""
    generated = {claim.name: claim for claim in requested.claims if claim.spec is not None}
    claims = _known_claims(requested, state)
    try:
        answer = _judge_reachable(
            claims, state, budget.separate(_CPU_STEPS), generated=generated, constraints=requested.constraints
        )
    except OutOfBudget:
        return ""  # the judgement of all claims reports the exhausted budget
    return f"no node could serve claims for them: {answer.text}" if answer.verdict is Feasibility.NEVER else ""


def inspect_claim(obj: dict[str, Json], namespace: str, state: State, budget: Budget) -> Problems:
    """Judge a ResourceClaim or ResourceClaimTemplate without its pod."""
    if obj.get("kind") == "ResourceClaimTemplate":
        template = wire.convert(obj, ResourceClaimTemplate)
        path, spec, metadata = "/spec/spec/devices", template.spec.spec, template.metadata
    else:
        stored_claim = wire.convert(obj, ResourceClaim)
        path, spec, metadata = "/spec/devices", stored_claim.spec, stored_claim.metadata
    claim = make_claim(spec, namespace, metadata.name or metadata.generate_name)
    problems = _find_problems([claim], namespace, state, budget, subject="claim")
    if obj.get("kind") == "ResourceClaim":
        problems = problems.followed_by(judge_quotas([spec], (namespace, ""), state))
    parameter_texts = parameter_warnings(claim.spec.devices, path, state, budget)
    return deny_or_warn(replace(problems, warnings=(*problems.warnings, *parameter_texts)), state)


def judge_requests(requested: Requested, state: State, budget: Budget) -> Problems:
    """Judge a pod's requests of device plugins, then all of its claims together, because one node has to serve the pod.

    If the requests of device plugins are denied, the claims are not judged. `deny_or_warn` turns some denials into warnings. A pod of a
    DaemonSet that only a node where it cannot run could serve is not refused: after a refusal, the controller creates no pods for a while.
    """
    problems = judge_plugin_request(requested.by_plugin, state, budget)
    if not problems.decisions:
        claim_problems = _judge_claims(requested, state, budget)
        if problems.warnings:
            claim_problems = replace(claim_problems, warnings=(*problems.warnings, *claim_problems.warnings))
        problems = claim_problems
        if not problems.decisions:
            return problems
    if requested.controller == "DaemonSet" and MayServe.UNREACHED in problems.may_serve:
        return replace(problems, waits_because=_WAITS_FOR_NODES)
    if MayServe.DRIVER in problems.may_serve:
        return replace(problems, waits_because="the pod waits until a node publishes such devices")
    return problems


def judge_unchanged(unchanged: Requested, requested: Requested, state: State, budget: Budget) -> Problems:
    """Judge a pod that device plugins of a mixed fleet serve; `requested` has the claims that it would have if it were translated.

    Pods of a DaemonSet are refused only if no node could serve one, neither by a device plugin nor by these claims.
    """
    problems = judge_requests(unchanged, state, budget)
    if requested.controller == "DaemonSet" and problems.denials and not problems.waits_because:
        anywhere = requested._replace(constraints=ANYWHERE, scheduler="")
        if not _judge_claims(anywhere, state, budget).denials:
            problems = replace(problems, waits_because=_WAITS_FOR_NODES)
    return deny_or_warn(problems, state)


def _judge_claims(requested: Requested, state: State, budget: Budget) -> Problems:
    """Judge whether a node where the pod can run can serve all of its claims; check their parameters, and the compatibility of their devices."""
    namespace = requested.namespace
    claims: list[ResourceClaim] = []
    extended_claims: list[
        ResourceClaim
    ] = []  # claims for names that a device plugin may serve later: they refuse no pod
    warnings: list[str] = []
    generated: dict[str, PodClaim] = {}
    by_plugin = ""
    for pod_claim in requested.claims:
        if pod_claim.extended_resources:
            is_served_by_plugin, by_plugin = can_plugin_serve(pod_claim, state)
            if is_served_by_plugin:
                continue
        if pod_claim.spec is not None:
            generated[pod_claim.name] = pod_claim
        claim = find_claim(pod_claim, namespace, state)
        if isinstance(claim, str):
            warnings.append(claim)
        elif claim is not None:
            (extended_claims if pod_claim.extended_resources and by_plugin else claims).append(claim)
    find_problems = partial(_find_problems, generated=generated, constraints=requested.constraints)
    problems = find_problems(claims, namespace, state, budget)
    if extended_claims and not problems.decisions:
        claims = [*claims, *extended_claims]
        problems = find_problems(claims, namespace, state, budget, by_plugin=by_plugin)
    parameter_texts: list[str] = []
    for claim in claims:
        texts = parameter_warnings(claim.spec.devices, "/spec/devices", state, budget)
        parameter_texts += [f"claim {claim.metadata.name}: {text}" for text in texts]
    if risk := _find_risk(claims, requested.scheduler, state, budget):
        warnings.append(risk)
    if not warnings and not parameter_texts:
        return problems
    return replace(problems, warnings=(*problems.warnings, *warnings, *parameter_texts))


def _find_risk(claims: Sequence[ResourceClaim], scheduler: str, state: State, budget: Budget) -> str:
    """Name the DeviceCompatibility that the pod's scheduler may break; "" if there is none. Only drawbridge's scheduler knows this kind."""
    stock, bridge = state.stock, state.configuration.file.bridge
    if stock is None or not stock.compatibilities or not scheduler or not claims:
        return ""
    if bridge is not None and scheduler == bridge.scheduler_name:
        return ""
    risk = find_broken_rule(stock, claims, budget, state.memo)
    lacks = f"scheduler {scheduler} does not know DeviceCompatibility; only drawbridge's scheduler does"
    return f"{risk}: {lacks}" if risk else ""


def parameter_warnings(devices: DeviceClaim, path: str, state: State, budget: Budget) -> tuple[str, ...]:
    """List the parameters of a claim that drivers would refuse (docs/configuration.md); nothing if the budget ends.

    These are warnings, because a newer driver may accept more than the versions that drawbridge knows.
    """
    if not devices.config and not validation.asks_for_channels(devices):
        return ()
    classes = state.stock.classes if state.stock is not None else {}
    slices = tuple(state.stock.slices.values()) if state.stock is not None else ()
    part = budget.part(_PARAMETER_STEPS)
    try:
        part.charge(_ENTRY_STEPS * (1 + len(devices.config)))
        problems = list(validation.claim_settings(devices, path, classes, part, slices))
    except OutOfBudget:
        return ()
    except Exception as failure:  # noqa: BLE001  a check that only warns must not fail the review
        return (f"{path}: the parameters were not checked because of a bug in drawbridge ({type(failure).__name__})",)
    warnings = [finding for finding in validation.findings(problems, "") if finding.severity is Severity.WARNING]
    return tuple([text_of(finding) for finding in warnings])


def text_of(finding: Finding) -> str:
    """Return the code, the path, the message and the remedy of a finding as one text."""
    remedy = f" ({finding.remedy})" if finding.remedy else ""
    return f"{finding.code} {finding.path}: {finding.message}{remedy}"


def can_plugin_serve(claim: PodClaim, state: State) -> tuple[bool, str]:
    """Return whether a device plugin on a node where the pod can run can serve the claim's extended resources now.

    If not, the second value is a node whose device plugin could serve them once its devices are healthy and free; "" if there is none.
    """
    if state.stock is None or claim.pod is None:
        return True, ""
    nodes = [*state.stock.nodes.values(), *(state.prospects.nodes.values() if state.prospects is not None else ())]
    can_run_on = reaches(claim.pod)
    later_node = ""
    for node in nodes:
        if plugin_could_serve(claim.extended_resources, node):
            later_node = node.metadata.name
            if plugin_may_serve(claim.extended_resources, node, (state.uses or {}).get(later_node, {})) and can_run_on(
                node
            ):
                return True, ""
    return False, later_node


def _plugin_offer(claim: PodClaim, devices: int, state: State) -> str:
    """Suggest the largest amount that a device plugin offers, if that is more than any node has devices; else ""."""
    if len(claim.extended_resources) != 1 or state.stock is None:
        return ""
    [name] = claim.extended_resources
    amounts = [node.status.allocatable.get(name) for node in state.stock.nodes.values()]
    most = max((amount.nano // 10**9 for amount in amounts if amount is not None), default=0)
    if most <= devices:
        return ""
    where = f"in container {claim.users[0]}" if len(claim.users) == 1 else "in total"
    return f"request at most {most} {where}, which a device plugin offers"


def choose_nodes(preference: Preference, requested: Requested, state: State, budget: Budget) -> ServingChoice | None:
    """Choose the nodes of a mixed fleet for a pod with these claims; None if it has no choice."""
    return choose(preference, _known_claims(requested, state), state, budget)


def _known_claims(requested: Requested, state: State) -> list[ResourceClaim]:
    claims = [find_claim(claim, requested.namespace, state) for claim in requested.claims]
    return [claim for claim in claims if isinstance(claim, ResourceClaim)]


def describe_plugin_alternative(problems: Problems, decisions: Iterable[Decision], state: State) -> str:
    """Return a text that names a node whose device plugin serves a key of the pod; "" if there is no such node."""
    if MayServe.PLUGIN not in problems.may_serve or problems.waits_because:
        return ""
    for decision in decisions:
        is_replaced = decision.outcome in REPLACED and "/" in decision.key  # a request for `cpu` is not replaced
        nodes = state.fleet.handed_out.get(decision.key) if is_replaced else None
        if nodes:
            return f"node {min(nodes)} still serves {decision.key} through a device plugin"
    return ""


def _find_problems(
    claims: Sequence[ResourceClaim],
    namespace: str,
    state: State,
    budget: Budget,
    *,
    generated: Mapping[str, PodClaim] = _NO_CLAIMS,
    subject: str = "pod",
    by_plugin: str = "",
    constraints: Mapping[str, Any] = ANYWHERE,
) -> Problems:
    if state.stock is None or not state.knows_nodes or not claims:
        return NO_PROBLEMS
    constraints = ANYWHERE if by_plugin else constraints
    answer = _judge_reachable(claims, state, budget, generated=generated, constraints=constraints, subject=subject)
    match answer.verdict:
        case Feasibility.NEVER:
            if by_plugin:
                plugin = f"the device plugin of a node such as {by_plugin}"
                return Problems(
                    warnings=(f"no node has the devices for this pod: it waits until {plugin} can serve it",)
                )
            pod_claim = generated.get(answer.claim)
            if pod_claim is None:
                return denied(answer, "", "", answer.may_serve)
            if answer.most_devices and (offer := _plugin_offer(pod_claim, answer.most_devices, state)):
                answer = replace(answer, remedies=(offer,))
            # The decision names the first key of the first container that uses the unserved claim.
            container, key = next(iter(pod_claim.users), ""), next(iter(pod_claim.amounts), "")
            return denied(answer, container, key, answer.may_serve)
        case Feasibility.BUSY:
            return Problems(warnings=(redact(answer.text, state.stock, namespace),))
        case Feasibility.UNKNOWN:
            budget.charge()  # raises if the budget of the whole review is exhausted, and not only that of one search
    return NO_PROBLEMS


def _judge_reachable(
    claims: Sequence[ResourceClaim],
    state: State,
    budget: Budget,
    *,
    generated: Mapping[str, PodClaim],
    constraints: Mapping[str, Any],
    subject: str = "pod",
) -> FeasibilityAnswer:
    """Judge claims on the nodes where their pod can run. If it can run on all nodes, or at present on none, judge them on all nodes."""
    assert state.stock is not None
    if state.fleet.assumes and not state.stock.classes:
        return UNKNOWN
    within: frozenset[str] | None = None
    if constraints:
        within = reach_ignoring_taints(constraints, state, budget)
        if state.stock.nodes.keys() <= within or state.stock.nodes.keys().isdisjoint(within):
            within = None
    return can_any_node_serve(
        state.stock, claims, budget=budget, generated=generated, memo=state.memo, prospects=state.prospects, subject=subject, within=within
    )  # fmt: skip


def constraints_in(pod: Json) -> Mapping[str, Any]:
    """Return a pod's constraints on its node, besides tolerations."""
    spec = mapping(mapping(pod).get("spec"))
    return ANYWHERE if _NODE_FIELDS.isdisjoint(spec) else node_constraints(spec)
