"""The ResourceSlices of a machine's pool, and the fewest writes that publish them.

Counter sets have slices of their own, before the slices with devices. As in Kubernetes' resourceslice controller, the pool keeps its
generation if at most one slice differs. Otherwise all slices are written with the next generation, so that no allocator uses old and new
slices together. Surplus slices are deleted first. An unchanged taint keeps its time. If the server dropped fields of a slice, the slice
counts as published while the server has its other fields, so that the dropped fields are not written again and again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec.structs import replace

from dra.objects import ResourcePool, ResourceSlice, ResourceSliceSpec
from dra.wire import builtins, encode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from dra.objects import Device
    from node.inventory import Machine

MAX_DEVICES = 64  # the server accepts 128 devices, but only 64 if one of them has counters, lists or taints, and a device may get them later
MAX_SETS = 8
T = TypeVar("T")


def pages_of(machine: Machine, node: str) -> tuple[ResourceSliceSpec, ...]:
    """Split a machine into slices. A machine without devices is one empty slice, which shows that its driver runs."""
    empty_page = ResourceSliceSpec(driver=machine.driver, node_name=node)
    pages = [replace(empty_page, shared_counters=sets) for sets in _cut(machine.counter_sets, MAX_SETS)]
    pages += [replace(empty_page, devices=devices) for devices in _cut(machine.devices, MAX_DEVICES)]
    pages = pages or [empty_page]
    pool = ResourcePool(name=node, resource_slice_count=len(pages))
    return tuple(replace(page, pool=pool) for page in pages)


def _cut(items: Sequence[T], size: int) -> Iterator[tuple[T, ...]]:
    for at in range(0, len(items), size):
        yield tuple(items[at : at + size])


class Rewritten(msgspec.Struct, frozen=True):
    slice: ResourceSlice
    spec: ResourceSliceSpec

    @property
    def body(self) -> dict[str, Any]:
        """The merge patch; null removes a field."""
        spec = builtins(self.spec)
        spec.setdefault("devices", None)
        spec.setdefault("sharedCounters", None)
        metadata = {"resourceVersion": self.slice.metadata.resource_version}
        return {"metadata": metadata, "spec": spec}


class SlicePlan(msgspec.Struct, frozen=True):
    """The writes in their order: slices to delete, to patch, to create."""

    deleted: tuple[ResourceSlice, ...] = ()
    rewritten: tuple[Rewritten, ...] = ()
    new: tuple[ResourceSliceSpec, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.deleted or self.rewritten or self.new)


_Pair = tuple[ResourceSlice, ResourceSliceSpec]


def plan(
    existing: Iterable[ResourceSlice],
    specs: Sequence[ResourceSliceSpec],
    echoes: Mapping[bytes, bytes] | None = None,
) -> SlicePlan:
    """Plan the writes. `existing` are the driver's slices of the node; `echoes` map content that was sent to what the server stored of it."""
    pool = specs[0].pool
    # Only the pool's newest generation counts; all other slices are deleted.
    slices = list(existing)
    newest = max((0, *(slice_.spec.pool.generation for slice_ in slices if slice_.spec.pool.name == pool.name)))
    current: list[ResourceSlice] = []
    others: list[ResourceSlice] = []
    for slice_ in slices:
        is_current = slice_.spec.pool.name == pool.name and slice_.spec.pool.generation == newest
        (current if is_current else others).append(slice_)

    # Slices that have the content of a spec stay. The other slices are `reusable`: they are rewritten with `unpublished` specs.
    by_content: dict[bytes, list[ResourceSlice]] = {}
    for slice_ in current:
        by_content.setdefault(_content(slice_.spec), []).append(slice_)
    matched: list[_Pair] = []
    unpublished: list[ResourceSliceSpec] = []
    timed = _with_times(specs, [slice_.spec for slice_ in current])
    for spec in timed:
        content = _content(spec)
        candidates = by_content.get(content) or by_content.get((echoes or {}).get(content, b""))
        if candidates:
            matched.append((candidates.pop(0), spec))
        else:
            unpublished.append(spec)
    reusable = [slice_ for same in by_content.values() for slice_ in same]

    agree = all(slice_.spec.pool.resource_slice_count == pool.resource_slice_count for slice_, _ in matched)
    if len(current) == len(timed) and len(unpublished) <= 1 and agree:
        return SlicePlan(tuple(others), _rewritten(zip(reusable, unpublished, strict=True), newest))
    next_generation = newest + 1
    surplus = reusable[len(unpublished) :]
    rewritten = _rewritten([*matched, *zip(reusable, unpublished, strict=False)], next_generation)
    new = [_numbered(spec, next_generation) for spec in unpublished[len(reusable) :]]
    return SlicePlan((*others, *surplus), rewritten, tuple(new))


def dropped(sent: ResourceSliceSpec, stored: ResourceSliceSpec) -> tuple[bytes, bytes] | None:
    """Return the sent and the stored content, if the server dropped fields (of a disabled feature). Times that the server set do not count."""
    [timed] = _with_times((sent,), (stored,))
    echo = _content(timed), _content(stored)
    return None if echo[0] == echo[1] else echo


def _rewritten(pairs: Iterable[_Pair], generation: int) -> tuple[Rewritten, ...]:
    return tuple(Rewritten(slice_, _numbered(spec, generation)) for slice_, spec in pairs)


def _content(spec: ResourceSliceSpec) -> bytes:
    return encode(replace(spec, pool=ResourcePool()))


def _numbered(spec: ResourceSliceSpec, generation: int) -> ResourceSliceSpec:
    return replace(spec, pool=replace(spec.pool, generation=generation))


def _with_times(specs: Sequence[ResourceSliceSpec], current: Iterable[ResourceSliceSpec]) -> list[ResourceSliceSpec]:
    """Give each taint without a time the time that the same taint has on the server."""
    before = {
        (device.name, taint.key, taint.value, taint.effect): taint
        for spec in current
        for device in spec.devices
        for taint in device.taints
    }
    if not before:
        return list(specs)
    timed: list[ResourceSliceSpec] = []
    for spec in specs:
        devices: list[Device] = []
        for device in spec.devices:
            taints = tuple(
                taint if taint.time_added else before.get((device.name, taint.key, taint.value, taint.effect), taint)
                for taint in device.taints
            )
            devices.append(replace(device, taints=taints) if taints else device)
        timed.append(replace(spec, devices=tuple(devices)))
    return timed
