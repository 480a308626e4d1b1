"""Findings about claims, templates and restarting pods that hold devices wrongly, or that outlived their pods.

Wrong reservations are found by the functions that the allocator runs every few minutes (`allocator.reservations`).
"""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta
from itertools import chain
from typing import TYPE_CHECKING

from allocator.reservations import FINALIZER, Hold, Ledger, invalidate_lost_write, overlaps, sweep
from analysis.capacity import cards_of, devices_of_nodes
from analysis.doctor.observed import MAX_NAMED, DoctorInput
from analysis.doctor.repair import Release, Removal
from analysis.explain import RULES, facts_of, first_reasons
from analysis.refused_pods import QUOTED
from cluster.objects import Namespace
from dra.finding import Finding, make_finding
from dra.objects import Pod, ResourceClaim, claim_keys, owning_pods, results_of, why_orphaned
from dra.raw import Object, inside, moment, text
from dra.texts import count_of, list_first
from webhook.claims import template_lifecycle

if TYPE_CHECKING:
    from collections.abc import Iterator

    from analysis.doctor.repair import Repairable
    from analysis.loading import Reading

_UNUSED = timedelta(hours=1)  # age of a template; the controller's default grace period is an hour without a pod
_TAKEN_UP = timedelta(minutes=10)  # if a claim is created before its pod, the pod names the claim within this time
_ENDING = timedelta(seconds=30)  # a running controller removes its finalizer within a second
_OF_JOBS = "batch.kubernetes.io/job-tracking"  # removed by kube-controller-manager, which has its own finding


def overlapping(observed: DoctorInput) -> Iterator[Repairable]:
    """Claims with conflicting allocations.

    Those none of whose pods has a node can be released; if none has, the claim allocated first stays.
    """
    by_uid = {claim.metadata.uid: claim for claim in observed.reading.stock.claims.values()}
    placed = {pod.metadata.uid for pod in observed.reading.pods.values() if pod.spec.node_name}

    def allocated_at(claim: ResourceClaim) -> tuple[str, str]:
        allocation = claim.status.allocation
        stamp = allocation.allocation_timestamp if allocation is not None else None
        return stamp or "", claim.metadata.key

    conflicts = {overlap.claims: "" for overlap in overlaps(observed.reading.stock)}
    for uids, why in {**dict(_of_one_card(observed.reading)), **conflicts}.items():
        claims = sorted((by_uid[uid] for uid in uids), key=lambda claim: claim.metadata.key)
        users: list[str] = []
        idle: list[ResourceClaim] = []
        for claim in claims:
            consumers = claim.status.reserved_for
            pods = ", ".join(consumer.name for consumer in consumers)
            users.append(f"{claim.metadata.key} ({f'pods {pods}' if pods else 'no pods'})")
            # A consumer other than a pod may use the devices anywhere. A pod that is gone has no node.
            if all(consumer.is_pod and consumer.uid not in placed for consumer in consumers):
                idle.append(claim)
        if len(idle) == len(claims):
            idle.remove(min(idle, key=allocated_at))
        message = f"these claims must not hold their devices at the same time{why}: {'; '.join(users)}"
        finding = make_finding("O209", f"ResourceClaim/{claims[0].metadata.key}", message)
        yield finding, Release(tuple(idle)) if idle and "Pod" not in observed.missing else None


def _of_one_card(reading: Reading) -> Iterator[tuple[frozenset[str], str]]:
    """Yield claims that hold devices of two drivers that are one card, and name these devices."""
    for card in cards_of(devices_of_nodes((), reading)):
        held = {
            device.device: [holder.claim for holder in device.holders if holder.claim and not holder.admin_access]
            for device in card.devices
        }
        names = sorted(name for name, claims in held.items() if claims)
        uids = {reading.stock.claims[claim].metadata.uid for claim in chain.from_iterable(held.values())}
        if len(uids) > 1 and len({name.partition("/")[0] for name in names}) > 1:
            yield frozenset(uids), f", because {' and '.join(names)} are one card"


def left_behind(observed: DoctorInput) -> Iterator[Repairable]:
    """Reservations that outlived their pods."""
    pods = observed.reading.pods.values()
    alive = {pod.metadata.uid for pod in pods if not pod.has_ended}
    known = {pod.metadata.uid for pod in pods}
    pending = {key for pod in pods if not pod.spec.node_name and not pod.is_done for key in claim_keys(pod)}
    for claim in observed.reading.stock.claims.values():
        if why_orphaned(claim, known):
            continue  # `without_pod` deletes it, which frees its devices, too
        # An allocation that a scheduler made has the finalizer; an allocation that was written by hand may lack it.
        hold = Hold(claim, is_ours=FINALIZER in claim.metadata.finalizers)
        ledger = Ledger(holds={claim.metadata.uid: hold}, leading=True)
        # The allocator repairs what two sweeps in a row find. `doctor` asks the user before a write, so one observation serves as both sweeps.
        first = sweep(ledger, alive)
        if not first.suspects:
            continue
        second = sweep(ledger, alive, first.suspects)
        [effect] = second.effects
        finding = make_finding("O210", f"ResourceClaim/{claim.metadata.key}", "; ".join(second.sentences))
        yield finding, effect if claim.metadata.key not in pending else None  # the pod gets the allocated devices


def without_pod(observed: DoctorInput) -> Iterator[Repairable]:
    """Claims that outlived the pods that they were created for."""
    pod_uids = {pod.metadata.uid for pod in observed.reading.pods.values()}
    for claim in observed.reading.stock.claims.values():
        meta = claim.metadata
        orphaned = why_orphaned(claim, pod_uids)
        if not orphaned:
            continue
        finding = make_finding("O211", f"ResourceClaim/{meta.key}", orphaned)
        yield finding, Removal("ResourceClaim", meta.namespace, meta.name, meta.uid, meta.resource_version)


def idle_finalizers(observed: DoctorInput) -> Iterator[Repairable]:
    """Finalizers of claims without an allocation and without a pod."""
    pod_uids = {pod.metadata.uid for pod in observed.reading.pods.values()}
    used = {key for pod in observed.reading.pods.values() for key in claim_keys(pod)}
    for claim in observed.reading.stock.claims.values():
        repair = invalidate_lost_write(claim)
        if repair is None or claim.metadata.key in used or claim.status.reserved_for:
            continue
        # The claim of a pod may have the finalizer from the beginning (manifests/protected-claims), before the pod's status names the claim.
        if not claim.metadata.deletion_timestamp and any(owner.uid in pod_uids for owner in owning_pods(claim)):
            continue
        message = "it has the finalizer of an allocation, but no allocation"
        finding = make_finding("O212", f"ResourceClaim/{claim.metadata.key}", message)
        yield finding, repair


def with_negative_amounts(observed: DoctorInput) -> Iterator[Finding]:
    """Claims that consume a negative amount of a device. Kubernetes 1.36 and older allocated such amounts, and no version validates them in a status."""
    for claim in observed.reading.stock.claims.values():
        for result in results_of(claim):
            negative = [f"{name} {amount}" for name, amount in result.consumed_capacity.items() if amount.nano < 0]
            if negative:
                device = f"{result.driver}/{result.pool}/{result.device}"
                message = f"device {device}: consumedCapacity must not be negative: {', '.join(negative)}"
                yield make_finding("O219", f"ResourceClaim/{claim.metadata.key}", message)


def in_deletion(observed: DoctorInput) -> Iterator[Finding]:
    """Claims, pods with claims, and namespaces with claims that were deleted, but still exist because of a finalizer."""
    pods = [pod for pod in observed.reading.pods.values() if claim_keys(pod)]
    objects: list[ResourceClaim | Pod] = [*observed.reading.stock.claims.values(), *pods]
    for obj in objects:
        meta = obj.metadata
        others = [name for name in meta.finalizers if name not in (FINALIZER, _OF_JOBS)]
        since = moment(meta.deletion_timestamp)
        if since is None or not others or observed.now - since <= _ENDING:
            continue
        keys = [meta.key] if isinstance(obj, ResourceClaim) else claim_keys(obj)
        claims = filter(None, map(observed.reading.stock.claims.get, keys))
        devices = [f"{result.driver}/{result.pool}/{result.device}" for claim in claims for result in results_of(claim)]
        holding = f" and its devices {list_first(devices, MAX_NAMED)}" if devices else ""
        yield make_finding(
            "O215",
            f"{obj.kind}/{meta.key}",
            f"it was deleted at {meta.deletion_timestamp}, and finalizer {', '.join(others)} keeps it{holding}",
            f"check that the controller that removes {others[0]} runs; if this controller is gone for good, remove the finalizer with kubectl edit",
        )
    having = {claim.metadata.namespace for claim in observed.reading.stock.claims.values()}
    for space in observed.reading.typed.of_type(Namespace):
        meta = space.metadata
        since = moment(meta.deletion_timestamp)
        if since is None or meta.name not in having or observed.now - since <= _ENDING:
            continue
        messages = [
            condition.message
            for condition in space.status.conditions
            if condition.status == "True" and condition.message
        ]
        yield make_finding(
            "O215",
            f"Namespace/{meta.name}",
            f"it was deleted at {meta.deletion_timestamp}, but still exists with claims in it: {'; '.join(messages)[:QUOTED] or 'its status gives no reason'}",
            "correct what prevents the deletion (see the findings about its claims); until then the namespace admits no new pod",
        )


def restarting(observed: DoctorInput) -> Iterator[Finding]:
    """Running pods with devices whose containers fail, each workload once. Other pods that do not start are waiting pods."""
    reading = observed.reading
    failing: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for key, pod in reading.pods.items():
        facts = facts_of(key, reading)
        if pod.status.phase == "Running" and facts.uses_devices and facts.failing:
            owners = reading.owners(reading.raw[key])
            failing[facts.namespace, owners[-1] if owners else key].append(key)
    for first, *others in failing.values():
        also = f" (also {list_first(others, MAX_NAMED)})" if others else ""
        for reason in first_reasons(facts_of(first, reading), RULES)[1]:
            yield make_finding("O117", f"Pod/{first}", f"{reason.text}{also}", reason.remedy)


def unused_templates(observed: DoctorInput) -> Iterator[Repairable]:
    """Templates of the webhook that no pod uses, and that the controller has not deleted."""
    in_use = frozenset(key for pod in observed.reading.pods.values() for key in template_lifecycle.templates_of(pod))
    created_at: dict[tuple[str, str], float] = {}
    for template in observed.reading.templates.values():
        born = moment(template.metadata.creation_timestamp)
        created_at[template.metadata.namespace, template.metadata.name] = born.timestamp() if born else 0.0
    _, over = template_lifecycle.sweep(
        created_at,
        observed.reading.templates.values(),
        in_use,
        now=observed.now.timestamp(),
        grace=_UNUSED.total_seconds(),
    )
    for unused in over:
        meta = unused.metadata
        finding = make_finding(
            "O216",
            f"ResourceClaimTemplate/{meta.namespace}/{meta.name}",
            "drawbridge created it over an hour ago, and no pod uses it now; the controller deletes a template an hour after the last pod that used it",
        )
        yield finding, Removal("ResourceClaimTemplate", meta.namespace, meta.name, meta.uid, meta.resource_version)


def unused_claims(observed: DoctorInput) -> Iterator[Finding]:
    """Claims that have no owner and no device, and that no pod names, by namespace.

    A webhook may have created them for a pod that was refused.
    """
    unused_by_namespace: defaultdict[str, list[ResourceClaim]] = defaultdict(list)
    used = {key for pod in observed.reading.pods.values() for key in claim_keys(pod)}
    named_by_objects = {key for obj in observed.reading.objects for key in _claims_named(obj)}
    for claim in observed.reading.stock.claims.values():
        meta, status = claim.metadata, claim.status
        in_use = status.allocation is not None or status.reserved_for or meta.owner_references or meta.finalizers
        born = moment(meta.creation_timestamp)
        if in_use or meta.deletion_timestamp or born is None or observed.now - born < _TAKEN_UP:
            continue
        if meta.key not in used and meta.key not in named_by_objects:
            unused_by_namespace[meta.namespace].append(claim)
    for namespace, claims in sorted(unused_by_namespace.items()):
        claims.sort(key=lambda claim: (claim.metadata.creation_timestamp, claim.metadata.name))
        listed = list_first([claim.metadata.name for claim in claims], MAX_NAMED)
        oldest = claims[0].metadata
        yield make_finding(
            "O217",
            f"ResourceClaim/{oldest.key}",
            f"namespace {namespace} has {count_of(len(claims), 'claim')} without an owner or a device, named by no pod, "
            f"the oldest since {oldest.creation_timestamp}: {listed}",
        )


def _claims_named(obj: Object) -> Iterator[str]:
    """Yield every claim that an object, such as a Deployment, names for its pods."""
    namespace = text(inside(obj, "metadata").get("namespace")) or "default"
    below: list[object] = [obj]
    while below:
        match below.pop():
            case dict(fields):
                if name := text(fields.get("resourceClaimName")):
                    yield f"{namespace}/{name}"
                below += fields.values()
            case list(members):
                below += members
