"""Whether nodes can serve what a pod requests: its claims, and what it requests of device plugins. Pure.

The allocator is asked about an *empty* fleet, so waiting cannot cure a "no". A second question, about the fleet as it is, decides
about the warning. Nothing is refused while the inventory is stale (then there is no `State.stock`). An object that could not be read
(`State.unseen`), and an autoscaler whose nodes are not declared, turn a refusal into a warning, once no node can serve the pod unchanged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from allocator.decisions import redact
from allocator.pods import plugin_could_serve, plugin_may_serve, reaches
from dra import wire
from dra.errors import OutOfBudget
from dra.objects import ObjectMeta, ResourceClaim, ResourceClaimSpec, ResourceClaimTemplate, claim_spec
from dra.raw import inside, items, mapping
from webhook import names
from webhook.admission import template_lifecycle
from webhook.admission.extended_claims import extended_given
from webhook.admission.feasibility import Feasibility, MayServe, judge
from webhook.admission.parameters import parameter_warnings, warnings_of_pod
from webhook.admission.plugin_requests import find_shortage
from webhook.admission.risk import find_broken_rule
from webhook.dialects import REPLACED, Outcome
from webhook.mixed_fleet import choose, place_of, reach_ignoring_taints
from webhook.refusals import Code, Denial, Warned
from webhook.translate import Decision, PodClaim

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from dra.budget import Budget
    from dra.wire import Json
    from webhook.admission.feasibility import Judgement
    from webhook.admission.plugin_requests import PluginRequest
    from webhook.mixed_fleet import Choice, Preference
    from webhook.state import State
    from webhook.translate import Operation


class Found(msgspec.Struct, frozen=True):
    """Why no node can serve a pod, as decisions that refuse it or only warn; and the warnings."""

    decisions: tuple[Decision, ...] = ()
    warnings: tuple[Warned, ...] = ()
    # What may serve a refused pod all the same; and why it waits, whatever else is known.
    may_serve: MayServe = MayServe(0)
    waits: str = ""

    @property
    def denials(self) -> tuple[Denial, ...]:
        """The refusals, as messages."""
        if not self.decisions:
            return ()
        refused = [one for one in self.decisions if one.outcome is Outcome.REFUSED]
        return tuple([Denial(one.code, one.detail, one.remedy) for one in refused])


NOTHING_FOUND = Found()
NOWHERE: Mapping[str, Any] = {}  # no constraints on a pod's node
_PLACING = frozenset(("nodeName", "nodeSelector", "affinity"))  # the fields of a spec that have some, but for taints
_NODES_OF_OTHERS = "its pods for such nodes wait"
# Steps for the question whether a pod's claims can be served with those for CPUs.
_CPUS = 1_000_000


def own_claims(pod: dict[str, Json], ours: Iterable[PodClaim]) -> tuple[PodClaim, ...]:
    """Name the claims that a pod comes with; some of them may be `ours`."""
    known = {one.name: one for one in ours}
    claims: list[PodClaim] = []
    for entry in items(inside(pod, "spec"), "resourceClaims"):
        name = str(entry.get("name", ""))
        template_name = str(entry.get("resourceClaimTemplateName") or "")
        claim_name = str(entry.get("resourceClaimName") or "")
        claims.append(known.get(name) or PodClaim(name, template=template_name, claim=claim_name))
    return tuple(claims)


def all_claims(pod: dict[str, Json], given: Iterable[PodClaim]) -> tuple[PodClaim, ...]:
    """Name all claims that a pod has when it was `given` what it was: its own first."""
    given = tuple(given)
    if not inside(pod, "spec").get("resourceClaims"):
        return given
    own = own_claims(pod, given)
    known = {one.name for one in own}
    new = [one for one in given if one.name not in known]
    return (*own, *new)


def claims_of_pod(
    pod: dict[str, Json],
    given: Iterable[PodClaim],
    state: State,
    operations: Iterable[Operation] = (),
    replaced: Container[tuple[str, str]] = (),
) -> tuple[PodClaim, ...]:
    """Name all claims that a pod will have after these operations: its own, those that it is `given`, and the one that its scheduler makes.

    `replaced` are the containers and keys that the operations remove.
    """
    own = all_claims(pod, given)
    if not state.fleet.extended:
        return own
    return (*own, *extended_given(pod, state, operations, replaced))


def why_cpus_unserved(
    pod: dict[str, Json], claims: Iterable[PodClaim], namespace: str, state: State, budget: Budget
) -> str:
    """Say why no node could ever serve these claims of a pod, some of which are for CPUs; "" if one could, or that is not known."""
    if state.stock is None:
        return ""
    given = [one for one in claims if one.spec is not None]
    resource_claims = [claim for one in claims if isinstance(claim := _claim_of(one, namespace, state), ResourceClaim)]
    try:
        answer = _judge_reachable(resource_claims, state, budget.separate(_CPUS), given=given, place=place_in(pod))
    except OutOfBudget:
        return ""  # the verdict says so where all claims are judged
    return f"no node could serve claims for them: {answer.text}" if answer.verdict is Feasibility.NEVER else ""


def inspect_claim(obj: dict[str, Json], namespace: str, state: State, budget: Budget) -> Found:
    """Judge a claim, or those that a template makes."""
    if obj.get("kind") == "ResourceClaimTemplate":
        made = wire.convert(obj, ResourceClaimTemplate)
        path, spec, metadata = "/spec/spec/devices", made.spec.spec, made.metadata
    else:
        stored = wire.convert(obj, ResourceClaim)
        path, spec, metadata = "/spec/devices", stored.spec, stored.metadata
    claim = _claim(spec, namespace, metadata.name or metadata.generate_name)
    found = _find_problems([claim], namespace, state, budget, subject="claim")
    about_parameters = parameter_warnings(claim.spec.devices, path, state, budget)
    return deny_or_warn(replace(found, warnings=(*found.warnings, *about_parameters)), state)


def judge_requests(
    given_claims: Iterable[PodClaim],
    namespace: str,
    state: State,
    budget: Budget,
    scheduler: str = "",
    *,
    by_plugin: PluginRequest | None = None,
    place: Mapping[str, Any] = NOWHERE,
    controller: str = "",
) -> Found:
    """Judge all claims of a pod together, as a scheduler would have to serve them; where it is known, that one.

    `place` are the pod's constraints on its node. Device plugins come first: a pod that they can never serve needs no look at its claims.
    Whether a denial stands is for `deny_or_warn` to say. The controller of a DaemonSet makes no more pods where one is refused, and begins anew later.
    """
    found = judge_plugin_request(by_plugin, state, budget) if by_plugin is not None else NOTHING_FOUND
    if not found.decisions:
        of_claims = _judge_claims(given_claims, namespace, state, budget, scheduler, place=place)
        if found.warnings:
            of_claims = replace(of_claims, warnings=(*found.warnings, *of_claims.warnings))
        found = of_claims
        if not found.decisions:
            return found
    if controller == "DaemonSet" and MayServe.UNREACHED in found.may_serve:
        return replace(found, waits=_NODES_OF_OTHERS)
    if MayServe.DRIVER in found.may_serve:
        return replace(found, waits="the pod waits until a node publishes such devices")
    return found


def judge_unchanged(
    unchanged: PluginRequest | None,
    claims: Iterable[PodClaim],
    namespace: str,
    state: State,
    budget: Budget,
    *,
    controller: str = "",
) -> Found:
    """Judge a pod that device plugins of a mixed fleet serve; `claims` are those that it would have on other nodes.

    Pods of a DaemonSet are refused only if no node could serve one, neither by a device plugin nor by these claims.
    """
    found = judge_requests((), namespace, state, budget, by_plugin=unchanged, controller=controller)
    if controller == "DaemonSet" and found.denials and not found.waits:
        of_claims = _judge_claims(claims, namespace, state, budget, "", place=NOWHERE)
        if not of_claims.denials:
            found = replace(found, waits=_NODES_OF_OTHERS)
    return deny_or_warn(found, state)


def judge_plugin_request(request: PluginRequest | None, state: State, budget: Budget) -> Found:
    """Judge what device plugins have to serve of a pod, if they have to serve anything."""
    if request is None or not (shortage := find_shortage(request, state, budget)):
        return NOTHING_FOUND
    if isinstance(shortage, str):
        return Found(warnings=(shortage,))
    key, denial = shortage
    may_serve = MayServe.NEW_NODE | MayServe.UNREACHED if denial.code == Code.NEVER else MayServe.NEW_NODE
    return _denied(denial, request.users.get(key, ""), key, may_serve)


def _judge_claims(
    given_claims: Iterable[PodClaim],
    namespace: str,
    state: State,
    budget: Budget,
    scheduler: str,
    *,
    place: Mapping[str, Any],
) -> Found:
    claims: list[ResourceClaim] = []
    warnings: list[str] = []
    with_spec: list[PodClaim] = []
    by_plugin = ""
    for one in given_claims:
        if one.by_name:
            served, by_plugin = _can_plugin_serve(one, state)
            if served:
                continue
        if one.spec is not None:
            with_spec.append(one)
        claim = _claim_of(one, namespace, state)
        if isinstance(claim, str):
            warnings.append(claim)
        elif claim is not None:
            claims.append(claim)
    found = _find_problems(claims, namespace, state, budget, given=with_spec, by_plugin=by_plugin, place=place)
    about_parameters = warnings_of_pod(claims, state, budget)
    stock = state.stock
    if stock is not None and stock.compatibilities and scheduler and claims:
        # Another scheduler than drawbridge's knows no DeviceCompatibility.
        bridge = state.configuration.file.bridge
        if bridge is None or scheduler != bridge.scheduler_name:
            risk = find_broken_rule(stock, claims, budget, state.memo)
            if risk:
                lacks = f"scheduler {scheduler} does not know DeviceCompatibility; only drawbridge's scheduler does"
                warnings.append(f"{risk}: {lacks}")
    if not warnings and not about_parameters:
        return found
    return replace(found, warnings=(*found.warnings, *warnings, *about_parameters))


def _can_plugin_serve(one: PodClaim, state: State) -> tuple[bool, str]:
    """Say whether a device plugin can serve what is asked for by name, where the pod may go; and else which node could if it might go there, or were idle."""
    if state.stock is None or one.pod is None:
        return True, ""
    nodes = [*state.stock.nodes.values(), *(state.prospects.nodes.values() if state.prospects is not None else ())]
    may_go = reaches(one.pod)
    ever = ""
    for node in nodes:
        if plugin_could_serve(one.by_name, node):
            ever = node.metadata.name
            if plugin_may_serve(one.by_name, node, (state.uses or {}).get(ever, {})) and may_go(node):
                return True, ""
    return False, ever


def _plugin_offer(one: PodClaim, devices: int, state: State) -> str:
    """Say how many would fit where the device plugin of a node has more than any node has devices; "" if none has."""
    if len(one.by_name) != 1 or state.stock is None:
        return ""
    [name] = one.by_name
    amounts = [node.status.allocatable.get(name) for node in state.stock.nodes.values()]
    most = max((amount.nano // 10**9 for amount in amounts if amount is not None), default=0)
    requester = f"container {one.users[0]}" if len(one.users) == 1 else "they"
    return (
        f"it would fit if {requester} asked for no more than {most}, which a device plugin hands out"
        if most > devices
        else ""
    )


def _claim_of(one: PodClaim, namespace: str, state: State) -> ResourceClaim | str | None:
    """Find the claim to judge, or say why there is none; None if it has its devices already."""
    # A claim of a template has no namespace here: equal pods of all namespaces are one question.
    if one.spec is not None:
        return ResourceClaim(metadata=ObjectMeta(name=one.name), spec=template_lifecycle.read_claim_spec(one.spec))
    spec = state.templates.get((namespace, one.template))
    if spec is not None:
        return _claim(spec, "", one.name)
    if state.stock is None:
        return None
    existing = state.stock.claims.get(f"{namespace}/{one.claim}")
    if existing is not None:
        return existing if existing.status.allocation is None else None
    kind = "ResourceClaimTemplate" if one.template else "ResourceClaim"
    problem = "does not exist yet: the pod waits until it does"
    if template_lifecycle.is_our_name(one.template):
        problem = f"{template_lifecycle.COPY}: use its original manifest, or replace the claims with the requests in {names.ORIGINAL}"
    if kind in state.incomplete:
        problem = "could not be read, and was not checked"
    return f"{kind} {one.template or one.claim} {problem}"


def choose_nodes(
    preference: Preference | None, given: Iterable[PodClaim], namespace: str, state: State, budget: Budget
) -> Choice | None:
    """Choose the nodes of a mixed fleet for a pod with these claims; None if it has no choice."""
    if preference is None:
        return None
    claims = [_claim_of(one, namespace, state) for one in given]
    return choose(preference, [claim for claim in claims if isinstance(claim, ResourceClaim)], state, budget)


def find_plugin_fallback(
    found: Found, decisions: Iterable[Decision], unchanged: PluginRequest | None, state: State, budget: Budget
) -> tuple[str, Found]:
    """Say which node may still serve a pod unchanged, whose claims none could: then it is not refused, but left; and else why it is refused."""
    if MayServe.PLUGIN not in found.may_serve or found.waits or not (plugin_reason := _plugin_reason(decisions, state)):
        return "", deny_or_warn(found, state)
    plugin_found = judge_plugin_request(unchanged, state, budget)
    if not plugin_found.denials:
        return plugin_reason, found
    decisions = (*found.decisions, *plugin_found.decisions)
    return "", deny_or_warn(replace(found, decisions=decisions), state)


def _plugin_reason(decisions: Iterable[Decision], state: State) -> str:
    for decision in decisions:
        is_replaced = decision.outcome in REPLACED and "/" in decision.key  # CPUs stay beside their claims
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
    given: Iterable[PodClaim] = (),
    subject: str = "pod",
    by_plugin: str = "",
    place: Mapping[str, Any] = NOWHERE,
) -> Found:
    if state.stock is None or not claims:
        return NOTHING_FOUND
    given_by_name = {one.name: one for one in given}
    answer = _judge_reachable(
        claims, state, budget, given=given_by_name.values(), place=NOWHERE if by_plugin else place, subject=subject
    )
    match answer.verdict:
        case Feasibility.FITS:
            return NOTHING_FOUND
        case Feasibility.NEVER:
            if by_plugin:
                plugin = f"the device plugin of a node such as {by_plugin}"
                return Found(warnings=(f"no node has the devices for this pod: it waits until {plugin} can serve it",))
            given_claim = given_by_name.get(answer.claim)
            if given_claim is not None and answer.most and (offer := _plugin_offer(given_claim, answer.most, state)):
                answer = replace(answer, remedy=offer)
            denial = Denial(answer.code, answer.text, answer.remedy)
            # The refusal is about the first key of the container whose claim is at fault.
            container = next(iter(given_claim.users), "") if given_claim is not None else ""
            key = next(iter(given_claim.words), "") if given_claim is not None else ""
            return _denied(denial, container, key, answer.may_serve)
        case Feasibility.BUSY:
            return Found(warnings=(redact(answer.text, state.stock, namespace),))
        case Feasibility.UNKNOWN:
            budget.charge()  # raises if the review's budget ran out, and not only that of one search
    return NOTHING_FOUND


def _judge_reachable(
    claims: Sequence[ResourceClaim],
    state: State,
    budget: Budget,
    *,
    given: Iterable[PodClaim],
    place: Mapping[str, Any],
    subject: str = "pod",
) -> Judgement:
    """Judge claims on the nodes that their pod can reach; on all where it can reach all or, as things are, none."""
    assert state.stock is not None
    within: frozenset[str] | None = None
    if place:
        within = reach_ignoring_taints(place, state, budget)
        if state.stock.nodes.keys() <= within or state.stock.nodes.keys().isdisjoint(within):
            within = None
    given_by_name = {one.name: one for one in given}
    return judge(
        state.stock, claims, budget=budget, given=given_by_name, memo=state.memo, prospects=state.prospects, subject=subject, within=within
    )  # fmt: skip


def place_in(pod: Json) -> Mapping[str, Any]:
    """Extract a pod's constraints on its node, but for taints."""
    spec = mapping(mapping(pod).get("spec"))
    return NOWHERE if _PLACING.isdisjoint(spec) else place_of(spec)


def _denied(denial: Denial, container: str, key: str, may_serve: MayServe) -> Found:
    decision = Decision("", container, "", key, Outcome.REFUSED, denial.text, code=denial.code, remedy=denial.remedy)
    return Found((decision,), may_serve=may_serve)


def deny_or_warn(found: Found, state: State) -> Found:
    """Warn instead of refusing where not all is known, an autoscaler may make a node, or the configuration says so."""
    if not found.denials:
        return found
    file = state.configuration.file
    may_come = MayServe.NEW_NODE in found.may_serve and not file.node_templates
    if state.unseen:
        unseen = f"some {' and '.join(f'{kind} objects' for kind in state.unseen)} could not be read"
        opening = f"this may never work, but {unseen}: "
    elif found.waits:
        opening = f"{found.waits}: "
    elif file.impossible == "warn":
        opening = "this can never work: "
    elif file.impossible == "auto" and state.fleet.grows and may_come:
        opening = f"this may never work, but an autoscaler may make another node ({state.fleet.grows}): "
    else:
        return found
    warnings = [one.prefixed(opening) for one in found.denials]
    doubts = [replace(one, outcome=Outcome.LEFT, detail=opening + one.detail) for one in found.decisions]
    return Found(tuple(doubts), (*warnings, *found.warnings))


def _claim(spec: ResourceClaimSpec, namespace: str, name: str) -> ResourceClaim:
    return ResourceClaim(metadata=ObjectMeta(namespace=namespace, name=name), spec=claim_spec(spec))
