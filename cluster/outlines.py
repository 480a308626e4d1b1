"""What has to be known of a claim or a pod that is too large to be kept: what it holds, and who it is. Pure.

Whoever has a device has it, however large the claim is that says so. What nobody but its author needs is left out: a claim without
devices, and a pod without a node, are kept in a form that no scheduler serves, and that says why.
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

    from dra.objects import AllocationResult, DeviceSubRequest, Pod, ResourceClaim

# More than this of anything is what makes an object large.
_MANY = 32
_LONG = 256
NOT_KEPT = "drawbridge.dev/too-large"


def outline_of_claim(claim: ResourceClaim) -> ResourceClaim:
    """Keep which devices a claim has, and of which classes; one without devices asks for what nobody can serve."""
    allocation = claim.status.allocation
    unserved = (DeviceRequest(name=NOT_KEPT),)
    requests = unserved if allocation is None else tuple(map(_request, claim.spec.devices.requests[:_MANY]))
    status = replace(claim.status, allocation=_allocation(allocation), devices=())
    spec = ResourceClaimSpec(devices=DeviceClaim(requests=requests))
    return replace(claim, metadata=_metadata(claim.metadata), spec=spec, status=status)


def outline_of_pod(pod: Pod) -> Pod:
    """Keep where a pod is, and which claims it uses; one without a node waits."""
    given = pod.spec
    gates = () if given.node_name else (PodSchedulingGate(name=NOT_KEPT),)
    spec = PodSpec(
        containers=tuple(map(_container, given.containers[:_MANY])),
        node_name=given.node_name,
        resource_claims=given.resource_claims[:_MANY],
        runtime_class_name=given.runtime_class_name,
        scheduler_name=given.scheduler_name,
        service_account_name=given.service_account_name,
        scheduling_gates=gates,
        scheduling_group=given.scheduling_group,
        priority=given.priority,
        priority_class_name=given.priority_class_name,
        preemption_policy=given.preemption_policy,
    )
    status = replace(pod.status, conditions=pod.status.conditions[:_MANY])
    return replace(pod, metadata=_metadata(pod.metadata), spec=spec, status=status)


def _container(container: Container) -> Container:
    requests = dict(list(container.resources.requests.items())[:_MANY])
    limits = dict(list(container.resources.limits.items())[:_MANY])
    return Container(name=container.name, resources=ResourceRequirements(requests=requests, limits=limits))


def without_environment(pod: Pod) -> Pod:
    """Leave away what is most of a pod, and what no decision on devices reads."""
    given = pod.spec
    containers = _without_environment(given.containers)
    init_containers = _without_environment(given.init_containers)
    spec = replace(given, containers=containers, init_containers=init_containers)
    return replace(pod, spec=spec)


def _without_environment(containers: tuple[Container, ...]) -> tuple[Container, ...]:
    return tuple(replace(one, env=()) if one.env else one for one in containers)


def _allocation(allocation: AllocationResult | None) -> AllocationResult | None:
    return allocation and replace(allocation, devices=replace(allocation.devices, config=()))


def _request(request: DeviceRequest) -> DeviceRequest:
    exactly = request.exactly and ExactDeviceRequest(
        device_class_name=request.exactly.device_class_name,
        allocation_mode=request.exactly.allocation_mode,
        count=request.exactly.count,
        admin_access=request.exactly.admin_access,
    )
    return DeviceRequest(name=request.name, exactly=exactly, first_available=_alternatives(request.first_available))


def _alternatives(given: tuple[DeviceSubRequest, ...]) -> tuple[DeviceSubRequest, ...]:
    return tuple(
        replace(one, selectors=(), tolerations=(), capacity=None, derived_attributes=()) for one in given[:_MANY]
    )


def _metadata(metadata: ObjectMeta) -> ObjectMeta:
    return replace(
        metadata,
        labels=_short(metadata.labels),
        annotations=_short(metadata.annotations),
        owner_references=tuple(
            one for one in metadata.owner_references[:_MANY] if len(one.name + one.uid) <= _LONG * 2
        ),
        finalizers=metadata.finalizers[:_MANY],
    )


def _short(given: Mapping[str, str]) -> dict[str, str]:
    few = list(given.items())[:_MANY]
    return {name: value for name, value in few if len(value) <= _LONG}
