"""Finds controllers whose pods with devices cannot be created."""

from __future__ import annotations

import re
from datetime import timedelta
from itertools import chain
from typing import TYPE_CHECKING, Any

from analysis.requesting import containers_in, has_claims
from cluster import resources
from dra.finding import Finding, make_finding
from dra.raw import Object, inside, items, moment, text
from webhook.translate import pods_in
from webhook.unknown import container_requests

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from analysis.loading import Reading

FAILED_CREATE, FAILURE = "FailedCreate", "ReplicaFailure"
OUR_DOMAIN_SUFFIX = ".drawbridge.dev"
QUOTED = 400  # characters that a finding quotes from the message of an event
FRESH = timedelta(minutes=20)  # controllers try again after 17 minutes at the latest
AGAIN = "(combined from similar events): "
_CONTROLLERS = frozenset(resource.kind for resource in resources.WORKLOADS)
_DENIED = re.compile(r'admission webhook "([^"]+)" denied the request|failed calling webhook "([^"]+)"')
_POLICY = re.compile(r"ValidatingAdmissionPolicy '([^']+)'")


def find_refused_pods(reading: Reading) -> Iterator[Finding]:
    """Find controllers that cannot create their pods with devices, because something other than drawbridge refuses them."""
    lacking: set[str] = set()
    messages: dict[str, tuple[str, str]] = {}  # the last of each object, and where it is from
    # A Deployment repeats the condition of its ReplicaSet.
    for controller in sorted(
        reading.of_kinds(*_CONTROLLERS), key=lambda controller: controller["kind"] == "Deployment"
    ):
        requests = any(container_requests(container) for container in containers_in(controller))
        if (requests or any(map(has_claims, pods_in(controller)))) and _has_too_few_pods(controller):
            meta = inside(controller, "metadata")
            name = f"{controller.get('kind')}/{meta.get('namespace')}/{meta.get('name')}"
            lacking.add(name)
            for condition in items(inside(controller, "status"), "conditions"):
                failure = text(condition.get("message")), f"its condition {FAILURE}"
                is_failure = (condition.get("type"), condition.get("status")) == (FAILURE, "True")
                if is_failure and failure not in messages.values():
                    messages[name] = failure
    for event in sorted(chain(*reading.events_of.values()), key=lambda event: event.last_timestamp):
        last, about = moment(event.last_timestamp), event.involved_object
        if event.reason == FAILED_CREATE and (last is None or abs(reading.time - last) <= FRESH):
            message, basis = event.message.removeprefix(AGAIN), f"an event {FAILED_CREATE}"
            messages[f"{about.kind}/{about.namespace}/{about.name}"] = message, basis
    for controller_name, (message, basis) in messages.items():
        match = _DENIED.search(message)
        if controller_name not in lacking or (match and (match[1] or "").endswith(OUR_DOMAIN_SUFFIX)):
            continue
        yield make_finding(
            "O101",
            controller_name,
            f"its pods cannot be created: {message[:QUOTED]}",
            remedy_for(message),
            basis=basis,
        )


def _has_too_few_pods(owner: Object) -> bool:
    """Return whether a controller has fewer pods than it wants."""
    spec, status = inside(owner, "spec"), inside(owner, "status")
    match owner.get("kind"):
        case "DaemonSet":
            return number(status, "currentNumberScheduled") < number(status, "desiredNumberScheduled")
        case "Job":
            return not status.get("completionTime") and number(status, "active") < number(spec, "parallelism", 1)
    return number(status, "replicas") < number(spec, "replicas", 1)


def number(value: Mapping[str, Any], name: str, default: int = 0) -> int:
    """Return a number in an object; the default if it has none."""
    written = value.get(name, default)
    return written if isinstance(written, int) else default


def remedy_for(message: str) -> str:
    if match := _DENIED.search(message):
        name = match[1] or match[2]
        if name.endswith(OUR_DOMAIN_SUFFIX):
            return "mend the webhook: `drawbridge doctor` names the fault of its certificate, its Service or its pods"
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
