"""How things stand on a node: its devices in the order in which they are tried, and what is in use in its pools."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from allocator.problem.candidates import Candidate
from dra.policy import DeviceId, GroupState, admits, away, group_states, in_the_way, own_state
from dra.stock import Counters, Pool, PoolId, PoolUse, available, overdrawn

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dra.budget import Budget
    from dra.policy import Rules


class PoolState(msgspec.Struct, frozen=True, eq=False):
    """What is in use in one pool, as the candidates of a node feel it."""

    pool: Pool
    use: PoolUse
    left: Counters
    groups: dict[str, GroupState]
    irregular: bool  # some candidate may raise a counter
    overdrawn: bool  # a counter is below zero and no candidate can raise it
    conflicts: dict[str, frozenset[str]]
    across: dict[str, frozenset[DeviceId]]  # likewise, devices of other pools
    away: dict[str, tuple[DeviceId, ...]]  # device → those in use in other pools that it must not be beside
    goes_with_all: Callable[[Candidate], bool]  # as a device that declares no groups

    @property
    def is_untouched(self) -> bool:
        """Say whether nothing that is in use concerns a candidate."""
        return not (self.use.dedicated or self.use.shared or self.overdrawn or self.away)

    def is_shared(self, place: Candidate) -> bool:
        """Say whether a share of the device is in use, so that a further one charges no counters."""
        return place.multi and place.device.name in self.use.shared

    def blocks(self, place: Candidate) -> bool:
        """Say whether counters, groups or rules keep the device from being taken, whatever else is chosen."""
        name = place.device.name
        if place.multi and name in self.use.shared:
            return False
        if name in self.away or (self.conflicts and in_the_way(name, self.conflicts, self.use)):
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
    irregular = any(amount < 0 for place in candidates for use in place.body.consumption for _, amount in use.counters)
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


def others_apart(place: Candidate, state: PoolState) -> Iterable[DeviceId]:
    """Name the devices that one must not be in use with, in its pool and in others."""
    pool = place.pool.id
    for other in state.conflicts.get(place.name, ()):
        yield (*pool, other)
    yield from state.across.get(place.name, ())


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
    held: set[int]  # the whole device is in use
    blocked: set[int]  # counters, groups or rules are in the way
    used: dict[int, dict[str, int]]  # what shares have taken of a device's capacities


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
        in_use = state.use
        for place, candidate in zip(places, candidates, strict=True):
            name = candidate.device.name
            if name in in_use.dedicated:
                found.held.add(place)
            if state.blocks(candidate):
                found.blocked.add(place)
            if name in in_use.used:
                found.used[place] = in_use.used[name]
    return found
