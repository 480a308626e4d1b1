"""Rules about pools: mistakes of drivers that the API server accepts and that prevent allocations.

In Kubernetes (k8s.io/dynamic-resource-allocation/structured), a claim gets no device of an incomplete or invalid pool. A request with
allocationMode All fails with an error if there is such a pool.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, NamedTuple

from dra.finding import Finding, Findings, finding_at
from dra.pointer import member
from dra.stock import newest
from dra.texts import count_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from dra.objects import CounterSet, Device, NodeSelector, ResourceSlice

    Found = Iterator[tuple[int | None, Finding]]


class Piece(NamedTuple):
    """A slice. `number` is its position among the judged objects; None if it is in the inventory."""

    number: int | None
    slice: ResourceSlice


class _Member(NamedTuple):
    """A device that consumes counters of a counter set, with its compatibility groups for the counter set."""

    number: int | None
    path: str
    device: str
    groups: frozenset[str]
    whole: bool  # it consumes all of some counter, so no other device can be in use with it


_COMPARED = 64  # the number of devices of a counter set with which later devices are compared


def pool_problems(pieces: Sequence[Piece]) -> Iterator[tuple[int, Finding]]:
    """Judge every pool that has a judged slice."""
    pools: dict[tuple[str, str], list[Piece]] = defaultdict(list)
    for piece in pieces:
        spec = piece.slice.spec
        pools[spec.driver, spec.pool.name].append(piece)
    for pool in pools.values():
        if any(piece.number is not None for piece in pool):
            problems = _pool(pool, newest(piece.slice for piece in pool))
            yield from ((number, problem) for number, problem in problems if number is not None)


def _pool(pool: Sequence[Piece], slices: Sequence[ResourceSlice]) -> Found:
    """Judge a pool. `slices` are its slices of the newest generation."""
    newest_ids = set(map(id, slices))
    current = [piece for piece in pool if id(piece.slice) in newest_ids]
    sets = {counter_set.name: counter_set for slice_ in slices for counter_set in slice_.spec.shared_counters}
    for number, slice_ in pool:
        # The nodes of this slice do not see slices of other nodes.
        visible = _visible(slice_, slices)
        generation = max((other.spec.pool.generation for other in visible), default=0)
        if slice_.spec.pool.generation < generation:
            message = f"generation {slice_.spec.pool.generation} of the pool is outdated: its newest generation is {generation}"
            yield number, finding_at("D402", "/spec/pool/generation", message)
        if id(slice_) not in newest_ids or number is None:
            continue
        if incomplete := find_incomplete(slice_, slices):
            yield number, incomplete
        own_sets = {counter_set.name: counter_set for other in visible for counter_set in other.spec.shared_counters}
        driver, all_sets = slice_.spec.driver, {**sets, **own_sets}
        complete = len(slices) >= slice_.spec.pool.resource_slice_count
        if driver != driver.lower():
            yield number, finding_at("D411", "/spec/driver", f"the driver name {driver!r} has upper case letters")
        problems = [*_selector(slice_.spec.node_selector, "/spec/nodeSelector")]
        for index, counter_set in enumerate(slice_.spec.shared_counters):
            for name, counter in counter_set.counters.items():
                if counter.value.nano < 0:
                    pointer = member(f"/spec/sharedCounters/{index}/counters", name)
                    negative = "no device that consumes counters of the pool can be allocated"
                    problems.append(finding_at("D406", pointer, f"{name} is {counter.value}: {negative}"))
        for index, device in enumerate(slice_.spec.devices):
            problems += _device(device, f"/spec/devices/{index}", driver)
            problems += _consumption(device, f"/spec/devices/{index}", all_sets, complete=complete)
        yield from ((number, problem) for problem in problems)
    yield from _duplicates(current)
    yield from _groups(current, sets)
    yield from _order(current)


def find_incomplete(slice_: ResourceSlice, slices: Sequence[ResourceSlice]) -> Finding | None:
    """Return a finding if the pool is incomplete on the nodes of a slice; `slices` are the newest slices of the pool."""
    visible = _visible(slice_, slices)
    counts = {other.spec.pool.resource_slice_count for other in visible}
    pool, path = slice_.spec.pool, "/spec/pool/resourceSliceCount"
    if len(counts) > 1:
        return finding_at(
            "D403",
            path,
            f"the slices of this generation have different values of resourceSliceCount: {', '.join(map(str, sorted(counts)))}",
        )
    announced = pool.resource_slice_count
    published_count = max(len(visible), min(len(slices), announced))
    if published_count == announced:
        return None
    published = f"driver {slice_.spec.driver} has published {published_count} of {count_of(announced, 'slice')}"
    effect = "no claim gets devices of the pool, and a request for all devices fails with an error"
    return finding_at("D401", path, f"{published} of pool {pool.name}, generation {pool.generation}: {effect}")


def _visible(slice_: ResourceSlice, slices: Iterable[ResourceSlice]) -> list[ResourceSlice]:
    return [other for other in slices if other.spec.node_name in (None, "", slice_.spec.node_name)]


def _duplicates(current: Sequence[Piece]) -> Found:
    """Report names of devices and counter sets that two slices of a pool have in common."""
    devices: dict[str, Piece] = {}
    sets: dict[str, Piece] = {}
    for piece in current:
        for index, device in enumerate(piece.slice.spec.devices):
            other = devices.setdefault(device.name, piece)
            nodes = {piece.slice.spec.node_name, other.slice.spec.node_name} - {None, ""}
            # Slices of two different nodes may have the same device name, because no node sees both slices.
            if other is not piece and len(nodes) < 2:
                message = f"device {device.name!r} is also published by ResourceSlice/{other.slice.metadata.name}"
                yield piece.number, finding_at("D404", f"/spec/devices/{index}/name", message)
        for index, counter_set in enumerate(piece.slice.spec.shared_counters):
            other = sets.setdefault(counter_set.name, piece)
            if other is not piece:
                name = other.slice.metadata.name
                message = f"counter set {counter_set.name!r} is also defined by ResourceSlice/{name}"
                yield piece.number, finding_at("D414", f"/spec/sharedCounters/{index}/name", message)


def _selector(selector: NodeSelector | None, path: str) -> Findings:
    for index, term in enumerate(selector.node_selector_terms if selector is not None else ()):
        if not term.match_expressions and not term.match_fields:
            yield finding_at("D418", f"{path}/nodeSelectorTerms/{index}", "an empty term matches no node at all")


def _device(device: Device, path: str, driver: str) -> Findings:
    for kind, entries in (("attributes", device.attributes), ("capacity", device.capacity)):
        for name in entries:
            if f"{driver}/{name}" in entries:
                message = f"{name!r} and {f'{driver}/{name}'!r} are the same {kind} to a selector"
                yield finding_at("D409", member(f"{path}/{kind}", name), message)
    for name, capacity in device.capacity.items():
        if capacity.value.nano < 0:
            message = f"{name} is {capacity.value}: a claim that considers the device fails permanently"
            yield finding_at("D406", f"{member(f'{path}/capacity', name)}/value", message)
    for name, capacity in device.capacity.items() if device.allow_multiple_allocations else ():
        if capacity.request_policy is None or capacity.request_policy.default is None:
            message = f"a request that does not say how much {name} it wants takes all {capacity.value} of it"
            yield finding_at("D416", member(f"{path}/capacity", name), message)
    if device.node_selector is not None:
        yield from _selector(device.node_selector, f"{path}/nodeSelector")
        if len(device.node_selector.node_selector_terms) > 1:
            message = "more than one term: a claim that gets the device fails permanently"
            yield finding_at("D418", f"{path}/nodeSelector/nodeSelectorTerms", message)


def _consumption(device: Device, path: str, sets: Mapping[str, CounterSet], *, complete: bool) -> Findings:
    for number, consumption in enumerate(device.consumes_counters):
        pointer = f"{path}/consumesCounters/{number}"
        counter_set = sets.get(consumption.counter_set)
        if counter_set is None:
            # The slice that defines the counter set may be missing.
            if complete:
                message = f"the pool has no counter set {consumption.counter_set!r}"
                yield finding_at("D405", f"{pointer}/counterSet", message)
            continue
        for name, counter in consumption.counters.items():
            declared = counter_set.counters.get(name)
            where = member(f"{pointer}/counters", name)
            if declared is None:
                message = f"the counter set {consumption.counter_set!r} has no counter {name!r}"
                yield finding_at("D405", where, message)
            elif counter.value > declared.value:
                message = f"it consumes {counter.value} of {name}, and {consumption.counter_set!r} has {declared.value}"
                yield finding_at("D407", where, message)
            if counter.value.nano < 0:
                message = f"it consumes {counter.value} of {name}: in use, it would add to the counter"
                yield finding_at("D406", where, message)


def _groups(current: Sequence[Piece], counters: Mapping[str, CounterSet]) -> Found:
    """Report questionable compatibility groups: devices that can only be in use alone, and groups without effect.

    By KEP-5963, all devices of one counter set that are in use must have a group in common. A device without groups can be in
    use only with other devices without groups.
    """
    sets: dict[str, list[_Member]] = defaultdict(list)
    for number, piece in current:
        for index, device in enumerate(piece.spec.devices):
            for consumption_index, consumption in enumerate(device.consumes_counters):
                path = f"/spec/devices/{index}/consumesCounters/{consumption_index}"
                groups = frozenset(consumption.compatibility_groups)
                name = consumption.counter_set
                declared = counters[name].counters if name in counters else {}
                whole = any(
                    key in declared and use.value == declared[key].value for key, use in consumption.counters.items()
                )
                sets[name].append(_Member(number, path, device.name, groups, whole))
    for name, members in sets.items():
        grouped = [member for member in members if member.groups]
        if not grouped:
            continue
        without_groups = [member for member in members if not member.groups and not member.whole]
        common = frozenset.intersection(*(member.groups for member in grouped))
        several = len(members) > 1
        if common and several and len(grouped) == len(members):
            first = grouped[0]
            message = f"all devices of {name!r} have the group {', '.join(sorted(common))}, so the groups forbid no combination"
            yield first.number, finding_at("D415", f"{first.path}/compatibilityGroups", message)
            continue
        if without_groups:
            first = without_groups[0]
            others = ", ".join(sorted({repr(member.device) for member in grouped})[:3])
            message = f"{first.device!r} has no groups, so it is never in use together with the devices of {name!r} that have groups ({others})"
            hint = "give it a group, too, or remove all groups; a DeviceCompatibility with groups: proposal makes it compatible with all devices"
            yield first.number, finding_at("D408", first.path, message, hint)
        used = Counter(group for member in grouped for group in member.groups)
        for number, path, name_of_device, groups, _ in grouped:
            if several and all(used[group] == 1 for group in groups):
                message = (
                    f"no other device of {name!r} shares a group with {name_of_device!r}: it can only be in use alone"
                )
                hint = "this is right if the device is meant to be exclusive"
                yield number, finding_at("D415", f"{path}/compatibilityGroups", message, hint)


def _order(current: Sequence[Piece]) -> Found:
    """Report a large partition that the allocator tries before a smaller partition of the same counter set."""
    earlier_by_set: dict[str, list[tuple[dict[str, int], str]]] = defaultdict(list)
    reported: set[str] = set()
    for number, piece in sorted(current, key=lambda piece: piece.slice.metadata.name.encode()):
        for index, device in enumerate(piece.spec.devices):
            for consumption in device.consumes_counters:
                amounts = {name: counter.value.nano for name, counter in consumption.counters.items()}
                set_ = consumption.counter_set
                earlier = earlier_by_set[set_]
                larger = next((other for was, other in earlier if _exceeds(was, amounts)), None)
                if len(earlier) < _COMPARED:
                    earlier.append((amounts, device.name))
                if larger is not None and set_ not in reported and number is not None:
                    reported.add(set_)
                    message = f"the larger {larger!r} of {set_!r} is listed before {device.name!r}, so the allocator takes it first"
                    yield number, finding_at("D410", f"/spec/devices/{index}", message)


def _exceeds(amounts: dict[str, int], other: dict[str, int]) -> bool:
    for name, amount in other.items():  # runs a million times for a very long slice; `all` would take twice as long
        if amounts.get(name, 0) < amount:
            return False
    return amounts != other
