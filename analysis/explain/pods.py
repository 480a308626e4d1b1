"""Makes the story of a pod: its requests, the decisions about them, its devices, and the component that acts next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from allocator.decisions import Outlook, devices_ready
from allocator.pods import requests
from analysis.events import events_in, shown
from analysis.explain.claims import FALSE, claim_story, condition_text
from analysis.explain.stories import Actor, ClaimState, ClaimStory, NextStep, PodStory, WebhookStory
from analysis.explain.webhook_record import decide_now, webhook_story
from analysis.loading import identity_of, inside, items, text
from analysis.outlook import queue_of
from analysis.prospects import NO_NODE_READ, Prospect, prospect_of, quota_of, scheduler_message, unchecked_conditions
from analysis.requesting import amounts_in, requests_devices
from cluster.patch import apply_json_patch
from dra.finding import stated
from dra.objects import Pod, claim_keys, claim_name
from dra.policy import BY_CLASS, COUNT_KEY
from dra.quantity import Quantity
from dra.wire import WireError, convert
from webhook.admission import changes_by_runtime_class
from webhook.claims import template_lifecycle
from webhook.dialects import Outcome
from webhook.names import NAME, PREFIX
from webhook.unknown import find_missed, find_unknown, find_unserved, why_unknown

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from allocator.simulation import PodOutcome
    from analysis.loading import Object, Reading
    from webhook.state import Configuration

_STOCK = "default-scheduler"
_SEE_EVENTS = "; if its creation is refused, the pod's events say why (kubectl describe pod)"
# Reasons of a container that the kubelet has not started to create.
_STARTING = ("", "ContainerCreating", "PodInitializing")
_CHANGING = frozenset((Outcome.TRANSLATED, Outcome.APPROXIMATED))
# These outlooks are only about claims. A node whose device plugin serves the extended resources may still have room for the pod.
_REFUSING = (Outlook.FULL, Outlook.NEVER)
_ALLOCATED = frozenset((ClaimState.ALLOCATED, ClaimState.RESERVED, ClaimState.PREPARED))


def pod_story(key: str, reading: Reading, configuration: Configuration) -> PodStory:
    """Return the story of one pod, by namespace/name."""
    if key not in reading.pods:
        return _undecoded_story(key, reading, configuration)
    pod = reading.pods[key]
    webhook = webhook_story(pod, reading, configuration)
    claims = list(_claims_of(pod, reading))
    # If the webhook would change the pod, the scheduler sees the changed pod.
    unchanged = pod.metadata.uid or not any(decision.outcome in _CHANGING for decision in webhook.decisions)
    waits = not (pod.spec.node_name or pod.is_done)
    prospect: Prospect | None = None
    awaits_claims = any(_is_coming(pod, claim, reading) for claim in claims)
    if waits and unchanged and not awaits_claims:
        prospect = prospect_of(_as_admitted(pod, reading, configuration), reading, configuration)
    if webhook.refusals and not pod.metadata.uid and prospect is not None and prospect.outlook is Outlook.FITS:
        prospect = None  # the webhook refuses the pod for a reason other than devices
    scheduler = pod.spec.scheduler_name or _STOCK
    next_step = _on_its_node(pod, claims, reading)
    next_step = next_step or _before_scheduling(pod, webhook, claims, reading)
    outcome: PodOutcome | None = None
    if next_step is None:
        queue = queue_of(reading, configuration)
        outcome = queue.place(key)
        if prospect is not None and outcome.node is not None and prospect.outlook in _REFUSING:
            prospect = replace(prospect, outlook=Outlook.FITS, message="", nearest_fit="", blockers=())
        next_step = _at_its_scheduler(
            pod,
            webhook,
            claims,
            prospect,
            outcome,
            scheduler=queue.scheduler_of(pod) or _STOCK,
            reading=reading,
            configuration=configuration,
        )
    if prospect is not None and next_step.actor in (Actor.USER, Actor.TEMPLATES, Actor.CLAIMS):
        # Something else has to happen first, so freeing another claim is not enough.
        blockers = tuple(replace(blocker, freeing_suffices=None) for blocker in prospect.blockers)
        prospect = replace(prospect, blockers=blockers, nearest_fit="")
    # Conditions with status False, with the messages of the scheduler and the kubelet.
    conditions: list[str] = []
    for condition in pod.status.conditions:
        if condition.status == FALSE and (condition.message or condition.reason):
            since = f" since {condition.last_transition_time}" if condition.last_transition_time else ""
            conditions.append(f"{condition_text(condition)}{since}")
    raw = reading.raw.get(key)
    return PodStory(
        name=key,
        next_step=next_step,
        # A pod that an API server has seen is Pending at least.
        phase=pod.status.phase or ("Pending" if pod.metadata.uid else ""),
        node=pod.spec.node_name,
        scheduler=scheduler,
        owners=reading.owners(raw) if raw is not None else (),
        webhook=webhook,
        claims=tuple(claims),
        conditions=tuple(conditions),
        prospect=prospect,
        room_on=outcome.node or "" if outcome is not None else "",
        quota=quota_of(pod, prospect, reading),
    )


def _as_admitted(pod: Pod, reading: Reading, configuration: Configuration) -> Pod:
    """Add to a pod that no API server has seen the fields that its RuntimeClass sets."""
    raw = reading.raw.get(pod.metadata.key)
    if raw is None or pod.metadata.uid:
        return pod
    operations, _ = changes_by_runtime_class(raw, reading.state(configuration))
    return convert(apply_json_patch(raw, operations), Pod) if operations else pod


def _undecoded_story(key: str, reading: Reading, configuration: Configuration) -> PodStory:
    """Return the story of a pod that cannot be decoded, for instance because an amount is a placeholder.

    It has only the webhook's decision.
    """
    raw = reading.raw[key]
    webhook = decide_now(raw, reading, configuration)
    next_step = _refusal(webhook)
    next_step = next_step or NextStep(actor=Actor.USER, message=f"it cannot be read: {_why_undecoded(raw)}")
    scheduler = text(inside(raw, "spec").get("schedulerName")) or _STOCK
    return PodStory(
        name=key,
        next_step=next_step,
        phase="",
        node="",
        scheduler=scheduler,
        owners=reading.owners(raw),
        webhook=webhook,
        claims=(),
        conditions=(),
        prospect=None,
        quota=(),
    )


def _why_undecoded(raw: Object) -> str:
    try:
        convert(raw, Pod)
    except WireError as error:
        return str(error)
    return ""


def _claims_of(pod: Pod, reading: Reading) -> Iterator[ClaimStory]:
    """Yield the claims that a pod names, existing or not, and the claim that its scheduler created for it."""
    namespace = pod.metadata.namespace or "default"
    names: set[str] = set()
    for entry in pod.spec.resource_claims:
        name = claim_name(pod, entry)
        if name is None:
            continue  # kube-controller-manager reports that no claim is needed
        names.add(name)
        template = entry.resource_claim_template_name or ""
        claim = reading.stock.claims.get(f"{namespace}/{name}")
        if claim is not None:
            yield claim_story(claim, reading, entry=entry.name, template=template)
            continue
        remark = f"ResourceClaim {name} does not exist"
        if template and f"{namespace}/{template}" in reading.templates:
            remark = f"it is not created yet, though ResourceClaimTemplate {template} exists"
        elif template:
            remark = f"ResourceClaimTemplate {template} does not exist"
        yield ClaimStory(
            name=f"{namespace}/{name}" if name else "",
            state=ClaimState.MISSING,
            entry=entry.name,
            template=template,
            remarks=(remark,),
        )
    for claim_key in claim_keys(pod):
        claim = reading.stock.claims.get(claim_key)
        if claim is not None and claim.metadata.name not in names:
            yield claim_story(claim, reading, entry="extended resources")


def scheduler_actor(name: str, configuration: Configuration) -> Actor:
    """Return the actor with this scheduler name: the bridge if the configuration says so or, without a configured bridge, if the name is ours."""
    bridge = configuration.file.bridge
    is_bridge = name == bridge.scheduler_name if bridge is not None else name.startswith(NAME)
    return Actor.BRIDGE if is_bridge else Actor.SCHEDULER


# ---- which component acts next, from the end of a pod's life to its beginning


def _on_its_node(pod: Pod, claims: Sequence[ClaimStory], reading: Reading) -> NextStep | None:
    """Return the next step of a pod that has ended, is being deleted, or has a node; None for other pods."""
    node = pod.spec.node_name
    deleted = pod.metadata.deletion_timestamp
    if pod.has_ended:
        return NextStep(actor=Actor.NONE, message=f"it has ended ({pod.status.phase}), and uses nothing any more")
    if deleted and node:
        message = f"it is being deleted since {deleted}; the kubelet of {node} ends it first"
        return NextStep(actor=Actor.KUBELET, message=message)
    if deleted:
        finalizers = ", ".join(pod.metadata.finalizers)
        waits = f", and waits for its finalizers: {finalizers}" if finalizers else ""
        return NextStep(actor=Actor.NONE, message=f"it is being deleted since {deleted}{waits}")
    if not node:
        return None
    if pod.status.phase == "Running":
        return NextStep(actor=Actor.NONE, message=f"it runs on {node}")
    for claim in claims:
        for device in claim.devices:
            bad = [condition for condition in device.conditions if f"={FALSE}" in condition]
            if bad:
                return NextStep(actor=Actor.DRIVER, message=f"it is bound to {node}; {device.device} reports {bad[0]}")
    if waits := _waiting_container(
        reading.raw.get(pod.metadata.key, {})
    ):  # images are pulled once the devices are prepared
        return NextStep(actor=Actor.KUBELET, message=f"it is bound to {node}, and {waits}")
    if warning := _last_warning(pod, reading):
        actor = Actor.DRIVER if "DynamicResources" in warning else Actor.KUBELET
        return NextStep(actor=actor, message=f"it is bound to {node}, and the kubelet's newest warning is {warning}")
    unprepared = [claim for claim in claims if claim.state is not ClaimState.PREPARED]
    if unprepared:
        drivers = {device.device.partition("/")[0] for claim in unprepared for device in claim.devices}
        listed = ", ".join(sorted(drivers)) or "its drivers"
        message = f"it is bound to {node}, and waits for {listed} to prepare its devices"
        return NextStep(actor=Actor.DRIVER, message=message)
    return NextStep(actor=Actor.KUBELET, message=f"it is bound to {node}, whose kubelet starts it")


def _waiting_container(raw: Object) -> str:
    """Return which container the kubelet cannot start, and why; "" if there is none."""
    for part in ("initContainerStatuses", "containerStatuses"):
        for status in items(inside(raw, "status"), part):
            waiting = inside(status, "state", "waiting")
            if (reason := text(waiting.get("reason"))) not in _STARTING:
                detail = f": {message}" if (message := text(waiting.get("message"))) else ""
                return f"container {text(status.get('name'))} waits: {reason}{detail}"
    return ""


def _last_warning(pod: Pod, reading: Reading) -> str:
    """Return what the kubelet's newest warning about a pod says; "" if there is none."""
    meta = pod.metadata
    for event in shown(events_in(reading, "Pod", meta.namespace or "default", meta.name), meta.uid).shown:
        if event.type == "Warning" and event.source == "kubelet":
            return f"{event.reason}{f' at {event.at}' if event.at else ''}: {event.message}"
    return ""


def _before_scheduling(
    pod: Pod, webhook: WebhookStory, claims: Sequence[ClaimStory], reading: Reading
) -> NextStep | None:
    """Return what has to happen before a scheduler looks for devices; None if nothing has to."""
    if not pod.metadata.uid and (next_step := _refusal(webhook)):
        return next_step
    if pod.spec.scheduling_gates:
        gates = [scheduling_gate.name for scheduling_gate in pod.spec.scheduling_gates]
        return NextStep(actor=Actor.USER, message=f"scheduling gates hold it: {', '.join(gates)}")
    namespace = pod.metadata.namespace or "default"
    for claim in claims:
        if claim.state is ClaimState.DELETING:
            return NextStep(actor=Actor.CLAIMS, message=f"claim {claim.name} is being deleted, and no pod gets it")
        if claim.state is not ClaimState.MISSING or _is_coming(pod, claim, reading):
            continue
        if not claim.template:
            return NextStep(actor=Actor.USER, message=f"{claim.remarks[0]}; it has to be created")
        if f"{namespace}/{claim.template}" in reading.templates:
            message = f"kube-controller-manager has not created claim {claim.entry} yet{_SEE_EVENTS}"
            if full := _full_quota(namespace, reading):
                message = f"no claim {claim.entry} can be created: {full}"
            return NextStep(actor=Actor.CLAIMS, message=message)
        if template_lifecycle.is_copy(pod, claim.template):
            message = f"ResourceClaimTemplate {claim.template} {template_lifecycle.COPY}: create the pod from its original manifest"
            return NextStep(actor=Actor.USER, message=message)
        ours = claim.template.startswith(PREFIX)
        if ours:
            return NextStep(actor=Actor.TEMPLATES, message=f"{claim.remarks[0]}{_SEE_EVENTS}")
        return NextStep(actor=Actor.USER, message=claim.remarks[0])
    return None


def _refusal(webhook: WebhookStory) -> NextStep | None:
    """Return who refuses a pod that is in no cluster yet, the webhook or the API server; None if neither does."""
    if not webhook.refusals:
        return None
    for decision in webhook.decisions:
        if decision.outcome is Outcome.REFUSED and decision.code.startswith("D"):
            reason = str(stated(decision.code, decision.detail, decision.remedy))
            refusal = next(text for text in (*webhook.refusals, reason) if text.endswith(reason))  # with its container
            return NextStep(actor=Actor.USER, message=f"it has to be corrected: {refusal}")
    return NextStep(actor=Actor.WEBHOOK, message=f"it would be refused: {webhook.refusals[0]}")


def _is_coming(pod: Pod, claim: ClaimStory, reading: Reading) -> bool:
    """Return whether the claim of a pod that is in no cluster yet will be created from a template that was read."""
    namespace = pod.metadata.namespace or "default"
    has_template = f"{namespace}/{claim.template}" in reading.templates
    return claim.state is ClaimState.MISSING and has_template and not pod.metadata.uid


def _at_its_scheduler(
    pod: Pod,
    webhook: WebhookStory,
    claims: Sequence[ClaimStory],
    prospect: Prospect | None,
    outcome: PodOutcome,
    *,
    scheduler: str,
    reading: Reading,
    configuration: Configuration,
) -> NextStep:
    actor = scheduler_actor(scheduler, configuration)
    last_message = scheduler_message(pod)
    # If no pod of a scheduler other than Kubernetes' own has a node or a condition, no such scheduler runs.
    scheduler_pods = [pod for pod in reading.pods.values() if pod.spec.scheduler_name == scheduler]
    untried = reading.knows_pods and not any(pod.spec.node_name or pod.status.conditions for pod in scheduler_pods)
    if pod.metadata.uid and not last_message and actor is Actor.SCHEDULER and scheduler != _STOCK and untried:
        message = f"no scheduler is named {scheduler}: nothing has tried to place a pod with this schedulerName"
        return NextStep(actor=Actor.USER, message=message)
    if last_message and last_message == unchecked_conditions(pod, reading):
        return NextStep(actor=actor, message=f"{scheduler} says: {last_message}")
    for key, similar_keys in find_unknown(pod, reading.state(configuration)).items():
        return NextStep(actor=Actor.USER, message=f"no node has {key}: {why_unknown(similar_keys)}")
    if prospect is not None:
        return NextStep(actor=actor, message=_outlook_text(prospect, outcome, scheduler, reading))
    states = {claim.state for claim in claims}
    if ClaimState.MISSING in states:  # they are created with the pod
        return NextStep(actor=actor, message=f"once its claims are made, {_room_text(outcome, scheduler, reading)}")
    if states and states <= _ALLOCATED:
        claims_by_name = reading.stock.claims
        ready = devices_ready(claims_by_name[key] for key in claim_keys(pod) if key in claims_by_name)
        if waits := ready.failed or ready.waits_for:
            return NextStep(actor=Actor.DRIVER, message=waits)
        return NextStep(actor=actor, message=f"its claims are allocated; {scheduler} has not bound it yet")
    room = _room_text(outcome, scheduler, reading)
    state = reading.state(configuration)
    raw = reading.raw.get(pod.metadata.key, {})
    if not webhook.predicted or not requests_devices(raw, webhook.decisions, amounts_in(raw, state), configuration):
        says = f"; {scheduler} says: {last_message}" if last_message else ""
        return NextStep(actor=actor, message=f"it has no claims: {room}{says}")
    # It requests legacy keys, and has no claims for them.
    if not pod.metadata.uid and any(decision.outcome in _CHANGING for decision in webhook.decisions):
        return NextStep(
            actor=Actor.WEBHOOK, message=f"it has not passed the webhook yet; as the webhook admits it, {room}"
        )
    if missed := find_missed(pod, state):
        return NextStep(actor=Actor.USER, message=f"{missed.message}: {missed.remedy}")
    for key, why in find_unserved(pod, state).items():
        return NextStep(actor=Actor.DRIVER, message=f"no node has {key}, and no claim can be created for it: {why}")
    keyed = [decision for decision in webhook.decisions if decision.key]
    keys = dict.fromkeys(key.key for key in [key for key in keyed if key.container] or keyed)
    asked = requests(pod)
    lacking = [key for key in keys if asked.get(key) and state.configuration.resource(key) and not state.offers(key)]
    if lacking and state.fleet.nodes and state.confirmed and not state.unseen:
        room = f"it waits for a node that has {', '.join(lacking)}, and no node does"
    return NextStep(actor=actor, message=f"no claim replaces {', '.join(keys)}: {room}")


def _room_text(outcome: PodOutcome, scheduler: str, reading: Reading) -> str:
    """Return which node has room for a pod now, or why none has."""
    if outcome.node is not None:
        return f"{outcome.node} has room for it, and {scheduler} has not placed it yet"
    if not reading.stock.nodes:
        return NO_NODE_READ
    return f"no node has room for it now ({outcome.summary})"


def _full_quota(namespace: str, reading: Reading) -> str:
    """Return the reason if a ResourceQuota of a namespace allows no more claims or devices; "" if none does."""
    for quota in reading.of_kinds("ResourceQuota"):
        identity = identity_of(quota)
        hard, used = inside(quota, "status", "hard"), inside(quota, "status", "used")
        for key in hard if identity.namespace == namespace else ():
            if key == COUNT_KEY or str(key).endswith(BY_CLASS):
                try:
                    full = Quantity.parse(str(used.get(key, 0))) >= Quantity.parse(str(hard[key]))
                except ValueError:
                    continue
                if full:
                    return f"ResourceQuota {identity.name} has {key} used up, {used.get(key, 0)} of {hard[key]}"
    return ""


def _outlook_text(prospect: Prospect, outcome: PodOutcome, scheduler: str, reading: Reading) -> str:
    """Return why a pod is not placed yet. `outcome` also covers requests without a claim, such as keys of a device plugin."""
    barred = {name for barrier in prospect.other_reasons for name in barrier.nodes}
    fitting = [name for group in prospect.groups if group.devices for name in group.nodes]
    usable = [name for name in fitting if name not in barred]
    if prospect.outlook is Outlook.FITS and outcome.node is None:
        if outcome.exceeded_quota or not fitting:
            return _room_text(outcome, scheduler, reading)
        if usable:
            return f"devices for it are free, but pods before it in the queue take them ({outcome.summary})"
    if outcome.node is not None and outcome.node in prospect.plugins:
        others = f" and {len(prospect.plugins) - 1} more nodes" if len(prospect.plugins) > 1 else ""
        return f"device plugins have room for it on {outcome.node}{others}, and {scheduler} has not placed it yet"
    if prospect.outlook is Outlook.NEVER:
        return f"no node could serve it, even with all devices free: {prospect.message}"
    if prospect.outlook is not Outlook.FITS:
        return prospect.message
    if not barred.intersection(fitting):
        return f"devices for it are free, and {scheduler} has not placed it yet"
    if usable:
        return f"devices for it are free on {len(usable)} nodes where it may run, and {scheduler} has not placed it yet"
    if outcome.node is not None:  # where a device plugin has all that it requests
        return _room_text(outcome, scheduler, reading)
    largest = next(barrier for barrier in prospect.other_reasons if not set(fitting).isdisjoint(barrier.nodes))
    reached = len(set(fitting).intersection(largest.nodes))
    return f"devices for it are free, but not where it may run: {largest.message} ({reached} of {len(fitting)} nodes)"
