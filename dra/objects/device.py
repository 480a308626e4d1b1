"""Devices and ResourceSlices (k8s.io/api/resource/v1).

The types hold data only. `dra.stock` and `dra.policy` decide which devices can be allocated, and `dra.validation`
decides what the API server accepts.
"""

from __future__ import annotations

from msgspec import field

from dra.objects.meta import ObjectMeta
from dra.objects.node import NodeSelector
from dra.objects.taint import DeviceTaint
from dra.quantity import Quantity
from dra.wire import Int64, Wire


class DeviceAttribute(Wire, frozen=True, kw_only=True):
    """A value of one of eight types; exactly one field is set in a valid object."""

    int_: Int64 | None = field(name="int", default=None)
    bool_: bool | None = field(name="bool", default=None)
    string: str | None = None
    version: str | None = None
    ints: tuple[Int64, ...] | None = None
    bools: tuple[bool, ...] | None = None
    strings: tuple[str, ...] | None = None
    versions: tuple[str, ...] | None = None


class CapacityRequestPolicyRange(Wire, frozen=True, kw_only=True):
    min: Quantity | None = None
    max: Quantity | None = None
    step: Quantity | None = None


class CapacityRequestPolicy(Wire, frozen=True, kw_only=True):
    default: Quantity | None = None
    valid_values: tuple[Quantity, ...] = ()
    valid_range: CapacityRequestPolicyRange | None = None


class DeviceCapacity(Wire, frozen=True, kw_only=True):
    value: Quantity
    request_policy: CapacityRequestPolicy | None = None


class Counter(Wire, frozen=True, kw_only=True):
    value: Quantity


class CounterSet(Wire, frozen=True, kw_only=True):
    name: str
    counters: dict[str, Counter] = {}


class DeviceCounterConsumption(Wire, frozen=True, kw_only=True):
    counter_set: str = ""
    counters: dict[str, Counter] = {}
    compatibility_groups: tuple[str, ...] = ()


class NodeAllocatableMapping(Wire, frozen=True, kw_only=True):
    capacity_key: str | None = None
    capacity_multiplier: Quantity | None = None
    device_multiplier: Quantity | None = None


class NodeAllocatableOverhead(Wire, frozen=True, kw_only=True):
    per_pod: Quantity | None = None
    per_container: Quantity | None = None


class NodeAllocatableResource(Wire, frozen=True, kw_only=True):
    mapping: NodeAllocatableMapping | None = None
    overhead: NodeAllocatableOverhead | None = None


class Device(Wire, frozen=True, kw_only=True):
    name: str
    attributes: dict[str, DeviceAttribute] = {}
    capacity: dict[str, DeviceCapacity] = {}
    consumes_counters: tuple[DeviceCounterConsumption, ...] = ()
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    taints: tuple[DeviceTaint, ...] = ()
    binds_to_node: bool | None = None
    # None and () differ: the allocator tries a pool that has a device with a list, even an empty list, after other
    # pools.
    binding_conditions: tuple[str, ...] | None = None
    binding_failure_conditions: tuple[str, ...] | None = None
    allow_multiple_allocations: bool | None = None
    node_allocatable_resources: dict[str, NodeAllocatableResource] = {}

    def own(self, driver: str, name: str) -> DeviceAttribute | None:
        """Return an attribute in the driver's domain, with or without the domain in its name."""
        return self.attributes.get(name) or self.attributes.get(f"{driver}/{name}")

    def own_text(self, driver: str, name: str) -> str:
        """Return a string attribute in the driver's domain, or ""."""
        attribute = self.own(driver, name)
        return (attribute.string or "") if attribute is not None else ""


class ResourcePool(Wire, frozen=True, kw_only=True):
    name: str = ""
    generation: int = 0
    resource_slice_count: int = 0


class ResourceSliceSpec(Wire, frozen=True, kw_only=True):
    driver: str = ""
    pool: ResourcePool = ResourcePool()
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    per_device_node_selection: bool | None = None
    devices: tuple[Device, ...] = ()
    shared_counters: tuple[CounterSet, ...] = ()
    partition_type_attribute: str | None = None
    skip_node_operations: tuple[str, ...] = ()

    def node_of(self, device: Device) -> str:
        """Return the single node that may use a device of the slice; "" if several nodes may use the device."""
        return (device.node_name if self.per_device_node_selection else self.node_name) or ""


class ResourceSlice(Wire, frozen=True, kw_only=True):
    api_version: str = "resource.k8s.io/v1"
    kind: str = "ResourceSlice"
    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceSliceSpec = ResourceSliceSpec()
