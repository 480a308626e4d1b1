"""Who has what: pod, claim, device and share in one row, as allocations, reservations and slices say it.

A container is not named: a claim is a pod's, and its containers may share what is in it. Access of an admin holds nothing and is
left out. A device that is not published any more still has its row, without a uuid.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from dra.objects import node_of
from dra.quantity import Quantity
from dra.stock import results_by_pool

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

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
