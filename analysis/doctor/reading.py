"""Reading what `drawbridge doctor` looks at: a live cluster once, or a dump of one."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from analysis.configuration import KIND as CONFIGURATION
from analysis.configuration import defaults, features_of
from analysis.doctor.components import WEBHOOKS, WORKLOADS, images_of
from analysis.doctor.installed import parts_of, read_parts, with_configuration
from analysis.doctor.observed import FAILED_CREATE, FAILED_OF_PODS, Seen
from analysis.doctor.rules import DRY_RUN, DUMPED, IMAGES, REPLICAS, STATUS, examine
from analysis.doctor.shape import SHAPES, Shape
from analysis.files import read_files, warn_of_skipped
from analysis.installation import KINDS, LABELLED, LEASES, is_labelled
from analysis.loading import (
    Needs,
    Visit,
    identified,
    read_cluster,
    read_each,
    read_kind,
    read_objects,
    reading_of,
    warn_of_ignored,
    with_text_labels,
)
from cluster import resources
from cluster.errors import ApiError, Forbidden, NotFound
from cluster.objects import Event, Lease, LimitRange, Namespace, ResourceQuota
from cluster.resources import Raw, Resource
from dra.objects import Node, Pod, ResourceClaim, ResourceClaimTemplate
from dra.raw import inside, moment, text
from dra.wire import convert, without_nulls
from node.audit import COMPONENT
from rendering.exits import CommandFailed
from rendering.output import warn
from webhook import names, registration
from webhook.mixed_fleet import group_nodes
from webhook.state import Configuration, Inventory, Mode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from analysis.configuration import ConfigurationInForce
    from analysis.doctor.components import Parts
    from analysis.loading import Reading
    from cluster.kubernetes import Kubernetes
    from cluster.manifests import Document
    from cluster.protocol import Cluster
    from dra.finding import Finding

T = TypeVar("T")
NO_CLAIMS = "this API server has no ResourceClaims (resource.k8s.io/v1), so there is nothing to check"
# Kinds that are read besides those of the fleet.
_PARTS: tuple[Resource[Raw], ...] = (
    resources.MUTATING_WEBHOOKS.raw,
    resources.VALIDATING_WEBHOOKS.raw,
    Resource("", "v1", "pods", "Pod", Raw),  # those of ours, as they are stored
)
_LATER = ("Secret", "DeviceTaintRule")
# The kinds of an installation that are listed; Secrets are read by their names.
_LISTED = tuple(one for one in (*_PARTS, *KINDS) if one.kind not in _LATER)
_IN_DUMPS: tuple[Resource[Any], ...] = (*KINDS, *_PARTS, resources.LEASES)
_ALSO = [
    ("v1", "Event"),
    ("v1", "ResourceQuota"),
    ("v1", "LimitRange"),
    *((one.api_version, one.kind) for one in (*_IN_DUMPS, *resources.WORKLOADS)),
]
_NAMED = frozenset((names.QUOTA, *LEASES))
_OWNERS = 32
_TRIED = "nvidia.com/gpu"
_INVALID = 422  # what the API server says of such an amount, once the webhook was asked
_CALLING = re.compile(r'failed calling webhook "[^"]*\.drawbridge\.dev".*')
_SKEW = timedelta(minutes=1)
NEEDS = Needs(
    (
        resources.RESOURCE_CLAIMS,
        resources.PODS,
        resources.RESOURCE_SLICES,
        resources.DEVICE_CLASSES,
        resources.DEVICE_TAINT_RULES,
        resources.DEVICE_COMPATIBILITIES,
        resources.RESOURCE_CLAIM_TEMPLATES,
        resources.LEASES,
        resources.RESOURCE_QUOTAS,
        resources.LIMIT_RANGES,
        resources.NODES.raw,
    ),
    "docs/commands.md#drawbridge-doctor",
    events=(f"reportingComponent={COMPONENT}", *(f"reason={one}" for one in (FAILED_CREATE, *FAILED_OF_PODS))),
    typed=True,
)


async def survey(
    cluster: Cluster,
    now: datetime,
    given: ConfigurationInForce | None = None,
    server: Kubernetes | None = None,
) -> Seen:
    """Read a live cluster. A kind that the server does not know is empty, unless nothing can be said without it; so is one that may not
    be read, which is named.
    """
    reading = await read_cluster(cluster, NEEDS)
    if resources.RESOURCE_CLAIMS.kind in reading.absent:
        raise CommandFailed(NO_CLAIMS, "run it against Kubernetes 1.34 or later")
    mine, visit = await _read_installation(cluster)
    absent = reading.absent | visit.absent
    kinds = {one.id: one for one in (*NEEDS.kinds, resources.EVENTS, *_LISTED)}
    unread: dict[str, str] = {}
    for one in dict.fromkeys((*reading.unread, *visit.unread)):
        kind = kinds.get(one.kind)
        if kind is None:
            warn(f"{one.kind}: {one.reason}")
        elif kind.kind not in absent and kind.kind not in unread:
            warn(f"{kind.plural} may not be read, so findings about them are left out: {one.reason}")
            unread[kind.kind] = one.reason
    mine += [resources.LEASES.plain(one) for one in reading.typed.of(Lease)]
    now = _by_server(now, server)
    parts = await read_parts(cluster, mine, frozenset({*unread, *absent}), server)
    failed = [one for one in reading.typed.of(Event) if one.reason == FAILED_CREATE]
    if parts is not None:
        about = [(one.involved_object, one.message) for one in failed]
        parts = replace(parts, refusals={f"{one.kind}/{one.namespace}/{one.name}": message for one, message in about})
    for denied in sorted(parts.unread - absent - unread.keys()) if parts is not None else ():
        warn(f"each {denied} of the installation may not be read")
        unread[denied] = "forbidden"
    owners = await _owners(cluster, failed)
    in_force = given or (parts.installed if parts is not None else defaults())
    observed = _seen(replace(reading, in_force=in_force), now, mine=mine, parts=parts, unread=unread)
    if parts is not None:
        observed = replace(observed, unasked=await _unasked(cluster, observed.configuration, mine))
    return replace(observed, owners=owners, named=frozenset(chain.from_iterable(map(_claims_named, owners))))


async def _read_installation(cluster: Cluster) -> tuple[list[Raw], Visit[Raw]]:
    """Read the objects of an installation that are found by their labels, and all namespaces and webhook configurations."""
    visit: Visit[Raw] = Visit(cluster, None, lambda _: None, lambda obj: obj, typed=True)
    everywhere = [one for one in _LISTED if one.kind in ("Namespace", *WEBHOOKS)]
    labelled = [one for one in _LISTED if one not in everywhere]
    objects = [*await visit.read(everywhere), *await visit.read(labelled, labels=LABELLED)]
    return list(filter(_is_of_installation, objects)), visit


def _by_server(now: datetime, server: Kubernetes | None) -> datetime:
    """Return the API server's time if the local clock differs from it by much, and warn of that."""
    if server is None or not server.date:
        return now
    server_time = parsedate_to_datetime(server.date)
    if abs(server_time - now) <= _SKEW:
        return now
    warn(f"the local clock differs by {(now - server_time).total_seconds():.0f} s from the API server's, which counts")
    return server_time


def _claims_named(obj: Raw) -> Iterator[str]:
    """Give every claim that an object, such as a Deployment, names for its pods."""
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


async def _owners(cluster: Cluster, failed: Iterable[Event]) -> tuple[Raw, ...]:
    """Read the controllers that could not make a pod, those that said so last."""
    kinds = {one.kind: one for one in resources.WORKLOADS}
    last = sorted(failed, key=lambda one: one.last_timestamp, reverse=True)
    about = [one.involved_object for one in last]
    named = dict.fromkeys((one.kind, one.namespace, one.name) for one in about)
    found: list[Raw] = []
    for kind, namespace, name in list(named)[:_OWNERS]:
        if kind in kinds:
            with suppress(NotFound, Forbidden):
                found.append(await cluster.get(kinds[kind], name, namespace))
    return tuple(found)


async def _unasked(cluster: Cluster, configuration: Configuration | None, mine: Iterable[Raw]) -> str:
    """Say why the API server does not ask the webhook about a pod that it is asked to try, and that the webhook would refuse;
    "" if it does, or if that is not known.
    """
    file = configuration.file if configuration is not None else None
    keys = {row.name for dialect in (configuration or Configuration()).dialects for row in dialect.keys}
    hooks = [hook for one in mine if one["kind"] == WEBHOOKS[0] for hook in one.get("webhooks") or ()]
    called = [one for one in hooks if one.get("rules") and one["clientConfig"].get("caBundle")]
    modes: dict[str, Any] = {}
    for one in mine:
        meta = one["metadata"]
        if one["kind"] == "Namespace" and not meta.get("deletionTimestamp"):
            modes[text(meta.get("name"))] = inside(meta, "labels").get(names.MODE_LABEL)
    enforcing = [name for name, mode in sorted(modes.items()) if mode == Mode.ENFORCE]
    everywhere = file is not None and file.mode == Mode.ENFORCE.value
    if everywhere and not modes.get("default"):
        enforcing.append("default")
    if _TRIED not in keys or not called or not enforcing or (file is not None and file.canary < 100):
        return ""
    container = {"name": "main", "image": "none.invalid/none", "resources": {"limits": {_TRIED: "1500m"}}}
    tried = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "drawbridge-doctor", "namespace": enforcing[0]},
        "spec": {"containers": [container]},
    }
    try:
        await cluster.create(resources.PODS.raw, tried, enforcing[0], dry_run=True)
    except ApiError as error:
        if found := _CALLING.search(error.message):
            return found[0]
        if error.status == _INVALID and "denied the request" not in error.message:
            return f"a pod for {_TRIED} in namespace {enforcing[0]} bypassed the webhook under failurePolicy Ignore"
    return ""


async def survey_parts(cluster: Kubernetes, now: datetime) -> tuple[Finding, ...]:
    """Find what is wrong with drawbridge itself, as far as the caller may read it, and without its Secrets."""
    mine, visit = await _read_installation(cluster)
    ids = {one.id: one.kind for one in _LISTED}
    unread = {"Secret", *visit.absent, *(ids[one.kind] for one in visit.unread if one.kind in ids)}
    return examine(await read_parts(cluster, mine, frozenset(unread), cluster), now)


def read_dump(files: Sequence[str], now: datetime, given: ConfigurationInForce | None) -> Seen:
    """Read a dump. One without any pod says nothing about which pods there are."""
    found = read_files(files, judged=True)
    warn_of_skipped(found.skipped)
    documents, installed = found.documents, found.in_force
    warn_of_ignored(documents, also=_ALSO)
    objects: list[Any] = [identified(one) if isinstance(one, ResourceClaim) else one for one in read_objects(documents)]
    for kind in (Lease, Event):
        objects += read_kind(documents, kind)
    # A dump was made when one of the leases of Kubernetes' own was renewed, as those of nodes are every ten seconds.
    others = [one for one in objects if isinstance(one, Lease) and one.metadata.name not in LEASES]
    leases = [one for one in others if one.metadata.namespace in ("kube-node-lease", "kube-system")] or others
    now = min(now, max(filter(None, (moment(one.spec.renew_time) for one in leases)), default=now))
    # Of the objects of an installation those of another shape are named.
    dumped = {one.kind for one in _IN_DUMPS}

    def whole(obj: Raw) -> Raw:
        found: Raw = without_nulls(obj)
        readable = with_text_labels(found) if found["kind"] == "Namespace" else found
        convert(readable, SHAPES.get(found["kind"], Shape))
        return found

    ours = [one for one in documents if text(one.object.get("kind")) in dumped and _is_of_installation(one.object)]
    mine = read_each(ours, whole)
    kinds = {one["kind"] for one in mine}
    parts = parts_of(mine, frozenset({"Secret", "ConfigMap", *(one.kind for one in KINDS)} - kinds))
    if parts is not None:
        expected = tuple(
            one for one in parts.expected if one["kind"] in (*WORKLOADS, *WEBHOOKS) and one["kind"] in kinds
        )
        parts = with_configuration(replace(parts, expected=expected), installed)
    nodes = [one.object for one in documents if one.object.get("kind") == "Node"]
    in_force = given or installed
    unread = _lacking(documents, in_force, parts)
    typed = (one for one in objects if not isinstance(one, Node))
    reading = reading_of([*nodes, *typed], features_of(None, in_force.configuration), in_force=in_force)
    observed = _seen(reading, now, mine=mine, parts=parts, unread=unread)
    owning = {one.kind for one in resources.WORKLOADS}
    owners = tuple(one.object for one in documents if text(one.object.get("kind")) in owning)
    named = frozenset(chain.from_iterable(_claims_named(one.object) for one in documents))
    return replace(observed, owners=owners, named=named, is_dump=True)


def _lacking(documents: Sequence[Document], in_force: ConfigurationInForce, parts: Parts | None) -> dict[str, str]:
    """Name the inputs of rules that a dump lacks, and say how doctor would get them."""
    present = {text(one.object.get("kind")) for one in documents}
    lacking = (DUMPED - present) | (parts.unread if parts is not None else frozenset())
    unread = dict.fromkeys(lacking, "not in the input: add `kubectl get KIND -A -o yaml`")
    # Private keys do not belong in a file.
    live = dict.fromkeys(
        (DRY_RUN, REPLICAS, *({"Secret"} & lacking)), "only in a live cluster: run `drawbridge doctor` there"
    )
    # A snapshot leaves these out.
    workloads = parts.of(*WORKLOADS) if parts is not None else []
    if not all("observedGeneration" in inside(one, "status") for one in workloads):
        live[STATUS] = live[DRY_RUN]
    if not all(images_of(one) for one in workloads):
        live[IMAGES] = live[DRY_RUN]
    given = {CONFIGURATION: "not in the input: give --config FILE"} if in_force.is_default else {}
    return unread | live | given


def _is_of_installation(obj: Raw) -> bool:
    """Whether an object is of an installation; any namespace may have a mode."""
    metadata = inside(obj, "metadata")
    return is_labelled(obj) or obj.get("kind") == "Namespace" or text(metadata.get("name")) in _NAMED


def _seen(
    reading: Reading,
    now: datetime,
    *,
    mine: Sequence[Raw],
    parts: Parts | None,
    unread: Mapping[str, str] = MappingProxyType({}),
) -> Seen:
    """Put together what was read."""
    stock, given, in_force = reading.stock, reading.typed, reading.in_force
    inventory = Inventory.of(stock.classes.values(), stock.slices.values(), stock.nodes.values())
    observed = Seen(
        stock=stock,
        now=now,
        claims=tuple(given.of(ResourceClaim)),
        pods=tuple(given.of(Pod)),
        templates=tuple(given.of(ResourceClaimTemplate)),
        leases=tuple(given.of(Lease)),
        nodes_of_names=group_nodes(stock.nodes.values(), inventory, in_force.configuration),
        events=tuple(given.of(Event)),
        nodes=tuple(reading.of("Node")),
        limits=(*given.of(ResourceQuota), *given.of(LimitRange)),
        namespaces=tuple(convert(with_text_labels(one), Namespace) for one in mine if one["kind"] == "Namespace"),
        parts=parts,
        in_force=in_force,
        unread=dict(unread),
    )
    if observed.configuration is None:
        return observed
    # Domains of names that the configuration knows, and that the API server does not send to the webhook.
    unsent: set[str] = set()
    for one in mine:
        for hook in one.get("webhooks") or () if one["kind"] == "MutatingWebhookConfiguration" else ():
            for match in hook.get("matchConditions") or ():
                unsent.update(registration.names_not_sent_by(match["expression"], observed.configuration))
    return replace(observed, unsent=tuple(sorted(unsent)))
