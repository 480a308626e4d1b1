"""Which slices and fields the scheduler's allocator reads, by the version and the feature gates of Kubernetes.

Fields of a disabled gate may still be stored, from before the gate was disabled. This module mirrors `GatherPools` and
`isSelectable` in k8s.io/dynamic-resource-allocation/structured/internal of 0.34 to 0.38. That package has three
allocators; the scheduler uses the first of stable, incubating and experimental that supports all enabled features. In
0.38 all three have the same rules.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from dra import server as gates
from dra.errors import CapacityError
from dra.objects import selector_of
from dra.server import Server
from dra.stock.capacity import charges

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dra.objects import Device, DeviceTaintRule, ResourceSlice
    from dra.quantity import Quantity

_EXPERIMENTAL = (gates.LISTS, gates.OPTIONAL_OPERATIONS, gates.DERIVED, gates.GROUPS)
_BEYOND_STABLE = (gates.CAPACITY, gates.FRACTIONAL, *_EXPERIMENTAL)
# The stable allocator supports these gates since 1.36; before, it supported no gate.
_LATER_STABLE = (gates.ADMIN_ACCESS, gates.ALTERNATIVES, gates.COUNTERS, gates.TAINTS)


class SliceReading(msgspec.Struct, frozen=True):
    """How the allocator of one server reads slices."""

    server: Server
    # The server uses the stable allocator of 1.37 or older, which has no shares, distinctAttribute and bindsToNode.
    stable: bool
    binding: bool
    # A slice with counters counts on every node, even if it is for another node.
    counters_everywhere: bool
    rules: bool
    # The server is 1.34, which allocates devices of incomplete pools and does not look for newer slices of other nodes.
    oldest: bool
    # The server is 1.34, or 1.35 with all gates off. It reads slices with counters even if the gate is off, and does
    # not copy tolerations into results.
    early: bool
    # The server uses an allocator that reads skipNodeOperations: experimental or, since 1.38, incubating.
    operations: bool

    def since(self, minor: int) -> bool:
        """Whether the server has this minor version or a later one."""
        return self.server.minor >= minor

    def enabled(self, gate: str) -> bool:
        return gate in self.server.gates

    def sees(self, slice_: ResourceSlice) -> bool:
        """Whether this allocator can allocate devices of a slice."""
        spec = slice_.spec
        partitions = spec.per_device_node_selection is not None or bool(spec.shared_counters and not self.early)
        return self.enabled(gates.COUNTERS) or not partitions

    def counts(self, slice_: ResourceSlice) -> bool:
        """Whether a slice counts towards the completeness of its pool."""
        if self.enabled(gates.GROUPS) or not self.since(37):
            return True
        return not any(use.compatibility_groups for device in slice_.spec.devices for use in device.consumes_counters)

    def missing_gate(self, device: Device) -> str:
        """Return the disabled feature gate without which a device is never allocated, or ""."""
        if device.binding_conditions and not self.binding:
            return gates.BINDING
        if device.consumes_counters and not self.enabled(gates.COUNTERS):
            return gates.COUNTERS
        return ""

    def rule(self, rule: DeviceTaintRule) -> DeviceTaintRule:
        """Return a rule with the selector that this server reads."""
        selector = selector_of(rule, self.server.minor)
        if selector is rule.spec.device_selector:
            return rule
        return replace(rule, spec=replace(rule.spec, device_selector=selector))

    def charges(self, requested: Mapping[str, Quantity], device: Device, driver: str) -> dict[str, Quantity] | None:
        """Return what a request consumes of each capacity of a device; None if the device does not allow it."""
        if not self.enabled(gates.CAPACITY):
            return {}
        fractional = self.enabled(gates.FRACTIONAL)
        if not self.since(38):
            return charges(requested, device.capacity, fractional=fractional)
        published = _by_full_name(device.capacity, driver)
        if not {_full_name(name, driver) for name in requested} <= published.keys():
            return None
        amounts: dict[str, Quantity] = {}
        for name, amount in requested.items():
            published_name = published[_full_name(name, driver)]
            if published_name in amounts:
                raise CapacityError(f"capacity {published_name!r} is requested with and without the driver's domain")
            if amount.nano < 0:
                raise CapacityError(f"capacity {name!r}: {amount} is negative")
            amounts[published_name] = amount
        capacities = {name: device.capacity[name] for name in published.values()}
        return charges(amounts, capacities, fractional=fractional)

    def device(self, device: Device) -> Device:
        """Remove the fields of a device that this allocator ignores."""
        changes: dict[str, object] = {}
        if device.taints and not self.enabled(gates.TAINTS):
            changes["taints"] = ()
        if device.consumes_counters and not self.enabled(gates.COUNTERS):
            changes["consumes_counters"] = ()
        if self.stable and device.allow_multiple_allocations is not None:
            changes["allow_multiple_allocations"] = None
        if not self.since(37):  # an older server does not store the fields that are removed here
            if "consumes_counters" not in changes and any(use.compatibility_groups for use in device.consumes_counters):
                changes["consumes_counters"] = tuple(
                    [replace(use, compatibility_groups=()) for use in device.consumes_counters]
                )
            if not self.enabled(gates.LISTS):
                scalars = {
                    name: replace(value, ints=None, bools=None, strings=None, versions=None)
                    for name, value in device.attributes.items()
                }
                if scalars != device.attributes:
                    changes["attributes"] = scalars
        return replace(device, **changes) if changes else device


def _full_name(name: str, driver: str) -> str:
    return name if "/" in name else f"{driver}/{name}"


def _by_full_name(names: Iterable[str], driver: str) -> dict[str, str]:
    """Return the published names by their full names. If a name is published with and without the domain, the one with the domain counts."""
    return {_full_name(name, driver): name for name in sorted(names, key=lambda name: "/" in name)}


@lru_cache(maxsize=64)
def reading_of(server: Server) -> SliceReading:
    """Return how the allocator of a server reads slices."""
    binding = server.enabled(gates.BINDING) and server.enabled(gates.DEVICE_STATUS)
    # Until taint rules got a feature gate of their own, the gate of taints also enabled them.
    own_gate = gates.TAINT_RULES if gates.TAINT_RULES in gates.known_gates(server.minor) else gates.TAINTS
    rules = server.enabled(gates.TAINTS) and server.enabled(own_gate)
    oldest = server.minor == gates.OLDEST
    # In 1.34 the stable allocator does not support the status of devices either.
    beyond = (*_BEYOND_STABLE, gates.DEVICE_STATUS) if oldest else _BEYOND_STABLE
    stable = server.minor < 38 and not binding and not any(server.enabled(gate) for gate in beyond)
    plain = stable and not any(server.enabled(gate) for gate in _LATER_STABLE)
    early = oldest or (server.minor == 35 and plain)
    return SliceReading(
        server,
        stable,
        binding,
        counters_everywhere=(stable or server.minor < 37) and not early,
        rules=rules,
        oldest=oldest,
        early=early,
        operations=server.minor >= 37 and any(server.enabled(gate) for gate in _EXPERIMENTAL),
    )


ALL = reading_of(gates.EVERYTHING)
