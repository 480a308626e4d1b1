"""What is wrong with claims, pods, templates and leases as they were read. Pure: objects and a time in, findings out.

Wrong reservations are found by the functions that the allocator runs every few minutes (`allocator.reservations`); this module puts
their results into words. It reads nothing from a cluster, and repairs nothing.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime, timedelta
from itertools import chain
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from allocator.reports import unpublished
from allocator.reservations import FINALIZER, Hold, Ledger, fence, overlaps, sweep
from analysis.configuration import ConfigurationInForce
from analysis.doctor import surroundings
from analysis.doctor.components import Parts, examine, replica_warnings
from analysis.doctor.misspelt_settings import misspelt_settings
from analysis.doctor.open_claims import classes_named, open_claims
from analysis.doctor.repair import ConditionRemoval, Release, Removal, RuleCreation
from analysis.doctor.surroundings import FAILED_CREATE
from analysis.installation import LEASES
from cluster.objects import Event, Lease, LimitRange, Namespace, ResourceQuota
from dra.finding import Finding, make_finding
from dra.objects import (
    Pod,
    ResourceClaim,
    ResourceClaimTemplate,
    blocks,
    claim_keys,
    owning_pods,
    results_of,
    served_resources,
    why_orphaned,
)
from dra.policy import fences
from dra.raw import moment
from dra.stock import Stock
from dra.texts import count_of, list_first
from node.audit import CONDITION, MARKED_ON, OVER, FindingKind, condition_on, renewed_at, seen_at
from webhook import names
from webhook.claims import template_lifecycle
from webhook.dialects import TARGETS, Served
from webhook.mixed_fleet import NodesOfName
from webhook.state import (
    BridgeSettings,
    Configuration,
    Inventory,
    Mode,
    StateBuilder,
    mode_of,
    why_not,
    with_mode,
    workload,
)
from webhook.translate import find_missed, find_unknown, find_unserved, why_unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from analysis.doctor.repair import Repair, Repairable
    from dra.objects import DeviceToleration, ResourceClaimSpec

_RENEWED = 4  # a lease that was not renewed for so many times its length is idle
_UNUSED = timedelta(hours=1)  # the template controller sweeps long before
_NAMED = 5
_QUOTED = 400
_OF_OURS = ".drawbridge.dev"
_MADE = timedelta(minutes=1)  # a template is there within a second
_WAITED = timedelta(minutes=5)  # the kubelet asks for a pod's devices each minute or two
_PREPARE_ONCE = frozenset(target.driver for target in TARGETS.values() if target.prepares_once)
_FRESH = timedelta(minutes=20)  # an audit agent repeats every ten minutes what is still so
_TAKEN_UP = timedelta(minutes=10)  # a claim that was made ahead of its pod is named by one
_STOOD_BY = timedelta(minutes=30)  # and renews its marks and its condition as often
# The codes of what audit agents find, by the reason of the event.
_OF_AGENTS = {
    FindingKind.GIVEN_TWICE.reason: "O221",
    FindingKind.NOT_ALLOCATED.reason: "O222",
    FindingKind.NOT_PREPARED.reason: "O223",
    FindingKind.SUMS.reason: "O224",
    FindingKind.LEFT.reason: "O225",
    FindingKind.UNMARKED.reason: "O226",
    FindingKind.PROMISED_ELSEWHERE.reason: "O227",
    FindingKind.IN_DOUBT.reason: "O228",
}


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What was read."""

    stock: Stock
    now: datetime
    claims: tuple[ResourceClaim, ...] = ()
    pods: tuple[Pod, ...] | None = None  # None if it is not known which pods there are
    templates: tuple[ResourceClaimTemplate, ...] = ()
    leases: tuple[Lease, ...] = ()
    nodes: tuple[dict[str, Any], ...] = ()  # as they are stored
    owners: tuple[dict[str, Any], ...] = ()  # controllers that could not make a pod
    named: frozenset[str] = frozenset()  # claims that pods, or templates of pods, have by their names
    unasked: str = ""  # why the API server does not ask the webhook
    unsent: tuple[str, ...] = ()  # domains of names that the API server does not send to the webhook
    nodes_of_names: tuple[NodesOfName, ...] = ()  # by resource name, the nodes on a device plugin, on a driver, on both
    events: tuple[Event, ...] = ()  # of audit agents, and of controllers that could not make a pod
    namespaces: tuple[Namespace, ...] = ()
    limits: tuple[ResourceQuota | LimitRange, ...] = ()
    parts: Parts | None = None  # of the installation, if there is one
    in_force: ConfigurationInForce
    unread: dict[str, str] = {}  # kinds that could not be read, and why
    dumped: bool = False  # whether files were read: a kind of which there is nothing may be left out

    @property
    def configuration(self) -> Configuration | None:
        """The configuration in force; None if nothing that was read configures drawbridge."""
        return None if self.in_force.is_default else self.in_force.configuration

    @property
    def bridge(self) -> BridgeSettings | None:
        """The bridge as configured; None if that is not known."""
        return self.configuration.file.bridge if self.configuration is not None else None

    @property
    def fenced(self) -> tuple[str, ...]:
        """The drivers whose devices the configuration wants tainted."""
        return self.bridge.drivers if self.bridge is not None and self.bridge.fence else ()


def not_translated(observed: Seen) -> Iterator[Finding]:
    """Pods that wait for names of device plugins that no node hands out: the controller's rule, whatever the mode; and names that no
    claim can stand for, of which their authors can fix nothing.
    """
    if observed.configuration is None:
        return
    builder = StateBuilder(observed.configuration)
    stock = observed.stock
    fleet = (stock.nodes, stock.classes, stock.slices, stock.claims)
    builder.take_in([one for kind in fleet for one in kind.values()])
    builder.take_in([*observed.namespaces, *observed.limits, *observed.templates])
    builder.settle()
    state = builder.state(fresh=True)
    enforcing = with_mode(state, Mode.ENFORCE)
    unserved: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for pod in observed.pods or ():
        meta = pod.metadata
        labels = {key: value for key, value in meta.labels.items() if (key, value) != (names.SKIP_LABEL, "true")}
        as_sent = replace(pod, metadata=replace(meta, labels=labels))
        missed = find_missed(as_sent, enforcing)
        if missed is None:
            for reason in find_unserved(as_sent, enforcing).items():
                unserved[reason].append(meta.key)
            for key, meant in find_unknown(pod, enforcing).items():
                unserved[key, why_unknown(meant)].append(meta.key)
            continue
        mode = mode_of(state, workload(meta.namespace, template_lifecycle.known_at_admission(pod)))
        why, first = "it was created while the webhook was down or slices of its devices were missing", ""
        if labels != meta.labels:
            why, first = f"its label {names.SKIP_LABEL} keeps it from the webhook", "remove the label; then "
        elif mode is not Mode.ENFORCE:
            why, first = why_not(state, meta.namespace), f"set {names.MODE_LABEL}=enforce there; then "
            if not why:
                why, first = "the configuration's canary leaves it out", "raise `canary`; then "
        yield make_finding("O103", f"Pod/{meta.key}", f"{missed.message}: {why}", f"{first}{missed.remedy}")
    for (key, because), pods in unserved.items():
        yield make_finding(
            "O104",
            f"Pod/{pods[0]}",
            f"no node has {key}, for which {list_first(pods, _NAMED)} wait: {because}",
        )


def refused(observed: Seen) -> Iterator[Finding]:
    """What the webhook refuses to controllers, and only an administrator can fix: each reason once."""
    event_of_reason: dict[str, Event] = {}
    for event in observed.events:
        reason = event.message.partition(" denied the request: ")[2]
        if event.reason == FAILED_CREATE and _OF_OURS in event.message and "administrator" in reason:
            event_of_reason.setdefault(reason, event)
    for reason, event in event_of_reason.items():
        about = event.involved_object
        yield make_finding(
            "O102",
            f"{about.kind}/{about.namespace}/{about.name}",
            reason[:_QUOTED],
            basis=f"an event {FAILED_CREATE}",
        )


def without_template(observed: Seen) -> Iterator[Finding]:
    """Pods that wait for a template of ours that was not made."""
    template_keys = {f"{one.metadata.namespace}/{one.metadata.name}" for one in observed.templates}
    full = surroundings.full_quotas(observed)
    failed = surroundings.latest(observed, surroundings.FAILED_TEMPLATE)
    for pod in observed.pods or ():
        meta = pod.metadata
        born = moment(meta.creation_timestamp)
        quota, failure = full.get(meta.namespace), failed.get(f"Pod/{meta.key}", "")
        late = born is not None and observed.now - born >= _MADE
        if pod.spec.node_name or meta.deletion_timestamp or not (late or (born and quota) or failure):
            continue
        made = {one.name for one in pod.status.resource_claim_statuses}
        wanted = [one for one in pod.spec.resource_claims if one.name not in made]
        ours = {name for _, name in template_lifecycle.templates_of(pod)}
        lost = sorted({one.resource_claim_template_name or "" for one in wanted} & ours)
        lost = [name for name in lost if f"{meta.namespace}/{name}" not in template_keys]
        if not lost:
            continue
        why = "which the controller has not created"
        remedy = "check that drawbridge-controller runs and that the namespace enforces; its log names the pod and the reason"
        if template_lifecycle.is_copy(pod, lost[0]):
            why = f"which {template_lifecycle.COPY}"
            remedy = "delete the pod, and create it from its original manifest"
        elif quota:
            why = f"which ResourceQuota {meta.namespace}/{quota} has no room for"
            remedy = f"raise {surroundings.TEMPLATES} in that quota, or have unused templates deleted"
        elif failure:
            why, remedy = f"and {failure[:_QUOTED]}", surroundings.remedy_for(failure)
        yield make_finding("O105", f"Pod/{meta.key}", f"it waits for ResourceClaimTemplate {lost[0]}, {why}", remedy)


def overlapping(observed: Seen) -> Iterator[Repairable]:
    """Claims that hold the same device. Those without a pod on a node can release it; if none has one, the first allocated keeps it."""
    by_uid = {claim.metadata.uid: claim for claim in observed.stock.claims.values()}
    placed = {pod.metadata.uid for pod in observed.pods or () if pod.spec.node_name}

    def allocated_at(claim: ResourceClaim) -> tuple[str, str]:
        allocation = claim.status.allocation
        stamp = allocation.allocation_timestamp if allocation is not None else None
        return stamp or "", claim.metadata.key

    for overlap in overlaps(observed.stock):
        claims = sorted((by_uid[uid] for uid in overlap.claims), key=lambda claim: claim.metadata.key)
        users: list[str] = []
        idle: list[ResourceClaim] = []
        for claim in claims:
            consumers = claim.status.reserved_for
            pods = ", ".join(consumer.name for consumer in consumers)
            users.append(f"{claim.metadata.key} ({f'pods {pods}' if pods else 'no pods'})")
            # A consumer other than a pod may be anything; a pod that is gone has no node.
            if all(consumer.is_pod and consumer.uid not in placed for consumer in consumers):
                idle.append(claim)
        if len(idle) == len(claims):
            idle.remove(min(idle, key=allocated_at))
        finding = make_finding(
            "O209",
            f"ResourceClaim/{claims[0].metadata.key}",
            f"claims hold what only one of them may hold: {'; '.join(users)}",
        )
        yield finding, Release(tuple(idle)) if idle and observed.pods is not None else None


def on_nodes(observed: Seen) -> Iterator[Finding]:
    """Nodes on which a device plugin and a driver serve the same devices, or neither does; and what audit agents report."""
    for one in observed.nodes_of_names:
        for node in one.both:
            yield make_finding(
                "O202",
                f"Node/{node}",
                f"a device plugin hands {one.key} out, and a driver publishes the same devices: two pods could be given one",
            )
    for one in observed.nodes_of_names:
        for node in one.halfway:
            yield make_finding(
                "O203",
                f"Node/{node}",
                f"it has none of {one.key} left, and no driver publishes such devices in a complete pool, so no pod can use them",
            )
    nodes = observed.stock.nodes
    for piece in observed.stock.slices.values():
        name = piece.spec.node_name
        if name and nodes and name not in nodes:
            yield make_finding(
                "O204",
                f"ResourceSlice/{piece.metadata.name}",
                f"it has the devices of node {name}, which does not exist, so no pod can use them",
                f"kubectl delete resourceslice {piece.metadata.name}; its driver names the Node as the owner of what it publishes",
            )
    for event in observed.events:
        about = event.involved_object
        code = _OF_AGENTS.get(event.reason)
        if code is None or about.kind != "Node" or event.message == OVER:
            continue
        last = moment(event.last_timestamp)
        if last is not None and observed.now - last <= _FRESH:
            yield make_finding(
                code,
                f"Node/{about.name}",
                event.message,
                basis="an event of the node's audit agent",
            )


def left_behind(observed: Seen) -> Iterator[Repairable]:
    """Reservations, claims and finalizers that outlived their pods."""
    if observed.pods is None:
        return
    alive = {pod.metadata.uid for pod in observed.pods if not pod.has_ended}
    for claim in observed.claims:
        # An allocation that a scheduler made has the finalizer; one that was made in advance, by hand, need not.
        hold = Hold(claim, is_ours=FINALIZER in claim.metadata.finalizers)
        ledger = Ledger(holds={claim.metadata.uid: hold}, leading=True)
        # The allocator repairs what two sweeps find. Here the user is asked before a write, so both sweeps see the same.
        first = sweep(ledger, alive)
        if not first.suspects:
            continue
        second = sweep(ledger, alive, first.suspects)
        [effect] = second.effects
        finding = make_finding(
            "O210",
            f"ResourceClaim/{claim.metadata.key}",
            "; ".join(second.sentences),
        )
        yield finding, effect
    pod_uids = {pod.metadata.uid for pod in observed.pods}
    for claim in observed.claims:
        meta = claim.metadata
        orphaned = why_orphaned(claim, pod_uids)
        if not orphaned:
            continue
        finding = make_finding("O211", f"ResourceClaim/{meta.key}", orphaned)
        yield finding, Removal("ResourceClaim", meta.namespace, meta.name, meta.uid, meta.resource_version)
    used = {key for pod in observed.pods for key in claim_keys(pod)}
    for claim in observed.claims:
        repair = fence(claim)
        if repair is None or claim.metadata.key in used or claim.status.reserved_for:
            continue
        # The claim of a pod may have the finalizer from the beginning (manifests/protected-claims), before the pod's status names it.
        if not claim.metadata.deletion_timestamp and any(owner.uid in pod_uids for owner in owning_pods(claim)):
            continue
        finding = make_finding(
            "O212",
            f"ResourceClaim/{claim.metadata.key}",
            "it has the finalizer of an allocation, and no allocation",
        )
        yield finding, repair


def on_devices_that_are_gone(observed: Seen) -> Iterator[Finding]:
    """Claims on devices that no driver publishes any more. A dump without any slice says nothing of that."""
    if observed.dumped and not observed.stock.slices:
        return
    devices: defaultdict[str, list[str]] = defaultdict(list)
    for key, device in unpublished(observed.stock):
        devices[key].append(device)
    for key, missing in devices.items():
        message = f"it holds {list_first(missing, 3)}, which the driver no longer publishes"
        yield make_finding("O218", f"ResourceClaim/{key}", message)


def not_prepared_again(observed: Seen) -> Iterator[Finding]:
    """Pods with a node and no sandbox, whose driver prepares no claim twice: usual for its pods after a restart of the node."""
    for pod in observed.pods or ():
        if not pod.spec.node_name or pod.has_ended or pod.metadata.deletion_timestamp:
            continue
        stamps = [
            stamp
            for one in pod.status.conditions
            if one.type == "PodReadyToStartContainers" and one.status == "False"
            if (stamp := moment(one.last_transition_time)) is not None
        ]
        if not stamps or observed.now - stamps[0] <= _WAITED:
            continue
        for key in claim_keys(pod):
            claim = observed.stock.claims.get(key)
            once = sorted({result.driver for result in results_of(claim)} & _PREPARE_ONCE)
            if once:
                yield make_finding(
                    "O113",
                    f"Pod/{pod.metadata.key}",
                    f"it has waited on {pod.spec.node_name} for minutes: {once[0]} refuses to prepare claim {key.rpartition('/')[2]} again, "
                    "as usual after a restart of kubelet or node",
                    "delete the pod, and the claim if it was created by hand: a new claim is prepared",
                )


def without_class(observed: Seen) -> Iterator[Finding]:
    """DeviceClasses that do not exist, and the claims, templates and pods that name them."""
    asking: defaultdict[str, dict[str, None]] = defaultdict(dict)

    def note(spec: ResourceClaimSpec, requester: str) -> None:
        for request in spec.devices.requests:
            for one in request.alternatives.values():
                if one.device_class_name:
                    asking[one.device_class_name][requester] = None

    for claim in observed.claims:
        if claim.status.allocation is None:
            note(claim.spec, f"ResourceClaim/{claim.metadata.key}")
    for template in observed.templates:
        note(template.spec.spec, f"ResourceClaimTemplate/{template.metadata.namespace}/{template.metadata.name}")
    for name, requester in (*classes_named(observed), *_classes_of_webhook(observed)):
        asking[name][requester] = None
    for name in sorted(asking.keys() - observed.stock.classes.keys()):
        yield make_finding(
            "O107",
            f"DeviceClass/{name}",
            f"it does not exist, but is requested by {list_first(list(asking[name]), _NAMED)}",
        )


def _classes_of_webhook(observed: Seen) -> Iterator[tuple[str, str]]:
    """Give the DeviceClasses that pods to come need by the configuration, or by the devices that drivers publish, each with what names it."""
    known = observed.stock.classes.keys()
    if observed.configuration is None or (observed.dumped and not known):
        return
    file, targets = observed.configuration.file, observed.configuration.targets
    for name, class_name in file.classes.items():
        yield class_name, f"the configuration (classes.{name})"
    for class_name in file.kueue.device_classes:
        yield class_name, "the configuration (kueue.deviceClasses)"
    published: defaultdict[str, set[str | None]] = defaultdict(set)  # the types of devices, by driver
    for piece in observed.stock.slices.values():
        driver = piece.spec.driver
        for device in piece.spec.devices:
            type_ = device.attributes.get("type") or device.attributes.get(f"{driver}/type")
            published[driver].add(type_.string if type_ is not None else None)
    drivers = set(_drivers_of_classes(observed.stock).values())

    def has_class(name: str) -> bool:
        target = targets[name]
        declared = name in file.classes or not known.isdisjoint(target.classes)
        return declared or (not target.type and target.driver in drivers)

    for name, target in targets.items():
        types = published[target.driver]
        others = [one for one in (target.instead, target.virtual) if one in targets]
        publishes = bool(types) and (not target.type or target.type in types)
        if target.classes and publishes and not any(map(has_class, (name, *others))):
            yield target.classes[0], f"claims of the webhook for devices of driver {target.driver} (target {name})"


def without_devices(observed: Seen) -> Iterator[Finding]:
    """DeviceClasses that select no device, and the claims and pods that wait for one."""
    waiting = list(open_claims(observed))
    classes = _classes(observed.stock) if waiting else {}
    empty: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for requester, requests in waiting:
        for request in requests:
            wanted = [one.device_class_name for one in request.alternatives.values()]
            served = [classes.get(name) for name in wanted]
            if served and all(one is not None and not one.devices for one in served):
                empty[wanted[0]][requester] = None
    if empty and observed.dumped and not observed.stock.slices:
        yield make_finding(
            "O108",
            "ResourceSlice (all)",
            f"the dump has none, though it has claims that wait for devices: {list_first(list(next(iter(empty.values()))), _NAMED)}",
            "dump them as well (`kubectl get resourceslices -o yaml`), or take `drawbridge snapshot`",
        )
        return
    for name, claims in empty.items():
        yield make_finding(
            "O108",
            f"DeviceClass/{name}",
            f"it selects no device of a pool that can be used, and is requested by {list_first(list(claims), _NAMED)}",
        )


def without_fence(observed: Seen) -> Iterator[Repairable]:
    """Drivers whose devices should be tainted, and are not."""
    rules = observed.stock.rules
    for driver in observed.fenced:
        if not any(fences(rule, driver) for rule in rules.values()):
            finding = make_finding(
                "O206",
                f"DeviceTaintRule/drawbridge-fence-{driver}",
                f"the configuration wants the devices of {driver} fenced, but no rule fences them",
            )
            # A rule of that name with another selector was written by a person, and stays.
            yield finding, None if f"drawbridge-fence-{driver}" in rules else RuleCreation(driver)


def behind_the_fence(observed: Seen) -> Iterator[Finding]:
    """Unschedulable pods whose claims do not tolerate the taint of a fence."""
    stock = observed.stock
    rules = stock.rules.values()

    def fence_of(driver: str, tolerations: tuple[DeviceToleration, ...]) -> str:
        blocking = [one for one in rules if fences(one, driver) and blocks(one.spec.taint, tolerations)]
        return names.FENCE if blocking else ""

    driver_of = _drivers_of_classes(stock)
    fenced = {name for name, driver in driver_of.items() if any(fences(rule, driver) for rule in rules)}
    if not fenced:
        return
    serving = stock.serving()
    by_key = {claim.metadata.key: claim for claim in observed.claims}
    configuration = observed.configuration or Configuration()
    for pod in observed.pods or ():
        if pod.spec.node_name or pod.has_ended or pod.metadata.deletion_timestamp:
            continue
        if not any(one.type == "PodScheduled" and one.status == "False" for one in pod.status.conditions):
            continue
        fenced_names = [name for name in served_resources(pod, serving) if serving[name] in fenced]
        if fenced_names and not _is_ours(pod.spec.scheduler_name, observed.bridge):
            remedy = f"give it the bridge's schedulerName: the webhook translates no {fenced_names[0]} into a claim"
            if all(configuration.resource(name) for name in fenced_names):
                remedy = "recreate the pod where the webhook translates it (docs/bridge.md), or give it the bridge's schedulerName"
            yield make_finding(
                "O110",
                f"Pod/{pod.metadata.key}",
                f"it waits with scheduler {pod.spec.scheduler_name or 'default-scheduler'} for {', '.join(fenced_names)}, which fenced devices serve by name, "
                "and claims that kube-scheduler creates tolerate no taint",
                remedy,
            )
        for key in claim_keys(pod):
            claim = by_key.get(key)
            if claim is None or claim.status.allocation is not None:
                continue
            kept_by = [surroundings.kept_by(request, driver_of, fence_of) for request in claim.spec.devices.requests]
            drivers = ", ".join(sorted({driver for driver, _ in chain.from_iterable(kept_by)}))
            if drivers:
                yield make_finding(
                    "O110",
                    f"Pod/{pod.metadata.key}",
                    f"it waits with scheduler {pod.spec.scheduler_name or 'default-scheduler'} for devices of {drivers}, which are tainted, "
                    f"and claim {claim.metadata.name} does not tolerate the taint",
                )


def two_schedulers(observed: Seen) -> Iterator[Finding]:
    """Drivers whose devices the bridge and another scheduler allocate, while no rule keeps the other one from them."""
    stock, bridge = observed.stock, observed.bridge
    by_key = {claim.metadata.key: claim for claim in observed.claims}
    driver_of = _drivers_of_classes(stock)
    used_by: defaultdict[str, set[str]] = defaultdict(set)
    for pod in observed.pods or ():
        for key in () if pod.has_ended else claim_keys(pod):
            claim = by_key.get(key)
            if claim is None:
                continue
            # Its drivers, or while it waits those of the classes that it names.
            several = [request.alternatives.values() for request in claim.spec.devices.requests]
            drivers = {driver_of.get(one.device_class_name, "") for one in chain.from_iterable(several)} - {""}
            for driver in {result.driver for result in results_of(claim)} or drivers:
                used_by[driver].add(pod.spec.scheduler_name or "default-scheduler")
    managed = bridge.drivers if bridge is not None and not bridge.fence else ()
    for driver in sorted({*used_by, *managed}):
        ours = {one for one in used_by[driver] if _is_ours(one, bridge)}
        others = used_by[driver] - ours
        if not (ours and others) and driver not in managed:
            continue
        if driver in observed.fenced or any(fences(rule, driver) for rule in stock.rules.values()):
            continue
        first = ", ".join(sorted(ours)) or (bridge.scheduler_name if bridge is not None else names.NAME)
        second = ", ".join(sorted(others)) or "any other scheduler"
        yield make_finding(
            "O205",
            f"Driver/{driver}",
            f"{first} and {second} may give one of its devices to two pods at the same time, because no fence keeps them apart",
        )


def _is_ours(scheduler: str, bridge: BridgeSettings | None) -> bool:
    return scheduler.startswith(names.NAME) if bridge is None else scheduler == bridge.scheduler_name


def _classes(stock: Stock) -> Mapping[str, Served]:
    return Inventory.of(stock.classes.values(), stock.slices.values(), ()).classes


def _drivers_of_classes(stock: Stock) -> dict[str, str]:
    return {name: served.driver for name, served in _classes(stock).items() if served.driver}


def about_components(observed: Seen) -> Iterator[Finding]:
    """A webhook configuration that lets pods pass by, and leases that no replica renews."""
    if observed.unsent:
        yield make_finding(
            "O016",
            f"MutatingWebhookConfiguration/{names.NAME}",
            f"pods that request names of {', '.join(observed.unsent)} do not reach the webhook, and are admitted as written",
        )
    for lease in observed.leases:
        spec = lease.spec
        renewed = moment(spec.renew_time)
        if lease.metadata.name not in LEASES or not spec.holder_identity or renewed is None:
            continue
        silent = (observed.now - renewed).total_seconds()
        if silent > _RENEWED * (spec.lease_duration_seconds or 15):
            yield make_finding(
                "O017",
                f"Lease/{lease.metadata.namespace}/{lease.metadata.name}",
                f"{spec.holder_identity} has not renewed it for {silent:.0f} s, and no other replica has taken it",
            )


def left_by_agents(observed: Seen) -> Iterator[Repairable]:
    """Taints of devices and conditions of nodes that no audit agent renews any more."""
    for rule in observed.stock.rules.values():
        meta = rule.metadata
        renewed = seen_at(rule)
        if MARKED_ON not in meta.labels or (renewed is not None and observed.now - renewed <= _STOOD_BY):
            continue
        owners = ", ".join(owner.name for owner in meta.owner_references) or "(unknown)"
        finding = make_finding(
            "O213",
            f"DeviceTaintRule/{meta.name}",
            f"it keeps claims off a device of node {owners}, and no audit agent renews it any more",
        )
        yield finding, Removal("DeviceTaintRule", "", meta.name, meta.uid, meta.resource_version)
    for node in observed.nodes:
        condition = condition_on(node)
        renewed = renewed_at(condition) if condition is not None else None
        if condition is None or (renewed is not None and observed.now - renewed <= _STOOD_BY):
            continue
        name = node["metadata"]["name"]
        finding = make_finding(
            "O214",
            f"Node/{name}",
            f"it has {CONDITION}={condition.get('status')}, which no audit agent has renewed for half an hour",
        )
        yield finding, ConditionRemoval(name, node["status"]["conditions"].index(condition), condition)


def unused_templates(observed: Seen) -> Iterator[Repairable]:
    """Templates of the webhook that no pod uses, and that the controller has not swept."""
    if observed.pods is None:
        return
    in_use = frozenset(key for pod in observed.pods for key in template_lifecycle.templates_of(pod))
    made: dict[tuple[str, str], float] = {}
    for one in observed.templates:
        born = moment(one.metadata.creation_timestamp)
        made[one.metadata.namespace, one.metadata.name] = born.timestamp() if born else 0.0
    _, over = template_lifecycle.sweep(
        made, observed.templates, in_use, now=observed.now.timestamp(), grace=_UNUSED.total_seconds()
    )
    for one in over:
        meta = one.metadata
        finding = make_finding(
            "O216",
            f"ResourceClaimTemplate/{meta.namespace}/{meta.name}",
            "drawbridge created it, and no pod uses it; the controller has not deleted it",
        )
        yield finding, Removal("ResourceClaimTemplate", meta.namespace, meta.name, meta.uid, meta.resource_version)


def unused_claims(observed: Seen) -> Iterator[Finding]:
    """Claims without an owner, a device, or a pod that names them, by namespace: a webhook may have made them for a pod that was refused."""
    if observed.pods is None:
        return
    left: defaultdict[str, list[ResourceClaim]] = defaultdict(list)
    used = {key for pod in observed.pods for key in claim_keys(pod)}
    for claim in observed.claims:
        meta, status = claim.metadata, claim.status
        in_use = status.allocation is not None or status.reserved_for or meta.owner_references or meta.finalizers
        born = moment(meta.creation_timestamp)
        if in_use or meta.deletion_timestamp or born is None or observed.now - born < _TAKEN_UP:
            continue
        if meta.key not in used and meta.key not in observed.named:
            left[meta.namespace].append(claim)
    for namespace, claims in sorted(left.items()):
        claims.sort(key=lambda one: (one.metadata.creation_timestamp, one.metadata.name))
        listed = list_first([one.metadata.name for one in claims], _NAMED)
        oldest = claims[0].metadata
        yield make_finding(
            "O217",
            f"ResourceClaim/{oldest.key}",
            f"namespace {namespace} has {count_of(len(claims), 'claim')} without an owner, a device, or a pod that names it, "
            f"the oldest since {oldest.creation_timestamp}: {listed}",
        )


# Each with the kinds without which it says nothing.
CHECKS: tuple[tuple[Callable[[Seen], Iterator[Finding] | Iterator[Repairable]], tuple[str, ...]], ...] = (
    (surroundings.nothing_stored, ("Lease",)),
    (surroundings.idle_controllers, ("Lease",)),
    (lambda observed: examine(observed.parts, observed.now), ()),
    (surroundings.not_reached, ()),
    (surroundings.nodes_away, ("Node", "Pod")),
    (surroundings.not_made, ()),
    (misspelt_settings, ("ResourceSlice", "Namespace")),
    (without_class, ("DeviceClass",)),
    (not_translated, ("Pod", "Node", "Namespace", "DeviceClass", "ResourceSlice", "ResourceQuota", "LimitRange")),
    (refused, ()),
    (without_template, ("Pod", "ResourceClaimTemplate")),
    (surroundings.without_claim, ("Pod",)),
    (surroundings.no_scheduler, ("Pod",)),
    (surroundings.not_prepared, ("Pod",)),
    (overlapping, ("ResourceClaim", "Pod")),
    (on_nodes, ("Node", "ResourceSlice")),
    (left_behind, ("ResourceClaim", "Pod")),
    (on_devices_that_are_gone, ("ResourceClaim", "ResourceSlice")),
    (not_prepared_again, ("Pod",)),
    (surroundings.incomplete_pools, ("ResourceSlice",)),
    (
        lambda observed: surroundings.tainted(observed, _drivers_of_classes(observed.stock)),
        ("DeviceClass", "ResourceSlice", "DeviceTaintRule"),
    ),
    (without_devices, ("DeviceClass", "ResourceSlice")),
    (surroundings.in_deletion, ()),
    (without_fence, ("DeviceTaintRule",)),
    (behind_the_fence, ("DeviceTaintRule",)),
    (two_schedulers, ("DeviceTaintRule",)),
    (about_components, ()),
    (left_by_agents, ("Node",)),
    (unused_templates, ("Pod",)),
    (unused_claims, ("ResourceClaim", "Pod")),
    (lambda observed: replica_warnings(observed.parts), ()),
)


def diagnose(observed: Seen) -> dict[Finding, Repair | None]:
    """Return what is wrong, the gravest first, and what would repair each."""
    found: dict[Finding, Repair | None] = {}
    for check, needed in CHECKS:
        if observed.unread.keys().isdisjoint(needed):
            for one in check(observed):
                finding, repair = one if isinstance(one, tuple) else (one, None)
                found[finding] = repair
    return found
