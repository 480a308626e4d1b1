"""Extended resources that DeviceClasses serve by name (KEP-5004), and the claim that kube-scheduler makes for such a pod.

    serving = serve_resources(classes)                  # resource → class; once for each set of classes
    claim = extended_claim(pod, serving, allocatable)   # for one node; None: the scheduler makes none there

Mirrors extendeddynamicresources.go of the plugin DynamicResources, whose requests and mappings are the same from 1.35 on,
and its cache of classes (dynamic-resource-allocation, extendedresourcecache). A resource in a node's `status.allocatable` is
served by a device plugin there, and the claim for that node leaves it out; so the claim depends on the node. The plugin
NodeResourcesFit, not this module, decides whether the node has enough of these resources.

Two known differences to Kubernetes. In a running scheduler, a class added while a newer class serves its resource name is
not found by its implicit name either. 1.34, where the feature is off by default, repeats the requests of init containers,
has no implicit names in `kubernetes.io`, and also asks for resources that a device plugin serves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dra.objects.claim import DeviceClaim, DeviceRequest, ExactDeviceRequest, ResourceClaim, ResourceClaimSpec
from dra.objects.meta import ObjectMeta, OwnerReference
from dra.objects.pod import ContainerExtendedResourceRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dra.objects.claim import DeviceClass
    from dra.objects.pod import Container, Pod
    from dra.quantity import Quantity

IMPLICIT = "deviceclass.resource.kubernetes.io/"  # prefix of the implicit resource name of a class
EXTENDED_CLAIM = "resource.kubernetes.io/extended-resource-claim"  # annotation of the scheduler's claim: "true"


class ExtendedClaim(NamedTuple):
    """The claim that the scheduler writes, and the mapping of containers to its requests."""

    claim: ResourceClaim
    mappings: tuple[ContainerExtendedResourceRequest, ...]


def serve_resources(classes: Iterable[DeviceClass]) -> dict[str, str]:
    """Map each resource name to the class that serves it: the newest, or of equal age the lexically first."""
    ordered = sorted(classes, key=lambda class_: class_.metadata.name, reverse=True)
    ordered.sort(key=lambda class_: class_.metadata.creation_timestamp)
    served = {IMPLICIT + class_.metadata.name: class_.metadata.name for class_ in ordered}
    for class_ in ordered:
        resource = class_.spec.extended_resource_name or ""
        if is_extended(resource):
            served[resource] = class_.metadata.name
    return served


def is_extended(resource: str) -> bool:
    """Whether a resource name is an extended resource's (IsExtendedResourceName)."""
    return "/" in resource and "kubernetes.io/" not in resource and not resource.startswith("requests.")


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
    """Return the resources that a pod requests and a class serves, sorted."""
    requests = map(requests_of, pod.spec.all_containers)
    requested = {name for amounts in requests for name, amount in amounts.items() if amount.nano}
    return sorted(requested & serving.keys())


def extended_claim(
    pod: Pod, serving: Mapping[str, str], allocatable: Mapping[str, Quantity] | None = None
) -> ExtendedClaim | None:
    """Return the claim that kube-scheduler would create for a pod on a node with these allocatable resources, or None.

    Its name is a placeholder for the one that the API server generates.
    """
    plugins = {name for name, amount in (allocatable or {}).items() if amount.value()}
    wanted = [name for name in served_resources(pod, serving) if name not in plugins]
    if not wanted:
        return None
    containers = pod.spec.all_containers
    init_count = len(pod.spec.init_containers)
    starting = [at for at in range(init_count) if containers[at].restart_policy != "Always"]
    requests: list[DeviceRequest] = []
    mappings: list[ContainerExtendedResourceRequest] = []
    for resource in wanted:
        device_class = serving[resource]
        # Each container and each sidecar has its own request.
        own: dict[int, DeviceRequest] = {}
        for at, container in enumerate(containers):
            if at not in starting and (count := _count(container, resource)):
                own[at] = _request(at, container, resource, device_class, count)
                mappings.append(_mapping(container, resource, own[at].name))
        # An init container reuses whole requests of the containers that start after it, and requests only what is then
        # missing. The init containers share one request, the largest of theirs.
        largest: DeviceRequest | None = None
        most = 0
        shared: list[tuple[Container, str]] = []  # "" for the shared request of init containers
        for at in starting:
            container = containers[at]
            missing = _count(container, resource)
            for later, request in own.items():
                if later > at and missing > 0 and request.exactly is not None:
                    shared.append((container, request.name))
                    missing -= request.exactly.count or 0
            if missing > 0:
                shared.append((container, ""))
            if missing > most:
                largest, most = _request(at, container, resource, device_class, missing), missing
        if largest is not None:
            requests.append(largest)
        requests += own.values()
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
    return (amount.as_int() or 0) if amount is not None else 0


def _request(at: int, container: Container, resource: str, device_class: str, count: int) -> DeviceRequest:
    """Make a request, named by the index of the container and of the resource among the container's resources."""
    index = sorted(requests_of(container)).index(resource)
    exactly = ExactDeviceRequest(device_class_name=device_class, allocation_mode="ExactCount", count=count)
    return DeviceRequest(name=f"container-{at}-request-{index}", exactly=exactly)


def _mapping(container: Container, resource: str, request: str) -> ContainerExtendedResourceRequest:
    return ContainerExtendedResourceRequest(container_name=container.name, resource_name=resource, request_name=request)


def holder_name(claim: ResourceClaim) -> str:
    """Name the holder of a claim's devices: the claim, or the pod if the claim was generated for extended resources."""
    pods = claim.status.reserved_for
    if claim.metadata.annotations.get(EXTENDED_CLAIM) != "true" or not pods:
        return claim.metadata.key
    return f"pod {claim.metadata.namespace}/{pods[0].name}"
