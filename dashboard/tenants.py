"""What a tenant may see: all devices and nodes, and the objects of the tenant's namespaces. Of other namespaces the tenant sees only which
devices they hold.

Names are removed from the reading before a page is made from it, so that no page can show a name that the tenant may not see.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from allocator.pods import requested_devices, requests
from analysis.loading import Unread, reading_of
from dra.objects import (
    AllocationResult,
    Container,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ObjectMeta,
    Pod,
    PodExtendedResourceClaimStatus,
    PodSpec,
    PodStatus,
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceClaimStatus,
    ResourceRequirements,
)
from dra.quantity import Quantity
from dra.wire import builtins

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from analysis.loading import Object, Reading

# The namespace of hidden objects. No namespace of a cluster can have this name.
OTHERS: Final = "(others)"
_UNREAD: Final = Unread("an object of another namespace", "the object does not have the form of its kind")


def namespaces_of(reading: Reading) -> frozenset[str]:
    """Return the namespaces of which the pages show an object: those with claims, quotas, or pods that request devices."""
    pods = [key for key, pod in reading.pods.items() if pod.spec.resource_claims or requested_devices(pod)]
    keys = (*pods, *reading.stock.claims, *(quota.metadata.key for quota in reading.quotas))
    return frozenset(key.partition("/")[0] for key in keys)


def for_tenant(reading: Reading, namespaces: Collection[str]) -> Reading:
    """Keep the objects of these namespaces and those without a namespace.

    Of other pods and claims keep only which devices of which nodes they hold.
    """
    pods: dict[str, Pod] = {}
    hidden_names: dict[str, str] = {}
    for key, pod in reading.pods.items():
        if key.partition("/")[0] in namespaces:
            pods[key] = pod
        elif pod.spec.node_name:  # waiting pods of other namespaces are not shown
            hidden_names[pod.metadata.uid] = name = f"pod-{len(hidden_names) + 1}"
            amounts = {key: Quantity.from_nano(amount) for key, amount in requests(pod).items() if key != "pods"}
            containers = (Container(name="all", resources=ResourceRequirements(requests=amounts)),)
            spec = PodSpec(node_name=pod.spec.node_name, containers=containers)
            claim_status = pod.status.extended_resource_claim_status
            claim_status = (
                claim_status and PodExtendedResourceClaimStatus()
            )  # without names; it shows that the pod has its devices by a claim
            status = PodStatus(phase=pod.status.phase, extended_resource_claim_status=claim_status)
            pods[f"{OTHERS}/{name}"] = Pod(metadata=_metadata(pod.metadata, name), spec=spec, status=status)
    unread: list[Unread] = []
    for missed in reading.unread:  # a whole kind, or an object
        _, object_, key = missed.kind.partition(" ")
        is_shown = not object_ or key.partition("/")[0] in namespaces
        unread.append(missed if is_shown else _UNREAD)
    objects = _objects(reading, namespaces, hidden_names)
    visible = reading_of(
        objects,
        reading.features,
        unread=unread,
        server=reading.server,
        in_force=reading.in_force,
    )
    raw = [obj for key, obj in reading.raw.items() if key in pods]
    return msgspec.structs.replace(
        visible,
        objects=(*visible.objects, *raw),
        typed=visible.typed.with_types({Pod: pods}),
        unread=tuple(unread),
        server_source=reading.server_source,
    )


def _objects(reading: Reading, namespaces: Collection[str], pods: Mapping[str, str]) -> Iterator[Object]:
    for number, (key, claim) in enumerate(reading.stock.claims.items(), 1):
        if key.partition("/")[0] not in namespaces and claim.status.allocation is not None:
            hidden = builtins(_hidden_claim(claim, claim.status.allocation, f"claim-{number}", pods))
            yield {"apiVersion": claim.api_version, "kind": claim.kind, **hidden}
    for obj in reading.non_pods:
        meta = obj.get("metadata")
        if not isinstance(meta, dict):
            continue  # its namespace is not known
        where = meta.get("name") if obj.get("kind") == "Namespace" else meta.get("namespace")
        if not where or where in namespaces:
            yield obj


def _hidden_claim(
    claim: ResourceClaim, allocation: AllocationResult, name: str, pods: Mapping[str, str]
) -> ResourceClaim:
    results = tuple(
        DeviceRequestAllocationResult(
            request="request",
            driver=result.driver,
            pool=result.pool,
            device=result.device,
            admin_access=result.admin_access,
            share_id=result.share_id,
            consumed_capacity=result.consumed_capacity,
        )
        for result in allocation.devices.results
    )
    consumers = tuple(
        ResourceClaimConsumerReference(resource="pods", name=pods.get(consumer.uid, "pod"), uid=consumer.uid)
        for consumer in claim.status.reserved_for
    )
    hidden = AllocationResult(
        devices=DeviceAllocationResult(results=results), allocation_timestamp=allocation.allocation_timestamp
    )
    status = ResourceClaimStatus(allocation=hidden, reserved_for=consumers)
    return ResourceClaim(metadata=_metadata(claim.metadata, name), status=status)


def _metadata(meta: ObjectMeta, name: str) -> ObjectMeta:
    return ObjectMeta(name=name, namespace=OTHERS, uid=meta.uid, creation_timestamp=meta.creation_timestamp)
