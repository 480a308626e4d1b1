"""The slices of a machine's one pool, in pieces that the API server takes: counter sets in slices of their own, then devices."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from dra.objects import ResourcePool, ResourceSliceSpec

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dra.objects import Device
    from node.inventory import Machine

MOST_DEVICES = 128
MOST_HEAVY = 64  # if one of them has taints, lists or counters
MOST_SETS = 8
T = TypeVar("T")


def pages_of(machine: Machine, node: str) -> tuple[ResourceSliceSpec, ...]:
    """Cut a machine into slices. What has no devices is published too, as one empty slice: so it is known to have none."""
    bare = ResourceSliceSpec(driver=machine.driver, node_name=node)
    size = MOST_DEVICES
    if any(_is_heavy(device) for device in machine.devices):
        size = MOST_HEAVY
    pages: list[ResourceSliceSpec] = []
    for sets in _cut(machine.counter_sets, MOST_SETS):
        page = replace(bare, shared_counters=sets)
        pages.append(page)
    for devices in _cut(machine.devices, size):
        page = replace(bare, devices=devices)
        pages.append(page)
    pages = pages or [bare]
    pool = ResourcePool(name=node, resource_slice_count=len(pages))
    return tuple(replace(page, pool=pool) for page in pages)


def _is_heavy(device: Device) -> bool:
    lists = any(one.ints or one.bools or one.strings or one.versions for one in device.attributes.values())
    return bool(device.taints or device.consumes_counters or lists)


def _cut(items: Sequence[T], size: int) -> Iterator[tuple[T, ...]]:
    for at in range(0, len(items), size):
        yield tuple(items[at : at + size])
