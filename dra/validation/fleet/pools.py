"""What drivers publish, pool by pool: mistakes that the API server takes and the allocator punishes.

The rules are those of pools in k8s.io/dynamic-resource-allocation/structured: an incomplete pool gives nothing to mode All,
an invalid one gives nothing at all.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from dra.pointer import member
from dra.stock import newest
from dra.validation.fleet.groups import group_problems
from dra.validation.problem import Located, Problem, Problems

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from dra.objects import CounterSet, Device, NodeSelector, ResourceSlice


class Piece(NamedTuple):
    """A slice, and the number of the judged object that it is; None for the inventory."""

    number: int | None
    slice: ResourceSlice


_COMPARED = 64  # devices of one counter set that the later ones are compared with


def pool_problems(pieces: Sequence[Piece]) -> Iterator[Located]:
    """Judge every pool that has a judged slice."""
    pools: dict[tuple[str, str], list[Piece]] = defaultdict(list)
    for piece in pieces:
        spec = piece.slice.spec
        pool_id = spec.driver, spec.pool.name
        pools[pool_id].append(piece)
    for pool in pools.values():
        if any(piece.number is not None for piece in pool):
            yield from _pool(pool, newest(piece.slice for piece in pool))


def _pool(pool: Sequence[Piece], slices: Sequence[ResourceSlice]) -> Iterator[Located]:
    """Judge a pool whose slices of the newest generation are `slices`."""
    kept = set(map(id, slices))
    current = [piece for piece in pool if id(piece.slice) in kept]
    sets: dict[str, CounterSet] = {}
    for one in slices:
        for counter_set in one.spec.shared_counters:
            sets[counter_set.name] = counter_set
    yield from _judge_each(pool, lambda piece: _generation(piece.slice, slices))
    yield from _judge_each(current, lambda piece: _completeness(piece.slice, slices))
    yield from _duplicates(current)
    yield from _judge_each(current, lambda piece: _slice(piece.slice, slices, sets))
    numbered = [(piece.number, piece.slice) for piece in current]
    for number, problem in group_problems(numbered, sets):
        if number is not None:
            yield Located(number, problem)
    yield from _order(current)


def _judge_each(pieces: Sequence[Piece], rule: Callable[[Piece], Problems]) -> Iterator[Located]:
    for piece in pieces:
        if piece.number is not None:
            for problem in rule(piece):
                yield Located(piece.number, problem)


def _seen_with(piece: ResourceSlice, current: Iterable[ResourceSlice]) -> list[ResourceSlice]:
    """The slices of a pool that the node of a slice sees: slices of other nodes do not count there."""
    return [one for one in current if one.spec.node_name in (None, "", piece.spec.node_name)]


def _generation(piece: ResourceSlice, current: Sequence[ResourceSlice]) -> Problems:
    newest_one = max((one.spec.pool.generation for one in _seen_with(piece, current)), default=0)
    if piece.spec.pool.generation < newest_one:
        message = f"generation {piece.spec.pool.generation} of the pool is outdated, there is {newest_one}"
        yield Problem("D402", "/spec/pool/generation", message)


def _completeness(piece: ResourceSlice, current: Sequence[ResourceSlice]) -> Problems:
    path = "/spec/pool/resourceSliceCount"
    seen = _seen_with(piece, current)
    counts = {other.spec.pool.resource_slice_count for other in seen}
    said = piece.spec.pool.resource_slice_count
    given = max(len(seen), min(len(current), said))
    if len(counts) > 1:
        yield Problem("D403", path, f"the slices of this generation say {', '.join(map(str, sorted(counts)))}")
    elif given != said:
        missing = said - given
        which = f"{missing} missing" if missing > 0 else f"{-missing} too many, which counts as incomplete as well"
        message = f"slices of the pool: {which} ({given} given, {said} announced)"
        yield Problem("D401", path, message)


def _duplicates(current: Sequence[Piece]) -> Iterator[Located]:
    """Find device names and counter sets that two slices of a pool share."""
    devices: dict[str, Piece] = {}
    sets: dict[str, Piece] = {}
    for piece in current:
        for index, device in enumerate(piece.slice.spec.devices):
            other = devices.setdefault(device.name, piece)
            nodes = {piece.slice.spec.node_name, other.slice.spec.node_name} - {None, ""}
            # Slices of two nodes never meet.
            if other is not piece and piece.number is not None and len(nodes) < 2:
                message = f"device {device.name!r} is also published by ResourceSlice/{other.slice.metadata.name}"
                yield Located(piece.number, Problem("D404", f"/spec/devices/{index}/name", message))
        for index, counter_set in enumerate(piece.slice.spec.shared_counters):
            other = sets.setdefault(counter_set.name, piece)
            if other is not piece and piece.number is not None:
                message = (
                    f"counter set {counter_set.name!r} is also defined by ResourceSlice/{other.slice.metadata.name}"
                )
                yield Located(piece.number, Problem("D414", f"/spec/sharedCounters/{index}/name", message))


def _slice(piece: ResourceSlice, current: Sequence[ResourceSlice], sets: Mapping[str, CounterSet]) -> Problems:
    spec = piece.spec
    own = {
        counter_set.name: counter_set for one in _seen_with(piece, current) for counter_set in one.spec.shared_counters
    }
    sets = {**sets, **own}
    complete = len(current) >= spec.pool.resource_slice_count
    if spec.driver != spec.driver.lower():
        yield Problem("D411", "/spec/driver", f"the driver name {spec.driver!r} has upper case letters")
    yield from _selector(spec.node_selector, "/spec/nodeSelector")
    negative = "no device that consumes counters of the pool can be allocated"
    for index, counter_set in enumerate(spec.shared_counters):
        for name, counter in counter_set.counters.items():
            if counter.value.nano < 0:
                at = member(f"/spec/sharedCounters/{index}/counters", name)
                yield Problem("D406", at, f"{name} is {counter.value}: {negative}")
    for index, device in enumerate(spec.devices):
        path = f"/spec/devices/{index}"
        yield from _device(device, path, spec.driver)
        yield from _consumption(device, path, sets, complete=complete)


def _selector(selector: NodeSelector | None, path: str) -> Problems:
    for index, term in enumerate(selector.node_selector_terms if selector is not None else ()):
        if not term.match_expressions and not term.match_fields:
            yield Problem("D418", f"{path}/nodeSelectorTerms/{index}", "an empty term matches no node at all")


def _device(device: Device, path: str, driver: str) -> Problems:
    for kind, entries in (("attributes", device.attributes), ("capacity", device.capacity)):
        for name in entries:
            if f"{driver}/{name}" in entries:
                message = f"{name!r} and {f'{driver}/{name}'!r} are the same {kind} to a selector"
                yield Problem("D409", member(f"{path}/{kind}", name), message)
    for name, capacity in device.capacity.items():
        if capacity.value.nano < 0:
            message = f"{name} is {capacity.value}: a claim that considers the device fails permanently"
            yield Problem("D406", f"{member(f'{path}/capacity', name)}/value", message)
    for name, capacity in device.capacity.items() if device.allow_multiple_allocations else ():
        if capacity.request_policy is None or capacity.request_policy.default is None:
            message = f"a request that does not say how much {name} it wants takes all {capacity.value} of it"
            yield Problem("D416", member(f"{path}/capacity", name), message)
    if device.node_selector is not None:
        yield from _selector(device.node_selector, f"{path}/nodeSelector")
        if len(device.node_selector.node_selector_terms) > 1:
            message = "more than one term: a claim that gets the device fails permanently"
            yield Problem("D418", f"{path}/nodeSelector/nodeSelectorTerms", message)


def _consumption(device: Device, path: str, sets: Mapping[str, CounterSet], *, complete: bool) -> Problems:
    for number, consumption in enumerate(device.consumes_counters):
        at = f"{path}/consumesCounters/{number}"
        counter_set = sets.get(consumption.counter_set)
        if counter_set is None:
            # The slice that defines the set may be one of those that are missing.
            if complete:
                message = f"the pool has no counter set {consumption.counter_set!r}"
                yield Problem("D405", f"{at}/counterSet", message)
            continue
        for name, counter in consumption.counters.items():
            have = counter_set.counters.get(name)
            where = member(f"{at}/counters", name)
            if have is None:
                message = f"the counter set {consumption.counter_set!r} has no counter {name!r}"
                yield Problem("D405", where, message)
            elif counter.value > have.value:
                message = f"it consumes {counter.value} of {name}, {consumption.counter_set!r} has {have.value}"
                yield Problem("D407", where, message)
            if counter.value.nano < 0:
                yield Problem(
                    "D406", where, f"{counter.value}: a device in use would add to the counter instead of drawing on it"
                )


def _order(current: Sequence[Piece]) -> Iterator[Located]:
    """Find a large partition that is tried before a smaller one of the same counter set."""
    seen: dict[str, list[tuple[dict[str, int], str]]] = defaultdict(list)
    told: set[str] = set()
    in_order = sorted(current, key=lambda piece: piece.slice.metadata.name.encode())
    for piece in in_order:
        for index, device in enumerate(piece.slice.spec.devices):
            for consumption in device.consumes_counters:
                amounts = {name: counter.value.nano for name, counter in consumption.counters.items()}
                set_ = consumption.counter_set
                earlier = seen[set_]
                larger = None
                for was, other in earlier:
                    if _exceeds(was, amounts):
                        larger = other
                        break
                if len(earlier) < _COMPARED:
                    earlier.append((amounts, device.name))
                if larger is None or set_ in told or piece.number is None:
                    continue
                told.add(set_)
                message = f"{device.name!r} comes behind the larger {larger!r} of {set_!r}, which is taken first"
                problem = Problem("D410", f"/spec/devices/{index}", message)
                yield Located(piece.number, problem)


def _exceeds(one: dict[str, int], other: dict[str, int]) -> bool:
    for name, amount in other.items():  # a million times in a slice without end: `all` would take twice as long
        if one.get(name, 0) < amount:
            return False
    return one != other
