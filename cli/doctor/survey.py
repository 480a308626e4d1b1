"""Reading a live cluster once, for `drawbridge doctor`."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from cli.contract import Failed, warn
from cli.doctor.diagnosis import Seen, Wearing
from cluster.errors import Forbidden, NotFound
from cluster.resources import (
    DEVICE_CLASSES,
    DEVICE_COMPATIBILITIES,
    DEVICE_TAINT_RULES,
    EVENTS,
    LEASES,
    MUTATING_WEBHOOKS,
    NODES,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from dra.objects import Node
from dra.stock import Stock
from dra.wire import WireError, convert
from node.audit import COMPONENT, worn_by
from webhook import names
from webhook.admission import registration
from webhook.sides import standings
from webhook.state import Configuration, Inventory

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from cluster.objects import Event, MutatingWebhookConfiguration
    from cluster.protocol import Cluster
    from cluster.resources import Resource
    from dra.objects import ResourceClaim
    from webhook.sides import Standing

DEFAULT = Configuration()
T = TypeVar("T")
NO_CLAIMS = "this API server has no ResourceClaims (resource.k8s.io/v1), so there is nothing to look at"


async def survey(
    cluster: Cluster, now: datetime, fenced: tuple[str, ...], configuration: Configuration | None = None
) -> Seen:
    """Read what the doctor looks at. Claims first: who comes later is not missed."""
    claims = await _all(cluster, RESOURCE_CLAIMS, needed=True)
    pods = await _all(cluster, PODS)
    nodes = await _all(cluster, NODES.raw)
    stock = Stock.of(
        slices=await _all(cluster, RESOURCE_SLICES),
        classes=await _all(cluster, DEVICE_CLASSES),
        nodes=_typed(nodes),
        rules=await _all(cluster, DEVICE_TAINT_RULES),
        compatibilities=await _all(cluster, DEVICE_COMPATIBILITIES),
        claims=filter(_is_allocated, claims),
    )
    worn = find_worn(nodes)
    templates = await _all(cluster, RESOURCE_CLAIM_TEMPLATES)
    leases = await _all(cluster, LEASES)
    registered = await _all(cluster, MUTATING_WEBHOOKS) if configuration is not None else ()
    unasked = find_unasked(registered, configuration)
    told = await _told(cluster)
    return Seen(
        stock,
        now,
        claims,
        pods,
        templates,
        leases,
        fenced,
        unasked,
        find_sides(stock, configuration),
        told,
        worn,
    )


def _typed(nodes: Iterable[dict[str, Any]]) -> Iterator[Node]:
    """Read nodes; one that is none is passed over."""
    for node in nodes:
        with suppress(WireError):
            yield convert(node, Node)


def find_worn(nodes: Iterable[dict[str, Any]]) -> tuple[Wearing, ...]:
    """Find the condition of an audit agent on nodes as they are stored."""
    found: list[Wearing] = []
    for node in nodes:
        condition = worn_by(node)
        if condition is not None:
            conditions = node["status"]["conditions"]
            one = Wearing(node["metadata"]["name"], conditions.index(condition), condition)
            found.append(one)
    return tuple(found)


def find_sides(stock: Stock, configuration: Configuration | None) -> tuple[Standing, ...]:
    """Find where the nodes stand on the way from device plugins to drivers, by everybody's word."""
    devices = Inventory.of(stock.classes.values(), stock.slices.values(), stock.nodes.values())
    return standings(stock.nodes.values(), devices, configuration or DEFAULT)


def find_unasked(
    registered: Iterable[MutatingWebhookConfiguration], configuration: Configuration | None
) -> tuple[str, ...]:
    """Find the domains of names that a configuration knows and our webhook configuration does not send to the gate."""
    if configuration is None:
        return ()
    unasked: set[str] = set()
    for one in registered:
        if one.metadata.name != names.NAME:
            continue
        for webhook in one.webhooks:
            for condition in webhook.match_conditions:
                found = registration.unasked_by(condition.expression, configuration.dialects)
                unasked.update(found)
    return tuple(sorted(unasked))


async def _told(cluster: Cluster) -> tuple[Event, ...]:
    """Read what audit agents say. Who may not read events is told everything else."""
    try:
        return await _all(cluster, EVENTS, fields=f"reportingComponent={COMPONENT}")
    except Forbidden:
        warn("events may not be read, so nothing is said about what audit agents have found on nodes")
        return ()


def _is_allocated(claim: ResourceClaim) -> bool:
    return claim.status.allocation is not None


async def _all(cluster: Cluster, resource: Resource[T], *, needed: bool = False, fields: str = "") -> tuple[T, ...]:
    """Read a whole collection; one that the server does not know is empty, unless nothing can be said without it."""
    items: list[T] = []
    more = ""
    while True:
        try:
            page: Any = await cluster.list(resource, more=more, fields=fields)
        except NotFound:
            if needed:
                raise Failed(NO_CLAIMS, "look at one of Kubernetes 1.34 or later") from None
            return ()
        items += page.items
        more = page.more
        if not more:
            return tuple(items)
