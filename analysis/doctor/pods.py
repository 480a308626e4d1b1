"""Findings about waiting pods that request devices. A pod waits for an admission, the webhook, a template, a claim, a scheduler or a driver."""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta
from typing import TYPE_CHECKING

from msgspec.structs import replace

from allocator import FleetMemo
from allocator.decisions import find_claims
from allocator.pods import requested_devices
from analysis.doctor.observed import (
    FAILED_CLAIM,
    FAILED_PREPARE,
    FAILED_TEMPLATE,
    MAX_NAMED,
    DoctorInput,
)
from analysis.refused_pods import FAILED_CREATE, OUR_DOMAIN_SUFFIX, QUOTED, find_refused_pods, latest, remedy_for
from cluster.objects import Event, ResourceQuota
from dra.budget import Budget
from dra.finding import Finding, make_finding
from dra.objects import (
    Pod,
    claim_keys,
    owning_pods,
    results_of,
)
from dra.raw import moment
from dra.texts import count_of, list_first
from dra.wire import builtins
from webhook import names
from webhook.claims import template_lifecycle
from webhook.dialects import TARGETS
from webhook.placement import Feasibility, can_any_node_serve
from webhook.state import (
    Configuration,
    Mode,
    mode_of,
    node_constraints,
    reach_ignoring_taints,
    why_not,
    with_mode,
    workload,
)
from webhook.unknown import find_missed, find_unknown, find_unserved, why_unknown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from analysis.loading import Reading

TEMPLATES = "count/resourceclaimtemplates.resource.k8s.io"
_DEFAULTS = Configuration()
_MADE = timedelta(minutes=1)  # a template is created within a second
_SERVED = timedelta(minutes=1)  # the allocator gives a bound pod the devices that it lacks after 10 seconds
_TRIED = timedelta(seconds=30)  # a scheduler tries a pod within milliseconds
_PREPARED = timedelta(minutes=5)  # the kubelet retries a pod's devices every minute or two
_PREPARE_ONCE = frozenset(target.driver for target in TARGETS.values() if target.prepares_once)


def not_created(observed: DoctorInput) -> Iterator[Finding]:
    """Pods with devices that their controllers cannot create, because something other than drawbridge refuses them."""
    yield from find_refused_pods(observed.reading, observed.now)


def not_translated(observed: DoctorInput) -> Iterator[Finding]:
    """Pods that wait although the webhook would translate them in mode `enforce`; `find_missed`, which the controller also uses, finds them.
    Also resources that no node offers and no claim can replace, so that only an administrator can help the pods that request them.
    """
    if observed.configuration is None:
        return
    state = observed.reading.state(observed.configuration)
    enforcing = with_mode(state, Mode.ENFORCE)
    unserved: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for pod in observed.reading.pods.values():
        meta = pod.metadata
        labels = {key: value for key, value in meta.labels.items() if (key, value) != (names.SKIP_LABEL, "true")}
        unlabelled = replace(pod, metadata=replace(meta, labels=labels))
        missed = find_missed(unlabelled, enforcing)
        if missed is None:
            for reason in find_unserved(unlabelled, enforcing).items():
                unserved[reason].append(meta.key)
            for key, similar_keys in find_unknown(pod, enforcing).items():
                unserved[key, why_unknown(similar_keys)].append(meta.key)
            continue
        mode = mode_of(state, workload(meta.namespace, template_lifecycle.metadata_at_admission(pod)))
        why, first = "it was created while the webhook was down or slices of its devices were missing", ""
        if labels != meta.labels:
            why, first = f"its label {names.SKIP_LABEL} keeps it from the webhook", "remove the label; then "
        elif mode is not Mode.ENFORCE:
            why, first = why_not(state, meta.namespace), f"set {names.MODE_LABEL}=enforce on its namespace; then "
            if not why:
                why, first = "the configuration's `canary` excludes it", "raise `canary`; then "
        yield make_finding("O103", f"Pod/{meta.key}", f"{missed.message}: {why}", f"{first}{missed.remedy}")
    for (key, because), pods in unserved.items():
        yield make_finding(
            "O104",
            f"Pod/{pods[0]}",
            f"no node has {key}, for which {list_first(pods, MAX_NAMED)} wait: {because}",
        )


def refused_by_webhook(observed: DoctorInput) -> Iterator[Finding]:
    """Refusals of pods by the webhook that only an administrator can fix, from events about the pods' controllers; each reason once."""
    event_of_reason: dict[str, Event] = {}
    for event in observed.reading.typed.of_type(Event):
        reason = event.message.partition(" denied the request: ")[2]
        if event.reason == FAILED_CREATE and OUR_DOMAIN_SUFFIX in event.message and "administrator" in reason:
            event_of_reason.setdefault(reason, event)
    for reason, event in event_of_reason.items():
        controller = event.involved_object
        yield make_finding(
            "O102",
            f"{controller.kind}/{controller.namespace}/{controller.name}",
            reason[:QUOTED],
            basis=f"an event {FAILED_CREATE}",
        )


def without_template(observed: DoctorInput) -> Iterator[Finding]:
    """Pods that wait for a template of ours that was not created."""
    template_keys = {
        f"{template.metadata.namespace}/{template.metadata.name}" for template in observed.reading.templates.values()
    }
    full = full_quotas(observed)
    failed = latest(observed.reading, observed.now, FAILED_TEMPLATE)
    for pod in observed.reading.pods.values():
        meta = pod.metadata
        born = moment(meta.creation_timestamp)
        quota, failure = full.get(meta.namespace), failed.get(f"Pod/{meta.key}", "")
        late = born is not None and observed.now - born >= _MADE
        if pod.spec.node_name or meta.deletion_timestamp or not (late or (born and quota) or failure):
            continue
        created_claims = {resource_claim_status.name for resource_claim_status in pod.status.resource_claim_statuses}
        entries = [
            resource_claim for resource_claim in pod.spec.resource_claims if resource_claim.name not in created_claims
        ]
        our_templates = {name for _, name in template_lifecycle.templates_of(pod)}
        absent_templates = sorted({claim.resource_claim_template_name or "" for claim in entries} & our_templates)
        absent_templates = [name for name in absent_templates if f"{meta.namespace}/{name}" not in template_keys]
        if not absent_templates:
            continue
        why = "which the controller has not created"
        remedy = "check that the namespace has mode enforce and that drawbridge-controller runs; its log names the pod and the reason"
        if template_lifecycle.is_copy(pod, absent_templates[0]):
            why = f"which {template_lifecycle.COPY}"
            remedy = "delete the pod, and create it from its original manifest"
        elif quota:
            why = f"which ResourceQuota {meta.namespace}/{quota} has no room for"
            remedy = f"raise {TEMPLATES} in that quota, or have unused templates deleted"
        elif failure:
            why, remedy = f"and {failure[:QUOTED]}", remedy_for(failure)
        yield make_finding(
            "O105", f"Pod/{meta.key}", f"it waits for ResourceClaimTemplate {absent_templates[0]}, {why}", remedy
        )


def full_quotas(observed: DoctorInput) -> dict[str, str]:
    """The ResourceQuotas that allow no further template, by namespace."""
    full: dict[str, str] = {}
    for quota in observed.reading.typed.of_type(ResourceQuota):
        hard = quota.status.hard.get(TEMPLATES)
        if hard is not None and quota.status.used.get(TEMPLATES, hard).nano >= hard.nano:
            full[quota.metadata.namespace] = quota.metadata.name
    return full


def without_claim(observed: DoctorInput) -> Iterator[Finding]:
    """Pods whose claims kube-controller-manager is not allowed to create."""
    waiting = {
        f"Pod/{pod.metadata.key}": pod
        for pod in observed.reading.pods.values()
        if not (pod.spec.node_name or pod.has_ended)
    }
    for pod_name, message in latest(observed.reading, observed.now, FAILED_CLAIM).items():
        pod = waiting.get(pod_name)
        # If the template does not exist yet, kube-controller-manager tries again.
        if pod is None or "not found" in message:
            continue
        created_claims = {resource_claim_status.name for resource_claim_status in pod.status.resource_claim_statuses}
        if all(
            resource_claim.name in created_claims or not resource_claim.resource_claim_template_name
            for resource_claim in pod.spec.resource_claims
        ):
            continue
        yield make_finding(
            "O106",
            pod_name,
            f"its claim cannot be created: {message[:QUOTED]}",
            remedy_for(message),
            basis=f"an event {FAILED_CLAIM}",
        )


def impossible(observed: DoctorInput) -> Iterator[Finding]:
    """Pods that would wait also on an idle cluster. Equal pods of one controller have one finding."""
    memo = FleetMemo()
    pods_of: defaultdict[tuple[str, str, str], list[str]] = defaultdict(list)
    for pod in observed.reading.pods.values():
        meta = pod.metadata
        born = moment(meta.creation_timestamp)
        if pod.spec.node_name or pod.has_ended or meta.deletion_timestamp or pod.spec.scheduling_gates:
            continue
        if born is not None and observed.now - born >= _MADE and (why := _why_impossible(pod, observed, memo)):
            owner = next((owner.uid for owner in meta.owner_references if owner.controller), meta.uid or meta.key)
            pods_of[(owner, *why)].append(meta.key)
    for (_, text, remedy), keys in pods_of.items():
        others = f"; so do {count_of(len(keys) - 1, 'more pod')} of its controller" if len(keys) > 1 else ""
        yield make_finding("O115", f"Pod/{keys[0]}", f"it can never start: {text}{others}", remedy)


def _why_impossible(pod: Pod, observed: DoctorInput, memo: FleetMemo) -> tuple[str, str] | None:
    """Return why no scheduler can place a pod, and the remedy ("" for the usual one); None if one may place it."""
    reading = observed.reading
    if absent := _absent_objects(pod, reading):
        return absent
    if not (pod.spec.resource_claims or requested_devices(pod)):
        return None
    state = reading.state(observed.configuration or _DEFAULTS)
    reached = reach_ignoring_taints(node_constraints(builtins(pod.spec)), state, Budget())
    if not reached and not state.fleet.grows:
        return "no node has the labels that it selects (nodeSelector, node affinity)", ""
    claims = find_claims(pod, reading.stock)
    if claims.waits_for or not claims.open:
        return None
    within = None if len(reached) == len(reading.stock.nodes) else reached
    judged = can_any_node_serve(reading.stock, claims.open, memo=memo, prospects=state.prospects, within=within)
    return (judged.text, judged.remedy) if judged.verdict is Feasibility.NEVER or judged.is_fault else None


def _absent_objects(pod: Pod, reading: Reading) -> tuple[str, str] | None:
    """Return which claim or template of its author a pod names that does not exist."""
    namespace = pod.metadata.namespace
    # In a dump, a kind without any object may have been left out.
    templates = {template.metadata.key for template in reading.templates.values()}
    knows_templates = reading.is_live or bool(templates)
    knows_claims = reading.knows_claims and (reading.is_live or bool(reading.stock.claims))
    ours = {name for _, name in template_lifecycle.templates_of(pod)}
    created = {status.name for status in pod.status.resource_claim_statuses}
    for entry in pod.spec.resource_claims:
        template, claim = entry.resource_claim_template_name, entry.resource_claim_name
        if (
            knows_templates
            and template
            and template not in ours
            and entry.name not in created
            and f"{namespace}/{template}" not in templates
        ):
            return (
                f"ResourceClaimTemplate {template} does not exist",
                "create the template, or delete the pod and correct the name",
            )
        if knows_claims and claim and f"{namespace}/{claim}" not in reading.stock.claims:
            return f"ResourceClaim {claim} does not exist", "create the claim, or delete the pod and correct the name"
    return None


def no_scheduler(observed: DoctorInput) -> Iterator[Finding]:
    """Pods with devices that their scheduler has not tried. A scheduler that has tried a younger pod is left out, because it works."""
    waiting: defaultdict[str, list[tuple[str, Pod]]] = defaultdict(list)
    youngest_tried: dict[str, str] = {}
    existing = {claim.metadata.key for claim in observed.reading.stock.claims.values()}
    for pod in observed.reading.pods.values():
        name, born = pod.spec.scheduler_name or "default-scheduler", pod.metadata.creation_timestamp
        if any(condition.type == "PodScheduled" for condition in pod.status.conditions):
            youngest_tried[name] = max(youngest_tried.get(name, ""), born)
            continue
        uses_devices = pod.spec.resource_claims or requested_devices(pod)
        if uses_devices and not (pod.spec.node_name or pod.has_ended or pod.metadata.deletion_timestamp):
            # A scheduler does not try a pod whose claims do not exist yet.
            keys = claim_keys(pod)
            if len(keys) >= len(pod.spec.resource_claims) and existing.issuperset(keys):
                waiting[name].append((born, pod))
    for name, pods in waiting.items():
        born, oldest = min(pods, key=lambda entry: (entry[0], entry[1].metadata.key))
        waiting_since = moment(born)
        if waiting_since is None or observed.now - waiting_since <= _TRIED or youngest_tried.get(name, "") > born:
            continue
        bridge = observed.bridge.scheduler_name if observed.bridge is not None else ""
        yield make_finding(
            "O109",
            f"Pod/{oldest.metadata.key}",
            f"no scheduler called {name} has tried {list_first([pod.metadata.key for _, pod in pods], MAX_NAMED)} for {(observed.now - waiting_since).total_seconds():.0f} s",
            f"check that {'Deployments drawbridge-allocator and drawbridge-scheduler run' if name == bridge else 'a scheduler with that profile runs'}, "
            "or correct schedulerName where the pod is created",
        )


def not_prepared(observed: DoctorInput) -> Iterator[Finding]:
    """Pods on nodes whose driver does not prepare their claims."""
    running = {
        f"Pod/{pod.metadata.key}": pod
        for pod in observed.reading.pods.values()
        if pod.spec.node_name and not pod.has_ended
    }
    affected: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for pod_name, message in latest(observed.reading, observed.now, FAILED_PREPARE).items():
        pod = running.get(pod_name)
        if pod is None or pod.status.phase != "Pending" or pod.metadata.deletion_timestamp:
            continue
        claims = [observed.reading.stock.claims.get(key) for key in claim_keys(pod)]
        drivers = ", ".join(sorted({result.driver for claim in claims for result in results_of(claim)}))
        affected.setdefault((pod.spec.node_name or "", drivers), []).append((pod_name, message))
    for (node, drivers), pods in affected.items():
        pod_name, message = pods[0]
        unregistered = "not registered" in message or "not found in the list of registered" in message
        waiting = [name.removeprefix("Pod/") for name, _ in pods]
        yield make_finding(
            "O112",
            pod_name,
            f"on node {node}, {drivers} does not prepare the devices of {list_first(waiting, MAX_NAMED)}: {message[:QUOTED]}",
            f"check that the driver's pod runs on {node}, and restart it: the kubelet tries again"
            if unregistered
            else f"the driver's log on {node} says more; the kubelet tries again",
            basis=f"an event {FAILED_PREPARE}",
        )


def not_prepared_again(observed: DoctorInput) -> Iterator[Finding]:
    """Pods with a node and no sandbox, whose driver refuses to prepare a claim twice. This is usual after a restart of kubelet or node."""
    for pod in observed.reading.pods.values():
        if not pod.spec.node_name or pod.has_ended or pod.metadata.deletion_timestamp:
            continue
        stamps = [
            stamp
            for condition in pod.status.conditions
            if condition.type == "PodReadyToStartContainers" and condition.status == "False"
            if (stamp := moment(condition.last_transition_time)) is not None
        ]
        if not stamps or observed.now - stamps[0] <= _PREPARED:
            continue
        for key in claim_keys(pod):
            claim = observed.reading.stock.claims.get(key)
            once = sorted({result.driver for result in results_of(claim)} & _PREPARE_ONCE)
            if once:
                yield make_finding(
                    "O113",
                    f"Pod/{pod.metadata.key}",
                    f"it has waited on {pod.spec.node_name} for minutes: {once[0]} refuses to prepare claim {key.rpartition('/')[2]} again, "
                    "which is usual after a restart of the kubelet or the node",
                    "delete the pod, and the claim if it was created by hand: a new claim is prepared",
                )


def bound_without_devices(observed: DoctorInput) -> Iterator[Finding]:
    """Pods with a node and a claim without devices, for which the kubelet waits. No scheduler looks at a pod that has a node."""
    claims = observed.reading.stock.claims
    for pod in observed.reading.pods.values():
        if not pod.spec.node_name or pod.has_ended or pod.metadata.deletion_timestamp:
            continue
        bound = [
            moment(condition.last_transition_time)
            for condition in pod.status.conditions
            if condition.type == "PodScheduled" and condition.status == "True"
        ]
        if any(stamp is not None and observed.now - stamp <= _SERVED for stamp in bound):
            continue
        names = claim_keys(pod)
        lacking = [key for key in names if key in claims and claims[key].status.allocation is None]
        if not lacking:
            continue
        others = sorted(
            key
            for key, claim in claims.items()
            if key not in names
            and claim.status.allocation is not None
            and any(owner.uid == pod.metadata.uid for owner in owning_pods(claim))
        )
        instead = f"; claim {others[0]}, which the pod does not name any more, has devices" if others else ""
        yield make_finding(
            "O114",
            f"Pod/{pod.metadata.key}",
            f"it is on node {pod.spec.node_name}, and claim {lacking[0]} has no devices, so the kubelet does not start it{instead}",
        )
