"""Answers why a pod does not run: the first step of its life that is not done, and the reasons.

`RULES` is ordered: the first rule with a reason decides, so a rule about a cause precedes the rules about its effects.
"""

from __future__ import annotations

from datetime import timedelta
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from allocator.decisions import Outlook, find_claims, why_unready
from allocator.pods import lacks, missing_classes, requested_devices, requests
from allocator.preemption import without_pods
from allocator.simulation import gang_of
from analysis.configuration import KIND as CONFIGURATION
from analysis.container_states import failing_containers
from analysis.explain.claim_story import FALSE, claim_story
from analysis.explain.stories import ClaimState, ClaimStory, PodState, Step
from analysis.explain.webhook_record import webhook_story
from analysis.loading import owner_of
from analysis.object_events import events_in, shown
from analysis.outlook import queue_of
from analysis.prospects import (
    ABOUT_VOLUMES,
    NO_NODE_READ,
    STOCK,
    prospect_of,
    scheduler_message,
    unchecked_conditions,
    volume_faults,
)
from analysis.refused_pods import AGAIN, QUOTED, remedy_for
from analysis.requesting import kept_by, requests_devices
from analysis.unserved_nodes import driver_fault
from analysis.way_out import Degree, find_way_out
from cluster.objects import ResourceQuota
from cluster.patch import apply_json_patch
from dra.budget import Budget
from dra.codes import CODES
from dra.objects import Pod, blocks, claim_keys, claim_name, owning_pods, pod_group_key, results_of, served_resources
from dra.policy import BY_CLASS, COUNT_KEY, fences
from dra.raw import moment
from dra.reason import Actor, Reason
from dra.wire import builtins, convert
from webhook import names
from webhook.admission import changes_by_runtime_class
from webhook.claims import template_lifecycle
from webhook.dialects import TARGETS, Outcome
from webhook.refusals import REFUSALS
from webhook.state import Mode, mode_of, node_constraints, reach_ignoring_taints, why_not, workload
from webhook.unknown import find_missed, find_unknown, find_unmatched_selectors, find_unserved, why_unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from allocator.simulation import PodOutcome
    from analysis.explain.stories import WebhookStory
    from analysis.loading import Reading
    from analysis.object_events import Happening
    from analysis.prospects import Prospect
    from dra.finding import Finding
    from dra.objects import DeviceToleration
    from webhook.state import Configuration, State

FAILED_CLAIM = "FailedResourceClaimCreation"
FAILED_PREPARE = "FailedPrepareDynamicResources"
FAILED_TEMPLATE = "FailedTemplateCreation"  # of drawbridge's own controller
FAILED_OF_PODS = (FAILED_CLAIM, FAILED_PREPARE, FAILED_TEMPLATE)
TEMPLATES = "count/resourceclaimtemplates.resource.k8s.io"
_SEE_EVENTS = "; if its creation is refused, the pod's events say why (kubectl describe pod)"
_CHANGING = frozenset((Outcome.TRANSLATED, Outcome.APPROXIMATED))
# These outlooks are only about claims. A node whose device plugin serves the extended resources may still have room for the pod.
REFUSING = (Outlook.FULL, Outlook.NEVER)
_ALLOCATED = frozenset((ClaimState.ALLOCATED, ClaimState.RESERVED, ClaimState.PREPARED))
_TOGETHER = ("Job", "JobSet", "LeaderWorkerSet")  # their pods wait for each other
_TRIED = timedelta(seconds=30)  # a scheduler tries a pod within milliseconds
_PREPARE_ONCE = frozenset(target.driver for target in TARGETS.values() if target.prepares_once)
_OF_CLAIMS = frozenset((Step.TEMPLATE, Step.CLAIM, Step.ALLOCATED, Step.PREPARED))


class Facts:
    """A pod, and what the rules read about it. Each part is computed at most once."""

    def __init__(self, pod: Pod, reading: Reading) -> None:
        self.pod, self.reading, self.configuration = pod, reading, reading.configuration
        self.namespace = pod.metadata.namespace or "default"
        self.is_stored = bool(pod.metadata.uid or pod.status.phase)  # by an API server
        self.node = pod.spec.node_name
        self.scheduler = pod.spec.scheduler_name or STOCK
        self.uses_devices = bool(pod.spec.resource_claims or requested_devices(pod))

    @cached_property
    def state(self) -> State:
        return self.reading.state

    @cached_property
    def reached(self) -> frozenset[str]:
        """The nodes that the pod's selector and affinity allow."""
        return reach_ignoring_taints(node_constraints(builtins(self.pod.spec)), self.state, Budget())

    @cached_property
    def webhook(self) -> WebhookStory:
        return webhook_story(self.pod, self.reading)

    @property
    def is_changed(self) -> bool:
        """Whether the webhook would still change the pod before a scheduler sees it."""
        return not self.is_stored and any(decision.outcome in _CHANGING for decision in self.webhook.decisions)

    @cached_property
    def claims(self) -> tuple[ClaimStory, ...]:
        return tuple(_claims_of(self.pod, self.reading))

    @property
    def open_claims(self) -> Iterator[ClaimStory]:
        """The claims that do not exist, and are not created from a template once the pod is."""
        for claim in self.claims:
            if claim.state is ClaimState.MISSING and (self.is_stored or not self.has_template(claim)):
                yield claim

    @property
    def missing_templates(self) -> Iterator[str]:
        """The templates of drawbridge that the open claims name and that do not exist."""
        for claim in self.open_claims:
            if claim.template.startswith(names.PREFIX) and not self.has_template(claim):
                yield claim.template

    def has_template(self, claim: ClaimStory) -> bool:
        return f"{self.namespace}/{claim.template}" in self.reading.templates

    @cached_property
    def events(self) -> tuple[Happening, ...]:
        """The events about the pod, the newest first."""
        meta = self.pod.metadata
        return shown(events_in(self.reading, "Pod", self.namespace, meta.name), meta.uid).shown

    def warned(self, reason: str) -> str:
        """Return the message of the newest event with a reason; "" if there is none."""
        return _quote(next((event.message for event in self.events if event.reason == reason), ""))

    @cached_property
    def failing(self) -> str:
        """The first container that does not run, and why; "" if there is none."""
        return next(failing_containers(self.reading.raw.get(self.pod.metadata.key, {})), "")

    @cached_property
    def newest_of_kubelet(self) -> Happening | None:
        """The kubelet's newest warning about the pod."""
        for event in self.events:
            if event.reason == FAILED_PREPARE or (event.type == "Warning" and event.source == "kubelet"):
                return event
        return None

    @cached_property
    def admitted_scheduler(self) -> str:
        """The scheduler of the pod, also as the webhook would change it."""
        return queue_of(self.reading).scheduler_of(self.pod) or STOCK

    @property
    def actor(self) -> Actor:
        return scheduler_actor(self.admitted_scheduler, self.configuration)

    @cached_property
    def outcome(self) -> PodOutcome:
        return queue_of(self.reading).place(self.pod.metadata.key)

    @property
    def why_not_placed(self) -> str:
        return queue_of(self.reading).explain(self.pod.metadata.key).reason.text

    @cached_property
    def prospect(self) -> Prospect | None:
        """Whether the pending claims can be served; None if the pod does not wait for that."""
        is_coming = any(claim.state is ClaimState.MISSING for claim in self.claims) and not any(self.open_claims)
        if self.node or self.pod.is_done or self.is_changed or is_coming:
            return None
        prospect = prospect_of(self._as_admitted(), self.reading)
        if prospect is not None and not self.is_stored and prospect.outlook is Outlook.FITS and self.webhook.refusals:
            return None  # the webhook refuses the pod for a reason other than devices
        return prospect

    def _as_admitted(self) -> Pod:
        """Add to a pod that no API server has seen the fields that its RuntimeClass sets."""
        raw = self.reading.raw.get(self.pod.metadata.key)
        if raw is None or self.is_stored:
            return self.pod
        operations, _ = changes_by_runtime_class(raw, self.state)
        return convert(apply_json_patch(raw, operations), Pod) if operations else self.pod

    def condition(self, type_: str) -> str:
        """Return the status of a condition; "" if the pod does not have it."""
        return next((condition.status for condition in self.pod.status.conditions if condition.type == type_), "")


def facts_of(key: str, reading: Reading) -> Facts:
    """Return the facts about a pod; the reading caches them."""
    facts: Facts = reading.derived.get((Facts, key)) or Facts(reading.pods[key], reading)
    reading.derived[Facts, key] = facts
    return facts


def why_not_running(facts: Facts) -> PodState:
    """Return which steps a pod has done, the first that it has not, and why not."""
    rule, reasons = first_reasons(facts, RULES)
    step = rule.step if rule is not None else None
    if step is Step.SCHEDULED and any(claim.state not in _ALLOCATED for claim in facts.claims):
        step = Step.ALLOCATED  # a scheduler allocates the claims before it binds the pod
    reasons = tuple(
        [
            replace(reason, remedies=(CODES[reason.code].remedy,)) if reason.code and not reason.remedies else reason
            for reason in reasons
        ]
    )
    skipped = set() if facts.claims else _OF_CLAIMS
    if not any(claim.template for claim in facts.claims):
        skipped = {Step.TEMPLATE, *skipped}
    own = [step for step in Step if step not in skipped]
    done = own[: own.index(step)] if step in own else own if facts.pod.status.phase == "Running" else ()
    return PodState(done=tuple(done), step=step, reasons=reasons)


def first_reasons(facts: Facts, rules: Sequence[PodRule]) -> tuple[PodRule | None, tuple[Reason, ...]]:
    """Return the first rule with reasons why a pod does not run, and these; or why no step is left."""
    if ended := _why_over(facts):
        return None, (ended,)
    for rule in rules:
        if rule.on_node is bool(facts.node) and (reasons := tuple(rule.find(facts))):
            return rule, reasons
    return None, ()


def scheduler_actor(name: str, configuration: Configuration) -> Actor:
    """Return the actor with this scheduler name: the bridge if the configuration names it or, without a configured bridge, if the name begins with ours."""
    bridge = configuration.file.bridge
    is_bridge = name == bridge.scheduler_name if bridge is not None else name.startswith(names.NAME)
    return Actor.BRIDGE if is_bridge else Actor.SCHEDULER


def _why_over(facts: Facts) -> Reason | None:
    """Return why a running, ended or deleted pod takes no further step."""
    pod, node, deleted = facts.pod, facts.node, facts.pod.metadata.deletion_timestamp
    if pod.has_ended:
        return Reason(actor=Actor.NONE, text=f"it has ended ({pod.status.phase}), and uses nothing any more")
    if deleted and node:
        message = f"it is being deleted since {deleted}; the kubelet of {node} ends it first"
        return Reason(actor=Actor.KUBELET, text=message)
    if deleted:
        finalizers = ", ".join(pod.metadata.finalizers)
        waits = f", and waits for its finalizers: {finalizers}" if finalizers else ""
        return Reason(actor=Actor.NONE, text=f"it is being deleted since {deleted}{waits}")
    if node and pod.status.phase == "Running" and not facts.failing:
        return Reason(actor=Actor.NONE, text=f"it runs on {node}")
    return None


# ---- before scheduling


def _is_refused(facts: Facts) -> Iterator[Reason]:
    if not facts.is_stored and facts.webhook.refusals:
        yield refusal_of(facts.webhook.refusals)


def refusal_of(refusals: Sequence[Finding]) -> Reason:
    """Return the refusal of a pod that is not in a cluster: by the API server, else by the webhook."""
    refusal = min(refusals, key=lambda refusal: refusal.code in REFUSALS)
    actor, opening = Actor.USER, "it has to be corrected"
    if refusal.code in REFUSALS:
        actor, opening = Actor.WEBHOOK, "it would be refused"
    remedies = tuple(filter(None, (refusal.remedy,)))
    return Reason(actor=actor, text=f"{opening}: {refusal.message}", code=refusal.code, never=True, remedies=remedies)


def _is_gated(facts: Facts) -> Iterator[Reason]:
    if gates := [gate.name for gate in facts.pod.spec.scheduling_gates]:
        listed = ", ".join(gates)
        remedies = (f"look at the program that removes {listed}; if there is none, remove the gates with kubectl edit",)
        yield Reason(actor=Actor.USER, text=f"scheduling gates hold it: {listed}", remedies=remedies)


def _has_an_unknown_key(facts: Facts) -> Iterator[Reason]:
    """Resources that no table, node or class has."""
    for key, similar_keys in find_unknown(facts.pod, facts.state).items():
        message = f"no node has {key}: {why_unknown(similar_keys)}"
        yield Reason(code="O104", actor=Actor.USER, text=message, never=True)


def _is_not_translated(facts: Facts) -> Iterator[Reason]:
    """Keys that the webhook would translate now in mode `enforce`, or that no claim can replace, and that nothing offers."""
    pod, state, meta = facts.pod, facts.state, facts.pod.metadata
    if not facts.is_stored or facts.condition("PodScheduled") != FALSE:
        return
    if not facts.reading.in_force.is_default:
        labels = {key: value for key, value in meta.labels.items() if (key, value) != (names.SKIP_LABEL, "true")}
        pod, state = replace(pod, metadata=replace(meta, labels=labels)), facts.reading.enforcing
    missed = find_missed(pod, state)
    if missed is not None:
        why, first = "the webhook was down or slices of its devices were missing when it was created", ""
        if pod.metadata.labels != meta.labels:
            why, first = f"its label {names.SKIP_LABEL} keeps it from the webhook", "remove the label"
        elif (
            mode_of(facts.state, workload(facts.namespace, template_lifecycle.metadata_at_admission(facts.pod)))
            is not Mode.ENFORCE
        ):
            why, first = why_not(facts.state, facts.namespace), f"set {names.MODE_LABEL}=enforce on its namespace"
            if not why:
                why, first = "the configuration's `canary` excludes it", "raise `canary`"
        remedies = (f"{first}; then {missed.remedies[0]}",) if first else missed.remedies
        yield replace(missed, text=f"{missed.text}: {why}", remedies=remedies)
        return
    for key, why in find_unserved(pod, state).items():
        message = f"no node has {key}, and no claim can be created for it: {why}"
        yield Reason(code="O104", actor=Actor.DRIVER, text=message, never=True)


def _has_a_deleted_claim(facts: Facts) -> Iterator[Reason]:
    for claim in facts.claims:
        if claim.state is ClaimState.DELETING:
            message = f"claim {claim.name} is being deleted, and no pod gets it"
            yield Reason(actor=Actor.CLAIMS, text=message, causes=(f"ResourceClaim/{claim.name}",))
            return


def _cannot_have_a_template(facts: Facts) -> Iterator[Reason]:
    """A template of drawbridge that cannot be created."""
    for template in facts.missing_templates:
        message = f"it waits for ResourceClaimTemplate {template}"
        if quota := next(_full_quotas(facts, (TEMPLATES,)), None):
            message = f"{message}, but {quota.text}"
            remedies = (f"raise {TEMPLATES} in that quota, or have unused templates deleted",)
            yield replace(quota, code="O105", actor=Actor.TEMPLATES, text=message, remedies=remedies)
        elif failure := facts.warned(FAILED_TEMPLATE):
            message, remedies = f"{message}, and {failure}", (remedy_for(failure),)
            yield Reason(code="O105", actor=Actor.TEMPLATES, text=message, remedies=remedies)


def _lacks_a_template(facts: Facts) -> Iterator[Reason]:
    """A template of drawbridge that was not created yet."""
    for name in facts.missing_templates:
        if template_lifecycle.is_copy(facts.pod, name):
            message = f"ResourceClaimTemplate {name} {template_lifecycle.COPY}"
            remedies = ("delete the pod, and create it from its original manifest",)
            yield Reason(code="O105", actor=Actor.USER, text=message, never=True, remedies=remedies)
        else:
            message = f"ResourceClaimTemplate {name} does not exist: the controller has not created it{_SEE_EVENTS}"
            remedies = (
                "check that the namespace has mode enforce and that drawbridge-controller runs; its log names the pod and the reason",
            )
            yield Reason(code="O105", actor=Actor.TEMPLATES, text=message, remedies=remedies)


def _names_no_template(facts: Facts) -> Iterator[Reason]:
    """A template of the pod's author that does not exist."""
    for claim in facts.open_claims:
        if claim.template and not facts.has_template(claim):
            yield lacks("ResourceClaimTemplate", claim.template)


def _names_no_claim(facts: Facts) -> Iterator[Reason]:
    """A claim of the pod's author that does not exist."""
    for claim in facts.open_claims:
        if not claim.template:
            yield lacks("ResourceClaim", claim.name.partition("/")[2])


def _cannot_have_a_claim(facts: Facts) -> Iterator[Reason]:
    """A claim that kube-controller-manager is not allowed to create."""
    message = facts.warned(FAILED_CLAIM)
    # If the template did not exist then, kube-controller-manager tries again.
    if message and "not found" not in message and any(facts.open_claims):
        remedies = (remedy_for(message),)
        text_ = f"its claim cannot be created: {message}"
        yield Reason(code="O106", actor=Actor.CLAIMS, text=text_, remedies=remedies)


def _lacks_a_claim(facts: Facts) -> Iterator[Reason]:
    for claim in facts.open_claims:
        if quota := next(_full_quotas(facts, _quota_keys(facts, claim)), None):
            yield replace(quota, text=f"no claim {claim.entry} can be created: {quota.text}")
        else:
            message = f"kube-controller-manager has not created claim {claim.entry} yet{_SEE_EVENTS}"
            yield Reason(actor=Actor.CLAIMS, text=message)
        return


def _quota_keys(facts: Facts, claim: ClaimStory) -> set[str]:
    """Return the keys by which a ResourceQuota counts a claim that a template describes."""
    template = facts.reading.templates.get(f"{facts.namespace}/{claim.template}")
    asked = template.spec.spec.devices.requests if template is not None else ()
    bodies = chain.from_iterable(request.alternatives.values() for request in asked)
    return {COUNT_KEY, *[f"{body.device_class_name}{BY_CLASS}" for body in bodies]}


def _full_quotas(facts: Facts, keys: Collection[str]) -> Iterator[Reason]:
    """Yield the ResourceQuotas of the pod's namespace in which one of these keys is used up."""
    for quota in facts.reading.typed.of_type(ResourceQuota):
        for key, hard in quota.status.hard.items() if quota.metadata.namespace == facts.namespace else ():
            used = quota.status.used.get(key)
            if key in keys and used is not None and used.nano >= hard.nano:
                name = f"{facts.namespace}/{quota.metadata.name}"
                yield Reason(
                    actor=Actor.CLAIMS,
                    text=f"ResourceQuota {name} has {key} used up, {used} of {hard}",
                    causes=(f"ResourceQuota/{name}",),
                    remedies=("have the ResourceQuota raised",),
                )


# ---- scheduling


def _is_not_tried(facts: Facts) -> Iterator[Reason]:
    """A pod that its scheduler has not tried. A scheduler that has tried a younger pod is left out, because it works."""
    if not facts.is_stored or not facts.reading.knows_pods or facts.condition("PodScheduled"):
        return
    born, tried = facts.pod.metadata.creation_timestamp, facts.reading.youngest_tried.get(facts.scheduler)
    created = moment(born)
    if created is not None and timedelta() <= facts.reading.time - created < _TRIED:
        return
    actor = scheduler_actor(facts.scheduler, facts.configuration)
    is_unknown = tried is None and facts.scheduler != STOCK and actor is Actor.SCHEDULER
    if facts.uses_devices and (is_unknown or (born and (tried or "") <= born)):
        runs = "a scheduler with that profile runs"
        if actor is Actor.BRIDGE:
            runs = "Deployments drawbridge-allocator and drawbridge-scheduler run"
        remedies = (f"check that {runs}", "correct schedulerName where the pod is created")
        actor = Actor.USER if is_unknown else actor
        message = f"no scheduler called {facts.scheduler} has tried to place it"
        yield Reason(code="O109", actor=actor, text=message, remedies=remedies)


def _is_behind_the_fence(facts: Facts) -> Iterator[Reason]:
    """An unschedulable pod whose claims do not tolerate the taint of a fence."""
    stock, pod = facts.reading.stock, facts.pod
    rules = stock.rules.values()
    if facts.condition("PodScheduled") != FALSE or not rules:
        return
    driver_of = {name: served.driver for name, served in facts.state.fleet.classes.items() if served.driver}
    fenced = {name for name, driver in driver_of.items() if any(fences(rule, driver) for rule in rules)}
    if not fenced:
        return

    def fence_of(driver: str, tolerations: tuple[DeviceToleration, ...]) -> str:
        blocking = [rule for rule in rules if fences(rule, driver) and blocks(rule.spec.taint, tolerations)]
        return names.FENCE if blocking else ""

    waits = f"it waits with scheduler {facts.scheduler} for"
    serving = stock.serving()
    fenced_names = [name for name in served_resources(pod, serving) if serving[name] in fenced]
    if fenced_names and scheduler_actor(facts.scheduler, facts.configuration) is not Actor.BRIDGE:
        remedy = f"give the pod the bridge's schedulerName: the webhook translates no {fenced_names[0]} into a claim"
        if all(facts.configuration.resource(name) for name in fenced_names):
            remedy = "recreate the pod where the webhook translates it (docs/bridge.md), or give it the bridge's schedulerName"
        message = f"{waits} {', '.join(fenced_names)}, which fenced devices serve by name, and claims that kube-scheduler creates tolerate no taint"
        yield Reason(code="O110", actor=Actor.USER, text=message, never=True, remedies=(remedy,))
    for key in claim_keys(pod):
        claim = stock.claims.get(key)
        if claim is None or claim.status.allocation is not None:
            continue
        barred = [kept_by(request, driver_of, fence_of) for request in claim.spec.devices.requests]
        if drivers := ", ".join(sorted({driver for driver, _ in chain.from_iterable(barred)})):
            message = f"{waits} devices of {drivers}, which are tainted, and claim {claim.metadata.name} does not tolerate the taint"
            yield Reason(code="O110", actor=Actor.USER, text=message, never=True)


def _lacks_a_class(facts: Facts) -> Iterator[Reason]:
    """A claim whose request names a DeviceClass that does not exist."""
    stock = facts.reading.stock
    for key in claim_keys(facts.pod) if facts.state.fleet.known else ():
        if claim := stock.claims.get(key):
            yield from missing_classes(claim, stock)


def _is_impossible(facts: Facts) -> Iterator[Reason]:
    """A pod that no node could serve even if the cluster were idle."""
    pod, stock, state = facts.pod, facts.reading.stock, facts.state
    if not stock.nodes or facts.is_changed or not facts.uses_devices:
        return
    reached, autoscalers = facts.reached, state.fleet.installed.autoscalers
    blind = pod.spec.resource_claims and autoscalers and not any(scaler.considers_claims for scaler in autoscalers)
    if not reached and (blind or not state.fleet.grows):
        for reason in find_unmatched_selectors(builtins(pod.spec), state):
            yield replace(reason, actor=Actor.USER)
        return
    way_out = facts.prospect.way_out if facts.prospect is not None else None
    if way_out is not None and way_out.degree is Degree.NEVER and facts.outcome.node is None:
        yield way_out.reason(facts.actor)


def _lacks_members(facts: Facts) -> Iterator[Reason]:
    """A pod of a PodGroup with fewer pods than its scheduler places together."""
    group = facts.pod.spec.scheduling_group
    if group is None:
        return
    name = f"{facts.namespace}/{group.pod_group_name}"
    pods = [
        pod
        for pod in facts.reading.pods.values()
        if (pod.metadata.namespace, pod.spec.scheduling_group) == (facts.namespace, group)
    ]
    members = sum(not pod.has_ended for pod in pods)
    pod_group = facts.reading.groups.get(name)
    least = pod_group.min_count if pod_group is not None else 0
    if members < least:
        message = f"PodGroup {name} places {least} of its pods together, and has {members}"
        remedies = ("create the other pods of the group, or lower its minCount",)
        yield Reason(code="O119", actor=Actor.USER, text=message, causes=(f"PodGroup/{name}",), remedies=remedies)


def _scheduler_says(facts: Facts) -> Iterator[Reason]:
    """Conditions that only kube-scheduler checks."""
    last_message = scheduler_message(facts.pod)
    is_unchecked = last_message == unchecked_conditions(facts.pod, facts.reading) or ABOUT_VOLUMES.search(last_message)
    if last_message and is_unchecked:
        yield Reason(actor=facts.actor, text=f"{facts.admitted_scheduler} says: {last_message}")


def _is_not_placed(facts: Facts) -> Iterator[Reason]:
    """Every other pod without a node: the node with room for it, or the obstacles."""
    prospect, scheduler, actor = facts.prospect, facts.admitted_scheduler, facts.actor
    if prospect is not None:
        way_out = prospect.way_out
        if way_out is None or facts.outcome.node is not None or _waits_for_quota_or_gang(facts, prospect):
            yield Reason(actor=actor, text=_outlook_text(facts, prospect))
        else:
            stalemate = _stalemate(facts) if way_out.degree is Degree.WAITS else ()
            yield next(iter(stalemate), way_out.reason(actor))
        return
    states = {claim.state for claim in facts.claims}
    if ClaimState.MISSING in states:  # they are created with the pod
        yield Reason(actor=actor, text=f"once its claims are made, {_room_text(facts)}")
    elif states and states <= _ALLOCATED:
        claims = facts.reading.stock.claims
        unready = why_unready(claims[key] for key in claim_keys(facts.pod) if key in claims)
        if unready is None and facts.outcome.node is None and facts.reading.stock.nodes:
            pod_claims = find_claims(facts.pod, facts.reading.stock)
            unready = find_way_out(facts.pod, pod_claims, facts.reading).reason(actor)
        yield unready or Reason(actor=actor, text=f"its claims are allocated; {scheduler} has not bound it yet")
    else:
        yield _without_claims(facts)


def _half_placed(reading: Reading) -> dict[str, tuple[list[Pod], list[Pod]]]:
    """Return the groups with placed and waiting pods, and these: PodGroups, and Jobs and sets whose pods work together; the reading caches them."""
    groups: dict[str, tuple[list[Pod], list[Pod]]] = reading.derived.get(_half_placed) or {}
    if _half_placed not in reading.derived:
        for key, pod in reading.pods.items():
            if (group := _group_of(pod, reading)) and not pod.has_ended and facts_of(key, reading).uses_devices:
                groups.setdefault(group, ([], []))[not pod.spec.node_name].append(pod)
        groups = {group: pods for group, pods in groups.items() if all(pods)}
        reading.derived[_half_placed] = groups
    return groups


def _group_of(pod: Pod, reading: Reading) -> str:
    if group := pod_group_key(pod):
        return f"PodGroup/{group}"
    owners = reading.owner_chain(owner_of(reading.raw.get(pod.metadata.key, {})))
    return "/".join(owners[-1][1:]) if owners and owners[-1].kind in _TOGETHER else ""


def half_placed_group(pod: Pod, reading: Reading) -> str:
    """Return the group of a pod if it has placed and waiting pods; "" for other pods."""
    group = _group_of(pod, reading)
    return group if group in _half_placed(reading) else ""


def _stalemate(facts: Facts) -> Iterator[Reason]:
    """Two half-placed groups that hold devices that the other needs."""
    groups = _half_placed(facts.reading)
    own = half_placed_group(facts.pod, facts.reading)
    for other in sorted(groups.keys() - {own}) if own else ():
        (placed, waiting), (own_placed, own_waiting) = groups[other], groups[own]
        if _frees(placed, facts.pod, facts.reading) and _frees(own_placed, waiting[0], facts.reading):
            counts = {own: (own_placed, own_waiting), other: (placed, waiting)}
            shares = [f"{len(counts[name][0])} of {sum(map(len, counts[name]))}" for name in sorted(counts)]
            text = f"{' and '.join(sorted(counts))} each hold devices that the other needs: {' and '.join(shares)} pods are placed"
            remedies = ("suspend or delete one of them until the other has ended",)
            yield Reason(code="O119", actor=Actor.USER, text=text, causes=tuple(sorted(counts)), remedies=remedies)
            return


def _frees(ending: Sequence[Pod], waiting: Pod, reading: Reading) -> bool:
    """Return whether a node could serve a waiting pod once other pods have ended."""
    after = without_pods(reading.stock, ending)
    return bool(reading.decider.search_fleet(after, find_claims(waiting, after).open).feasible)


def _without_claims(facts: Facts) -> Reason:
    room, state, webhook = _room_text(facts), facts.state, facts.webhook
    raw = facts.reading.raw.get(facts.pod.metadata.key, {})
    if not webhook.predicted or not requests_devices(raw, webhook.decisions, facts.configuration):
        last_message = scheduler_message(facts.pod)
        says = f"; {facts.admitted_scheduler} says: {last_message}" if last_message else ""
        return Reason(actor=facts.actor, text=f"it has no claims: {room}{says}")
    # It requests legacy keys, and has no claims for them.
    if facts.is_changed:
        translated = dict.fromkeys(decision.key for decision in webhook.decisions if decision.outcome in _CHANGING)
        message = f"no claim replaces {', '.join(translated)} yet; as the webhook would admit it, {room}"
        return Reason(actor=Actor.WEBHOOK, text=message)
    keyed = [decision for decision in webhook.decisions if decision.key]
    keys = dict.fromkeys(key.key for key in [key for key in keyed if key.container] or keyed)
    asked = requests(facts.pod)
    lacking = [key for key in keys if asked.get(key) and state.configuration.resource(key) and not state.offers(key)]
    if lacking and state.fleet.nodes and state.confirmed and not state.unseen:
        room = f"it waits for a node that has {', '.join(lacking)}, and no node does"
    return Reason(actor=facts.actor, text=f"no claim replaces {', '.join(keys)}: {room}")


def _room_text(facts: Facts) -> str:
    """Return the node that has room for a pod now, or why no node has."""
    if facts.outcome.node is not None:
        return f"{facts.outcome.node} has room for it, and {_not_placed(facts)}"
    if not facts.reading.stock.nodes:
        return NO_NODE_READ
    if any(cause.startswith("PodGroup/") for cause in facts.outcome.reason.causes):
        return facts.outcome.reason.text
    return f"no node has room for it now ({facts.why_not_placed})"


def _not_placed(facts: Facts) -> str:
    """Return the reason for a pod that its scheduler has not placed yet. kube-scheduler retries an unschedulable pod after five minutes, even without an event."""
    again = facts.admitted_scheduler == STOCK and facts.condition("PodScheduled") == FALSE
    retried = "; it tries a refused pod again within five minutes" if again else ""
    return f"{facts.admitted_scheduler} has not placed it yet{retried}"


def _waits_for_quota_or_gang(facts: Facts, prospect: Prospect) -> bool:
    """Return whether devices for a pod are free, and a quota or the other pods of its gang keep it waiting."""
    is_held = facts.outcome.exceeded_quota or gang_of(facts.pod, facts.reading.groups)
    return prospect.outlook is Outlook.FITS and facts.outcome.node is None and bool(is_held)


def _outlook_text(facts: Facts, prospect: Prospect) -> str:
    """Return why a pod is not placed yet. The outcome also covers requests without a claim, such as keys of a device plugin."""
    outcome = facts.outcome
    barred = {name for barrier in prospect.other_reasons for name in barrier.nodes}
    fitting = [name for group in prospect.groups if group.devices for name in group.nodes]
    usable = [name for name in fitting if name not in barred]
    if outcome.node is not None and outcome.node in prospect.plugins:
        others = f" and {len(prospect.plugins) - 1} more nodes" if len(prospect.plugins) > 1 else ""
        return f"device plugins have room for it on {outcome.node}{others}, and {_not_placed(facts)}"
    if prospect.outlook is not Outlook.FITS and (outcome.node is None or prospect.outlook not in REFUSING):
        return prospect.reason.text
    if not usable or _waits_for_quota_or_gang(facts, prospect):
        return _room_text(facts)
    if outcome.node is None:
        return f"devices for it are free, but pods before it in the queue take them ({facts.why_not_placed})"
    where = f" on {len(usable)} nodes where it may run" if len(usable) < len(fitting) else ""
    return f"devices for it are free{where}, and {_not_placed(facts)}"


# ---- on the node


def _is_bound_without_devices(facts: Facts) -> Iterator[Reason]:
    """A claim without devices. The kubelet waits for them, and schedulers ignore pods that have a node."""
    claims, keys = facts.reading.stock.claims, claim_keys(facts.pod)
    lacking = [key for key in keys if key in claims and claims[key].status.allocation is None]
    if not lacking:
        return
    uid = facts.pod.metadata.uid
    others = sorted(
        key
        for key, claim in claims.items()
        if key not in keys
        and claim.status.allocation is not None
        and any(owner.uid == uid for owner in owning_pods(claim))
    )
    instead = f"; claim {others[0]}, which the pod does not name any more, has devices" if others else ""
    message = (
        f"it is on node {facts.node}, and claim {lacking[0]} has no devices, so the kubelet does not start it{instead}"
    )
    again = ("delete the pod, and create it again without nodeName: then a scheduler allocates its claim",)
    remedies = () if facts.pod.metadata.owner_references else again
    causes = (f"ResourceClaim/{lacking[0]}",)
    yield Reason(code="O114", actor=Actor.USER, text=message, causes=causes, remedies=remedies)


def _has_a_device_that_is_not_ready(facts: Facts) -> Iterator[Reason]:
    for claim in facts.claims:
        for device in claim.devices:
            for condition in device.conditions:
                if f"={FALSE}" in condition:
                    message = f"it is bound to {facts.node}; {device.device} reports {condition}"
                    yield Reason(actor=Actor.DRIVER, text=message)
                    return


def _has_a_container_that_waits(facts: Facts) -> Iterator[Reason]:
    """A container that the kubelet cannot start, or starts again and again. Images are pulled once the devices are prepared."""
    if facts.failing:
        log = f"look at its log: kubectl -n {facts.namespace} logs {facts.pod.metadata.name} --previous"
        remedies = (log,) if facts.pod.status.phase == "Running" else ()
        yield Reason(actor=Actor.KUBELET, text=f"it is bound to {facts.node}, and {facts.failing}", remedies=remedies)


def _is_not_prepared(facts: Facts) -> Iterator[Reason]:
    """A driver that does not prepare the pod's claims, by the newest warning of the kubelet."""
    warning = facts.newest_of_kubelet
    if warning is None or warning.reason != FAILED_PREPARE:
        return
    message, node = facts.warned(FAILED_PREPARE), facts.node
    text_ = f"on node {node}, {_drivers_of(facts) or 'its driver'} does not prepare its devices: {message}"
    if fault := driver_fault(node, facts.reading):
        text_ = f"{text_}; {fault}"
    yield Reason(code="O112", actor=Actor.DRIVER, text=text_, causes=(f"Node/{node}",))


def _has_a_warning(facts: Facts) -> Iterator[Reason]:
    """The newest warning of the kubelet."""
    warning = facts.newest_of_kubelet
    if warning is not None:
        words = f"{warning.reason}{f' at {warning.at}' if warning.at else ''}: {_quote(warning.message)}"
        yield Reason(
            actor=Actor.KUBELET, text=f"it is bound to {facts.node}, and the kubelet's newest warning is {words}"
        )


def _is_not_prepared_again(facts: Facts) -> Iterator[Reason]:
    """A pod without a sandbox, whose driver refuses to prepare a claim twice. This is usual after a restart of kubelet or node."""
    if facts.condition("PodReadyToStartContainers") != FALSE:
        return
    for key in claim_keys(facts.pod):
        once = sorted({result.driver for result in results_of(facts.reading.stock.claims.get(key))} & _PREPARE_ONCE)
        if once:
            message = (
                f"it waits on {facts.node}: {once[0]} refuses to prepare claim {key.rpartition('/')[2]} again, "
                "which is usual after a restart of the kubelet or the node"
            )
            remedies = ("delete the pod, and the claim if it was created by hand: a new claim is prepared",)
            yield Reason(code="O113", actor=Actor.DRIVER, text=message, remedies=remedies)


def _waits_for_its_drivers(facts: Facts) -> Iterator[Reason]:
    if any(claim.state is not ClaimState.PREPARED for claim in facts.claims):
        drivers = _drivers_of(facts) or "its drivers"
        yield Reason(
            actor=Actor.DRIVER, text=f"it is bound to {facts.node}, and waits for {drivers} to prepare its devices"
        )


def _is_starting(facts: Facts) -> Iterator[Reason]:
    yield Reason(actor=Actor.KUBELET, text=f"it is bound to {facts.node}, whose kubelet starts it")


def _quote(message: str) -> str:
    """Quote a message of another program for a reason."""
    return message.removeprefix(AGAIN)[:QUOTED]


def _drivers_of(facts: Facts) -> str:
    unprepared = [claim for claim in facts.claims if claim.state is not ClaimState.PREPARED]
    return ", ".join(sorted({device.device.partition("/")[0] for claim in unprepared for device in claim.devices}))


def _claims_of(pod: Pod, reading: Reading) -> Iterator[ClaimStory]:
    """Yield the claims that a pod names, existing or not, and the claim that its scheduler created for it."""
    namespace = pod.metadata.namespace or "default"
    named: set[str] = set()
    for entry in pod.spec.resource_claims:
        name = claim_name(pod, entry)
        if name is None:
            continue  # kube-controller-manager reports that no claim is needed
        named.add(name)
        template = entry.resource_claim_template_name or ""
        claim = reading.stock.claims.get(f"{namespace}/{name}")
        if claim is not None:
            yield claim_story(claim, reading, entry=entry.name, template=template)
            continue
        remark = f"ResourceClaim {name} does not exist"
        if template and f"{namespace}/{template}" in reading.templates:
            # Only a stored pod can lack a claim: that of a manifest is created with the pod.
            exists = f"it is not created yet, though ResourceClaimTemplate {template} exists"
            remark = exists if pod.metadata.uid else ""
        elif template:
            remark = f"ResourceClaimTemplate {template} does not exist"
        yield ClaimStory(
            name=f"{namespace}/{name}" if name else "",
            state=ClaimState.MISSING,
            entry=entry.name,
            template=template,
            remarks=tuple(filter(None, (remark,))),
        )
    for claim_key in claim_keys(pod):
        claim = reading.stock.claims.get(claim_key)
        if claim is not None and claim.metadata.name not in named:
            yield claim_story(claim, reading, entry="extended resources")


class PodRule(NamedTuple):
    """A step of a pod, and a function that returns reasons why the step is not done. For doctor: the reasons' codes, and the kinds that the rule reads.

    `may_be_none` lists kinds that a cluster may have no objects of. Doctor reports a reason once the pod has waited for `patience`.
    """

    step: Step
    find: Callable[[Facts], Iterator[Reason]]
    codes: str = ""
    needs: tuple[str, ...] = ()
    may_be_none: tuple[str, ...] = ()
    patience: timedelta = timedelta()
    on_node: bool = False  # whether the rule is about pods that have a node


_KEYS = (CONFIGURATION, "Pod", "Node")
_MAY_SERVE = ("Namespace", "DeviceClass", "ResourceSlice", "ResourceQuota", "LimitRange")
_MADE = timedelta(minutes=1)  # a template is created within a second
_SERVED = timedelta(minutes=1)  # the allocator allocates missing devices for a bound pod after 10 seconds
_LONG = timedelta(minutes=5)  # a pod for which there is room runs within seconds, or minutes if its image is large
_PREPARED = timedelta(minutes=5)  # the kubelet retries a pod's devices every minute or two
_WAITS = ("O116", ("Pod", "Node", "ResourceSlice"), ("ResourceClaim",), _LONG)
_DOES_NOT_START = ("O117", ("Pod",), (), _LONG)
RULES: tuple[PodRule, ...] = (
    PodRule(Step.ADMITTED, _is_refused),
    PodRule(Step.ADMITTED, _is_gated, *_WAITS),
    PodRule(Step.ADMITTED, _is_not_translated, "O103 O104", _KEYS, _MAY_SERVE),
    PodRule(Step.ADMITTED, _has_an_unknown_key, "O104", _KEYS, _MAY_SERVE),
    PodRule(Step.TEMPLATE, _cannot_have_a_template, "O105", ("Pod",), ("ResourceClaimTemplate",)),
    PodRule(Step.TEMPLATE, _lacks_a_template, "O105", ("Pod",), ("ResourceClaimTemplate",), _MADE),
    PodRule(Step.TEMPLATE, _names_no_template, "O115", ("Pod", "ResourceClaimTemplate"), (), _MADE),
    PodRule(Step.CLAIM, _has_a_deleted_claim, *_WAITS),
    PodRule(Step.CLAIM, _names_no_claim, "O115", ("Pod", "ResourceClaim"), (), _MADE),
    PodRule(Step.CLAIM, _cannot_have_a_claim, "O106", ("Pod", "Event")),
    PodRule(Step.CLAIM, _lacks_a_claim, *_WAITS),
    PodRule(Step.SCHEDULED, lambda facts: volume_faults(facts.pod, facts.reading), "O118", ("Pod",), (), _LONG),
    PodRule(Step.SCHEDULED, _lacks_a_class, "O107", ("Pod", "DeviceClass"), ("ResourceClaim",), _LONG),
    PodRule(
        Step.SCHEDULED,
        _is_impossible,
        "D212 O115",
        ("Pod", "Node", "ResourceSlice"),
        ("DeviceClass", "ResourceClaim", "ResourceClaimTemplate", "DeviceTaintRule"),
        _MADE,
    ),
    PodRule(Step.SCHEDULED, _is_not_tried, "O109", ("Pod",)),
    PodRule(Step.SCHEDULED, _is_behind_the_fence, "O110", ("Pod",), ("DeviceClass", "DeviceTaintRule")),
    PodRule(Step.SCHEDULED, _lacks_members, "O119", *_WAITS[1:]),
    PodRule(Step.SCHEDULED, _scheduler_says, *_WAITS),
    PodRule(Step.SCHEDULED, _is_not_placed, "O116 O119", *_WAITS[1:]),
    PodRule(Step.ALLOCATED, _is_bound_without_devices, "O114", ("Pod",), ("ResourceClaim",), _SERVED, on_node=True),
    PodRule(Step.PREPARED, _has_a_device_that_is_not_ready, *_DOES_NOT_START, on_node=True),
    PodRule(Step.STARTED, _has_a_container_that_waits, *_DOES_NOT_START, on_node=True),
    PodRule(Step.PREPARED, _is_not_prepared, "O112", ("Pod", "Event"), on_node=True),
    PodRule(Step.STARTED, _has_a_warning, *_DOES_NOT_START, on_node=True),
    PodRule(Step.PREPARED, _is_not_prepared_again, "O113", ("Pod",), (), _PREPARED, on_node=True),
    PodRule(Step.PREPARED, _waits_for_its_drivers, *_DOES_NOT_START, on_node=True),
    PodRule(Step.STARTED, _is_starting, *_DOES_NOT_START, on_node=True),
)
