"""From the slices that are there to the slices that should be, in as few writes as the rules of publishing allow.

As the controller of Kubernetes' helper library does it: where one slice at most differs the generation stays; otherwise all are written
with the next one, so that nobody takes a mixture for the pool. Surplus slices go first. A taint that stays keeps its time. What a server
dropped of a slice is not written again and again: what it made of our words counts as our words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from dra.objects import ResourcePool, ResourceSlice, ResourceSliceSpec
from dra.wire import builtins, encode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dra.objects import Device, DeviceTaint


class Rewritten(msgspec.Struct, frozen=True):
    """A slice that gets another content."""

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


class Plan(msgspec.Struct, frozen=True):
    """The writes, in their order: what goes, what changes, what is new."""

    gone: tuple[ResourceSlice, ...] = ()
    rewritten: tuple[Rewritten, ...] = ()
    new: tuple[ResourceSliceSpec, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.gone or self.rewritten or self.new)


_Pair = tuple[ResourceSlice, ResourceSliceSpec]
_Pairs = list[_Pair]


def plan(
    existing: Iterable[ResourceSlice],
    wanted: Sequence[ResourceSliceSpec],
    echoes: Mapping[bytes, bytes] | None = None,
) -> Plan:
    """Say what is to be written. `existing` are the driver's slices of the node; `echoes` what a server made of what we said (`dropped`)."""
    pool = wanted[0].pool
    there = _there(existing, pool.name)
    timed = _with_times(wanted, [one.spec for one in there.current])
    matched, free, missing = _match(there.current, timed, echoes or {})
    same_count = len(there.current) == len(timed)
    if same_count and len(missing) <= 1 and _agree(matched, pool):
        pairs = zip(free, missing, strict=True)
        rewritten = _rewritten(pairs, there.generation)
        return Plan(there.others, rewritten)
    after = there.generation + 1
    surplus = free[len(missing) :]
    pairs = zip(free, missing, strict=False)
    rewritten = _rewritten([*matched, *pairs], after)
    unplaced = missing[len(free) :]
    new = [_numbered(spec, after) for spec in unplaced]
    gone = (*there.others, *surplus)
    return Plan(gone, rewritten, tuple(new))


def dropped(said: ResourceSliceSpec, stored: ResourceSliceSpec) -> tuple[bytes, bytes] | None:
    """Tell what a server made of a slice, if it made something else of it: a feature may be off there. The times of taints are its own to say."""
    [timed] = _with_times((said,), (stored,))
    echo = _content(timed), _content(stored)
    return None if echo[0] == echo[1] else echo


class _There(msgspec.Struct, frozen=True):
    """The newest generation of a pool, its slices, and all that is of no use any more."""

    generation: int
    current: tuple[ResourceSlice, ...]
    others: tuple[ResourceSlice, ...]


def _there(existing: Iterable[ResourceSlice], pool: str) -> _There:
    slices = list(existing)
    newest = 0
    for one in slices:
        said = one.spec.pool
        if said.name == pool:
            newest = max(newest, said.generation)
    current: list[ResourceSlice] = []
    others: list[ResourceSlice] = []
    for one in slices:
        said = one.spec.pool
        kept = said.name == pool and said.generation == newest
        (current if kept else others).append(one)
    return _There(newest, tuple(current), tuple(others))


def _rewritten(pairs: Iterable[_Pair], generation: int) -> tuple[Rewritten, ...]:
    return tuple(Rewritten(one, _numbered(spec, generation)) for one, spec in pairs)


def _match(
    current: Sequence[ResourceSlice], wanted: Sequence[ResourceSliceSpec], echoes: Mapping[bytes, bytes]
) -> tuple[_Pairs, list[ResourceSlice], list[ResourceSliceSpec]]:
    """Put slices and wanted contents together: those that agree, the slices that are left, and the contents."""
    by_content: dict[bytes, list[ResourceSlice]] = {}
    for one in current:
        same = by_content.setdefault(_content(one.spec), [])
        same.append(one)
    matched: _Pairs = []
    missing: list[ResourceSliceSpec] = []
    for spec in wanted:
        said = _content(spec)
        candidates = by_content.get(said) or by_content.get(echoes.get(said, b""))
        if candidates:
            one = candidates.pop(0)
            matched.append((one, spec))
        else:
            missing.append(spec)
    free = [one for same in by_content.values() for one in same]
    return matched, free, missing


def _agree(matched: _Pairs, pool: ResourcePool) -> bool:
    return all(one.spec.pool.resource_slice_count == pool.resource_slice_count for one, _ in matched)


def _content(spec: ResourceSliceSpec) -> bytes:
    return encode(replace(spec, pool=ResourcePool()))


def _numbered(spec: ResourceSliceSpec, generation: int) -> ResourceSliceSpec:
    return replace(spec, pool=replace(spec.pool, generation=generation))


def _with_times(wanted: Sequence[ResourceSliceSpec], current: Iterable[ResourceSliceSpec]) -> list[ResourceSliceSpec]:
    """Give taints that are there already the time that they have there."""
    before = {device.name: device.taints for one in current for device in one.devices if device.taints}
    if not before:
        return list(wanted)
    return [replace(spec, devices=tuple(_timed(one, before) for one in spec.devices)) for spec in wanted]


def _timed(device: Device, before: Mapping[str, tuple[DeviceTaint, ...]]) -> Device:
    known = {(one.key, one.value, one.effect): one for one in before.get(device.name, ())}
    kept = tuple(one if one.time_added else known.get((one.key, one.value, one.effect), one) for one in device.taints)
    return replace(device, taints=kept) if kept else device
