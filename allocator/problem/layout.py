"""The layout: groups the devices of a node into units, and computes each unit's fields and initial state."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from allocator.packing import Disjoint
from allocator.problem.cache import SingleUnit
from allocator.problem.occupancy import incompatible_devices
from allocator.problem.problem import PlacedUnit
from allocator.problem.unit import UnitMember
from dra.policy import NO_GROUPS
from dra.stock import CounterUse, PoolId

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from allocator.packing import BitFields
    from allocator.problem.cache import CompileCache
    from allocator.problem.candidates import DeviceCandidate
    from allocator.problem.occupancy import Lineup, Occupancy, PoolState
    from allocator.problem.problem import SharedFields
    from allocator.problem.unit import Takes, UnitPattern
    from dra.budget import Budget
    from dra.stock import Consumption, PoolUse

    SetId = tuple[PoolId, str]  # pool and name of a counter set


_LAID_OUT = 3  # steps of a microsecond to lay out one device of a unit


class UnitLayout(msgspec.Struct, frozen=True, eq=False):
    """The units, and the position of each place in its unit. A place is a device's position in the order in which devices are tried."""

    units: list[PlacedUnit]
    unit_of: list[tuple[int, int]]  # place → unit, member; (-1, -1) for places that no leaf may take
    unfit: list[set[int]]  # per leaf: places that cannot be taken in the initial state; empty if there are none


def units_of(
    lineup: Lineup,
    wanted: list[int],
    occupancy: Occupancy,
    cache: CompileCache,
    budget: Budget,
) -> UnitLayout:
    """Group devices into units, and lay the units out one after another."""
    candidates, kinds = lineup.candidates, lineup.kinds
    units: list[PlacedUnit] = []
    unit_of = [(-1, -1)] * len(candidates)
    unfit: list[set[int]] = [set() for _ in cache.question.leaves]
    base = common_base = 0

    def takes(place: int) -> Takes:
        return cache.takes[kinds[place]]

    budget.charge(_LAID_OUT * len(wanted))
    for group in group_tied(candidates, wanted, occupancy.states):
        number = len(units)
        first = candidates[group[0]]
        state = occupancy.states[first.pool.id]
        single = len(group) == 1 and not first.body.consumption
        if single and group[0] not in occupancy.used:
            single_unit = _single_unit(lineup, group[0], occupancy, cache, budget)
            pattern = single_unit.pattern
            full = single_unit.full
            siblings = single_unit.siblings
            left, common = pattern.ready, pattern.open
            if state.use.dedicated or state.use.shared:
                left -= held_share(pattern, 0, first, state.use)
        else:
            members, sets = unit_members(group, candidates, takes, occupancy.states)
            pattern = cache.pattern(members, budget)
            exchangeable = [_exchangeable(lineup, place) for place in group]
            full, siblings = cache.interchangeable(pattern, tuple(exchangeable))
            left, common = initial_state(pattern, sets, group, candidates, occupancy.states)
        for at, place in enumerate(group):
            unit_of[place] = number, at
        unit = PlacedUnit(number, pattern, group, base, common_base, full, siblings, left, common)
        units.append(unit)
        base += pattern.size
        common_base += pattern.common
        if pattern.counters or pattern.groups:
            out_by_leaf = cache.unfit(pattern, left, common)
            for lost, out in zip(unfit, out_by_leaf, strict=True):
                lost.update(group[at] for at in out)
    if not any(unfit):
        unfit = []
    return UnitLayout(units, unit_of, unfit)


def _single_unit(
    lineup: Lineup,
    place: int,
    occupancy: Occupancy,
    cache: CompileCache,
    budget: Budget,
) -> SingleUnit:
    """Return the unit of an independent device. Such units are the usual case, so they are cached by kind."""
    kind = lineup.kinds[place]
    ordered = place in lineup.ordered
    cached_unit = cache.single_units.get(kind)
    if cached_unit is not None and not ordered:
        return cached_unit
    takes = cache.takes[kind]
    members, _ = unit_members([place], lineup.candidates, lambda _: takes, occupancy.states)
    pattern = cache.pattern(members, budget)
    exchangeable = _exchangeable(lineup, place)
    full, siblings = cache.interchangeable(pattern, (exchangeable,))
    single_unit = SingleUnit(pattern, full, siblings)
    if not ordered:
        cache.single_units[kind] = single_unit
    return single_unit


def _exchangeable(lineup: Lineup, place: int) -> int:
    """Return a key that interchangeable devices share: their kind. A device whose order matters gets a unique key."""
    return -1 - place if place in lineup.ordered else lineup.kinds[place]


def group_tied(
    places: Sequence[DeviceCandidate], wanted: list[int], states: dict[PoolId, PoolState]
) -> list[list[int]]:
    """Group the wanted places that share a counter set or a rule, in place order."""
    sets = Disjoint()
    first_consumers: dict[object, int] = {}  # counter set → the first place that consumes it
    place_by_id: dict[object, int] = {}
    all_independent = True
    for place in wanted:
        candidate = places[place]
        for use in candidate.body.consumption:
            sets.join(place, first_consumers.setdefault((candidate.pool.id, use.counter_set), place))
            all_independent = False
        state = states[candidate.pool.id]
        if not state.conflicts and not state.across:
            continue
        all_independent = False
        place_by_id[candidate.id] = place
        for other in incompatible_devices(candidate, state):
            other_place = place_by_id.get(other)
            if other_place is not None:
                sets.join(place, other_place)
    return [[place] for place in wanted] if all_independent else sets.groups(wanted)


def unit_members(
    group: list[int],
    places: Sequence[DeviceCandidate],
    takes: Callable[[int], Takes],
    states: Mapping[PoolId, PoolState],
) -> tuple[tuple[UnitMember, ...], list[SetId]]:
    """Describe a unit's devices independently of their names, and list its counter sets in order."""
    first = places[group[0]]
    if len(group) == 1 and not first.body.consumption:
        return (_member(first, takes(group[0]), states[first.pool.id], (), ()),), []
    position = {places[number].id: index for index, number in enumerate(group)}
    sets: dict[SetId, str] = {}
    members: list[UnitMember] = []
    for number in group:
        candidate = places[number]
        pool = candidate.pool.id
        state = states[pool]
        consumption: list[CounterUse] = []
        for use in candidate.body.consumption:
            set_number = sets.setdefault((pool, use.counter_set), str(len(sets)))
            counters = () if state.irregular else use.counters
            groups = use.groups or (() if state.goes_with_all(candidate) else tuple(NO_GROUPS))
            consumption.append(CounterUse(set_number, counters, groups))
        incompatible = sorted(position[other] for other in incompatible_devices(candidate, state) if other in position)
        members.append(_member(candidate, takes(number), state, tuple(consumption), tuple(incompatible)))
    return tuple(members), list(sets)


def _member(
    candidate: DeviceCandidate, takes: Takes, state: PoolState, consumption: Consumption, incompatible: tuple[int, ...]
) -> UnitMember:
    """Describe a device. A negative consumption, which no claim should have, is added to the declared value."""
    used = state.use.used.get(candidate.name)
    declared = takes.declared
    if used and min(used.values()) < 0:
        declared = tuple((name, value - min(0, used.get(name, 0))) for name, value in declared)
    return UnitMember(candidate.multi, takes.amounts, takes.faults, declared, consumption, incompatible)


def initial_state(
    pattern: UnitPattern,
    sets: list[SetId],
    group: list[int],
    places: Sequence[DeviceCandidate],
    states: Mapping[PoolId, PoolState],
) -> tuple[int, int]:
    """Compute a unit's initial state from the devices in use."""
    left = pattern.ready
    for index, number in enumerate(group):
        candidate = places[number]
        use = states[candidate.pool.id].use
        if use.dedicated or use.shared:
            left -= held_share(pattern, index, candidate, use)
    for (counter_set, name), (begin, unit, highest) in pattern.counters.items():
        pool, set_name = sets[int(counter_set)]
        remaining = states[pool].left[set_name][name]
        whole_units = max(0, remaining // unit)
        left |= min(highest, whole_units) << begin
    common = pattern.open
    for counter_set, (begin, names) in pattern.groups.items():
        pool, set_name = sets[int(counter_set)]
        admitted = states[pool].groups.get(set_name)
        if admitted is None or admitted.isdisjoint(names):
            continue
        for bit, name in enumerate(names, begin):
            if name not in admitted:
                common &= ~(1 << bit)
    return left, common


def held_share(pattern: UnitPattern, at: int, candidate: DeviceCandidate, use: PoolUse) -> int:
    """Compute what claims use of the fields of one member."""
    name = candidate.device.name
    if not candidate.multi:
        if name in use.dedicated:
            return 1 << pattern.token[at]
        return 0
    bits = 0
    if name in use.shared and pattern.first[at] >= 0:
        bits = 1 << pattern.first[at]
    used = use.used.get(name, {})
    for capacity, (begin, unit) in pattern.capacity[at].items():
        whole = candidate.device.capacity[capacity].value.nano
        taken = used.get(capacity, 0)
        declared = whole - min(0, taken)
        remaining = max(0, whole - taken)
        bits += (declared // unit - remaining // unit) << begin
    return bits


def irregular_counters(
    lineup: Lineup,
    wanted: list[int],
    occupancy: Occupancy,
    shared: SharedFields,
    left: BitFields,
    *,
    turns: int,
    budget: Budget,
) -> int:
    """Lay out one field for each counter that may be below zero, and return the initial state of these fields.

    `turns` is how often the consumption of one device may be charged.
    """
    ready = 0
    for state in occupancy.states.values():
        if not state.irregular:
            continue
        consumers = [place for place in wanted if lineup.candidates[place].pool is state.pool]
        budget.charge(4 * len(consumers))
        moved_amounts: dict[tuple[str, str], int] = {}
        for place in consumers:
            for use in lineup.candidates[place].body.consumption:
                budget.charge(len(use.counters))
                for counter, amount in use.counters:
                    key = use.counter_set, counter
                    moved_amounts[key] = moved_amounts.get(key, 0) + abs(amount)
        starts: dict[tuple[str, str], int] = {}
        guards = 0
        for name, counters in state.left.items():
            for counter, value in counters.items():
                width = (abs(value) + moved_amounts.get((name, counter), 0) * turns + 1).bit_length()
                starts[name, counter] = left.add(width)
                guard = 1 << (left.width - 1)
                guards |= guard
                ready += (value << starts[name, counter]) + guard
        for place in consumers:
            consumption = lineup.candidates[place].body.consumption
            if not consumption:
                continue
            taken = 0
            for use in consumption:
                for counter, amount in use.counters:
                    taken += amount << starts[use.counter_set, counter]
            shared.counter_guards[place] = guards
            shared.counters[place] = taken
    return ready
