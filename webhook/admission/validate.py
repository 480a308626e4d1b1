"""Claims that no fleet could ever serve are refused; claims that have to wait get a warning. Pure.

The allocator is asked about an *empty* fleet, so waiting cannot cure a "no". A second question, about the fleet as it is, decides
about the warning. Nothing is refused while the inventory is stale (then there is no `State.stock`). An object that could not be read
(`State.unseen`), and an autoscaler whose nodes are not declared, turn a refusal into a warning, once no node can serve the pod unchanged.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from allocator.decisions import redact
from allocator.pods import plugin_could_serve, plugin_may_serve, reaches
from cluster.patch import apply_json_patch
from dra import validation, wire
from dra.errors import OutOfBudget
from dra.finding import Severity
from dra.objects import ObjectMeta, Pod, ResourceClaim, ResourceClaimSpec, ResourceClaimTemplate, claim_spec
from dra.raw import inside, items, mapping
from webhook import names
from webhook.admission import template_lifecycle
from webhook.admission.behind_fence import add_stranded
from webhook.admission.extended_claims import extended_given
from webhook.admission.feasibility import Feasibility, MayServe, judge
from webhook.admission.parameters import parameter_warnings, warnings_of_pod
from webhook.admission.plugin_requests import find_shortage, plugin_request
from webhook.admission.risk import find_broken_rule
from webhook.claims import template
from webhook.dialects import Action
from webhook.mixed_fleet import choose, place_of, reach_ignoring_taints, read_preference
from webhook.refusals import Code, Denial, Warned
from webhook.state import PodOwner, workload
from webhook.translate import (
    Decision,
    PodClaim,
    at,
    controller_kind,
    given_earlier,
    group_kind,
    namespace_of,
    origin_of,
    paths,
    replay,
    translate,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from dra.budget import Budget
    from dra.wire import Json
    from webhook.admission.admission_review import AdmissionRequest
    from webhook.admission.feasibility import Judgement
    from webhook.admission.plugin_requests import PluginRequest
    from webhook.mixed_fleet import Choice, Preference
    from webhook.state import State
    from webhook.translate import Translation


class Found(msgspec.Struct, frozen=True):
    """Why an object is refused, and the warnings about it."""

    denials: tuple[Denial, ...] = ()
    warnings: tuple[Warned, ...] = ()
    # The denials in parts; where there are none, what is only warned of.
    decisions: tuple[Decision, ...] = ()
    # What may serve a refused object all the same; and why it waits, whatever else is known.
    may_serve: MayServe = MayServe(0)
    waits: str = ""


NOTHING = Found()
NOWHERE: Mapping[str, Any] = {}  # no constraints on a pod's node
PLACING = frozenset(("nodeName", "nodeSelector", "affinity"))  # the fields of a spec that have some, but for taints
DEFAULT_SCHEDULER = "default-scheduler"
REPLACED = (Action.TRANSLATED, Action.APPROXIMATED)
# Steps for an object that is judged by the rules of `drawbridge check`: more than a shared thread has for one piece.
OBJECT = 100_000
_NODES_OF_OTHERS = "its pods for such nodes wait"
# Steps for the question whether a pod's claims can be served with those for CPUs.
_CPUS = 1_000_000


def inspect(request: AdmissionRequest, obj: dict[str, Json], state: State, budget: Budget) -> Found:
    """Look at one object of a validating review."""
    namespace = request.namespace
    resource = request.resource
    match resource.group, resource.resource:
        case "", "pods":
            return _pod(wire.convert(obj, Pod), obj, namespace, state, budget)
        case "resource.k8s.io", ("resourceclaims" | "resourceclaimtemplates"):
            return inspect_claim(obj, namespace, state, budget)
        case (("apps" | "batch"), _):
            # A workload itself is never refused: its author is told what its pods will meet.
            templates = paths(obj)
            if not templates:
                return NOTHING
            path = templates[0]
            pod = at(obj, path)
            origin = origin_of(obj, state.configuration)
            again = partial(translate, pod, state, namespace=namespace, path=path, origin=origin)
            done = leave_unserved_cpus(obj, path, again(), state, budget, again=again, namespace=namespace)
            owner = workload_in_files(obj)
            unchanged = plugin_request(mapping(pod), state)
            choice = choose_nodes(prefer_nodes(pod, done, owner, state), done.given, namespace, state, budget)
            if choice is not None and not choice.moved:
                found = judge_unchanged(unchanged, done.given, namespace, state, budget, controller=owner.kind)
                return Found(warnings=_preview(found))
            refusals = [one.prefixed("its pods will be refused: ") for one in done.refusals]
            scheduler_claims = _scheduler_claims(mapping(at(apply_json_patch(obj, done.operations), path)), done, state)
            _, stranded = add_stranded(done.decisions, scheduler_claims, state)
            done = replace(done, given=(*done.given, *scheduler_claims))
            by_plugin = plugin_request(mapping(pod), state, done.decisions)
            claim_warnings = preview_warnings(
                done, state, budget, pod, by_plugin, unchanged=unchanged, controller=owner.kind
            )
            return Found(warnings=(*refusals, *claim_warnings, *done.warnings, *stranded))
        case (("resource.k8s.io" | names.DOMAIN), _):
            return _object(obj, state, budget)
    return NOTHING


def inspect_claim(obj: dict[str, Json], namespace: str, state: State, budget: Budget) -> Found:
    """Judge a claim, or those that a template makes."""
    if obj.get("kind") == "ResourceClaimTemplate":
        of = wire.convert(obj, ResourceClaimTemplate)
        path, spec, metadata = "/spec/spec/devices", of.spec.spec, of.metadata
    else:
        stored = wire.convert(obj, ResourceClaim)
        path, spec, metadata = "/spec/devices", stored.spec, stored.metadata
    claim = _claim(spec, namespace, metadata.name or metadata.generate_name)
    found = _find_problems([claim], namespace, state, budget, subject="claim")
    about_parameters = parameter_warnings(claim.spec.devices, path, state, budget)
    return deny_or_warn(replace(found, warnings=(*found.warnings, *about_parameters)), state)


def _pod(pod: Pod, obj: dict[str, Json], namespace: str, state: State, budget: Budget) -> Found:
    """Judge all claims of a pod that were not judged before."""
    if any(entry.name.startswith(names.PREFIX) for entry in pod.spec.resource_claims):
        # A webhook that ran after this one may have put back the keys that had become claims.
        operations = replay(obj, obj, state, namespace=namespace).operations
        restored = [operation["path"] for operation in operations if operation["op"] == "remove"]
        if restored:
            message = f"{', '.join(restored)}: another webhook restored keys that claims replace, so the pod would request its devices twice"
            return Found(denials=(Denial(Code.TWICE, message, "disable that webhook for this pod"),))
    annotations = pod.metadata.annotations
    sealed = annotations.get(names.TEMPLATES)
    warnings: tuple[str, ...] = ()
    proven: dict[str, Json] = {}
    earlier: tuple[PodClaim, ...] = ()
    if sealed and state.keys:
        bearer = template.identify(pod, namespace)
        try:
            proven = template.unseal(sealed, bearer, *state.keys)
            earlier = given_earlier(obj, state, namespace=namespace)
        except template.TemplatesError as error:
            # A broken seal proves nothing: the templates that the pod names are judged as they are stored.
            warning = f"{error}: drop the {names.DOMAIN}/ annotations"
            warnings = (warning,)
    claims: list[PodClaim] = []
    for one in own_claims(obj, earlier):
        spec = proven.get(one.template, one.spec)
        claim = replace(one, spec=spec)
        claims.append(claim)
    scheduler = pod.spec.scheduler_name or DEFAULT_SCHEDULER
    controller = workload(namespace, mapping(obj.get("metadata"))).kind
    found = judge_requests(claims, namespace, state, budget, scheduler, place=place_in(obj), controller=controller)
    all_warnings = (*warnings, *found.warnings)
    return deny_or_warn(replace(found, warnings=all_warnings), state)


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
    own = own_claims(pod, given)
    known = {one.name for one in own}
    new = [one for one in given if one.name not in known]
    return (*own, *new)


def leave_unserved_cpus(
    obj: dict[str, Json],
    path: str,
    done: Translation,
    state: State,
    budget: Budget,
    *,
    again: Callable[..., Translation],
    namespace: str,
) -> Translation:
    """Translate once more, `again(without_cpus=reason)`, where no node could ever serve the claims of the pod at `path` with those for CPUs."""
    if not done.cpus or state.stock is None:
        return done
    pod = mapping(at(apply_json_patch(obj, done.operations), path))
    claims = [_claim_of(one, namespace, state) for one in claims_after(pod, done, state)]
    resource_claims = [claim for claim in claims if isinstance(claim, ResourceClaim)]
    try:
        answer = _judge_reachable(resource_claims, state, budget.separate(_CPUS), given=done.given, place=place_in(pod))
    except OutOfBudget:
        return done  # the review says so where it judges all claims
    if answer.verdict is not Feasibility.NEVER:
        return done
    return again(without_cpus=f"no node could serve claims for them: {answer.text}")


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
    found = judge_plugin_request(by_plugin, state, budget)
    if not found.denials:
        of_claims = _judge_claims(given_claims, namespace, state, budget, scheduler, place=place)
        if found.warnings:
            of_claims = replace(of_claims, warnings=(*found.warnings, *of_claims.warnings))
        found = of_claims
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
        return NOTHING
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


def claims_after(pod: dict[str, Json], done: Translation, state: State) -> tuple[PodClaim, ...]:
    """Name all claims of a pod as it was translated: its own, those that it was given, and what its scheduler will make."""
    return (*all_claims(pod, done.given), *_scheduler_claims(pod, done, state))


def _scheduler_claims(pod: dict[str, Json], done: Translation, state: State) -> tuple[PodClaim, ...]:
    """Say what the scheduler will claim besides: nothing for a template that a controller reads and whose pods are translated."""
    return () if done.given and not done.operations else extended_given(pod, state)


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


def preview_warnings(
    done: Translation,
    state: State,
    budget: Budget,
    pod: Json,
    by_plugin: PluginRequest | None = None,
    *,
    unchanged: PluginRequest | None = None,
    controller: str = "",
) -> tuple[Warned, ...]:
    """Say what the claims of a translation would meet, were they asked for now; nothing if there is no time to look."""
    try:
        place = place_in(pod)
        found = judge_requests(done.given, "", state, budget, by_plugin=by_plugin, place=place, controller=controller)
        plugin_reason, found = find_plugin_fallback(found, done.decisions, unchanged, state, budget)
    except OutOfBudget:
        return ()
    return _preview(found, plugin_reason)


def _preview(found: Found, plugin_reason: str = "") -> tuple[Warned, ...]:
    """Say what pods will meet; `plugin_reason` is why those that claims cannot serve are left."""
    opening = (
        f"such a pod will be left as it is, for {plugin_reason}" if plugin_reason else "such a pod will be refused"
    )
    refusals = [one.prefixed(f"{opening}: ") for one in found.denials]
    return (*refusals, *found.warnings)


def find_plugin_fallback(
    found: Found, decisions: Iterable[Decision], unchanged: PluginRequest | None, state: State, budget: Budget
) -> tuple[str, Found]:
    """Say which node may still serve a pod unchanged, whose claims none could: then it is not refused, but left; and else why it is refused."""
    if MayServe.PLUGIN not in found.may_serve or found.waits or not (plugin_reason := _plugin_reason(decisions, state)):
        return "", deny_or_warn(found, state)
    plugin_found = judge_plugin_request(unchanged, state, budget)
    if not plugin_found.denials:
        return plugin_reason, found
    denials, parts = (*found.denials, *plugin_found.denials), (*found.decisions, *plugin_found.decisions)
    return "", deny_or_warn(replace(found, denials=denials, decisions=parts), state)


def _plugin_reason(decisions: Iterable[Decision], state: State) -> str:
    for decision in decisions:
        is_replaced = decision.action in REPLACED and "/" in decision.key  # CPUs stay beside their claims
        nodes = state.fleet.handed_out.get(decision.key) if is_replaced else None
        if nodes:
            return f"node {min(nodes)} still serves {decision.key} through a device plugin"
    return ""


def leave_all(decisions: Iterable[Decision], reason: str) -> tuple[Decision, ...]:
    """Mark the keys that were to be replaced as left."""
    return tuple(
        [replace(one, action=Action.LEFT, detail=reason) if one.action in REPLACED else one for one in decisions]
    )


def choose_nodes(
    preference: Preference | None, given: Iterable[PodClaim], namespace: str, state: State, budget: Budget
) -> Choice | None:
    """Choose the nodes of a mixed fleet for a pod with these claims; None if it has no choice."""
    if preference is None:
        return None
    claims = [_claim_of(one, namespace, state) for one in given]
    return choose(preference, [claim for claim in claims if isinstance(claim, ResourceClaim)], state, budget)


def prefer_nodes(pod: Json, done: Translation, owner: PodOwner, state: State) -> Preference | None:
    """Read which nodes of a mixed fleet a pod prefers that is translated now."""
    if not done.templates:
        return None
    view = mapping(pod)
    replaced = {decision.key for decision in done.decisions if decision.action in REPLACED}
    keys = [key for key in replaced if state.configuration.resource(key)]
    return read_preference(view, owner, keys, state)


def add_choice(decisions: Iterable[Decision], choice: Choice) -> tuple[Decision, ...]:
    """Add to each key that claims replace why nodes that have moved serve it."""
    marked: list[Decision] = []
    for decision in decisions:
        known = f"{decision.basis}; " if decision.basis else ""
        marked.append(replace(decision, basis=known + choice.why) if decision.action in REPLACED else decision)
    return tuple(marked)


def preview_claims(done: Translation, state: State, budget: Budget) -> Found:
    """Say what is wrong with the claims of a translation, were they asked for now; nothing if there is no time to look."""
    try:
        return deny_or_warn(judge_requests(done.given, "", state, budget), state)
    except OutOfBudget:
        return NOTHING


def _object(obj: dict[str, Json], state: State, budget: Budget) -> Found:
    """Judge a slice, a class, or an object of our own by the rules of `drawbridge check`.

    Slices and classes only get warnings: the API server refuses invalid ones itself. Objects of drawbridge's own kinds are refused.
    """
    budget.charge_whole(OBJECT)  # its selectors are compiled by rules that know no budget
    denials: list[Denial] = []
    warnings: list[Warned] = []
    version = str(obj.get("apiVersion", ""))
    is_own_kind = version.startswith(f"{names.DOMAIN}/")
    kind = str(obj.get("kind", ""))
    problems = validation.problems(obj, state.features.likely.gates)
    for finding in validation.findings(problems, kind):
        text = f"{finding.code} {finding.path}: {finding.message}"
        if finding.hint:
            text = f"{text} ({finding.hint})"
        if is_own_kind and finding.severity == Severity.ERROR:
            denials.append(Denial(Code.OBJECT, text))
        else:
            warnings.append(text)
    return Found(tuple(denials), tuple(warnings))


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
        return NOTHING
    given_by_name = {one.name: one for one in given}
    answer = _judge_reachable(
        claims, state, budget, given=given_by_name.values(), place=NOWHERE if by_plugin else place, subject=subject
    )
    match answer.verdict:
        case Feasibility.FITS:
            return NOTHING
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
    return NOTHING


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
    return NOWHERE if PLACING.isdisjoint(spec) else place_of(spec)


def _denied(denial: Denial, container: str, key: str, may_serve: MayServe) -> Found:
    decision = Decision("", container, "", key, Action.REFUSED, denial.text, code=denial.code, remedy=denial.remedy)
    return Found(denials=(denial,), decisions=(decision,), may_serve=may_serve)


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
    doubts = [replace(one, action=Action.LEFT, detail=opening + one.detail) for one in found.decisions]
    return Found(warnings=(*warnings, *found.warnings), decisions=tuple(doubts))


def _claim(spec: ResourceClaimSpec, namespace: str, name: str) -> ResourceClaim:
    return ResourceClaim(metadata=ObjectMeta(namespace=namespace, name=name), spec=claim_spec(spec))


def workload_in_files(obj: dict[str, Json]) -> PodOwner:
    """Name the controller of the pods of an object, as the pods will name it."""
    kind = group_kind(obj)
    namespace = namespace_of(obj)
    metadata = mapping(obj.get("metadata"))
    if kind == ("", "Pod"):
        return workload(namespace, metadata)
    return PodOwner(namespace, controller_kind(kind[1]), str(metadata.get("name") or ""))
