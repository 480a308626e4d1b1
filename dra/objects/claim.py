"""ResourceClaims, their templates, and DeviceClasses (k8s.io/api/resource/v1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import field

from dra.objects.meta import Condition, ObjectMeta
from dra.objects.node import NodeSelector
from dra.objects.taint import DeviceToleration
from dra.quantity import Quantity
from dra.wire import Int64, Opaque, Wire

if TYPE_CHECKING:
    from collections.abc import Collection

    from dra.objects.meta import OwnerReference


class CELDeviceSelector(Wire, frozen=True, kw_only=True):
    expression: str = ""


class DeviceSelector(Wire, frozen=True, kw_only=True):
    cel: CELDeviceSelector | None = None


class CapacityRequirements(Wire, frozen=True, kw_only=True):
    requests: dict[str, Quantity] = {}


class DeviceDerivedAttribute(Wire, frozen=True, kw_only=True):
    name: str = ""
    expression: str = ""


class _RequestFields(Wire, frozen=True, kw_only=True):
    """The fields that a request and an alternative have in common."""

    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: str = ""
    count: Int64 = 0
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: CapacityRequirements | None = None
    derived_attributes: tuple[DeviceDerivedAttribute, ...] = ()


class ExactDeviceRequest(_RequestFields, frozen=True, kw_only=True):
    admin_access: bool | None = None


class DeviceSubRequest(_RequestFields, frozen=True, kw_only=True):
    name: str = ""


class DeviceRequest(Wire, frozen=True, kw_only=True):
    name: str = ""
    exactly: ExactDeviceRequest | None = None
    first_available: tuple[DeviceSubRequest, ...] = ()

    @property
    def alternatives(self) -> dict[str, ExactDeviceRequest | DeviceSubRequest]:
        """The alternatives by their name in results (request or request/subrequest), with the preferred one first."""
        if self.exactly is not None:
            return {self.name: self.exactly}
        return {f"{self.name}/{sub.name}": sub for sub in self.first_available}


class DeviceConstraint(Wire, frozen=True, kw_only=True):
    requests: tuple[str, ...] = ()
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class OpaqueDeviceConfiguration(Wire, frozen=True, kw_only=True):
    driver: str = ""
    parameters: Opaque | None = None


class DeviceClaimConfiguration(Wire, frozen=True, kw_only=True):
    requests: tuple[str, ...] = ()
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceClaim(Wire, frozen=True, kw_only=True):
    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    config: tuple[DeviceClaimConfiguration, ...] = ()


class ResourceClaimSpec(Wire, frozen=True, kw_only=True):
    devices: DeviceClaim = DeviceClaim()


class DeviceRequestAllocationResult(Wire, frozen=True, kw_only=True):
    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] = ()
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    share_id: str | None = field(name="shareID", default=None)
    consumed_capacity: dict[str, Quantity] = {}
    skip_node_operations: tuple[str, ...] = ()


class DeviceAllocationConfiguration(Wire, frozen=True, kw_only=True):
    source: str = ""
    requests: tuple[str, ...] = ()
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceAllocationResult(Wire, frozen=True, kw_only=True):
    results: tuple[DeviceRequestAllocationResult, ...] = ()
    config: tuple[DeviceAllocationConfiguration, ...] = ()


class AllocationResult(Wire, frozen=True, kw_only=True):
    devices: DeviceAllocationResult = DeviceAllocationResult()
    node_selector: NodeSelector | None = None
    allocation_timestamp: str = ""


class ResourceClaimConsumerReference(Wire, frozen=True, kw_only=True):
    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""

    @property
    def is_pod(self) -> bool:
        return self.resource == "pods" and not self.api_group


class NetworkDeviceData(Wire, frozen=True, kw_only=True):
    interface_name: str = ""
    ips: tuple[str, ...] = ()
    hardware_address: str = ""


class AllocatedDeviceStatus(Wire, frozen=True, kw_only=True):
    driver: str = ""
    pool: str = ""
    device: str = ""
    share_id: str | None = field(name="shareID", default=None)
    conditions: tuple[Condition, ...] = ()
    data: Opaque | None = None
    network_data: NetworkDeviceData | None = None


class ResourceClaimStatus(Wire, frozen=True, kw_only=True):
    allocation: AllocationResult | None = None
    reserved_for: tuple[ResourceClaimConsumerReference, ...] = ()
    devices: tuple[AllocatedDeviceStatus, ...] = ()


class ResourceClaim(Wire, frozen=True, kw_only=True):
    api_version: str = "resource.k8s.io/v1"
    kind: str = "ResourceClaim"
    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()


# The annotation that names the entry of spec.resourceClaims for which a claim was created.
POD_CLAIM_NAME = "resource.kubernetes.io/pod-claim-name"


def owning_pods(claim: ResourceClaim) -> list[OwnerReference]:
    """Return the owner references to the pod for which a claim was created; none if no pod controls the claim."""
    return [owner for owner in claim.metadata.owner_references if owner.controller and owner.kind == "Pod"]


def why_orphaned(claim: ResourceClaim, pod_uids: Collection[str]) -> str:
    """Return a message if the pod for which a claim was created no longer exists and the claim is not being deleted, else ""."""
    owners = owning_pods(claim)
    if not owners or claim.metadata.deletion_timestamp or any(owner.uid in pod_uids for owner in owners):
        return ""
    return f"it was created for pod {owners[0].name}, which no longer exists"


class ResourceClaimTemplateSpec(Wire, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimSpec = ResourceClaimSpec()


class ResourceClaimTemplate(Wire, frozen=True, kw_only=True):
    api_version: str = "resource.k8s.io/v1"
    kind: str = "ResourceClaimTemplate"
    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimTemplateSpec = ResourceClaimTemplateSpec()


class DeviceClassConfiguration(Wire, frozen=True, kw_only=True):
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceClassSpec(Wire, frozen=True, kw_only=True):
    selectors: tuple[DeviceSelector, ...] = ()
    config: tuple[DeviceClassConfiguration, ...] = ()
    extended_resource_name: str | None = None


class DeviceClass(Wire, frozen=True, kw_only=True):
    api_version: str = "resource.k8s.io/v1"
    kind: str = "DeviceClass"
    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceClassSpec = DeviceClassSpec()


def results_of(claim: ResourceClaim | None) -> tuple[DeviceRequestAllocationResult, ...]:
    """Return the allocated devices of a claim."""
    allocation = claim.status.allocation if claim is not None else None
    return allocation.devices.results if allocation is not None else ()


def node_of(allocation: AllocationResult | None) -> str:
    """Return the node that an allocation's node selector names; "" if the selector does not name a single node."""
    if allocation is None or allocation.node_selector is None:
        return ""
    for term in allocation.node_selector.node_selector_terms:
        for requirement in term.match_fields:
            if requirement.key == "metadata.name" and len(requirement.values) == 1:
                return requirement.values[0]
    return ""


def is_reserved_for(claim: ResourceClaim, uid: str) -> bool:
    """Whether a claim is reserved for the pod with this UID."""
    return any(consumer.uid == uid for consumer in claim.status.reserved_for)
