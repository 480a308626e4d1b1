"""The layout: devices of one node tied into units, what is in use there, and where each unit's fields lie."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from allocator.problem.cache import Alone
from allocator.problem.candidates import Candidate
from allocator.problem.occupancy import PoolState, Vicinity, held_share, pool_state, start, tie, unit_members
from allocator.problem.problem import Unit
from dra.stock import PoolId

if TYPE_CHECKING:
    from collections.abc import Sequence

    from allocator.problem.cache import CompileCache
    from allocator.problem.packing import Fields
    from allocator.problem.problem import Shared
    from allocator.problem.unit import Takes
    from dra.budget import Budget
    from dra.policy import Rules
    from dra.stock import Pool


_LAID_OUT = 3  # steps of a microsecond for a device's part in its unit


class Lineup(msgspec.Struct, frozen=True, eq=False):
    """The devices of a node in the order in which they are tried; a place is a position in this list."""

    candidates: list[Candidate]
    kinds: list[int]  # by place
    by_kind: dict[int, list[int]]  # kind → places
    # Where All meets constraints, it depends on the order of its devices whether the end is fatal or not.
    ordered: set[int]


class Occupancy(msgspec.Struct, frozen=True, eq=False):
    """What is in use: the state of every pool with candidates, and what that means for places."""

    states: dict[PoolId, PoolState]
    held: set[int]  # somebody has the whole device
    blocked: set[int]  # counters, groups or rules are in the way
    used: dict[int, dict[str, int]]  # what shares have taken of a device's capacities


class Layout(msgspec.Struct, frozen=True, eq=False):
    """The units, and where each place is among them."""

    units: list[Unit]
    unit_of: list[tuple[int, int]]  # place → unit, member; (-1, -1) for places that nobody wants
    unfit: list[set[int]]  # per leaf: places that cannot be taken from the start; empty if there are none


def look_at_pools(
    lineup: Lineup,
    wanted: list[int],
    pools: Sequence[Pool],
    vicinity: Vicinity,
    rules: Rules,
    *,
    budget: Budget,
) -> Occupancy:
    """Find the state of every pool with candidates, and the places it takes out of the game."""
    by_pool: dict[PoolId, list[int]] = {}
    for place in wanted:
        by_pool.setdefault(lineup.candidates[place].pool.id, []).append(place)
    found = Occupancy({}, set(), set(), {})
    for pool in pools:
        places = by_pool.get(pool.id)
        if places is None:
            continue
        candidates = [lineup.candidates[place] for place in places]
        state = found.states[pool.id] = pool_state(pool, vicinity, rules, candidates, budget)
        if state.is_untouched:
            continue
        for place, candidate in zip(places, candidates, strict=True):
            if candidate.name in state.use.dedicated:
                found.held.add(place)
            if state.blocks(candidate):
                found.blocked.add(place)
            if candidate.name in state.use.used:
                found.used[place] = state.use.used[candidate.name]
    return found


def units_of(
    lineup: Lineup,
    wanted: list[int],
    occupancy: Occupancy,
    cache: CompileCache,
    budget: Budget,
) -> Layout:
    """Tie devices into units, and lay the units out one after the other."""
    candidates, kinds = lineup.candidates, lineup.kinds
    units: list[Unit] = []
    unit_of = [(-1, -1)] * len(candidates)
    unfit: list[set[int]] = [set() for _ in cache.question.leaves]
    base = common_base = 0

    def takes(place: int) -> Takes:
        return cache.takes[kinds[place]]

    for group in tie(candidates, wanted, occupancy.states):
        budget.charge(_LAID_OUT * len(group))
        number = len(units)
        first = candidates[group[0]]
        state = occupancy.states[first.pool.id]
        single = len(group) == 1 and not first.body.consumption
        if single and group[0] not in occupancy.used:
            alone = _alone(lineup, group[0], occupancy, cache, budget)
            found = alone.pattern
            full = alone.full
            siblings = alone.siblings
            left, common = found.ready, found.open
            if state.use.dedicated or state.use.shared:
                left -= held_share(found, 0, first, state.use)
        else:
            described, sets = unit_members(group, candidates, takes, occupancy.states)
            found = cache.pattern(described, budget)
            exchangeable = [_exchangeable(lineup, place) for place in group]
            full, siblings = cache.interchangeable(found, tuple(exchangeable))
            left, common = start(found, sets, group, candidates, occupancy.states)
        for at, place in enumerate(group):
            unit_of[place] = number, at
        unit = Unit(number, found, group, base, common_base, full, siblings, left, common)
        units.append(unit)
        base += found.size
        common_base += found.common
        if found.counters or found.groups:
            out_by_leaf = cache.unfit(found, left, common)
            for lost, out in zip(unfit, out_by_leaf, strict=True):
                lost.update(group[at] for at in out)
    if not any(unfit):
        unfit = []
    return Layout(units, unit_of, unfit)


def _alone(
    lineup: Lineup,
    place: int,
    occupancy: Occupancy,
    cache: CompileCache,
    budget: Budget,
) -> Alone:
    """Find the unit that one device is, which is the same for all of its kind: the common case, so it is remembered."""
    kind = lineup.kinds[place]
    ordered = place in lineup.ordered
    known = cache.alone.get(kind)
    if known is not None and not ordered:
        return known
    takes = cache.takes[kind]
    described, _ = unit_members([place], lineup.candidates, lambda _: takes, occupancy.states)
    found = cache.pattern(described, budget)
    exchangeable = _exchangeable(lineup, place)
    full, siblings = cache.interchangeable(found, (exchangeable,))
    alone = Alone(found, full, siblings)
    if not ordered:
        cache.alone[kind] = alone
    return alone


def _exchangeable(lineup: Lineup, place: int) -> int:
    """Say whom a device may be exchanged for: its kind, or nobody."""
    return -1 - place if place in lineup.ordered else lineup.kinds[place]


def irregular_counters(
    lineup: Lineup,
    wanted: list[int],
    occupancy: Occupancy,
    shared: Shared,
    left: Fields,
    *,
    turns: int,
    budget: Budget,
) -> int:
    """Lay out counters that may be below zero, one field each for the pools that have them; answers with their state.

    `turns` is how often one device may be charged.
    """
    ready = 0
    for state in occupancy.states.values():
        if not state.irregular:
            continue
        consumers = [place for place in wanted if lineup.candidates[place].pool is state.pool]
        budget.charge(4 * len(consumers))
        moved: dict[tuple[str, str], int] = {}
        for place in consumers:
            for use in lineup.candidates[place].body.consumption:
                budget.charge(len(use.counters))
                for counter, amount in use.counters:
                    key = use.counter_set, counter
                    moved[key] = moved.get(key, 0) + abs(amount)
        starts: dict[tuple[str, str], int] = {}
        guards = 0
        for name, counters in state.left.items():
            for counter, value in counters.items():
                width = (abs(value) + moved.get((name, counter), 0) * turns + 1).bit_length()
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
