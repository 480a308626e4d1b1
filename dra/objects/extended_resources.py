"""Extended resources that DeviceClasses serve by name (KEP-5004): the claim that kube-scheduler makes for a pod of them.

    serving = serve_resources(classes)                  # resource → class; once for each set of classes
    claim = extended_claim(pod, serving, allocatable)   # for one node; None: the scheduler makes none there

Mirrors extendeddynamicresources.go of the plugin DynamicResources, whose requests and mappings are the same in 1.35, 1.36 and 1.37,
and the cache of classes it asks (dynamic-resource-allocation, extendedresourcecache). On a node that has some of a resource in
`status.allocatable`, a device plugin serves it, and all of it: the claim is another one on each kind of node. Such a node has to
have enough of it (NodeResourcesFit); what no class serves has to be there as well. Neither is decided here.

Where core differs from itself: a class that comes to the cache of a running scheduler when a newer one serves its name is not found
by its implicit name either. 1.34, where the feature is off by default, repeats what init containers ask for, knows no implicit names
in `kubernetes.io`, and asks for what a device plugin serves beside what devices serve.
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

IMPLICIT = "deviceclass.resource.kubernetes.io/"  # with the name of a class behind it
EXTENDED_CLAIM = "resource.kubernetes.io/extended-resource-claim"  # annotation of such a claim: "true"


class ExtendedClaim(NamedTuple):
    """What the scheduler writes: the claim, and which container sees which of its requests."""

    claim: ResourceClaim
    mappings: tuple[ContainerExtendedResourceRequest, ...]


def serve_resources(classes: Iterable[DeviceClass]) -> dict[str, str]:
    """Say which class serves each resource name: of several the newest, of equal age the lexically first."""
    ordered = sorted(classes, key=lambda one: one.metadata.name, reverse=True)
    ordered.sort(key=lambda one: one.metadata.creation_timestamp)
    served = {IMPLICIT + one.metadata.name: one.metadata.name for one in ordered}
    for one in ordered:
        resource = one.spec.extended_resource_name or ""
        if is_extended(resource):
            served[resource] = one.metadata.name
    return served


def is_extended(resource: str) -> bool:
    """Say whether a resource is not one of Kubernetes' own (IsExtendedResourceName)."""
    return "/" in resource and "kubernetes.io/" not in resource and not resource.startswith("requests.")


def requests_of(container: Container) -> dict[str, Quantity]:
    """Say what a container asks for: its requests, and where it has none, its limits."""
    return {**container.resources.limits, **container.resources.requests}


def asks_by_name(pod: Pod) -> bool:
    """Say whether a pod asks for anything that a class could serve."""
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    return any(is_extended(name) or name.startswith(IMPLICIT) for one in containers for name in requests_of(one))


def asks_for_devices(pod: Pod) -> bool:
    """Say whether a pod names claims, or asks for anything that a class could serve."""
    return bool(pod.spec.resource_claims) or asks_by_name(pod)


def served_resources(pod: Pod, serving: Mapping[str, str]) -> list[str]:
    """Name the resources that a pod asks for and a class serves, sorted."""
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    asked = {name for one in containers for name, amount in requests_of(one).items() if amount.nano}
    return sorted(asked & serving.keys())


def extended_claim(
    pod: Pod, serving: Mapping[str, str], allocatable: Mapping[str, Quantity] | None = None
) -> ExtendedClaim | None:
    """Make the claim that kube-scheduler would make of a pod for a node with these allocatable resources; None if none.

    Its name stands in for the one that the API server makes of its `generateName`.
    """
    plugins = {name for name, amount in (allocatable or {}).items() if amount.value()}
    wanted = [name for name in served_resources(pod, serving) if name not in plugins]
    if not wanted:
        return None
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    starting = [
        at for at, one in enumerate(containers) if at < len(pod.spec.init_containers) and one.restart_policy != "Always"
    ]
    requests: list[DeviceRequest] = []
    mappings: list[ContainerExtendedResourceRequest] = []
    for resource in wanted:
        device_class = serving[resource]
        # Containers and sidecars have a request each.
        own: dict[int, DeviceRequest] = {}
        for at, container in enumerate(containers):
            if at not in starting and (count := _count(container, resource)):
                own[at] = _request(at, container, resource, device_class, count)
                mappings.append(_mapping(container, resource, own[at].name))
        # An init container uses those of the containers that start after it, each as a whole, and asks only for what is
        # then missing; of all init containers one request is left, the largest.
        largest: DeviceRequest | None = None
        most = 0
        shared: list[tuple[Container, str]] = []  # "" stands for the one request of init containers
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
    """Name a request by its container and by the resource's place among all that the container asks for."""
    place = sorted(requests_of(container)).index(resource)
    exactly = ExactDeviceRequest(device_class_name=device_class, allocation_mode="ExactCount", count=count)
    return DeviceRequest(name=f"container-{at}-request-{place}", exactly=exactly)


def _mapping(container: Container, resource: str, request: str) -> ContainerExtendedResourceRequest:
    return ContainerExtendedResourceRequest(container_name=container.name, resource_name=resource, request_name=request)


def holder_name(claim: ResourceClaim) -> str:
    """Name who holds what a claim was given: the claim, or the pod if the claim stands for its resources and has a made-up name."""
    pods = claim.status.reserved_for
    if claim.metadata.annotations.get(EXTENDED_CLAIM) != "true" or not pods:
        return claim.metadata.key
    return f"pod {claim.metadata.namespace}/{pods[0].name}"
