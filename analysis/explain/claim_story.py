"""Builds the story of a claim: its requests, devices, pods and faults.

The faults and their messages equal those that the allocator reports every few minutes (`allocator.reports`).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from allocator.pods import missing_classes
from allocator.reports import drift
from analysis.capacity import UNKNOWN, since_of, texts
from analysis.explain.stories import ClaimState, ClaimStory, Consumer, DeviceTold
from dra.objects import POD_CLAIM_NAME, owning_pods, results_of, why_orphaned
from dra.stock import Stock
from dra.texts import list_first

if TYPE_CHECKING:
    from collections.abc import Iterator

    from analysis.loading import Reading
    from dra.objects import Condition, Device, DeviceSubRequest, ExactDeviceRequest, ResourceClaim, ResourceSlice

FALSE = "False"


_LISTED = 10  # claims that a remark about conflicting allocations names


def claim_story(claim: ResourceClaim, reading: Reading, *, entry: str = "", template: str = "") -> ClaimStory:
    """Return the story of one claim."""
    stock = reading.stock
    namespace = claim.metadata.namespace or "default"
    devices: list[DeviceTold] = []
    for result in results_of(claim):
        device_id = result.driver, result.pool, result.device
        published = device_of(stock, *device_id)
        conditions: list[str] = []
        network, data, sharing = "", None, "exclusive"
        if result.share_id:
            sharing = "share"
        elif published is not None and published.consumes_counters:
            sharing = "partition"
        for status in claim.status.devices:
            if (status.driver, status.pool, status.device) == device_id:
                conditions += [condition_text(condition) for condition in status.conditions]
                data = status.data.value() if status.data is not None else data
                if (interface := status.network_data) is not None:
                    sharing = "interface" if result.share_id else sharing
                    network = " ".join(
                        filter(None, (interface.interface_name, *interface.ips, interface.hardware_address))
                    )
        device = DeviceTold(
            device="/".join(device_id),
            request=result.request,
            share=texts(result.consumed_capacity),
            share_id=result.share_id or "",
            admin_access=bool(result.admin_access),
            sharing=sharing,
            published=published is not None,
            taints=tuple(
                f"{taint.key}:{taint.effect}" for taint in (published.taints if published is not None else ())
            ),
            conditions=tuple(conditions),
            network=network,
            data=data,
        )
        devices.append(device)
    consumers: list[Consumer] = []
    for reference in claim.status.reserved_for:
        pod = reading.pods.get(f"{namespace}/{reference.name}")
        if pod is None or pod.metadata.uid != reference.uid:
            consumer = Consumer(name=reference.name, uid=reference.uid, phase="" if reading.knows_pods else UNKNOWN)
        else:
            consumer = Consumer(
                name=reference.name, uid=reference.uid, phase=pod.status.phase or "Pending", node=pod.spec.node_name
            )
        consumers.append(consumer)
    remarks = list(faults_of(claim, reading))
    remarks += [reason.text for reason in missing_classes(claim, stock)]
    return ClaimStory(
        name=claim.metadata.key,
        state=state_of_claim(claim),
        # kube-controller-manager records for which entry of a pod it created a claim.
        entry=entry or claim.metadata.annotations.get(POD_CLAIM_NAME, ""),
        template=template,
        requests=tuple(describe_requests(claim)),
        since=since_of(claim),
        devices=tuple(devices),
        reserved_for=tuple(consumers),
        remarks=tuple(remarks),
    )


def state_of_claim(claim: ResourceClaim) -> ClaimState:
    """Return the state of a claim: prepared once drivers report a status, with no False condition, for every device."""
    if claim.metadata.deletion_timestamp:
        return ClaimState.DELETING
    allocation = claim.status.allocation
    if allocation is None:
        return ClaimState.PENDING
    if not claim.status.reserved_for:
        return ClaimState.ALLOCATED
    statuses = {(device.driver, device.pool, device.device): device for device in claim.status.devices}
    for result in allocation.devices.results:
        status = statuses.get((result.driver, result.pool, result.device))
        if status is None or any(condition.status == FALSE for condition in status.conditions):
            return ClaimState.RESERVED
    return ClaimState.PREPARED


def faults_of(claim: ResourceClaim, reading: Reading) -> Iterator[str]:
    """Yield faults: reservations for deleted pods, withdrawn devices, a deleted owner, and conflicts with other claims."""
    stock = reading.stock
    pools = dict.fromkeys((result.driver, result.pool) for result in results_of(claim))
    slices: list[ResourceSlice] = []
    for pool in pools:
        slices += [page.slice for page in stock.pages_of.get(pool, ())]
    living = reading.living if reading.knows_pods else {consumer.uid for consumer in claim.status.reserved_for}
    yield from drift(Stock.of(slices=slices, claims=[claim]), living).left_behind
    if reading.knows_pods:
        namespace = claim.metadata.namespace or "default"
        owners = [reading.find_pod(namespace, owner.name) for owner in owning_pods(claim)]
        if orphaned := why_orphaned(claim, {pod.metadata.uid for pod in owners if pod is not None}):
            yield orphaned
    uid = claim.metadata.uid
    for overlap in reading.overlaps(tuple(pools)):
        if uid in overlap.claims:
            uids = {other for other in overlap.claims if other != uid}
            others = sorted(key for key, other in stock.claims.items() if other.metadata.uid in uids)
            yield f"its devices must not be in use together with those of {list_first(others, _LISTED)}"


def device_of(stock: Stock, driver: str, pool: str, name: str) -> Device | None:
    """Return the currently published device; None if no slice publishes it."""
    for page in stock.newest_pages((driver, pool)):
        for device in page.devices:
            if device.name == name:
                return device
    return None


def condition_text(condition: Condition) -> str:
    """Format a condition as one line."""
    why = f" ({condition.reason})" if condition.reason else ""
    message = f": {condition.message}" if condition.message else ""
    return f"{condition.type}={condition.status}{why}{message}"


def describe_requests(claim: ResourceClaim) -> list[str]:
    """Return short descriptions of a claim's requests and constraints."""
    counts = Counter(
        [" or ".join(map(_describe_request, request.alternatives.values())) for request in claim.spec.devices.requests]
    )
    request_texts = [f"{count} x ({text})" if count > 1 else text for text, count in counts.items()]
    constraint_texts: list[str] = []
    for constraint in claim.spec.devices.constraints:
        if constraint.match_attribute:
            constraint_texts.append(f"same {constraint.match_attribute}")
        else:
            constraint_texts.append(f"each with its own {constraint.distinct_attribute}")
    return [*request_texts, *dict.fromkeys(constraint_texts)]


def _describe_request(request: ExactDeviceRequest | DeviceSubRequest) -> str:
    amounts = request.capacity.requests if request.capacity else {}
    part = "".join(f", {amount} {name}" for name, amount in amounts.items())
    count = "all" if request.allocation_mode == "All" else str(request.count or 1)
    return f"{count} {request.device_class_name}{part}"
