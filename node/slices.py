"""The slices of a machine's one pool, and the fewest writes that publish them under the rules of the API.

Counter sets stand in slices of their own, then come devices. As in the controller of Kubernetes' helper library: where one slice at most
differs the generation stays; otherwise all are written with the next one, so that no allocator takes a mixture for the pool. Surplus
slices go first. A taint that stays keeps its time. A field that the server dropped is not written again and again: the slice that came
back counts as the one that was sent.
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


class Rewritten(msgspec.Struct, frozen=True):
    slice: ResourceSlice
    spec: ResourceSliceSpec

    @property
    def body(self) -> dict[str, Any]:
        """What a merge patch of it says; null takes away what is there no more."""
        spec = builtins(self.spec)
        spec.setdefault("devices", None)
        spec.setdefault("sharedCounters", None)
        metadata = {"resourceVersion": self.slice.metadata.resource_version}
        return {"metadata": metadata, "spec": spec}


class SlicePlan(msgspec.Struct, frozen=True):
    """The writes, in their order: what goes, what changes, what is new."""

    gone: tuple[ResourceSlice, ...] = ()
    rewritten: tuple[Rewritten, ...] = ()
    new: tuple[ResourceSliceSpec, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.gone or self.rewritten or self.new)


_Pair = tuple[ResourceSlice, ResourceSliceSpec]


def plan(
    existing: Iterable[ResourceSlice],
    wanted: Sequence[ResourceSliceSpec],
    echoes: Mapping[bytes, bytes] | None = None,
) -> SlicePlan:
    """Say what is to be written. `existing` are the driver's slices of the node; `echoes` what a server made of what we said (`dropped`)."""
    pool = wanted[0].pool
    # Of the pool's slices those of the newest generation count; all others go.
    slices = list(existing)
    newest = max((0, *(one.spec.pool.generation for one in slices if one.spec.pool.name == pool.name)))
    current: list[ResourceSlice] = []
    others: list[ResourceSlice] = []
    for one in slices:
        is_current = one.spec.pool.name == pool.name and one.spec.pool.generation == newest
        (current if is_current else others).append(one)

    # Slices that say already what is wanted stay; of the rest, `free` can be rewritten to what is `missing`.
    by_content: dict[bytes, list[ResourceSlice]] = {}
    for one in current:
        by_content.setdefault(_content(one.spec), []).append(one)
    matched: list[_Pair] = []
    missing: list[ResourceSliceSpec] = []
    timed = _with_times(wanted, [one.spec for one in current])
    for spec in timed:
        said = _content(spec)
        candidates = by_content.get(said) or by_content.get((echoes or {}).get(said, b""))
        if candidates:
            matched.append((candidates.pop(0), spec))
        else:
            missing.append(spec)
    free = [one for same in by_content.values() for one in same]

    # Where at most one differs the generation stays.
    agree = all(one.spec.pool.resource_slice_count == pool.resource_slice_count for one, _ in matched)
    if len(current) == len(timed) and len(missing) <= 1 and agree:
        return SlicePlan(tuple(others), _rewritten(zip(free, missing, strict=True), newest))
    after = newest + 1
    surplus = free[len(missing) :]
    rewritten = _rewritten([*matched, *zip(free, missing, strict=False)], after)
    new = [_numbered(spec, after) for spec in missing[len(free) :]]
    return SlicePlan((*others, *surplus), rewritten, tuple(new))


def dropped(said: ResourceSliceSpec, stored: ResourceSliceSpec) -> tuple[bytes, bytes] | None:
    """Tell what a server made of a slice, if it made something else of it: a feature may be off there. The times of taints are its own to say."""
    [timed] = _with_times((said,), (stored,))
    echo = _content(timed), _content(stored)
    return None if echo[0] == echo[1] else echo


def _rewritten(pairs: Iterable[_Pair], generation: int) -> tuple[Rewritten, ...]:
    return tuple(Rewritten(one, _numbered(spec, generation)) for one, spec in pairs)


def _content(spec: ResourceSliceSpec) -> bytes:
    return encode(replace(spec, pool=ResourcePool()))


def _numbered(spec: ResourceSliceSpec, generation: int) -> ResourceSliceSpec:
    return replace(spec, pool=replace(spec.pool, generation=generation))


def _with_times(wanted: Sequence[ResourceSliceSpec], current: Iterable[ResourceSliceSpec]) -> list[ResourceSliceSpec]:
    """Give taints that are there already the time that they have there."""
    before = {
        (device.name, one.key, one.value, one.effect): one
        for spec in current
        for device in spec.devices
        for one in device.taints
    }
    if not before:
        return list(wanted)
    timed: list[ResourceSliceSpec] = []
    for spec in wanted:
        devices: list[Device] = []
        for device in spec.devices:
            taints = tuple(
                one if one.time_added else before.get((device.name, one.key, one.value, one.effect), one)
                for one in device.taints
            )
            devices.append(replace(device, taints=taints) if taints else device)
        timed.append(replace(spec, devices=tuple(devices)))
    return timed
