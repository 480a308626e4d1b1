"""The slices of a machine's one pool, in pieces that the API server takes: counter sets in slices of their own, then devices."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from dra.objects import ResourcePool, ResourceSliceSpec

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from node.inventory import Machine

MOST_DEVICES = 128
MOST_HEAVY = 64  # if one of them has taints, lists or counters
MOST_SETS = 8
T = TypeVar("T")


def pages_of(machine: Machine, node: str) -> tuple[ResourceSliceSpec, ...]:
    """Cut a machine into slices. A machine without devices is published as one empty slice: so it is known to have none."""
    bare = ResourceSliceSpec(driver=machine.driver, node_name=node)
    size = MOST_DEVICES
    for device in machine.devices:
        lists = any(one.ints or one.bools or one.strings or one.versions for one in device.attributes.values())
        if device.taints or device.consumes_counters or lists:
            size = MOST_HEAVY
            break
    pages = [replace(bare, shared_counters=sets) for sets in _cut(machine.counter_sets, MOST_SETS)]
    pages += [replace(bare, devices=devices) for devices in _cut(machine.devices, size)]
    pages = pages or [bare]
    pool = ResourcePool(name=node, resource_slice_count=len(pages))
    return tuple(replace(page, pool=pool) for page in pages)


def _cut(items: Sequence[T], size: int) -> Iterator[tuple[T, ...]]:
    for at in range(0, len(items), size):
        yield tuple(items[at : at + size])
