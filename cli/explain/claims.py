"""What is told of a claim: what it asks for, what it has and since when, for whom, and what is wrong with it. Pure.

What should not be is found by what the allocator reports every few minutes (`allocator.reports`), in its words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from allocator.reports import drift
from allocator.reservations import overlaps
from cli.explain.stories import ClaimState, ClaimStory, Consumer, DeviceTold
from cli.playground import story
from dra.objects import results_of
from dra.stock import Stock

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from cli.explain.scene import Scene
    from dra.objects import Condition, Device, DeviceRequestAllocationResult, ResourceClaim, ResourceSlice
    from dra.quantity import Quantity

FALSE = "False"
UNKNOWN = "unknown"


def tell_claim(claim: ResourceClaim, scene: Scene, *, entry: str = "", template: str = "") -> ClaimStory:
    """Tell of one claim."""
    results = results_of(claim)
    devices = [_device(one, claim, scene.stock) for one in results]
    consumers = [_consumer(one.name, one.uid, claim, scene) for one in claim.status.reserved_for]
    remarks = [*wrongs(claim, scene), *_missing_classes(claim, scene.stock)]
    return ClaimStory(
        name=claim.metadata.key,
        state=state_of(claim),
        entry=entry,
        template=template or _template_of(claim),
        asks=tuple(story.describe_requests(claim)),
        since=since_of(claim),
        devices=tuple(devices),
        reserved_for=tuple(consumers),
        remarks=tuple(remarks),
    )


def state_of(claim: ResourceClaim) -> ClaimState:
    """Say how far a claim has come. It is prepared once every driver has said something of its devices, and nothing bad."""
    if claim.metadata.deletion_timestamp:
        return ClaimState.DELETING
    allocation = claim.status.allocation
    if allocation is None:
        return ClaimState.PENDING
    if not claim.status.reserved_for:
        return ClaimState.ALLOCATED
    told = {(one.driver, one.pool, one.device): one for one in claim.status.devices}
    for result in allocation.devices.results:
        status = told.get((result.driver, result.pool, result.device))
        if status is None or any(one.status == FALSE for one in status.conditions):
            return ClaimState.RESERVED
    return ClaimState.PREPARED


def since_of(claim: ResourceClaim) -> str:
    """When it was allocated."""
    allocation = claim.status.allocation
    return allocation.allocation_timestamp if allocation is not None else ""


def pods_of(claim: ResourceClaim) -> tuple[str, ...]:
    """Name the pods that a claim is reserved for, and other consumers by what they are."""
    namespace = claim.metadata.namespace or "default"
    named: list[str] = []
    for one in claim.status.reserved_for:
        what = "" if one.is_pod else f"{one.resource} "
        named.append(f"{what}{namespace}/{one.name}")
    return tuple(named)


def wrongs(claim: ResourceClaim, scene: Scene) -> Iterator[str]:
    """Say what should not be: pods that are gone, devices that are gone, devices that others hold as well."""
    stock = scene.stock
    pools = dict.fromkeys((result.driver, result.pool) for result in results_of(claim))
    slices: list[ResourceSlice] = []
    for pool in pools:
        slices += [page.slice for page in stock.pages_of.get(pool, ())]
    living = {one.uid for one in claim.status.reserved_for}
    if scene.knows_pods:
        living = scene.living()
    alone = Stock.of(slices=slices, claims=[claim])
    yield from drift(alone, living).left_behind
    uid = claim.metadata.uid
    for overlap in overlaps(stock, pools):
        if uid in overlap.claims:
            others = _names_of(overlap.claims, stock, uid)
            yield f"it holds what only one may hold, together with {', '.join(others)}"


def _names_of(uids: Collection[str], stock: Stock, but: str) -> list[str]:
    """Name claims by their uids, all but one."""
    found = [key for key, one in stock.claims.items() if one.metadata.uid in uids and one.metadata.uid != but]
    return sorted(found)


def _missing_classes(claim: ResourceClaim, stock: Stock) -> Iterator[str]:
    if claim.status.allocation is not None:
        return
    for request in claim.spec.devices.requests:
        asked = (request.exactly, *request.first_available)
        for one in asked:
            if one is not None and one.device_class_name not in stock.classes:
                yield f"DeviceClass {one.device_class_name} does not exist"


def _template_of(claim: ResourceClaim) -> str:
    """Say of which pod's entry a controller made a claim."""
    return claim.metadata.annotations.get("resource.kubernetes.io/pod-claim-name", "")


def _consumer(name: str, uid: str, claim: ResourceClaim, scene: Scene) -> Consumer:
    pod = scene.pods.get(f"{claim.metadata.namespace or 'default'}/{name}")
    if pod is None or pod.metadata.uid != uid:
        return Consumer(name=name, uid=uid, phase="" if scene.knows_pods else UNKNOWN)
    return Consumer(name=name, uid=uid, phase=pod.status.phase or "Pending", node=pod.spec.node_name)


def _device(result: DeviceRequestAllocationResult, claim: ResourceClaim, stock: Stock) -> DeviceTold:
    published = device_of(stock, result.driver, result.pool, result.device)
    taints = published.taints if published is not None else ()
    conditions: list[str] = []
    for status in claim.status.devices:
        if (status.driver, status.pool, status.device) == (result.driver, result.pool, result.device):
            conditions += [condition_text(one) for one in status.conditions]
    return DeviceTold(
        device=f"{result.driver}/{result.pool}/{result.device}",
        request=result.request,
        share=texts(result.consumed_capacity),
        share_id=result.share_id or "",
        admin_access=bool(result.admin_access),
        published=published is not None,
        taints=tuple(f"{one.key}:{one.effect}" for one in taints),
        conditions=tuple(conditions),
    )


def device_of(stock: Stock, driver: str, pool: str, name: str) -> Device | None:
    """Find a device as it is published now."""
    for page in stock.newest_pages((driver, pool)):
        for device in page.devices:
            if device.name == name:
                return device
    return None


def condition_text(one: Condition) -> str:
    """Write a condition in a line."""
    why = f" ({one.reason})" if one.reason else ""
    said = f": {one.message}" if one.message else ""
    return f"{one.type}={one.status}{why}{said}"


def texts(amounts: Mapping[str, Quantity]) -> dict[str, str]:
    """Write amounts as they are written in manifests."""
    return {name: str(amount) for name, amount in amounts.items()}
