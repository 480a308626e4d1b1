"""What is wrong with claims, pods, templates and leases as they were seen. Pure: objects and a time in, ills out.

Who holds what wrongly is found by the same functions that the allocator runs every few minutes (`allocator.reservations`); here is
only said in words what they find. It asks for nothing, and repairs nothing.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec.structs import replace

from allocator.reservations import FINALIZER, Hold, Ledger, fence, overlaps, sweep
from cli.doctor.repair import Fencing, Removal, Repair, Undressing, Yielding
from cluster.objects import Event, Lease
from dra.objects import DeviceTaintRule, Pod, ResourceClaim, ResourceClaimTemplate, blocks, claim_names, results_of
from dra.stock import Stock
from node.audit import CONDITION, MARKED_ON, OVER, Kind, seen_at, stood_by_at
from webhook import names
from webhook.claims import upkeep
from webhook.dialects import TARGETS
from webhook.sides import Standing
from webhook.state import Inventory

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from dra.objects import DeviceRequest, OwnerReference, ResourceClaimSpec

T = TypeVar("T")
_LEASES = (names.NAME, "drawbridge-allocator")
_RENEWED = 4  # a lease that nobody renews for so many times its length has been left
_UNUSED = timedelta(hours=1)  # the controller sweeps templates long before
_NAMED = 5
_WAITED = timedelta(minutes=5)  # the kubelet asks for a pod's devices each minute or two
_PREPARE_ONCE = frozenset(target.driver for target in TARGETS.values() if target.prepares_once)
_FRESH = timedelta(minutes=20)  # an agent says every ten minutes what is still so
_STOOD_BY = timedelta(minutes=30)  # and stands by its marks as often


class Wearing(msgspec.Struct, frozen=True):
    """The condition of an audit agent, and where it stands among those of its node."""

    node: str
    place: int
    condition: dict[str, Any]


class Seen(msgspec.Struct, frozen=True):
    """What was read. Claims before pods: a pod that came between the two is no ghost."""

    stock: Stock
    now: datetime
    claims: tuple[ResourceClaim, ...] = ()
    pods: tuple[Pod, ...] | None = None  # None if nobody could say which pods there are
    templates: tuple[ResourceClaimTemplate, ...] = ()
    leases: tuple[Lease, ...] = ()
    fenced: tuple[str, ...] = ()  # drivers whose devices are to be fenced
    unasked: tuple[str, ...] = ()  # domains of names that the API server keeps from the gate, which would read them
    sides: tuple[Standing, ...] = ()  # which nodes hand a name out, and which publish what it stands for
    told: tuple[Event, ...] = ()  # by the audit agents of nodes
    worn: tuple[Wearing, ...] = ()  # nodes with their condition


class Ill(msgspec.Struct, frozen=True):
    """One thing that is wrong."""

    what: str
    object: str
    message: str
    remedy: str
    repair: Repair | None = None


def diagnose(seen: Seen) -> tuple[Ill, ...]:
    """Name what is wrong, in the order in which it matters."""
    return (
        *_overlapping(seen),
        *_two_keepers(seen),
        *_halfway(seen),
        *_on_nodes(seen),
        *_left_behind(seen),
        *_orphans(seen),
        *_idle_finalizers(seen),
        *_refused_again(seen),
        *_without_class(seen),
        *_without_fence(seen),
        *_behind_fence(seen),
        *_unasked(seen),
        *_idle_leases(seen),
        *_idle_marks(seen),
        *_idle_conditions(seen),
        *_unused_templates(seen),
    )


def _overlapping(seen: Seen) -> Iterator[Ill]:
    by_uid = {claim.metadata.uid: claim for claim in seen.stock.claims.values()}
    for overlap in overlaps(seen.stock):
        claims = sorted((by_uid[uid] for uid in overlap.claims), key=lambda claim: claim.metadata.key)
        users = [f"{claim.metadata.key} ({_users(claim)})" for claim in claims]
        yield Ill(
            "overlap",
            f"ResourceClaim {claims[0].metadata.key}",
            f"claims hold what only one of them may hold: {'; '.join(users)}",
            "delete the pods of all but one; the fence (docs/bridge.md) keeps other schedulers from these devices",
            _yielding(seen, claims),
        )


def _yielding(seen: Seen, claims: Sequence[ResourceClaim]) -> Yielding | None:
    """Choose who gives way: who has no pod on a node. If nobody has one, the first that was allocated keeps what it has."""
    if seen.pods is None:
        return None
    placed = {pod.metadata.uid for pod in seen.pods if pod.spec.node_name}
    able = [claim for claim in claims if _can_yield(claim, placed)]
    if len(able) == len(claims):
        first = min(able, key=_allocated_at)
        able.remove(first)
    if not able:
        return None
    return Yielding(tuple(able))


def _can_yield(claim: ResourceClaim, placed: Collection[str]) -> bool:
    """Whether nobody can be using it: who is no pod may be anything, and who is gone is on no node."""
    return all(consumer.is_pod and consumer.uid not in placed for consumer in claim.status.reserved_for)


def _allocated_at(claim: ResourceClaim) -> tuple[str, str]:
    allocation = claim.status.allocation
    stamp = allocation.allocation_timestamp if allocation is not None else None
    return stamp or "", claim.metadata.key


def _users(claim: ResourceClaim) -> str:
    pods = [consumer.name for consumer in claim.status.reserved_for]
    return f"pods {', '.join(pods)}" if pods else "no pods"


def _two_keepers(seen: Seen) -> Iterator[Ill]:
    """Nodes on which a device plugin and a driver give out the same devices."""
    for side in seen.sides:
        for node in side.both:
            yield Ill(
                "two keepers",
                f"Node {node}",
                f"a device plugin hands {side.key} out, and a driver publishes the same devices: two pods could be given one",
                "cordon it; take the device plugin or the driver off it, and drain what the other gave out (docs/migrate.md)",
            )


def _halfway(seen: Seen) -> Iterator[Ill]:
    """Nodes that have left their device plugin, or whose plugin finds nothing healthy, and that no driver serves."""
    for side in seen.sides:
        for node in side.halfway:
            yield Ill(
                "half-way",
                f"Node {node}",
                f"it has none of {side.key} left, and no driver publishes such devices in a complete pool: nobody can use them",
                "look at the driver's pod there, or at the device plugin's if the node is to stay on it (docs/migrate.md)",
            )


def _on_nodes(seen: Seen) -> Iterator[Ill]:
    """What audit agents have found on their nodes, as far as it is fresh: they say again what is still so."""
    kinds = {kind.reason: kind for kind in Kind}
    for event in seen.told:
        about = event.involved_object
        kind = kinds.get(event.reason)
        if (
            kind is None
            or about.kind != "Node"
            or event.message == OVER
            or _age(event.last_timestamp, seen.now) > _FRESH
        ):
            continue
        yield Ill(
            kind.value,
            f"Node {about.name}",
            event.message,
            "`drawbridge node-agent --once` on the node says more of it (docs/node-agent.md)",
        )


def _idle_marks(seen: Seen) -> Iterator[Ill]:
    """Devices that are kept from claims by an agent that is gone."""
    for rule in seen.stock.rules.values():
        meta = rule.metadata
        stood = seen_at(rule)
        if MARKED_ON not in meta.labels or (stood is not None and seen.now - stood <= _STOOD_BY):
            continue
        owners = ", ".join(owner.name for owner in meta.owner_references)
        yield Ill(
            "idle mark",
            f"DeviceTaintRule {meta.name}",
            f"it keeps claims from a device of node {owners or 'of nobody'}, and no audit agent stands by it any more",
            "does the agent run there? If it is to be gone, and no pod has the device of a device plugin, delete the rule",
            Removal("DeviceTaintRule", "", meta.name, meta.uid, meta.resource_version),
        )


def _idle_conditions(seen: Seen) -> Iterator[Ill]:
    """What an agent said of its node that is gone, or must not say it any more."""
    for one in seen.worn:
        stood = stood_by_at(one.condition)
        if stood is not None and seen.now - stood <= _STOOD_BY:
            continue
        yield Ill(
            "idle condition",
            f"Node {one.node}",
            f"it wears {CONDITION}={one.condition.get('status')}, and no audit agent has stood by that for half an hour",
            "does an agent with --condition run there, and may it write nodes/status? If it is to be gone, take the condition away (docs/node-agent.md)",
            Undressing(one.node, one.place, one.condition),
        )


def _age(stamp: str, now: datetime) -> timedelta:
    try:
        return now - datetime.fromisoformat(stamp)
    except (ValueError, TypeError):
        return timedelta.max


def _left_behind(seen: Seen) -> Iterator[Ill]:
    """What two sweeps of the allocator find, claim by claim. Here they are two looks at the same: somebody is asked before a write."""
    if seen.pods is None:
        return
    alive = {pod.metadata.uid for pod in seen.pods if not pod.has_ended}
    for claim in seen.claims:
        # An allocation that a scheduler made has the finalizer; one that was made in advance, by hand, need not.
        hold = Hold(claim, ours=FINALIZER in claim.metadata.finalizers)
        ledger = Ledger(leading=True)
        ledger = replace(ledger, holds=ledger.holds.with_(claim.metadata.uid, hold))
        first = sweep(ledger, alive)
        if not first.suspects:
            continue
        second = sweep(ledger, alive, first.suspects)
        [repair] = second.effects
        yield Ill(
            "left behind",
            f"ResourceClaim {claim.metadata.key}",
            "; ".join(second.sentences),
            "its devices are held for nobody: take the reservation back",
            repair,
        )


def _orphans(seen: Seen) -> Iterator[Ill]:
    """Claims that were made for a pod that does not exist any more."""
    if seen.pods is None:
        return
    there = {pod.metadata.uid for pod in seen.pods}
    for claim in seen.claims:
        meta = claim.metadata
        owners = _owning_pods(claim)
        if not owners or meta.deletion_timestamp or any(owner.uid in there for owner in owners):
            continue
        yield Ill(
            "without pod",
            f"ResourceClaim {claim.metadata.key}",
            f"it was made for pod {owners[0].name}, which does not exist any more",
            "delete it; if there are more and more of these, look at kube-controller-manager",
            Removal("ResourceClaim", meta.namespace, meta.name, meta.uid, meta.resource_version),
        )


def _owning_pods(claim: ResourceClaim) -> list[OwnerReference]:
    return [owner for owner in claim.metadata.owner_references if owner.controller and owner.kind == "Pod"]


def _idle_finalizers(seen: Seen) -> Iterator[Ill]:
    """Claims that have the finalizer of an allocation, and no allocation, and nobody who waits for one.

    One that a pod owns may have it from the beginning (manifests/protected-claims), before its pod's status names it.
    """
    if seen.pods is None:
        return
    there = {pod.metadata.uid for pod in seen.pods}
    used = {f"{pod.metadata.namespace or 'default'}/{name}" for pod in seen.pods for name in claim_names(pod)}
    for claim in seen.claims:
        repair = fence(claim)
        if repair is None or claim.metadata.key in used or claim.status.reserved_for:
            continue
        if not claim.metadata.deletion_timestamp and any(owner.uid in there for owner in _owning_pods(claim)):
            continue
        yield Ill(
            "finalizer",
            f"ResourceClaim {claim.metadata.key}",
            "it has the finalizer of an allocation, and no allocation",
            "take the finalizer off: nothing is held, and it keeps the claim from being deleted",
            repair,
        )


def _refused_again(seen: Seen) -> Iterator[Ill]:
    """Pods that wait on their node for a driver that prepares no claim twice: so it is for all of its pods after a restart of the node."""
    for pod in seen.pods or ():
        if not _waits_on_its_node(pod, seen.now):
            continue
        for name in claim_names(pod):
            claim = seen.stock.claims.get(f"{pod.metadata.namespace}/{name}")
            once = sorted({result.driver for result in results_of(claim)} & _PREPARE_ONCE)
            if not once:
                continue
            yield Ill(
                "not prepared again",
                f"Pod {pod.metadata.key}",
                f"it has waited on {pod.spec.node_name} for minutes, and {once[0]} refuses to prepare a claim that it has prepared before "
                f"({name}): so it is after a restart of the kubelet or of the node",
                "delete the pod, and the claim if it was made by hand: a new claim is prepared",
            )


def _waits_on_its_node(pod: Pod, now: datetime) -> bool:
    """Say whether a pod has had a node for long, and no sandbox."""
    if not pod.spec.node_name or pod.has_ended or pod.metadata.deletion_timestamp:
        return False
    for condition in pod.status.conditions:
        since = condition.last_transition_time
        if condition.type == "PodReadyToStartContainers" and condition.status == "False" and since:
            return now - datetime.fromisoformat(since) > _WAITED
    return False


def _without_class(seen: Seen) -> Iterator[Ill]:
    asking: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for claim in seen.claims:
        if claim.status.allocation is None:
            for name in _classes(claim.spec):
                asking[name][f"ResourceClaim {claim.metadata.key}"] = None
    for template in seen.templates:
        for name in _classes(template.spec.spec):
            asking[name][f"ResourceClaimTemplate {template.metadata.namespace}/{template.metadata.name}"] = None
    for name in sorted(asking.keys() - seen.stock.classes.keys()):
        askers = list(asking[name])
        more = f" and {len(askers) - _NAMED} more" if len(askers) > _NAMED else ""
        yield Ill(
            "without class",
            f"DeviceClass {name}",
            f"it does not exist, but is asked for by {', '.join(askers[:_NAMED])}{more}",
            "install the driver's chart, which brings it, or mend the name",
        )


def _classes(spec: ResourceClaimSpec) -> Iterator[str]:
    for request in spec.devices.requests:
        asked = (request.exactly, *request.first_available)
        yield from (one.device_class_name for one in asked if one is not None and one.device_class_name)


def _without_fence(seen: Seen) -> Iterator[Ill]:
    for driver in seen.fenced:
        if any(_fences(rule, driver) for rule in seen.stock.rules.values()):
            continue
        yield Ill(
            "without fence",
            f"DeviceTaintRule drawbridge-fence-{driver}",
            f"the configuration wants the devices of {driver} fenced, but no rule fences them",
            "apply what `drawbridge manifests --bridge --config FILE` prints",
            # One of that name that fences something else is somebody's work.
            None if f"drawbridge-fence-{driver}" in seen.stock.rules else Fencing(driver),
        )


def _behind_fence(seen: Seen) -> Iterator[Ill]:
    """Pods that no scheduler has found a node for, and that want fenced devices with claims that are not let in."""
    stock = seen.stock
    fences = [rule for rule in stock.rules.values() if rule.spec.taint.key == names.FENCE]
    if not fences:
        return
    classes = Inventory.of(stock.classes.values(), stock.slices.values(), ()).classes
    driver_of = {name: served.driver for name, served in classes.items()}
    by_key = {claim.metadata.key: claim for claim in seen.claims}
    for pod in seen.pods or ():
        if not _is_unschedulable(pod):
            continue
        for name in claim_names(pod):
            claim = by_key.get(f"{pod.metadata.namespace}/{name}")
            if claim is None or claim.status.allocation is not None:
                continue
            wanted = [_drivers_kept(request, driver_of, fences) for request in claim.spec.devices.requests]
            drivers = sorted(set().union(*wanted))
            if drivers:
                yield Ill(
                    "behind the fence",
                    f"Pod {pod.metadata.key}",
                    f"it waits with scheduler {pod.spec.scheduler_name} for devices of {', '.join(drivers)}, which are fenced, "
                    f"and claim {name} is none that the fence lets in",
                    "have the pod made anew, so that the gate sends it to the bridge; a claim that was written by hand needs the toleration (docs/bridge.md)",
                )


def _drivers_kept(request: DeviceRequest, driver_of: Mapping[str, str], fences: Sequence[DeviceTaintRule]) -> set[str]:
    """Name the drivers whose fences keep a request from all that it could have; nothing where one alternative is let in."""
    asked = (request.exactly, *request.first_available)
    drivers: set[str] = set()
    for one in asked:
        if one is None:
            continue
        driver = driver_of.get(one.device_class_name, "")
        kept = [rule for rule in fences if _fences(rule, driver) and blocks(rule.spec.taint, one.tolerations)]
        if not driver or not kept:
            return set()
        drivers.add(driver)
    return drivers


def _is_unschedulable(pod: Pod) -> bool:
    if pod.spec.node_name or pod.has_ended or pod.metadata.deletion_timestamp:
        return False
    return any(one.type == "PodScheduled" and one.status == "False" for one in pod.status.conditions)


def _unasked(seen: Seen) -> Iterator[Ill]:
    if seen.unasked:
        yield Ill(
            "not asked about",
            f"MutatingWebhookConfiguration {names.NAME}",
            f"pods that ask by names of {', '.join(seen.unasked)} never reach the gate, and enter as they are written",
            "apply what `drawbridge manifests --only webhooks --config FILE` prints, with the options you installed with",
        )


def _fences(rule: DeviceTaintRule, driver: str) -> bool:
    selector = rule.spec.device_selector
    if selector is None or rule.spec.taint.key != names.FENCE:
        return False
    return selector.driver in (None, driver) and selector.pool is None and selector.device is None


def _idle_leases(seen: Seen) -> Iterator[Ill]:
    for lease in seen.leases:
        spec = lease.spec
        if lease.metadata.name not in _LEASES or not spec.holder_identity or not spec.renew_time:
            continue
        silent = seen.now - datetime.fromisoformat(spec.renew_time)
        if silent.total_seconds() <= _RENEWED * (spec.lease_duration_seconds or 15):
            continue
        yield Ill(
            "idle lease",
            f"Lease {lease.metadata.namespace}/{lease.metadata.name}",
            f"{spec.holder_identity} has not renewed it for {silent.total_seconds():.0f} s, and nobody else has taken it",
            "does the Deployment run? Its log, and `/readyz?verbose`, say what keeps it",
        )


def _unused_templates(seen: Seen) -> Iterator[Ill]:
    if seen.pods is None:
        return
    in_use = frozenset(key for pod in seen.pods for key in upkeep.templates_of(pod))
    made = {(one.metadata.namespace, one.metadata.name): _made_at(one) for one in seen.templates}
    now, grace = seen.now.timestamp(), _UNUSED.total_seconds()
    _, over = upkeep.sweep(made, seen.templates, in_use, now=now, grace=grace)
    for one in over:
        meta = one.metadata
        yield Ill(
            "unused template",
            f"ResourceClaimTemplate {meta.namespace}/{meta.name}",
            "it is one of ours, and no pod uses it; the controller has not swept it",
            "delete it; does the controller run?",
            Removal("ResourceClaimTemplate", meta.namespace, meta.name, meta.uid, meta.resource_version),
        )


def _made_at(template: ResourceClaimTemplate) -> float:
    written = template.metadata.creation_timestamp
    return datetime.fromisoformat(written).timestamp() if written else 0.0


def with_identity(obj: T) -> T:
    """Give a claim that no API server has seen an identity: its name."""
    if not isinstance(obj, ResourceClaim) or obj.metadata.uid:
        return obj
    return replace(obj, metadata=replace(obj.metadata, uid=obj.metadata.key))
