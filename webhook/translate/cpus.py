"""Claims for CPUs of Guaranteed pods: for the CPUs that the kubelet's static CPU manager would give to one container exclusively.

The webhook makes such claims only if the administrator enables them (`cpuClaims`). The request for CPUs stays, because scheduler, quotas and
kubelet count it; the claim determines which CPUs the container gets. No pod is refused, because the kubelet also serves the request without a
claim. A claim of the CPU driver belongs to one container for the life of the pod, so init containers get no claim.

Mirrors kubernetes:pkg/apis/core/v1/helper/qos and pkg/kubelet/cm/cpumanager/policy_static.go (guaranteedCPUs), on a pod with the API
server's defaults or without them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from dra.quantity import NANO
from dra.raw import items, mapping
from webhook.dialects import Dialect
from webhook.translate.pod_view import nano_of, requests

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dra.objects import ResourceClaimSpec
    from dra.wire import Json
    from webhook.state import Configuration, State
    from webhook.translate.pod_view import PodView
    from webhook.translate.record import WrittenRecord

CPU, MEMORY = "cpu", "memory"
TARGET = "cpu"
CPU_DIALECT = Dialect(name="cpu", title="CPUs of Guaranteed pods", keys=(), target=TARGET, independent=True)
_MILLI = NANO // 1000
_UNKNOWN = "the pod has its own claim, {}, which may or may not be for CPUs"
_OWN = "the pod requests CPUs through its own claim, {}"


# The kubelet's static CPU manager


def whole_cpus(pod: PodView) -> dict[int, int]:
    """Count the CPUs that the static CPU manager gives to each container exclusively, by container order; {} unless the pod is Guaranteed."""
    pod_resources = mapping(pod.spec.get("resources"))
    limits, requested = mapping(pod_resources.get("limits")), mapping(pod_resources.get("requests"))
    by_pod = any(name in (CPU, MEMORY) or name.startswith("hugepages-") for name in (*limits, *requested))
    if by_pod:
        of_containers = {name for slot in pod.slots for name in (*slot.limits, *slot.requests)}
        for name in (CPU, MEMORY):
            if name not in requested and name in of_containers:
                requested = {**requested, name: f"{requests(pod, (name,))[name]}n"}
        guaranteed = _is_guaranteed(requested, limits)
    else:
        guaranteed = bool(pod.slots) and all(_is_guaranteed(slot.requests, slot.limits) for slot in pod.slots)
    if not guaranteed:
        return {}
    numbers: dict[int, int] = {}
    for slot in pod.slots:
        # With pod-level resources, single containers need not be Guaranteed.
        if not by_pod or _is_guaranteed(slot.requests, slot.limits):
            milli = -(-nano_of(slot.limits.get(CPU)) // _MILLI)
            if milli and not milli % 1000:
                numbers[slot.order] = milli // 1000
    return numbers


def _is_guaranteed(requested: Mapping[str, Json], limits: Mapping[str, Json]) -> bool:
    """Return whether the limits of CPUs and memory equal the requests. A missing request equals the limit."""
    for name in (CPU, MEMORY):
        limit = nano_of(limits.get(name))
        if not limit or nano_of(requested.get(name, limits.get(name))) != limit:
            return False
    return True


# What the pod requests


def with_cpus(pod: PodView, configuration: Configuration, namespace: str) -> PodView:
    """Return the pod with the CPUs that get claims; the same pod if it gets none."""
    if not configuration.file.cpu_claims.wanted(namespace or "default"):
        return pod
    numbers = whole_cpus(pod)
    for slot in pod.slots:
        if slot.order in numbers and not slot.init:
            return replace(pod, cpus=numbers, asks_for_devices=True)
    return pod


def claim_for_cpus(pod: PodView, state: State, namespace: str, written: WrittenRecord) -> str:
    """Return the reason if the author's pod has a claim that is or may be for CPUs; "" otherwise."""
    unknown = ""
    # The names of claims from an earlier round. In files no signature shows which templates are ours.
    ours = {entry for slot in pod.slots if slot.name in written.record.containers for entry in slot.claims}
    for entry in items(pod.spec, "resourceClaims"):
        name, template = str(entry.get("name")), str(entry.get("resourceClaimTemplateName") or "")
        if template in written.templates or (template and name in ours):
            continue
        spec = state.templates.get((namespace or "default", template)) if template else None
        if spec is None and state.stock is not None:
            claim = state.stock.claims.get(f"{namespace or 'default'}/{entry.get('resourceClaimName')}")
            spec = claim.spec if claim is not None else None
        if spec is None:
            unknown = unknown or _UNKNOWN.format(name)
        elif _is_for_cpus(spec, state):
            return _OWN.format(name)
    return unknown


def _is_for_cpus(spec: ResourceClaimSpec, state: State) -> bool:
    configuration = state.configuration
    target = configuration.targets[TARGET]
    names = {*target.classes, configuration.file.classes.get(TARGET, "")}
    for request in spec.devices.requests:
        for alternative in request.alternatives.values():
            served = state.fleet.classes.get(alternative.device_class_name)
            if alternative.device_class_name in names or (served is not None and served.driver == target.driver):
                return True
    return False
