"""A ResourceSlice: one page of a pool that a driver publishes."""

from __future__ import annotations

from dra.objects.device import CounterSet, Device
from dra.objects.meta import ObjectMeta
from dra.objects.node import NodeSelector
from dra.wire import Wire


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
        """Name the one node that a device of the slice is on; "" if it is offered to several."""
        node = device.node_name if self.per_device_node_selection else self.node_name
        return node or ""


class ResourceSlice(Wire, frozen=True, kw_only=True):
    api_version: str = "resource.k8s.io/v1"
    kind: str = "ResourceSlice"
    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceSliceSpec = ResourceSliceSpec()
