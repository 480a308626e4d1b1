"""Rules about ResourceSlices and their devices (ValidateResourceSlice)."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Final

from dra import names
from dra.finding import Findings, finding_at
from dra.pointer import member
from dra.server import FRACTIONAL, LISTS
from dra.validation.fields.limits import duplicates, entries, required, too_many, wrong_format
from dra.validation.fields.metadata import node_selector
from dra.validation.fields.request_policy import request_policy
from dra.validation.objects.taints import taint

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dra.objects import (
        CounterSet,
        Device,
        DeviceAttribute,
        DeviceCapacity,
        DeviceCounterConsumption,
        NodeAllocatableResource,
        NodeSelector,
        ResourceSlice,
    )
    from dra.validation.fields.gates import Gates

MAX_DEVICES: Final = 128
MAX_DEVICES_ADVANCED: Final = 64
MAX_COUNTER_SETS: Final = 8
MAX_COUNTERS: Final = 32
MAX_CONSUMPTIONS: Final = 2
MAX_GROUPS: Final = 2
MAX_ENTRIES: Final = 32
MAX_VALUES: Final = 48
MAX_TAINTS: Final = 16
MAX_BINDING_CONDITIONS: Final = 4
_OPERATIONS: Final = ("NodePrepareResources", "NodeUnprepareResources", "*")


def resource_slice(value: ResourceSlice, gates: Gates, *, both_lists: bool) -> Findings:
    """Judge the spec of a slice. `both_lists` says that the JSON has both devices and sharedCounters, which may be empty."""
    spec = value.spec

    def judge_counter_set(counter_set: CounterSet, pointer: str) -> Findings:
        yield from required(counter_set.name, f"{pointer}/name", names.dns_label, names.suggestion)
        yield from _counters(counter_set.counters, f"{pointer}/counters")

    yield from required(spec.driver, "/spec/driver", names.driver_name)
    pool = spec.pool
    yield from required(pool.name, "/spec/pool/name", names.pool_name)
    if pool.resource_slice_count <= 0:
        yield finding_at(
            "D108", "/spec/pool/resourceSliceCount", f"{pool.resource_slice_count} must be greater than zero"
        )
    if pool.generation < 0:
        yield finding_at("D108", "/spec/pool/generation", f"{pool.generation} must be zero or more")
    count = len(spec.node_selector.node_selector_terms) if spec.node_selector is not None else 1
    if count != 1:
        message = f"exactly one node selector term is needed, not {count}"
        yield finding_at("D117", "/spec/nodeSelector/nodeSelectorTerms", message)
    flags = {"allNodes": spec.all_nodes, "perDeviceNodeSelection": spec.per_device_node_selection}
    yield from _nodes(spec.node_name, spec.node_selector, flags, "/spec")
    if both_lists:
        hint = "publish the counter sets in a slice of their own, in the same pool and generation"
        yield finding_at("D107", "/spec", "only one of sharedCounters and devices is allowed", hint)
    devices, limit, why = spec.devices, MAX_DEVICES, ""
    if any(
        device.taints or device.consumes_counters or any(map(_lists, device.attributes.values())) for device in devices
    ):
        limit, why = MAX_DEVICES_ADVANCED, " with taints, counters or lists"
    if len(devices) > limit:
        message = f"the slice has {len(devices)} devices, and a slice{why} has at most {limit}"
        yield finding_at("D104", "/spec/devices", message, "publish several slices in the pool")
    else:
        yield from duplicates([device.name for device in devices], "/spec/devices", "device", field="/name")
        per_device_nodes = bool(spec.per_device_node_selection)
        for index, device in enumerate(devices):
            yield from _device(device, f"/spec/devices/{index}", gates, per_device_nodes=per_device_nodes)
    sets, pointer = spec.shared_counters, "/spec/sharedCounters"
    yield from entries(sets, MAX_COUNTER_SETS, pointer, judge_counter_set, noun="counter set", field="/name")
    name = spec.partition_type_attribute
    if name is not None:
        pointer = "/spec/partitionTypeAttribute"
        name_problems = list(wrong_format(name, names.fully_qualified_name, pointer))
        yield from name_problems
        consumers = [(index, device) for index, device in enumerate(spec.devices) if device.consumes_counters]
        if not consumers:
            yield finding_at("D107", pointer, "may only be set on a slice with devices that consume counters")
        for index, device in consumers if not name_problems else ():
            attribute = device.attributes.get(name) or device.attributes.get(name.removeprefix(f"{spec.driver}/"))
            pointer = member(f"/spec/devices/{index}/attributes", name)
            if attribute is None:
                message = "a device that consumes counters must have the attribute of partitionTypeAttribute"
                yield finding_at("D101", pointer, message)
            elif attribute.string is None:
                yield finding_at("D107", pointer, "the attribute of partitionTypeAttribute must be a string")
    yield from skipped_operations(spec.skip_node_operations, "/spec/skipNodeOperations")


def _nodes(
    node_name: str | None, selector: NodeSelector | None, flags: Mapping[str, bool | None], path: str
) -> Findings:
    """Report an object that selects its nodes by no field, or by several fields."""
    set_fields = []
    if node_name is not None:
        if node_name:
            set_fields.append("nodeName")
            yield from wrong_format(node_name, names.dns_subdomain, f"{path}/nodeName")
        else:
            yield finding_at("D117", f"{path}/nodeName", "must be left out or set to a name")
    if selector is not None:
        set_fields.append("nodeSelector")
        yield from node_selector(selector, f"{path}/nodeSelector")
    for name, flag in flags.items():
        if flag:
            set_fields.append(name)
        elif flag is False:
            yield finding_at("D117", f"{path}/{name}", "must be left out or set to true")
    if len(set_fields) != 1:
        ways = ", ".join(("nodeName", "nodeSelector", *flags))
        instead = f", not {len(set_fields)} ({', '.join(set_fields)})" if set_fields else ""
        yield finding_at("D117", path, f"exactly one of {ways} is required{instead}")


def _lists(attribute: DeviceAttribute) -> list[Sequence[object]]:
    lists = (attribute.ints, attribute.bools, attribute.strings, attribute.versions)
    return [values for values in lists if values is not None]


def _device(device: Device, path: str, gates: Gates, *, per_device_nodes: bool) -> Findings:
    def judge_group(group: str, pointer: str) -> Findings:
        return wrong_format(group, names.dns_label, pointer, names.suggestion)

    def judge_consumption(consumption: DeviceCounterConsumption, pointer: str) -> Findings:
        yield from required(consumption.counter_set, f"{pointer}/counterSet", names.dns_label, names.suggestion)
        yield from _counters(consumption.counters, f"{pointer}/counters")
        groups = f"{pointer}/compatibilityGroups"
        yield from entries(consumption.compatibility_groups, MAX_GROUPS, groups, judge_group, noun="group")

    yield from required(device.name, f"{path}/name", names.dns_label, names.suggestion)
    entry_count = len(device.attributes) + len(device.capacity)
    if entry_count > MAX_ENTRIES:
        yield finding_at(
            "D104", path, f"{entry_count} attributes and capacities together, at most {MAX_ENTRIES} are allowed"
        )
    values = sum(max(1, sum(map(len, _lists(attribute)))) for attribute in device.attributes.values())
    if values > MAX_VALUES:
        yield finding_at("D104", path, f"{values} attribute values, at most {MAX_VALUES} are allowed")
    lists = LISTS in gates
    for name, attribute in device.attributes.items():
        pointer = member(f"{path}/attributes", name)
        yield from wrong_format(name, names.qualified_name, pointer)
        yield from _attribute(attribute, pointer, lists=lists)
    for name, capacity in device.capacity.items():
        pointer = member(f"{path}/capacity", name)
        yield from wrong_format(name, names.qualified_name, pointer)
        if device.allow_multiple_allocations:
            yield from request_policy(capacity, f"{pointer}/requestPolicy", fractional=FRACTIONAL in gates)
        elif capacity.request_policy is not None:
            hint = "set allowMultipleAllocations: true on the device, or leave the policy out"
            yield finding_at(
                "D107", f"{pointer}/requestPolicy", "a request policy needs allowMultipleAllocations: true", hint
            )
    yield from entries(device.taints, MAX_TAINTS, f"{path}/taints", taint)
    uses, pointer, key = device.consumes_counters, f"{path}/consumesCounters", attrgetter("counter_set")
    yield from entries(
        uses, MAX_CONSUMPTIONS, pointer, judge_consumption, key=key, noun="counter set", field="/counterSet"
    )
    own_nodes = (device.node_name, device.node_selector, device.all_nodes)
    if per_device_nodes:
        everywhere = {"allNodes": device.all_nodes}
        yield from _nodes(device.node_name, device.node_selector, everywhere, path)
    elif own_nodes != (None, None, None):
        message = "nodeName, nodeSelector and allNodes of a device need perDeviceNodeSelection in the slice"
        yield finding_at("D117", path, message)
    yield from binding_conditions(device.binding_conditions or (), device.binding_failure_conditions or (), path)
    for name, resource in device.node_allocatable_resources.items():
        pointer = member(f"{path}/nodeAllocatableResources", name)
        yield from _node_allocatable(name, resource, device.capacity, pointer)


def _attribute(attribute: DeviceAttribute, path: str, *, lists: bool) -> Findings:
    text, version = attribute.string, attribute.version
    lists_set = _lists(attribute)
    scalars = (attribute.int_, attribute.bool_, text, version)
    count = 4 - scalars.count(None) + len(lists_set)
    if count != 1:
        kinds = "int, bool, string, version"
        hint = "list values need the feature gate DRAListTypeAttributes"
        if lists:
            kinds = f"{kinds}, ints, bools, strings, versions"
            hint = ""
        yield finding_at("D107", path, f"exactly one of {kinds} must be set, not {count}", hint)
    if text is not None:
        yield from wrong_format(text, names.attribute_text, f"{path}/string")
    if version is not None:
        hint = "leave the v out" if version.startswith("v") else ""
        yield from wrong_format(version, names.semver, f"{path}/version", hint)
    for name in ("ints", "bools", "strings", "versions") if lists_set else ():
        values = getattr(attribute, name)
        if values is not None and not values:
            yield finding_at("D101", f"{path}/{name}", "a list must not be empty")
    for index, text in enumerate(attribute.strings or ()):
        yield from wrong_format(text, names.attribute_text, f"{path}/strings/{index}")
    for index, text in enumerate(attribute.versions or ()):
        yield from wrong_format(text, names.semver, f"{path}/versions/{index}")


def _counters(counters: Mapping[str, object], path: str) -> Findings:
    if not counters:
        yield finding_at("D101", path, "at least one counter is required")
    yield from too_many(counters, MAX_COUNTERS, path)
    for name in counters:
        yield from wrong_format(name, names.dns_label, member(path, name), names.suggestion)


def skipped_operations(operations: Sequence[str], path: str) -> Findings:
    """Judge skipNodeOperations of a slice or an allocation."""
    yield from duplicates(operations, path, "operation")
    allowed = ", ".join(_OPERATIONS)
    for index, operation in enumerate(operations):
        if operation not in _OPERATIONS:
            yield finding_at("D106", f"{path}/{index}", f"{operation!r} must be one of {allowed}")
    prepare = "NodePrepareResources" in operations
    unprepare = "NodeUnprepareResources" in operations or "*" in operations
    if prepare and not unprepare:
        yield finding_at("D107", path, "NodePrepareResources cannot be skipped without NodeUnprepareResources")


def binding_conditions(conditions: Sequence[str], failures: Sequence[str], path: str) -> Findings:
    """Judge the binding conditions of a device or an allocation."""
    lists = {"bindingConditions": conditions, "bindingFailureConditions": failures}
    for field, values in lists.items():
        pointer = f"{path}/{field}"
        yield from too_many(values, MAX_BINDING_CONDITIONS, pointer)
        yield from duplicates(values, pointer, "condition")
        for index, value in enumerate(values):
            yield from required(value, f"{pointer}/{index}", names.label_key, noun="a condition type")
    for index, value in enumerate(failures):
        if value in conditions:
            message = f"{value!r} is also in bindingConditions"
            yield finding_at("D107", f"{path}/bindingFailureConditions/{index}", message)
    for field, values in lists.items():
        if not values and (conditions or failures):
            message = "bindingConditions and bindingFailureConditions must be set together"
            yield finding_at("D107", f"{path}/{field}", message)


def _node_allocatable(
    name: str, resource: NodeAllocatableResource, capacity: Mapping[str, DeviceCapacity], path: str
) -> Findings:
    if name not in ("cpu", "memory") and not name.startswith("hugepages-"):
        yield finding_at("D106", path, f"{name!r} must be cpu, memory or hugepages-<size>")
    if resource.mapping is None and resource.overhead is None:
        yield finding_at("D101", path, "at least one of mapping and overhead is required")
    mapping, pointer = resource.mapping, f"{path}/mapping"
    if mapping is not None:
        key = mapping.capacity_key
        by_capacity = mapping.capacity_multiplier
        by_device = mapping.device_multiplier
        if (key is None) == (by_device is None):
            yield finding_at("D107", pointer, "exactly one of capacityKey and deviceMultiplier must be set")
        if (key is None) != (by_capacity is None):
            missing_field = "capacityKey" if key is None else "capacityMultiplier"
            yield finding_at(
                "D101", f"{pointer}/{missing_field}", "capacityKey and capacityMultiplier must be set together"
            )
        if key is not None and key not in capacity:
            yield finding_at("D109", f"{pointer}/capacityKey", f"the device has no capacity {key!r}")
        # A capacityMultiplier without capacityKey is reported above. The API server does not validate its value.
        judged = {"capacityMultiplier": by_capacity if key is not None else None, "deviceMultiplier": by_device}
        for field, multiplier in judged.items():
            if multiplier is not None and multiplier.nano <= 0:
                yield finding_at("D108", f"{pointer}/{field}", f"{multiplier} must be greater than zero")
    if resource.overhead is not None:
        amounts = (("perPod", resource.overhead.per_pod), ("perContainer", resource.overhead.per_container))
        if all(amount is None for _, amount in amounts):
            yield finding_at("D101", f"{path}/overhead", "at least one of perPod and perContainer is required")
        for field, amount in amounts:
            if amount is not None and amount.nano < 0:
                yield finding_at("D108", f"{path}/overhead/{field}", f"{amount} must be zero or more")
