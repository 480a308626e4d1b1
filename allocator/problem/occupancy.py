"""How things stand on a node: devices tied into units, and who holds what as the initial state of their fields."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from allocator.problem.candidates import Candidate
from allocator.problem.unit import Member
from dra.policy import NO_GROUPS, GroupState, admits, group_states, in_the_way, own_state
from dra.stock import Counters, Pool, PoolUse, available, overdrawn

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from allocator.problem.unit import Pattern
    from dra.policy import Rules
    from dra.stock import Consumption

# Per leaf what is taken and whether there is a fault, and the declared values of what is taken.
Local = tuple[tuple[tuple[tuple[str, int], ...] | None, ...], tuple[bool, ...], tuple[tuple[str, int], ...]]


class PoolState(msgspec.Struct, frozen=True, eq=False):
    """What is in use in one pool, as the candidates of a node feel it."""

    pool: Pool
    use: PoolUse
    left: Counters
    groups: dict[str, GroupState]
    irregular: bool  # some candidate may raise a counter
    blocked: bool  # a counter is below zero and nobody can raise it
    conflicts: dict[str, frozenset[str]]
    wild: Callable[[Candidate], bool]

    @property
    def quiet(self) -> bool:
        """Say whether nothing in use concerns anybody."""
        return not (self.use.dedicated or self.use.shared or self.blocked)

    def shared(self, place: Candidate) -> bool:
        """Say whether somebody holds a share of the device, so that a further one charges no counters."""
        return place.multi and place.name in self.use.shared

    def shut(self, place: Candidate) -> bool:
        """Say whether counters, groups or rules keep the device from being taken, whatever else is chosen."""
        if self.shared(place):
            return False
        if in_the_way(place.name, self.conflicts, self.use):
            return True
        consumption = place.body.consumption
        if not consumption:
            return False
        if self.blocked:
            return True
        wild = self.wild(place)
        return any(not admits(self.groups.get(name), own_state(groups, wild=wild)) for name, _, groups in consumption)


def pool_state(pool: Pool, use: PoolUse, rules: Rules, candidates: Iterable[Candidate]) -> PoolState:
    """Look at one pool."""
    left = available(pool, use)
    irregular = any(
        amount < 0 for place in candidates for _, counters, _ in place.body.consumption for _, amount in counters
    )
    return PoolState(
        pool,
        use,
        left,
        group_states(pool, use, rules),
        irregular,
        bool(overdrawn(left)) and not irregular,
        rules.conflicts(pool),
        lambda place: rules.wild(pool.id[0], place.device),
    )


def tied(places: Sequence[Candidate], wanted: list[int], states: dict[tuple[str, str], PoolState]) -> list[list[int]]:
    """Group the wanted places that share a counter set or a rule, each group and all groups in place order."""
    root = {place: place for place in wanted}

    def find(place: int) -> int:
        while root[place] != place:
            root[place] = root[root[place]]
            place = root[place]
        return place

    owner: dict[object, int] = {}
    by_name: dict[object, int] = {}
    for place in wanted:
        where = places[place]
        for name, _, _ in where.body.consumption:
            root[find(place)] = find(owner.setdefault((where.pool.id, name), place))
        conflicts = states[where.pool.id].conflicts
        if conflicts:
            by_name[where.id] = place
            for other in conflicts.get(where.name, ()):
                if (at := by_name.get((*where.pool.id, other))) is not None:
                    root[find(place)] = find(at)
    groups: dict[int, list[int]] = {}
    for place in wanted:
        groups.setdefault(find(place), []).append(place)
    return list(groups.values())


def unit_members(
    group: list[int], places: Sequence[Candidate], local: Callable[[int], Local], state: PoolState
) -> tuple[tuple[Member, ...], list[str]]:
    """Describe a unit's devices in terms that do not depend on their names; also names its counter sets in order."""
    if len(group) == 1 and not places[group[0]].body.consumption:
        takes, poison, declared = local(group[0])
        place = places[group[0]]
        return (Member(place.multi, takes, poison, _stretched(declared, state.use, place), (), ()),), []
    position = {places[place].name: at for at, place in enumerate(group)}
    sets: dict[str, str] = {}
    members: list[Member] = []
    for at in group:
        place = places[at]
        takes, poison, declared = local(at)
        consumption: Consumption = tuple(
            (
                sets.setdefault(name, str(len(sets))),
                () if state.irregular else counters,
                _declared(groups, state, place),
            )
            for name, counters, groups in place.body.consumption
        )
        apart = tuple(sorted(position[other] for other in state.conflicts.get(place.name, ()) if other in position))
        members.append(Member(place.multi, takes, poison, _stretched(declared, state.use, place), consumption, apart))
    return tuple(members), list(sets)


def _declared(groups: tuple[str, ...], state: PoolState, place: Candidate) -> tuple[str, ...]:
    return groups or (() if state.wild(place) else tuple(NO_GROUPS))


def _stretched(declared: tuple[tuple[str, int], ...], use: PoolUse, place: Candidate) -> tuple[tuple[str, int], ...]:
    """Make room for consumption below zero, which nobody should have written."""
    used = use.used.get(place.name)
    if not used or min(used.values()) >= 0:
        return declared
    return tuple((name, value - min(0, used.get(name, 0))) for name, value in declared)


def start(
    pattern: Pattern, sets: list[str], group: list[int], places: Sequence[Candidate], state: PoolState
) -> tuple[int, int]:
    """Compute a unit's initial state from what is in use."""
    left, use = pattern.ready, state.use
    if use.dedicated or use.shared:
        for at, place in enumerate(group):
            left -= _held(pattern, at, places[place], use)
    for (counter_set, name), (begin, unit, most) in pattern.counters.items():
        there = max(0, state.left[sets[int(counter_set)]][name])
        left |= min(most, there // unit) << begin
    common = pattern.open
    for counter_set, (begin, names) in pattern.groups.items():
        admitted = state.groups.get(sets[int(counter_set)])
        if admitted is not None and admitted & frozenset(names):
            closed = sum(1 << (begin + n) for n, name in enumerate(names) if name not in admitted)
            common &= ~closed
    return left, common


def _held(pattern: Pattern, at: int, place: Candidate, use: PoolUse) -> int:
    held = 0
    name = place.name
    if not place.multi:
        return 1 << pattern.token[at] if name in use.dedicated else 0
    if name in use.shared and pattern.first[at] >= 0:
        held = 1 << pattern.first[at]
    used = use.used.get(name, {})
    for capacity, (begin, unit) in pattern.capacity[at].items():
        declared = place.device.capacity[capacity].value.nano - min(0, used.get(capacity, 0))
        there = max(0, place.device.capacity[capacity].value.nano - used.get(capacity, 0))
        held += (declared // unit - there // unit) << begin
    return held


def unfit(pattern: Pattern, left: int, common: int) -> tuple[tuple[int, ...], ...]:
    """List per leaf the members that cannot be taken even before anything is chosen."""
    guards, common_guards, opened = pattern.guards, pattern.common_guards, pattern.open
    lost: list[tuple[int, ...]] = []
    for leaf in range(len(pattern.rows[0])):
        out = []
        for at, row in enumerate(pattern.rows):
            pair = row[leaf]
            if pair is None:
                continue
            cost, join = (pair[1], pair[2]) if left & pair[0] else (pair[3], pair[4])
            if (left - cost) & guards != guards or ((common & join) + opened) & common_guards != common_guards:
                out.append(at)
        lost.append(tuple(out))
    return tuple(lost)
