"""Reading what `drawbridge doctor` looks at: a live cluster once, or a dump of one."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from cli import contract as inputs
from cli.devices import Given, read_kind, read_objects, warn_of_passed_over
from cli.doctor.diagnosis import AuditCondition, Seen
from cluster import resources
from cluster.errors import Forbidden, NotFound
from cluster.objects import Event, Lease, MutatingWebhookConfiguration
from dra.objects import Node, Pod, ResourceClaim, ResourceClaimTemplate
from dra.wire import WireError, convert
from node.audit import COMPONENT, worn_by
from webhook import names
from webhook.admission import registration
from webhook.mixed_fleet import standings
from webhook.state import Configuration, Inventory

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from cluster.protocol import Cluster
    from cluster.resources import Resource

T = TypeVar("T")
NO_CLAIMS = "this API server has no ResourceClaims (resource.k8s.io/v1), so there is nothing to look at"
# Kinds that are read besides those of the fleet.
_ALSO = [
    ("v1", "Event"),
    ("coordination.k8s.io/v1", "Lease"),
    ("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration"),
]
# Claims before pods: a pod that was made between the two is not missed.
_KINDS: tuple[Resource[Any], ...] = (
    resources.RESOURCE_CLAIMS,
    resources.PODS,
    resources.RESOURCE_SLICES,
    resources.DEVICE_CLASSES,
    resources.DEVICE_TAINT_RULES,
    resources.DEVICE_COMPATIBILITIES,
    resources.RESOURCE_CLAIM_TEMPLATES,
    resources.LEASES,
)


async def survey(
    cluster: Cluster, now: datetime, fenced: tuple[str, ...], configuration: Configuration | None = None
) -> Seen:
    """Read a live cluster. A kind that the server does not know is empty, unless nothing can be said without it."""

    async def all_of(resource: Resource[T], fields: str = "") -> list[T]:
        found: list[T] = []
        more = ""
        while True:
            try:
                page: Any = await cluster.list(resource, more=more, fields=fields)
            except NotFound:
                if resource is resources.RESOURCE_CLAIMS:
                    raise inputs.Failed(NO_CLAIMS, "run it against Kubernetes 1.34 or later") from None
                return []
            found += page.items
            more = page.more
            if not more:
                return found

    objects: list[Any] = []
    for kind in _KINDS:
        objects += await all_of(kind)
    nodes = await all_of(resources.NODES.raw)
    for node in nodes:
        with suppress(WireError):  # one that is not a Node is passed over
            objects.append(convert(node, Node))
    if configuration is not None:
        objects += await all_of(resources.MUTATING_WEBHOOKS)
    try:
        objects += await all_of(resources.EVENTS, fields=f"reportingComponent={COMPONENT}")
    except Forbidden:
        inputs.warn("events may not be read, so what audit agents have found on nodes is not listed")
    return _seen(Given(objects), nodes, now, fenced, configuration)


def read_dump(
    files: Sequence[str], now: datetime, fenced: tuple[str, ...], configuration: Configuration | None
) -> Seen:
    """Read a dump. One without any pod says nothing about which pods there are."""
    documents = inputs.read(files)
    warn_of_passed_over(documents, also=_ALSO)
    objects: list[Any] = []
    for one in read_objects(documents).objects:
        if isinstance(one, ResourceClaim) and not one.metadata.uid:  # no API server has seen it: its name identifies it
            objects.append(replace(one, metadata=replace(one.metadata, uid=one.metadata.key)))
        else:
            objects.append(one)
    for kind in (MutatingWebhookConfiguration, Lease, Event):
        objects += read_kind(documents, kind)
    nodes = [one.object for one in documents if one.object.get("kind") == "Node"]
    seen = _seen(Given(objects), nodes, now, fenced, configuration)
    if not seen.pods:
        inputs.warn("no pods were read, so nothing is said about claims that pods have left")
        return replace(seen, pods=None)
    return seen


def _seen(
    given: Given,
    nodes: Iterable[dict[str, Any]],
    now: datetime,
    fenced: tuple[str, ...],
    configuration: Configuration | None,
) -> Seen:
    """Put together what was read; `nodes` are as they are stored, because conditions are found by their place."""
    stock = given.stock()
    audited: list[AuditCondition] = []
    for node in nodes:
        condition = worn_by(node)
        if condition is not None:
            place = node["status"]["conditions"].index(condition)
            audited.append(AuditCondition(node["metadata"]["name"], place, condition))
    # Domains of names that the configuration knows, and that the API server does not send to the webhook.
    unsent: set[str] = set()
    if configuration is not None:
        for one in given.of(MutatingWebhookConfiguration):
            for hook in one.webhooks if one.metadata.name == names.NAME else ():
                for match in hook.match_conditions:
                    unsent.update(registration.unasked_by(match.expression, configuration.dialects))
    inventory = Inventory.of(stock.classes.values(), stock.slices.values(), stock.nodes.values())
    return Seen(
        stock=stock,
        now=now,
        claims=tuple(given.of(ResourceClaim)),
        pods=tuple(given.of(Pod)),
        templates=tuple(given.of(ResourceClaimTemplate)),
        leases=tuple(given.of(Lease)),
        fenced=fenced,
        bridge=configuration.file.bridge if configuration is not None else None,
        unsent=tuple(sorted(unsent)),
        standings=standings(stock.nodes.values(), inventory, configuration or Configuration()),
        events=tuple(given.of(Event)),
        audited=tuple(audited),
    )
