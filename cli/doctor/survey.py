"""Reading a live cluster once, for `drawbridge doctor`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from cli.contract import Failed
from cli.doctor.diagnosis import Seen
from cluster.errors import NotFound
from cluster.resources import (
    DEVICE_CLASSES,
    DEVICE_COMPATIBILITIES,
    DEVICE_TAINT_RULES,
    LEASES,
    NODES,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from dra.stock import Stock

if TYPE_CHECKING:
    from datetime import datetime

    from cluster.protocol import Cluster
    from cluster.resources import Resource
    from dra.objects import ResourceClaim

T = TypeVar("T")
NO_CLAIMS = "this API server has no ResourceClaims (resource.k8s.io/v1), so there is nothing to look at"


async def survey(cluster: Cluster, now: datetime, fenced: tuple[str, ...]) -> Seen:
    """Read what the doctor looks at. Claims first: who comes later is not missed."""
    claims = await _all(cluster, RESOURCE_CLAIMS, needed=True)
    pods = await _all(cluster, PODS)
    stock = Stock.of(
        slices=await _all(cluster, RESOURCE_SLICES),
        classes=await _all(cluster, DEVICE_CLASSES),
        nodes=await _all(cluster, NODES),
        rules=await _all(cluster, DEVICE_TAINT_RULES),
        compatibilities=await _all(cluster, DEVICE_COMPATIBILITIES),
        claims=filter(_is_allocated, claims),
    )
    templates = await _all(cluster, RESOURCE_CLAIM_TEMPLATES)
    leases = await _all(cluster, LEASES)
    return Seen(stock, now, claims, pods, templates, leases, fenced)


def _is_allocated(claim: ResourceClaim) -> bool:
    return claim.status.allocation is not None


async def _all(cluster: Cluster, resource: Resource[T], *, needed: bool = False) -> tuple[T, ...]:
    """Read a whole collection; one that the server does not know is empty, unless nothing can be said without it."""
    items: list[T] = []
    more = ""
    while True:
        try:
            page: Any = await cluster.list(resource, more=more)
        except NotFound:
            if needed:
                raise Failed(NO_CLAIMS, "look at one of Kubernetes 1.34 or later") from None
            return ()
        items += page.items
        more = page.more
        if not more:
            return tuple(items)
