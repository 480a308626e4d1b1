"""The devices of each pod. A row has the pod, the claim, the device and the share, from allocations, reservations and slices.

Rows name no container, because the containers of a pod may share its claims. Results with admin access hold nothing and are left out.
A device that is no longer published keeps its row, without a uuid. `reserved_on` reports the reservations that are not yet written into
claims.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from allocator.reservations import ReservationState
from dra.objects import EXTENDED_CLAIM, node_of, results_of
from dra.quantity import Quantity
from dra.stock import results_by_pool
from node.audit import NodeReservation, NodeReservedDevice

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from allocator.reservations import Ledger
    from dra.objects import Pod
    from dra.stock import PoolDevices, PoolId, Stock

_UUID = "uuid"


class Share(msgspec.Struct, frozen=True):
    """A device, or a share of it, that a claim holds for a pod. `pod` and `node` are "" while no pod has reserved the claim."""

    namespace: str
    pod: str
    claim: str
    driver: str
    pool: str
    device: str
    node: str = ""
    uuid: str = ""
    share_id: str = msgspec.field(name="shareID", default="")  # "" if the claim holds the whole device
    amounts: dict[str, Quantity] = msgspec.field(name="share", default={})


def shares(stock: Stock, pods: Iterable[Pod]) -> Iterator[Share]:
    """Yield a row for each pod, each claim that is reserved for this pod, and each device of this claim."""
    pods_node = {pod.metadata.uid: pod.spec.node_name for pod in pods}
    published: dict[PoolId, PoolDevices] = {}
    for claim in stock.claims.values():
        consumers = [(consumer.name, consumer.uid) for consumer in claim.status.reserved_for if consumer.is_pod] or [
            ("", "")
        ]
        claim_node = node_of(claim.status.allocation)
        for pool, results in results_by_pool(claim).items():
            if pool not in published:
                published[pool] = stock.devices(pool)
            for result in results:
                published_device = published[pool].find(result.device, claim_node)
                uuid = published_device[1].own_text(result.driver, _UUID) if published_device is not None else ""
                for name, uid in consumers:
                    yield Share(
                        namespace=claim.metadata.namespace,
                        pod=name,
                        claim=claim.metadata.name,
                        driver=result.driver,
                        pool=result.pool,
                        device=result.device,
                        node=pods_node.get(uid, ""),
                        uuid=uuid,
                        share_id=result.share_id or "",
                        amounts=result.consumed_capacity,
                    )


def devices_by_resource(stock: Stock, pods: Iterable[Pod]) -> Counter[tuple[str, str, str, str]]:
    """Count the whole devices of pods by the extended resource that their DeviceClass serves: namespace, pod, node, resource.

    Claims that kube-scheduler created are left out, because their pods request the resource themselves.
    """
    counts: Counter[tuple[str, str, str, str]] = Counter()
    pods_node = {pod.metadata.uid: pod.spec.node_name for pod in pods}
    for claim in stock.claims.values():
        if claim.metadata.annotations.get(EXTENDED_CLAIM) == "true":
            continue
        classes: dict[str, str] = {}
        for request in claim.spec.devices.requests:
            for name, alternative in request.alternatives.items():
                classes[name] = alternative.device_class_name
        for result in results_of(claim):
            device_class = stock.classes.get(classes.get(result.request, ""))
            if (
                device_class is None
                or not device_class.spec.extended_resource_name
                or result.share_id
                or result.admin_access
            ):
                continue
            for consumer in claim.status.reserved_for:
                if consumer.is_pod:
                    key = claim.metadata.namespace, consumer.name, pods_node.get(consumer.uid, "")
                    counts[*key, device_class.spec.extended_resource_name] += 1
    return counts


def reserved_on(ledger: Ledger, node: str) -> Iterator[NodeReservation]:
    """Yield the reservations for the pods of a node that are not yet written into claims."""
    for uid in ledger.ahead:
        hold = ledger.holds.get(uid)
        if hold is None or hold.intent is None or hold.claim.status.allocation is not None:
            continue
        users = (ledger.reservations.get(pod) for pod in hold.users)
        states = {user.state for user in users if user is not None and user.node == node}
        if not states:
            continue
        devices = tuple(
            NodeReservedDevice(result.driver, result.pool, result.device, result.share_id or "")
            for result in hold.intent.devices.results
            if not result.admin_access
        )
        meta = hold.claim.metadata
        yield NodeReservation(meta.namespace, meta.name, uid, hold.lost or ReservationState.DOUBT in states, devices)
