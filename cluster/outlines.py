"""Outlines of claims and pods that are too large to be kept whole: their identity and the devices they hold.

A claim that holds devices counts, however large it is. No scheduler serves the outline of a claim without devices or of a pod without a
node: its request or its scheduling gate is NOT_KEPT.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from dra.objects import (
    Container,
    DeviceClaim,
    DeviceRequest,
    ExactDeviceRequest,
    ObjectMeta,
    PodSchedulingGate,
    PodSpec,
    ResourceClaimSpec,
    ResourceRequirements,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dra.objects import Pod, ResourceClaim

# An outline cuts longer lists after this many entries, and drops values of more characters, because these make an object large.
_MAX_ENTRIES = 32
_MAX_LENGTH = 256
NOT_KEPT = "drawbridge.dev/too-large"


def outline_of_claim(claim: ResourceClaim) -> ResourceClaim:
    """Return a claim with only its devices and their classes. A claim without devices gets a request that no device serves."""
    allocation = claim.status.allocation
    requests: list[DeviceRequest] = []
    if allocation is None:
        requests.append(DeviceRequest(name=NOT_KEPT))
    else:
        for request in claim.spec.devices.requests[:_MAX_ENTRIES]:
            exactly = request.exactly and ExactDeviceRequest(
                device_class_name=request.exactly.device_class_name,
                allocation_mode=request.exactly.allocation_mode,
                count=request.exactly.count,
                admin_access=request.exactly.admin_access,
            )
            alternatives = [
                replace(alternative, selectors=(), tolerations=(), capacity=None, derived_attributes=())
                for alternative in request.first_available[:_MAX_ENTRIES]
            ]
            requests.append(DeviceRequest(name=request.name, exactly=exactly, first_available=tuple(alternatives)))
        allocation = replace(allocation, devices=replace(allocation.devices, config=()))
    status = replace(claim.status, allocation=allocation, devices=())
    spec = ResourceClaimSpec(devices=DeviceClaim(requests=tuple(requests)))
    return replace(claim, metadata=_metadata(claim.metadata), spec=spec, status=status)


def outline_of_pod(pod: Pod) -> Pod:
    """Return a pod with only its node, amounts and claims. A pod without a node gets a scheduling gate."""
    stored = pod.spec
    gates = () if stored.node_name else (PodSchedulingGate(name=NOT_KEPT),)
    spec = PodSpec(
        containers=tuple(
            Container(
                name=container.name,
                resources=ResourceRequirements(
                    requests=dict(list(container.resources.requests.items())[:_MAX_ENTRIES]),
                    limits=dict(list(container.resources.limits.items())[:_MAX_ENTRIES]),
                ),
            )
            for container in stored.containers[:_MAX_ENTRIES]
        ),
        node_name=stored.node_name,
        resource_claims=stored.resource_claims[:_MAX_ENTRIES],
        runtime_class_name=stored.runtime_class_name,
        scheduler_name=stored.scheduler_name,
        service_account_name=stored.service_account_name,
        scheduling_gates=gates,
        scheduling_group=stored.scheduling_group,
        priority=stored.priority,
        priority_class_name=stored.priority_class_name,
        preemption_policy=stored.preemption_policy,
    )
    status = replace(pod.status, conditions=pod.status.conditions[:_MAX_ENTRIES])
    return replace(pod, metadata=_metadata(pod.metadata), spec=spec, status=status)


def without_environment(pod: Pod) -> Pod:
    """Return a pod without environment variables, which are its largest part and irrelevant for devices."""
    containers = _without_environment(pod.spec.containers)
    init_containers = _without_environment(pod.spec.init_containers)
    return replace(pod, spec=replace(pod.spec, containers=containers, init_containers=init_containers))


def _without_environment(containers: tuple[Container, ...]) -> tuple[Container, ...]:
    return tuple(replace(container, env=()) if container.env else container for container in containers)


def _metadata(metadata: ObjectMeta) -> ObjectMeta:
    return replace(
        metadata,
        labels=_short(metadata.labels),
        annotations=_short(metadata.annotations),
        owner_references=tuple(
            owner_reference
            for owner_reference in metadata.owner_references[:_MAX_ENTRIES]
            if len(owner_reference.name + owner_reference.uid) <= _MAX_LENGTH * 2
        ),
        finalizers=metadata.finalizers[:_MAX_ENTRIES],
    )


def _short(mapping: Mapping[str, str]) -> dict[str, str]:
    first_entries = list(mapping.items())[:_MAX_ENTRIES]
    return {name: value for name, value in first_entries if len(value) <= _MAX_LENGTH}
