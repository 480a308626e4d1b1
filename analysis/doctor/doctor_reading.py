"""Reads the input of `drawbridge doctor`: a live cluster once, or a dump of one."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from analysis.configuration import KIND as CONFIGURATION
from analysis.configuration import defaults
from analysis.doctor.components import WEBHOOKS, WORKLOADS, images_of
from analysis.doctor.doctor_rules import AUTOSCALERS, DRY_RUN, DUMPED, IMAGES, REPLICAS, SERVER_TIME, STATUS, examine
from analysis.doctor.installed import installed_configuration, parts_of, read_parts, with_configuration
from analysis.doctor.observed import DoctorInput
from analysis.errors import Failed
from analysis.explain import FAILED_OF_PODS
from analysis.installation import KINDS, LABELLED, LEASES, is_labelled
from analysis.loading import (
    Needs,
    Unread,
    Visit,
    evidence_in,
    ignored,
    look_around,
    read_cluster,
    unread_of,
    with_text_labels,
)
from analysis.object_events import KEPT, newest
from analysis.refused_pods import FAILED_CREATE, FRESH
from cluster import resources
from cluster.errors import ApiError, Forbidden, NotFound
from cluster.objects import Event, Lease, StoredWorkload
from cluster.resources import Raw, Resource, is_plain, resource_of
from dra.raw import inside, items, moment, text
from dra.texts import count_of
from dra.wire import WireError, convert, without_nulls
from node.audit import COMPONENT
from webhook import names
from webhook.state import Configuration, Mode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from analysis.configuration import ConfigurationInForce
    from analysis.doctor.components import Parts
    from analysis.loading import Reading
    from cluster.kubernetes import Kubernetes
    from cluster.protocol import Cluster
    from dra.finding import Finding

NO_CLAIMS = "this API server has no ResourceClaims (resource.k8s.io/v1), so there is nothing to check"
# Kinds that are read besides those of the fleet.
_PARTS: tuple[Resource[Raw], ...] = (
    resources.MUTATING_WEBHOOKS.raw,
    resources.VALIDATING_WEBHOOKS.raw,
    Resource("", "v1", "pods", "Pod", Raw),  # our pods, as they are stored
)
_LATER = ("Secret", "DeviceTaintRule", "Namespace")
# The kinds of an installation that are listed; Secrets are read by their names.
_LISTED = tuple(kind for kind in (*_PARTS, *KINDS) if kind.kind not in _LATER)
_IN_DUMPS: tuple[Resource[Any], ...] = (*KINDS, *_PARTS, resources.LEASES)
_ALSO = [
    *((kind.api_version, kind.kind) for kind in (*_IN_DUMPS, *resources.WORKLOADS)),
]
_NAMED = frozenset(LEASES)
_OWNERS = 32
_TRIED = "nvidia.com/gpu"
_INVALID = 422  # the API server's status for a fraction of a GPU, which it validates after it has called the webhook
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
        resources.DAEMON_SETS,
        resources.NODES.raw,
        resources.NAMESPACES.raw,
    ),
    "docs/commands.md#drawbridge-doctor",
    events=(f"reportingComponent={COMPONENT}", *(f"reason={reason}" for reason in (FAILED_CREATE, *FAILED_OF_PODS))),
    typed=True,
)


async def survey(
    cluster: Cluster,
    now: datetime,
    given: ConfigurationInForce | None = None,
    server: Kubernetes | None = None,
) -> DoctorInput:
    """Read a live cluster. Raises Failed if the server does not have ResourceClaims; any other kind that the server does not have
    counts as empty. A kind that the caller is not allowed to read counts as empty too, and is listed as missing.
    """
    reading = await read_cluster(cluster, NEEDS)
    if resources.RESOURCE_CLAIMS.kind in reading.absent:
        raise Failed(NO_CLAIMS, "run doctor against Kubernetes 1.34 or later")
    our_objects, visit = await _read_installation(cluster)
    our_objects += reading.of_kinds("Namespace")
    absent = reading.absent | visit.absent
    ids = {resource.kind: resource.id for resource in (*KINDS, *_LISTED)}
    kinds = {resource.id: resource.kind for resource in (*NEEDS.kinds, resources.EVENTS, *_LISTED)}
    unread = [
        missed for missed in dict.fromkeys((*reading.unread, *visit.unread)) if kinds.get(missed.kind) not in absent
    ]
    missing = {kinds[missed.kind]: missed.reason for missed in unread if missed.kind in kinds}
    our_objects += [resources.LEASES.plain(lease) for lease in reading.typed.of_type(Lease)]
    now, warnings = _server_time(now, server)
    parts = await read_parts(cluster, our_objects, frozenset({*missing, *absent}), server)
    failed = [event for event in reading.typed.of_type(Event) if event.reason == FAILED_CREATE]
    if parts is not None:
        controller_messages = [(event.involved_object, event.message) for event in failed]
        parts = replace(
            parts, refusals={f"{ref.kind}/{ref.namespace}/{ref.name}": message for ref, message in controller_messages}
        )
        denied = dict.fromkeys(sorted(parts.unread - absent), "forbidden")
        unread += [
            Unread(ids[resource], f"reading the installation's objects is {why}")
            for resource, why in denied.items()
            if resource not in missing
        ]
        missing = denied | missing
    in_force = given or (parts.installed if parts is not None else defaults())
    objects = (*reading.objects, *await _owners(cluster, failed))
    evidence, denied_evidence = await look_around(cluster, evidence_in(in_force.configuration, narrow=False))
    if denied_evidence:
        missing[AUTOSCALERS] = "; ".join(f"{denied.kind}: {denied.reason}" for denied in denied_evidence)
    reading = replace(reading, objects=objects, evidence=evidence, in_force=in_force, unread=tuple(unread), read_at=now)
    observed = DoctorInput(reading=reading, parts=parts, missing=missing, warnings=warnings)
    if parts is None:
        return observed
    return replace(observed, why_not_called=await _why_not_called(cluster, observed.configuration, our_objects))


async def _read_installation(cluster: Cluster, *also: Resource[Raw]) -> tuple[list[Raw], Visit[Raw]]:
    """Read the objects of an installation, which have its label, all webhook configurations, and all objects of the kinds `also`."""
    visit: Visit[Raw] = Visit(cluster, None, lambda _: None, lambda obj: obj, typed=True)
    everywhere = [resource for resource in _LISTED if resource.kind in WEBHOOKS]
    labelled = [resource for resource in _LISTED if resource not in everywhere]
    objects = [*await visit.read((*also, *everywhere)), *await visit.read(labelled, labels=LABELLED)]
    return list(filter(_is_of_installation, objects)), visit


def _server_time(now: datetime, server: Kubernetes | None) -> tuple[datetime, tuple[str, ...]]:
    """Return the API server's time, and a warning, if the local clock differs much from it; else the local time."""
    server_time = parsedate_to_datetime(server.date) if server is not None and server.date else now
    skew = now - server_time
    if abs(skew) <= _SKEW:
        return now, ()
    warning = (
        f"the local clock differs by {skew.total_seconds():.0f} s from the API server's; the API server's time is used"
    )
    return server_time, (warning,)


async def _owners(cluster: Cluster, failed: Iterable[Event]) -> tuple[Raw, ...]:
    """Read the controllers that most recently could not create a pod."""
    kinds = {resource.kind: resource for resource in resources.WORKLOADS}
    last = sorted(failed, key=lambda event: event.last_timestamp, reverse=True)
    controllers = [event.involved_object for event in last]
    identities = dict.fromkeys((ref.kind, ref.namespace, ref.name) for ref in controllers)
    owners: list[Raw] = []
    for kind, namespace, name in list(identities)[:_OWNERS]:
        if kind in kinds:
            with suppress(NotFound, Forbidden):
                owners.append(await cluster.get(kinds[kind], name, namespace))
    return tuple(owners)


async def _why_not_called(cluster: Cluster, configuration: Configuration | None, our_objects: Iterable[Raw]) -> str:
    """Send a dry run of a pod that the webhook would refuse, and return why the API server did not call the webhook; "" if it did, or if
    the answer is not known.
    """
    file = configuration.file if configuration is not None else None
    keys = {row.name for dialect in (configuration or Configuration()).dialects for row in dialect.keys}
    hooks = [hook for obj in our_objects if obj["kind"] == WEBHOOKS[0] for hook in obj.get("webhooks") or ()]
    called = [hook for hook in hooks if hook.get("rules") and hook["clientConfig"].get("caBundle")]
    modes: dict[str, Any] = {}
    for obj in our_objects:
        meta = obj["metadata"]
        if obj["kind"] == "Namespace" and not meta.get("deletionTimestamp"):
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
        if match := _CALLING.search(error.message):
            return match[0]
        if error.status == _INVALID and "denied the request" not in error.message:
            return f"a pod that requests {_TRIED} in namespace {enforcing[0]} bypassed the webhook under failurePolicy Ignore"
    return ""


async def survey_parts(cluster: Kubernetes, reading: Reading) -> tuple[Finding, ...]:
    """Return the findings about drawbridge itself, from the objects that the caller may read, without Secrets."""
    namespaces = resources.NAMESPACES.raw
    our_objects, visit = await _read_installation(cluster, namespaces)
    ids = {resource.id: resource.kind for resource in (*_LISTED, namespaces)}
    unread = {"Secret", *visit.absent, *(ids[missed.kind] for missed in visit.unread if missed.kind in ids)}
    return examine(await read_parts(cluster, our_objects, frozenset(unread), cluster), reading)


def of_dump(reading: Reading) -> DoctorInput:
    """Examine what was read from a dump. If it has no object of a kind that a rule needs, such as pods, the kind counts as not read."""
    warnings = filter(None, (ignored(reading.objects, also=_ALSO),))
    unread = {missed.kind: missed for missed in reading.unread}
    dumped = {kind.kind for kind in _IN_DUMPS}
    our_objects: list[Raw] = []
    for obj, position in zip(reading.objects, reading.places, strict=True):
        if text(obj.get("kind")) not in dumped or not _is_of_installation(obj):
            continue
        stored: Raw = without_nulls(obj)
        try:
            readable = with_text_labels(stored) if stored["kind"] == "Namespace" else stored
            known = resource_of(stored)
            convert(readable, StoredWorkload if known is None or is_plain(known.type) else known.type)
        except WireError as error:
            missed = unread_of(obj, error, position)
            unread[missed.kind] = missed
        else:
            our_objects.append(stored)
    kinds = {obj["kind"] for obj in our_objects}
    parts = parts_of(our_objects, frozenset({"Secret", "ConfigMap", *(kind.kind for kind in KINDS)} - kinds))
    if parts is not None:
        expected = tuple(
            obj for obj in parts.expected if obj["kind"] in (*WORKLOADS, *WEBHOOKS) and obj["kind"] in kinds
        )
        parts = with_configuration(replace(parts, expected=expected), installed_configuration(parts))
    reading = replace(reading, unread=tuple(unread.values()))
    missing = _missing_inputs(reading, parts)
    if reason := _why_events_miss(reading):
        missing["Event"] = reason
    return DoctorInput(reading=reading, parts=parts, missing=missing, warnings=tuple(warnings))


def _why_events_miss(reading: Reading) -> str:
    """Return why the events of a dump do not belong to the time of its other objects; "" if they may."""
    last_event, now = newest(reading.typed.of_type(Event)), reading.time
    last_time = max(filter(None, map(moment, _times(reading.objects))), default=None)
    if last_event is None or last_time is None:
        return ""
    if now - last_event > KEPT:
        return (
            f"the newest event is {_minutes(now - last_event)} older than the dump: add `kubectl get events -A -o yaml`"
        )
    if last_event - last_time > FRESH:
        return f"the events are {_minutes(last_event - last_time)} newer than the other objects: read all at one time"
    return ""


def _times(objects: Iterable[Raw]) -> Iterator[str]:
    """Yield the times that objects other than events have of their creation, their conditions and their last renewal."""
    for obj in objects:
        if obj.get("kind") == "Event":
            continue
        yield text(inside(obj, "metadata").get("creationTimestamp"))
        yield text(inside(obj, "spec").get("renewTime"))
        for condition in items(inside(obj, "status"), "conditions"):
            yield text(condition.get("lastHeartbeatTime")) or text(condition.get("lastTransitionTime"))


def _minutes(duration: timedelta) -> str:
    return count_of(round(duration.total_seconds() / 60), "minute")


def _missing_inputs(reading: Reading, parts: Parts | None) -> dict[str, str]:
    """Return the inputs of rules that a dump lacks, and how doctor would get them."""
    present = {text(obj.get("kind")) for obj in reading.objects}
    lacking = (DUMPED - present) | (parts.unread if parts is not None else frozenset())
    missing = {kind: f"not in the input: add `kubectl get {kind.lower()} -A -o yaml`" for kind in lacking}
    # Secrets have private keys, which do not belong in a file, so the remedy does not ask for a dump of Secrets.
    live = dict.fromkeys(
        (DRY_RUN, REPLICAS, SERVER_TIME, *({"Secret"} & lacking)),
        "only in a live cluster: run `drawbridge doctor` there",
    )
    # A snapshot has neither the status nor the images of Deployments.
    workloads = parts.of_kinds(*WORKLOADS) if parts is not None else []
    if not all("observedGeneration" in inside(workload, "status") for workload in workloads):
        live[STATUS] = live[DRY_RUN]
    if not all(images_of(workload) for workload in workloads):
        live[IMAGES] = live[DRY_RUN]
    configuration = {CONFIGURATION: "not in the input: give --config FILE"} if reading.in_force.is_default else {}
    return missing | live | configuration


def _is_of_installation(obj: Raw) -> bool:
    """Whether an object belongs to an installation; every Namespace counts, because it may have a mode."""
    name = text(inside(obj, "metadata").get("name"))
    return bool(name) and (is_labelled(obj) or obj.get("kind") == "Namespace" or name in _NAMED)
