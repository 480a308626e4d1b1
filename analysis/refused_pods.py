"""Finds controllers whose pods with devices cannot be created, and the latest events with a given reason."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import timedelta
from itertools import chain
from typing import TYPE_CHECKING, Any

from analysis.events import KEPT, newest
from analysis.installation import LEASES
from cluster import resources
from cluster.objects import Lease
from dra.finding import Finding, make_finding
from dra.raw import Object, containers_of, inside, items, moment
from dra.wire import WireError, convert

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import datetime

    from analysis.loading import Reading
    from cluster.objects import Event

FAILED_CREATE = "FailedCreate"
OUR_DOMAIN_SUFFIX = ".drawbridge.dev"
QUOTED = 400  # characters that a finding quotes from the message of an event
FRESH = timedelta(minutes=20)  # controllers try again after 17 minutes at the latest
AGAIN = "(combined from similar events): "
_CONTROLLERS = frozenset(resource.kind for resource in resources.WORKLOADS)
_DENIED = re.compile(r'admission webhook "([^"]+)" denied the request|failed calling webhook "([^"]+)"')
_POLICY = re.compile(r"ValidatingAdmissionPolicy '([^']+)'")


def time_of_dump(leases: Iterable[Lease], events: Iterable[Event], now: datetime) -> datetime:
    """Return when a dump was made: at the last renewal of a Lease of Kubernetes itself. Nodes renew their Leases every ten seconds.

    A dump without Leases was made `now`, unless its newest event would not exist any more.
    """
    others = [lease for lease in leases if lease.metadata.name not in LEASES]
    system = [lease for lease in others if lease.metadata.namespace in ("kube-node-lease", "kube-system")] or others
    renewed = max(filter(None, (moment(lease.spec.renew_time) for lease in system)), default=None)
    last_event = newest(events)
    if renewed is None and last_event is not None and now - last_event > KEPT:
        return last_event
    return min(now, renewed or now)


def latest(reading: Reading, now: datetime, reason: str) -> dict[str, str]:
    """Return, by object, the message of the last event with this reason. Events about a former pod with the same name do not count."""
    messages: dict[str, str] = {}
    living = {pod.metadata.key: pod.metadata.uid for pod in reading.pods.values()}
    for event in sorted(chain(*reading.events_of.values()), key=lambda event: event.last_timestamp):
        last = moment(event.last_timestamp)
        if event.reason == reason and (last is None or now - last <= FRESH):
            subject = event.involved_object
            uid = living.get(f"{subject.namespace}/{subject.name}") if subject.kind == "Pod" else ""
            if uid and subject.uid and uid != subject.uid:
                continue
            messages[f"{subject.kind}/{subject.namespace}/{subject.name}"] = event.message.removeprefix(AGAIN)
    return messages


def time_of(reading: Reading, now: datetime) -> datetime:
    """Return the time of a reading: `now`, or when the dump was made. Unreadable Leases are left out."""
    if reading.is_live:
        return now
    leases: list[Lease] = []
    for obj in reading.of_kinds("Lease"):
        with suppress(WireError):
            leases.append(convert(obj, Lease))
    return time_of_dump(leases, chain(*reading.events_of.values()), now)


def find_refused_pods(reading: Reading, now: datetime) -> Iterator[Finding]:
    """Find controllers that cannot create their pods with devices, because something other than drawbridge refuses them."""
    lacking: set[str] = set()
    for controller in reading.of_kinds(*_CONTROLLERS):
        if _requests_devices(controller) and _has_too_few_pods(controller):
            meta = inside(controller, "metadata")
            lacking.add(f"{controller.get('kind')}/{meta.get('namespace')}/{meta.get('name')}")
    for controller_name, message in latest(reading, now, FAILED_CREATE).items():
        if controller_name not in lacking or OUR_DOMAIN_SUFFIX in message:
            continue
        yield make_finding(
            "O101",
            controller_name,
            f"its pods cannot be created: {message[:QUOTED]}",
            remedy_for(message),
            basis=f"an event {FAILED_CREATE}",
        )


def _requests_devices(owner: Object) -> bool:
    """Return whether the pods of a controller request devices, by any key."""
    spec = inside(owner, "spec", "template", "spec")
    if items(spec, "resourceClaims"):
        return True
    containers = containers_of(spec)
    keys = [
        key
        for container in containers
        for part in ("limits", "requests")
        for key in inside(container, "resources", part)
    ]
    return any("/" in key for key in keys)


def _has_too_few_pods(owner: Object) -> bool:
    """Return whether a controller has fewer pods than it wants."""
    spec, status = inside(owner, "spec"), inside(owner, "status")
    match owner.get("kind"):
        case "DaemonSet":
            return _number(status, "currentNumberScheduled", 0) < _number(status, "desiredNumberScheduled", 0)
        case "Job":
            return not status.get("completionTime") and _number(status, "active", 0) < _number(spec, "parallelism", 1)
    return _number(status, "replicas", 0) < _number(spec, "replicas", 1)


def _number(value: Mapping[str, Any], name: str, default: int) -> int:
    number = value.get(name, default)
    return number if isinstance(number, int) else default


def remedy_for(message: str) -> str:
    if match := _DENIED.search(message):
        name = match[1] or match[2]
        return f"webhook {name} does not belong to drawbridge: `kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations -o yaml` shows its service"
    if match := _POLICY.search(message):
        return f"change the pod as ValidatingAdmissionPolicy {match[1]} requires, or ask the owner of the policy"
    if "PodSecurity" in message:
        return "change the pod as the namespace's label pod-security.kubernetes.io/enforce requires, or have the label changed"
    if "exceeded quota" in message:
        return "have the ResourceQuota in the message raised, or free some of its resources in the namespace"
    if "per Pod" in message or "per Container" in message:
        return "stay within the LimitRanges of the namespace (`kubectl get limitrange -o yaml`), or have them changed"
    return "do what the message says, or ask someone who can change the rule"
