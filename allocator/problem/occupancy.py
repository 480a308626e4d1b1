"""The state of a node: its devices in the order in which they are tried, and the use of its pools."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from allocator.problem.candidates import DeviceCandidate
from dra.policy import DeviceId, GroupState, admits, conflicting, conflicting_elsewhere, group_states, own_state
from dra.stock import Counters, Pool, PoolId, PoolUse, available, overdrawn

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dra.budget import Budget
    from dra.policy import Rules


class PoolState(msgspec.Struct, frozen=True, eq=False):
    """The use of one pool, restricted to the candidates of a node."""

    pool: Pool
    use: PoolUse
    left: Counters
    groups: dict[str, GroupState]
    irregular: bool  # some candidate may raise a counter
    overdrawn: bool  # a counter is below zero and no candidate can raise it
    conflicts: dict[str, frozenset[str]]  # device → devices of this pool that must not be in use together with it
    across: dict[str, frozenset[DeviceId]]  # device → devices of other pools that must not be in use together with it
    away: dict[str, tuple[DeviceId, ...]]  # like `across`, but only the devices that are in use now
    goes_with_all: Callable[
        [DeviceCandidate], bool
    ]  # whether the device, if it declares no groups, is compatible with all others

    @property
    def is_untouched(self) -> bool:
        """Whether no device in use affects a candidate."""
        return not (self.use.dedicated or self.use.shared or self.overdrawn or self.away)

    def is_shared(self, candidate: DeviceCandidate) -> bool:
        """Whether a share of the device is in use. Further shares then consume no counters."""
        return candidate.multi and candidate.device.name in self.use.shared

    def blocks(self, candidate: DeviceCandidate) -> bool:
        """Whether counters, groups or rules exclude the device in every solution."""
        name = candidate.device.name
        if candidate.multi and name in self.use.shared:
            return False
        if name in self.away or (self.conflicts and conflicting(name, self.conflicts, self.use)):
            return True
        consumption = candidate.body.consumption
        if not consumption:
            return False
        if self.overdrawn:
            return True
        goes_with_all = self.goes_with_all(candidate)
        for use in consumption:
            if not admits(self.groups.get(use.counter_set), own_state(use.groups, wild=goes_with_all)):
                return True
        return False


class Vicinity(msgspec.Struct, frozen=True, eq=False):
    """The devices in use in the pools of a node, and the conflicts between devices of different pools."""

    use: Callable[[PoolId], PoolUse]
    across: dict[PoolId, dict[str, frozenset[DeviceId]]] = {}


def pool_state(
    pool: Pool, vicinity: Vicinity, rules: Rules, candidates: Iterable[DeviceCandidate], budget: Budget
) -> PoolState:
    budget.charge(sum(len(page.devices) for page in pool.pages()) // 2)
    use = vicinity.use(pool.id)
    across = vicinity.across.get(pool.id, {})
    left = available(pool, use)
    irregular = any(
        amount < 0 for candidate in candidates for use in candidate.body.consumption for _, amount in use.counters
    )
    return PoolState(
        pool,
        use,
        left,
        group_states(pool, use, rules),
        irregular,
        bool(overdrawn(left)) and not irregular,
        rules.conflicts(pool, budget),
        across,
        conflicting_elsewhere(vicinity.across, pool.id, vicinity.use),
        lambda candidate: rules.wild(pool.id[0], candidate.device),
    )


def incompatible_devices(candidate: DeviceCandidate, state: PoolState) -> Iterable[DeviceId]:
    """Yield the devices of this and other pools that must not be in use together with a device."""
    pool = candidate.pool.id
    for other in state.conflicts.get(candidate.name, ()):
        yield (*pool, other)
    yield from state.across.get(candidate.name, ())


class Lineup(msgspec.Struct, frozen=True, eq=False):
    """The devices of a node in the order in which they are tried; a place is a position in this list."""

    candidates: list[DeviceCandidate]
    kinds: list[int]  # by place
    by_kind: dict[int, list[int]]  # kind → places
    # The places whose order matters. With allocationMode All and constraints, the order decides whether the search ends with an error.
    ordered: set[int]


class Occupancy(msgspec.Struct, frozen=True, eq=False):
    """The state of every pool with candidates, and its consequences for places."""

    states: dict[PoolId, PoolState]
    dedicated: set[int]  # the whole device is in use
    blocked: set[int]  # excluded by counters, groups or rules
    used: dict[int, dict[str, int]]  # the amounts of a device's capacities that shares consume


def occupancy_of(
    lineup: Lineup,
    wanted: list[int],
    pools: Sequence[Pool],
    vicinity: Vicinity,
    rules: Rules,
    *,
    budget: Budget,
) -> Occupancy:
    """Compute the state of every pool with candidates, and the places that this state excludes."""
    by_pool: dict[PoolId, list[int]] = {}
    for place in wanted:
        by_pool.setdefault(lineup.candidates[place].pool.id, []).append(place)
    occupancy = Occupancy({}, set(), set(), {})
    for pool in pools:
        places = by_pool.get(pool.id)
        if places is None:
            continue
        candidates = [lineup.candidates[place] for place in places]
        state = occupancy.states[pool.id] = pool_state(pool, vicinity, rules, candidates, budget)
        if state.is_untouched:
            continue
        in_use = state.use
        for place, candidate in zip(places, candidates, strict=True):
            name = candidate.device.name
            if name in in_use.dedicated:
                occupancy.dedicated.add(place)
            if state.blocks(candidate):
                occupancy.blocked.add(place)
            if name in in_use.used:
                occupancy.used[place] = in_use.used[name]
    return occupancy
