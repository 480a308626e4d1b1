"""Who has what: pod, claim, device and share in one row, as allocations, reservations and slices say it.

A container is not named: a claim is a pod's, and its containers may share what is in it. Access of an admin holds nothing and is
left out. A device that is not published any more still has its row, without a uuid. What the ledger holds and no claim shows yet has rows of its own.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from allocator.reservations import State
from dra.objects import EXTENDED_CLAIM, node_of, results_of
from dra.quantity import Quantity
from dra.stock import results_by_pool

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from allocator.reservations import Ledger
    from dra.objects import Pod
    from dra.stock import PoolDevices, PoolId, Stock

_UUID = "uuid"


class Share(msgspec.Struct, frozen=True):
    """A device, or a share of one, that a claim holds for a pod, as the API tells it. `pod` and `node` are "" while no pod has reserved it."""

    namespace: str
    pod: str
    claim: str
    driver: str
    pool: str
    device: str
    node: str = ""
    uuid: str = ""
    share_id: str = msgspec.field(name="shareID", default="")  # "" if the device is held whole
    amounts: dict[str, Quantity] = msgspec.field(name="share", default={})


def shares(stock: Stock, pods: Iterable[Pod]) -> Iterator[Share]:
    """Yield a row for each pod, each claim that is reserved for it, and each device of that."""
    pods_node = {pod.metadata.uid: pod.spec.node_name for pod in pods}
    published: dict[PoolId, PoolDevices] = {}
    for claim in stock.claims.values():
        consumers = [(one.name, one.uid) for one in claim.status.reserved_for if one.is_pod] or [("", "")]
        its_node = node_of(claim.status.allocation)
        for pool, results in results_by_pool(claim).items():
            if pool not in published:
                published[pool] = stock.devices(pool)
            for result in results:
                found = published[pool].find(result.device, its_node)
                uuid = found[1].own_text(result.driver, _UUID) if found is not None else ""
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
    """Count the whole devices of pods by the extended resource that their DeviceClass stands for: namespace, pod, node, resource.

    Where the scheduler made the claim, the pod asks for the resource itself, and is not counted here.
    """
    counted: Counter[tuple[str, str, str, str]] = Counter()
    pods_node = {pod.metadata.uid: pod.spec.node_name for pod in pods}
    for claim in stock.claims.values():
        if claim.metadata.annotations.get(EXTENDED_CLAIM) == "true":
            continue
        classes = {
            name: of
            for one in claim.spec.devices.requests
            for name, of in (
                (one.name, one.exactly.device_class_name if one.exactly is not None else ""),
                *((f"{one.name}/{sub.name}", sub.device_class_name) for sub in one.first_available),
            )
        }
        for result in results_of(claim):
            served = stock.classes.get(classes.get(result.request, ""))
            if served is None or not served.spec.extended_resource_name or result.share_id or result.admin_access:
                continue
            for one in claim.status.reserved_for:
                if one.is_pod:
                    key = claim.metadata.namespace, one.name, pods_node.get(one.uid, "")
                    counted[*key, served.spec.extended_resource_name] += 1
    return counted


class ReservedDevice(msgspec.Struct, frozen=True, rename="camel"):
    """A device, or a share of one."""

    driver: str
    pool: str
    device: str
    share_id: str = ""  # "" if all of it is reserved


class UnwrittenClaim(msgspec.Struct, frozen=True, rename="camel"):
    """What one claim will have. It is in doubt while its write has no answer: that may have landed, or land yet."""

    namespace: str
    claim: str
    uid: str
    in_doubt: bool
    devices: tuple[ReservedDevice, ...]


def reserved_on(ledger: Ledger, node: str) -> Iterator[UnwrittenClaim]:
    """Yield what is reserved for pods on a node, without what claims themselves show."""
    for uid in ledger.ahead:
        hold = ledger.holds.get(uid)
        if hold is None or hold.intent is None or hold.claim.status.allocation is not None:
            continue
        users = (ledger.reservations.get(pod) for pod in hold.users)
        states = {user.state for user in users if user is not None and user.node == node}
        if not states:
            continue
        devices = tuple(
            ReservedDevice(one.driver, one.pool, one.device, one.share_id or "")
            for one in hold.intent.devices.results
            if not one.admin_access
        )
        meta = hold.claim.metadata
        yield UnwrittenClaim(meta.namespace, meta.name, uid, hold.lost or State.DOUBT in states, devices)
