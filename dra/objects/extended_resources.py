"""Extended resources that DeviceClasses serve (KEP-5004), and the claims that kube-scheduler creates for them.

    serving = serve_resources(classes)                  # resource → class; computed once for each set of classes
    claim = extended_claim(pod, serving, allocatable)   # for one node; None: the scheduler creates no claim there

This module mirrors extendeddynamicresources.go of the scheduler plugin DynamicResources (which makes the same requests
and mappings from 1.35 on) and its cache of classes (dynamic-resource-allocation, extendedresourcecache). If a node's
`status.allocatable` has a resource, a device plugin serves the resource on this node, and the claim for this node does
not request it. So the claim depends on the node. Whether the node has enough of such resources is decided by the
scheduler plugin NodeResourcesFit, not by this module.

Two differences to Kubernetes are known. First, if a class is added while a newer class serves its resource name, a
running scheduler does not find the added class by its implicit name either. Second, 1.34 repeats the requests of init
containers, has no implicit names in `kubernetes.io`, and also requests resources that a device plugin serves; in 1.34
the feature is off by default.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dra.objects.claim import DeviceClaim, DeviceRequest, ExactDeviceRequest, ResourceClaim, ResourceClaimSpec
from dra.objects.meta import ObjectMeta, OwnerReference
from dra.objects.pod import ContainerExtendedResourceRequest
from dra.quantity import NANO

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dra.objects.claim import DeviceClass
    from dra.objects.pod import Container, Pod
    from dra.quantity import Quantity

IMPLICIT = "deviceclass.resource.kubernetes.io/"  # followed by a class's name, it is the class's implicit resource name
EXTENDED_CLAIM = "resource.kubernetes.io/extended-resource-claim"  # annotation of the scheduler's claim: "true"


class ExtendedClaim(NamedTuple):
    """The claim that the scheduler creates, and the requests of the claim that each container uses."""

    claim: ResourceClaim
    mappings: tuple[ContainerExtendedResourceRequest, ...]


def serve_resources(classes: Iterable[DeviceClass]) -> dict[str, str]:
    """Map each resource name to the class that serves it: the newest class, or the lexically first of equal age."""
    ordered = sorted(classes, key=lambda class_: class_.metadata.name, reverse=True)
    ordered.sort(key=lambda class_: class_.metadata.creation_timestamp)
    serving = {IMPLICIT + class_.metadata.name: class_.metadata.name for class_ in ordered}
    for class_ in ordered:
        resource = class_.spec.extended_resource_name or ""
        if is_extended(resource):
            serving[resource] = class_.metadata.name
    return serving


def is_extended(resource: str) -> bool:
    """Whether a resource name is the name of an extended resource (IsExtendedResourceName)."""
    return "/" in resource and "kubernetes.io/" not in resource and not resource.startswith("requests.")


def amount_problem(amount: Quantity) -> str:
    """Return why the API server refuses an amount of an extended resource; "" if it accepts the amount (ValidateResourceQuantityValue)."""
    if amount.nano < 0:
        return "is less than zero"
    if not amount.milli() % 1000:  # rounded up to thousandths, and without meaning beyond 64 bits
        return ""
    return "is not a whole number" if amount.nano % NANO else "exceeds the maximum of 2^63-1"


def requests_of(container: Container) -> dict[str, Quantity]:
    """Return the resource requests of a container, which default to its limits."""
    return {**container.resources.limits, **container.resources.requests}


def asks_by_name(pod: Pod) -> bool:
    """Whether a pod requests a resource that a class could serve."""
    names = (name for container in pod.spec.all_containers for name in requests_of(container))
    return any(is_extended(name) or name.startswith(IMPLICIT) for name in names)


def asks_for_devices(pod: Pod) -> bool:
    """Whether a pod has claims, or requests a resource that a class could serve."""
    return bool(pod.spec.resource_claims) or asks_by_name(pod)


def served_resources(pod: Pod, serving: Mapping[str, str]) -> list[str]:
    """Return the sorted names of the resources that the pod requests and that a class serves."""
    requests = map(requests_of, pod.spec.all_containers)
    requested = {name for amounts in requests for name, amount in amounts.items() if amount.nano}
    return sorted(requested & serving.keys())


def mapped_resources(pod: Pod) -> frozenset[str]:
    """Return the extended resources that the claim named in the pod's status requests."""
    status = pod.status.extended_resource_claim_status
    return (
        frozenset(mapping.resource_name for mapping in status.request_mappings) if status is not None else frozenset()
    )


def extended_claim(
    pod: Pod, serving: Mapping[str, str], allocatable: Mapping[str, Quantity] | None = None
) -> ExtendedClaim | None:
    """Return the claim that kube-scheduler would create for a pod on a node with these allocatable resources, or None.

    The claim's name is a placeholder, because the API server generates the name.
    """
    plugins = {name for name, amount in (allocatable or {}).items() if amount.value()}
    resources = [name for name in served_resources(pod, serving) if name not in plugins]
    if not resources:
        return None
    containers = pod.spec.all_containers
    init_count = len(pod.spec.init_containers)
    init_indices = [index for index in range(init_count) if containers[index].restart_policy != "Always"]
    requests: list[DeviceRequest] = []
    mappings: list[ContainerExtendedResourceRequest] = []
    for resource in resources:
        device_class = serving[resource]
        # Each container and each sidecar gets a request of its own.
        own_requests: dict[int, DeviceRequest] = {}
        for index, container in enumerate(containers):
            if index not in init_indices and (count := _count(container, resource)):
                own_requests[index] = _request(index, container, resource, device_class, count)
                mappings.append(_mapping(container, resource, own_requests[index].name))
        # An init container ends before later containers start, so it reuses their whole requests and requests only the
        # devices that are missing then. All init containers share one request, the largest that any of them needs.
        largest: DeviceRequest | None = None
        largest_count = 0
        shared: list[tuple[Container, str]] = []  # "" for the shared request of init containers
        for index in init_indices:
            container = containers[index]
            lacking = _count(container, resource)
            for later, request in own_requests.items():
                if later > index and lacking > 0 and request.exactly is not None:
                    shared.append((container, request.name))
                    lacking -= request.exactly.count or 0
            if lacking > 0:
                shared.append((container, ""))
            if lacking > largest_count:
                largest, largest_count = _request(index, container, resource, device_class, lacking), lacking
        if largest is not None:
            requests.append(largest)
        requests += own_requests.values()
        name = largest.name if largest is not None else ""
        mappings += [_mapping(container, resource, request or name) for container, request in shared]
    requests.sort(key=lambda request: request.name)
    owner = OwnerReference(api_version="v1", kind="Pod", name=pod.metadata.name, uid=pod.metadata.uid, controller=True)
    metadata = ObjectMeta(
        name=f"{pod.metadata.name}-extended-resources",
        generate_name=f"{pod.metadata.name}-extended-resources-",
        namespace=pod.metadata.namespace,
        annotations={EXTENDED_CLAIM: "true"},
        owner_references=(owner,),
    )
    spec = ResourceClaimSpec(devices=DeviceClaim(requests=tuple(requests)))
    return ExtendedClaim(ResourceClaim(metadata=metadata, spec=spec), tuple(mappings))


def _count(container: Container, resource: str) -> int:
    amount = requests_of(container).get(resource)
    return (amount.whole() or 0) if amount is not None else 0


def _request(container_index: int, container: Container, resource: str, device_class: str, count: int) -> DeviceRequest:
    """Make a request. Its name has the index of the container, and of the resource among the container's resources."""
    index = sorted(requests_of(container)).index(resource)
    exactly = ExactDeviceRequest(device_class_name=device_class, allocation_mode="ExactCount", count=count)
    return DeviceRequest(name=f"container-{container_index}-request-{index}", exactly=exactly)


def _mapping(container: Container, resource: str, request: str) -> ContainerExtendedResourceRequest:
    return ContainerExtendedResourceRequest(container_name=container.name, resource_name=resource, request_name=request)


def holding_pod(claim: ResourceClaim) -> str:
    """Return the name of the pod for which the scheduler created a claim for extended resources and reserved it; "" for other claims."""
    pods = claim.status.reserved_for
    return pods[0].name if pods and claim.metadata.annotations.get(EXTENDED_CLAIM) == "true" else ""


def holder_name(claim: ResourceClaim) -> str:
    """Name the holder of a claim's devices: the claim or, if the scheduler created the claim for extended resources, the pod."""
    pod = holding_pod(claim)
    return f"pod {claim.metadata.namespace}/{pod}" if pod else f"claim {claim.metadata.key}"
