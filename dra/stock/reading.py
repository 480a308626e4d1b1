"""How the scheduler's allocator of a server reads what is stored: which slices and fields are there for it, and which are not.

What a server with a feature gate off would not have stored may be there all the same, from before the gate was closed. Mirrors
`GatherPools` and `isSelectable` in k8s.io/dynamic-resource-allocation/structured/internal of 0.34 to 0.37, and its choice of one of three
allocators: the first of stable, incubating and experimental that supports all features that are on.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from dra import server as gates
from dra.server import Server
from dra.stock.capacity import charges

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dra.objects import Device, ResourceSlice
    from dra.quantity import Quantity

_NEWEST_SINCE = 37
_EXPERIMENTAL = (gates.LISTS, gates.OPTIONAL_OPERATIONS, gates.DERIVED, gates.GROUPS)
_BEYOND_STABLE = (gates.CAPACITY, gates.FRACTIONAL, *_EXPERIMENTAL)


class Reading(msgspec.Struct, frozen=True):
    """What the allocator of one server makes of slices; equal for all slices, so it is worked out once."""

    server: Server
    # The oldest of the three allocators, which knows no shares, no distinctAttribute and no bindsToNode.
    stable: bool
    binding: bool
    # Slices with counters count on every node, whichever they are for.
    counters_everywhere: bool
    rules: bool
    # It takes devices of incomplete pools too, does not look for newer slices elsewhere, and copies no tolerations.
    oldest: bool
    # Of the newest minor. An older server does not store derivedAttributes and skipNodeOperations.
    newest: bool
    # It looks at skipNodeOperations. Only the experimental one does: the other two give such devices to any node.
    operations: bool

    def on(self, gate: str) -> bool:
        """Say whether a feature gate is on."""
        return gate in self.server.gates

    def sees(self, slice_: ResourceSlice) -> bool:
        """Say whether devices of a slice may be had at all."""
        spec = slice_.spec
        partitions = spec.per_device_node_selection is not None or bool(spec.shared_counters and not self.oldest)
        return self.on(gates.COUNTERS) or not partitions

    def counts(self, slice_: ResourceSlice) -> bool:
        """Say whether a slice counts when its pool is looked at for being complete."""
        if self.on(gates.GROUPS) or self.server.minor < _NEWEST_SINCE:
            return True
        return not any(one.compatibility_groups for device in slice_.spec.devices for one in device.consumes_counters)

    def closed(self, device: Device) -> str:
        """Name the feature gate without which a device is never taken; "" if there is none that is off."""
        if device.binding_conditions and not self.binding:
            return gates.BINDING
        if device.consumes_counters and not self.on(gates.COUNTERS):
            return gates.COUNTERS
        return ""

    def charges(self, asked: Mapping[str, Quantity], device: Device) -> dict[str, Quantity] | None:
        """Resolve what a request takes of each capacity of a device; None if the device does not offer that."""
        if not self.on(gates.CAPACITY):
            return {}
        return charges(asked, device.capacity, fractional=self.on(gates.FRACTIONAL))

    def device(self, device: Device) -> Device:
        """Leave out of a device what this allocator does not see."""
        changes: dict[str, object] = {}
        if device.taints and not self.on(gates.TAINTS):
            changes["taints"] = ()
        if device.consumes_counters and not self.on(gates.COUNTERS):
            changes["consumes_counters"] = ()
        if self.stable and device.allow_multiple_allocations is not None:
            changes["allow_multiple_allocations"] = None
        if not self.newest:
            # An older server does not store these.
            if "consumes_counters" not in changes and any(one.compatibility_groups for one in device.consumes_counters):
                changes["consumes_counters"] = tuple(
                    [replace(one, compatibility_groups=()) for one in device.consumes_counters]
                )
            if not self.on(gates.LISTS):
                scalars = {
                    name: replace(value, ints=None, bools=None, strings=None, versions=None)
                    for name, value in device.attributes.items()
                }
                if scalars != device.attributes:
                    changes["attributes"] = scalars
        return replace(device, **changes) if changes else device


@lru_cache(maxsize=64)
def reading_of(server: Server) -> Reading:
    """Work out how the allocator of a server reads slices."""
    binding = server.on(gates.BINDING) and server.on(gates.DEVICE_STATUS)
    # Until rules had a feature gate of their own, that of the taints was theirs.
    own_gate = gates.TAINT_RULES if gates.TAINT_RULES in gates.known_gates(server.minor) else gates.TAINTS
    rules = server.on(gates.TAINTS) and server.on(own_gate)
    newest = server.minor >= _NEWEST_SINCE
    oldest = server.minor == gates.OLDEST
    # It counts the status of devices among what its older allocators do not support.
    beyond = (*_BEYOND_STABLE, gates.DEVICE_STATUS) if oldest else _BEYOND_STABLE
    stable = not binding and not any(server.on(gate) for gate in beyond)
    return Reading(
        server,
        stable,
        binding,
        counters_everywhere=(stable or not newest) and not oldest,
        rules=rules,
        oldest=oldest,
        newest=newest,
        operations=newest and any(server.on(gate) for gate in _EXPERIMENTAL),
    )


ALL = reading_of(gates.EVERYTHING)
