"""How things stand on a node: devices tied into units, and who holds what as the initial state of their fields."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from allocator.problem.candidates import Candidate
from allocator.problem.disjoint import Disjoint
from allocator.problem.unit import Member
from dra.policy import NO_GROUPS, DeviceId, GroupState, admits, away, group_states, in_the_way, own_state
from dra.stock import Counters, CounterUse, Pool, PoolId, PoolUse, available, overdrawn

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from allocator.problem.unit import Amounts, Pattern, Takes
    from dra.budget import Budget
    from dra.policy import Rules
    from dra.stock import Consumption

SetId: TypeAlias = "tuple[PoolId, str]"  # a counter set, and whose


class PoolState(msgspec.Struct, frozen=True, eq=False):
    """What is in use in one pool, as the candidates of a node feel it."""

    pool: Pool
    use: PoolUse
    left: Counters
    groups: dict[str, GroupState]
    irregular: bool  # some candidate may raise a counter
    overdrawn: bool  # a counter is below zero and nobody can raise it
    conflicts: dict[str, frozenset[str]]
    across: dict[str, frozenset[DeviceId]]  # likewise, devices of other pools
    away: dict[str, tuple[DeviceId, ...]]  # device → those in use in other pools that it must not be beside
    goes_with_all: Callable[[Candidate], bool]  # as a device that declares no groups

    @property
    def is_untouched(self) -> bool:
        """Say whether nothing in use concerns anybody."""
        return not (self.use.dedicated or self.use.shared or self.overdrawn or self.away)

    def is_shared(self, place: Candidate) -> bool:
        """Say whether somebody holds a share of the device, so that a further one charges no counters."""
        return place.multi and place.name in self.use.shared

    def blocks(self, place: Candidate) -> bool:
        """Say whether counters, groups or rules keep the device from being taken, whatever else is chosen."""
        if self.is_shared(place):
            return False
        if place.name in self.away or in_the_way(place.name, self.conflicts, self.use):
            return True
        consumption = place.body.consumption
        if not consumption:
            return False
        if self.overdrawn:
            return True
        wild = self.goes_with_all(place)
        for use in consumption:
            if not admits(self.groups.get(use.counter_set), own_state(use.groups, wild=wild)):
                return True
        return False


class Vicinity(msgspec.Struct, frozen=True, eq=False):
    """Who is in use in the pools of a node, and what rules say between two of them."""

    use: Callable[[PoolId], PoolUse]
    across: dict[PoolId, dict[str, frozenset[DeviceId]]] = {}


def pool_state(
    pool: Pool, vicinity: Vicinity, rules: Rules, candidates: Iterable[Candidate], budget: Budget
) -> PoolState:
    """Look at one pool."""
    budget.charge(sum(len(page.devices) for page in pool.pages()) // 2)
    use = vicinity.use(pool.id)
    across = vicinity.across.get(pool.id, {})
    left = available(pool, use)
    irregular = _may_raise(candidates)
    return PoolState(
        pool,
        use,
        left,
        group_states(pool, use, rules),
        irregular,
        bool(overdrawn(left)) and not irregular,
        rules.conflicts(pool, budget),
        across,
        away(vicinity.across, pool.id, vicinity.use),
        lambda place: rules.wild(pool.id[0], place.device),
    )


def _may_raise(candidates: Iterable[Candidate]) -> bool:
    """Say whether taking some candidate would raise a counter."""
    for place in candidates:
        for use in place.body.consumption:
            for _, amount in use.counters:
                if amount < 0:
                    return True
    return False


def tie(places: Sequence[Candidate], wanted: list[int], states: dict[PoolId, PoolState]) -> list[list[int]]:
    """Group the wanted places that share a counter set or a rule, each group and all groups in place order."""
    sets = Disjoint()
    drawing: dict[object, int] = {}  # counter set → the first place that draws on it
    by_name: dict[object, int] = {}
    loose = True
    for place in wanted:
        where = places[place]
        for use in where.body.consumption:
            sets.join(place, drawing.setdefault((where.pool.id, use.counter_set), place))
            loose = False
        state = states[where.pool.id]
        if not state.conflicts and not state.across:
            continue
        loose = False
        by_name[where.id] = place
        for other in others_apart(where, state):
            at = by_name.get(other)
            if at is not None:
                sets.join(place, at)
    return [[place] for place in wanted] if loose else sets.groups(wanted)


def others_apart(place: Candidate, state: PoolState) -> Iterable[DeviceId]:
    """Name the devices that one must not be in use with, in its pool and in others."""
    pool = place.pool.id
    for other in state.conflicts.get(place.name, ()):
        yield (*pool, other)
    yield from state.across.get(place.name, ())


def unit_members(
    group: list[int],
    places: Sequence[Candidate],
    takes: Callable[[int], Takes],
    states: Mapping[PoolId, PoolState],
) -> tuple[tuple[Member, ...], list[SetId]]:
    """Describe a unit's devices in terms that do not depend on their names; also names its counter sets in order."""
    first = places[group[0]]
    if len(group) == 1 and not first.body.consumption:
        taken = takes(group[0])
        alone = _member(first, taken, states[first.pool.id], (), ())
        return (alone,), []
    position = _positions_of(group, places)
    sets: list[SetId] = []
    numbers: dict[PoolId, dict[str, str]] = {}  # pool → counter set → its number
    members: list[Member] = []
    pool = first.pool
    state = states[pool.id]
    here = position[pool.id]
    known = numbers.setdefault(pool.id, {})
    for at in group:
        place = places[at]
        if place.pool is not pool:
            pool = place.pool
            state = states[pool.id]
            here = position[pool.id]
            known = numbers.setdefault(pool.id, {})
        consumption: list[CounterUse] = []
        for use in place.body.consumption:
            if use.counter_set not in known:
                known[use.counter_set] = str(len(sets))
                sets.append((pool.id, use.counter_set))
            counters = () if state.irregular else use.counters
            groups = _declare_groups(use.groups, state, place)
            consumption.append(CounterUse(known[use.counter_set], counters, groups))
        others = state.conflicts.get(place.name, ())
        apart = [here[other] for other in others if other in here]
        for driver, where, other in state.across.get(place.name, ()):
            there = position.get((driver, where), {})
            if other in there:
                apart.append(there[other])
        apart.sort()
        taken = takes(at)
        member = _member(place, taken, state, tuple(consumption), tuple(apart))
        members.append(member)
    return tuple(members), sets


def _positions_of(group: list[int], places: Sequence[Candidate]) -> dict[PoolId, dict[str, int]]:
    """Say where the members of a unit are in it, by pool and name."""
    found: dict[PoolId, dict[str, int]] = {}
    first = places[group[0]]
    pool = first.pool
    here = found.setdefault(pool.id, {})
    for at, number in enumerate(group):
        place = places[number]
        if place.pool is not pool:
            pool = place.pool
            here = found.setdefault(pool.id, {})
        here[place.name] = at
    return found


def _member(
    place: Candidate, takes: Takes, state: PoolState, consumption: Consumption, apart: tuple[int, ...]
) -> Member:
    declared = _stretch(takes.declared, state.use, place)
    return Member(place.multi, takes.amounts, takes.faults, declared, consumption, apart)


def _declare_groups(groups: tuple[str, ...], state: PoolState, place: Candidate) -> tuple[str, ...]:
    return groups or (() if state.goes_with_all(place) else tuple(NO_GROUPS))


def _stretch(declared: Amounts, use: PoolUse, place: Candidate) -> Amounts:
    """Make room for consumption below zero, which nobody should have written."""
    used = use.used.get(place.name)
    if not used or min(used.values()) >= 0:
        return declared
    stretched: list[tuple[str, int]] = []
    for name, value in declared:
        so_far = used.get(name, 0)
        below = min(0, so_far)
        stretched.append((name, value - below))
    return tuple(stretched)


def start(
    pattern: Pattern,
    sets: list[SetId],
    group: list[int],
    places: Sequence[Candidate],
    states: Mapping[PoolId, PoolState],
) -> tuple[int, int]:
    """Compute a unit's initial state from what is in use."""
    left = pattern.ready
    pool = places[group[0]].pool
    use = states[pool.id].use
    for at, number in enumerate(group):
        place = places[number]
        if place.pool is not pool:
            pool = place.pool
            use = states[pool.id].use
        if use.dedicated or use.shared:
            left -= held_share(pattern, at, place, use)
    for (counter_set, name), (begin, unit, most) in pattern.counters.items():
        whose, set_name = sets[int(counter_set)]
        there = states[whose].left[set_name][name]
        whole_units = max(0, there // unit)
        left |= min(most, whole_units) << begin
    common = pattern.open
    for counter_set, (begin, names) in pattern.groups.items():
        whose, set_name = sets[int(counter_set)]
        admitted = states[whose].groups.get(set_name)
        if admitted is None or admitted.isdisjoint(names):
            continue
        for bit, name in enumerate(names, begin):
            if name not in admitted:
                common &= ~(1 << bit)
    return left, common


def held_share(pattern: Pattern, at: int, place: Candidate, use: PoolUse) -> int:
    """Compute what is in use of one member's own fields."""
    name = place.name
    if not place.multi:
        if name in use.dedicated:
            return 1 << pattern.token[at]
        return 0
    held = 0
    if name in use.shared and pattern.first[at] >= 0:
        held = 1 << pattern.first[at]
    used = use.used.get(name, {})
    for capacity, (begin, unit) in pattern.capacity[at].items():
        whole = place.device.capacity[capacity].value.nano
        taken = used.get(capacity, 0)
        declared = whole - min(0, taken)
        there = max(0, whole - taken)
        held += (declared // unit - there // unit) << begin
    return held


def unfit(pattern: Pattern, left: int, common: int) -> tuple[tuple[int, ...], ...]:
    """List per leaf the members that cannot be taken even before anything is chosen."""
    guards = pattern.guards
    common_guards = pattern.common_guards
    leaves = len(pattern.rows[0])
    lost: list[tuple[int, ...]] = []
    for leaf in range(leaves):
        out: list[int] = []
        for at, row in enumerate(pattern.rows):
            pair = row[leaf]
            if pair is None:
                continue
            mark, first_cost, first_join, cost, join = pair
            if left & mark:
                cost, join = first_cost, first_join
            still = (left - cost) & guards
            both = common & join
            open_still = (both + pattern.open) & common_guards
            if still != guards or open_still != common_guards:
                out.append(at)
        lost.append(tuple(out))
    return tuple(lost)
