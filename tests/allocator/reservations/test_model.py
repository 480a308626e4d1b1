"""Model checking of the ledger (see `explorer`), and tests that the search finds planted bugs."""

from importlib import import_module

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from allocator.reservations import Ledger, ReservationState
from allocator.reservations.table import TABLE, Signal
from tests.allocator.reservations import scenes
from tests.allocator.reservations.explorer import explore
from tests.allocator.reservations.model import World
from tests.allocator.reservations.scenes import Broken
from tests.limits import draws

SCENES = {
    "one device": scenes.one_device,
    "one shared claim": scenes.one_shared_claim,
    "one shared claim that has its finalizer": scenes.one_protected_claim,
    "two shared claims": scenes.two_shared_claims,
    "capacity for one pod": scenes.capacity_for_one_pod,
    "a counter for one pod": scenes.counter_for_one_pod,
    "two devices that exclude each other": scenes.two_incompatible_devices,
    "a quota for one pod": scenes.quota_for_one_pod,
}


@pytest.mark.parametrize("name", SCENES)
def test_no_order_of_events_allocates_twice_or_leaks(name):
    exploration = explore(SCENES[name](), max_worlds=draws(300))
    assert exploration.worlds == draws(300)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", SCENES)
def test_no_order_of_events_allocates_twice_in_long_runs(name):
    exploration = explore(SCENES[name](), max_worlds=30_000)
    print(f"{name}: {exploration.worlds} worlds, {exploration.moves} moves, {exploration.depth} deep")


class RandomPath(RuleBasedStateMachine):
    """Take one long random path through the model; `explore` takes all short paths."""

    scene = staticmethod(scenes.one_device)

    def __init__(self):
        super().__init__()
        self.world = World(self.scene(faults=6, lease_moves=3, deaths=1))
        self.ended = False

    @precondition(lambda self: not self.ended)
    @rule(choice=st.integers(0, 10**6))
    def make_random_move(self, choice):
        moves = list(self.world.next_moves())
        if not moves:
            self.ended = True
            return
        _, make_move = moves[choice % len(moves)]
        make_move(self.world)

    @invariant()
    def invariants_hold(self):
        self.world.check()

    def teardown(self):
        self.world.check_at_rest()


class RandomPathOfSharedClaims(RandomPath):
    scene = staticmethod(scenes.two_shared_claims)


for _machine in (RandomPath, RandomPathOfSharedClaims):
    _machine.TestCase.settings = settings(max_examples=draws(15), stateful_step_count=60, derandomize=True)
TestRandomPath = RandomPath.TestCase
TestRandomPathOfSharedClaims = RandomPathOfSharedClaims.TestCase


def table_without(state, *signals):
    """Return a broken table in which a state ignores signals."""
    return {
        **TABLE,
        state: {signal: next_state for signal, next_state in TABLE[state].items() if signal not in signals},
    }


def table_with(state, signal, next_state):
    """Return a broken table in which a signal leads to another state."""
    return {**TABLE, state: {**TABLE[state], signal: next_state}}


BROKEN_TABLES = {
    "an assumed reservation never expires": table_without(ReservationState.ASSUMED, Signal.EXPIRED),
    "a released reservation is never removed": table_without(ReservationState.RELEASED, Signal.CLEAN),
    "a reservation in doubt stays in doubt": table_without(ReservationState.DOUBT, Signal.KNOWN, Signal.HELD),
    "the reservation of a finished pod never ends": table_without(ReservationState.BOUND, Signal.DONE),
    "a reserved reservation never expires": table_without(ReservationState.RESERVED, Signal.EXPIRED),
    "a binding reservation never expires": table_without(ReservationState.BINDING, Signal.EXPIRED),
    "a pod that is released while binding loses its devices at once": table_with(
        ReservationState.BINDING, Signal.UNRESERVE, ReservationState.RELEASED
    ),
    "a binding pod loses unusable devices at once": table_with(
        ReservationState.BINDING, Signal.UNUSABLE, ReservationState.RELEASED
    ),
    "a confirmed commit is not recorded": table_without(ReservationState.RESERVED, Signal.CONFIRMED),
}


@pytest.mark.whole
@pytest.mark.parametrize("name", BROKEN_TABLES)
def test_the_search_finds_a_broken_table(name):
    assert find_violation(BROKEN_TABLES[name])


def find_violation(table=TABLE):
    """Return the broken invariant that short searches with this table find, or ""."""
    for scene in (
        scenes.one_device(lease_moves=0, deaths=0, faults=1),
        scenes.one_shared_claim(lease_moves=0, deaths=0, faults=1),
    ):
        try:
            explore(scene, max_worlds=250, table=table)
        except Broken as violation:
            return str(violation)
    violation_before_binding = search_after(
        MOVES_TO_BOUND_POD[:-2], scenes.one_device(lease_moves=0, deaths=0, faults=1), max_worlds=50, table=table
    )
    return violation_before_binding or search_after(
        MOVES_TO_BOUND_POD, scenes.one_device(lease_moves=0, deaths=1, faults=0), max_worlds=50, table=table
    )


MOVES_TO_BOUND_POD = [
    "decide 0 a",
    "reserve 0 a",
    "commit 0 a",
    "land 0 PatchFinalizer",
    "land 0 PatchAllocation",
    "bind 0 a",
    "binding lands a",
    "see placement 0 a",
]


MOVES_TO_LOST_WRITE = [
    "decide 0 a",
    "reserve 0 a",
    "commit 0 a",
    "land 0 PatchFinalizer",
    "delay without answer 0 PatchAllocation",
    "unreserve 0 a",
]


def test_search_finds_devices_freed_before_a_lost_write_is_invalid(monkeypatch):
    as_intended = Ledger.as_intended

    def forget_intents(ledger, hold):
        return as_intended(ledger, hold) if ledger.needs(hold) else hold.claim

    monkeypatch.setattr(Ledger, "as_intended", forget_intents)
    assert search_after(MOVES_TO_LOST_WRITE, scenes.one_device(lease_moves=0, deaths=0, faults=2))


def test_the_search_finds_a_lost_write_that_stays_valid(monkeypatch):
    monkeypatch.setattr(import_module("allocator.reservations.step"), "invalidate_lost_write", lambda _: None)
    assert search_after(MOVES_TO_LOST_WRITE, scenes.one_device(lease_moves=0, deaths=0, faults=2))


def test_the_search_finds_decisions_on_an_old_ledger(monkeypatch):
    monkeypatch.setattr(import_module("allocator.reservations.step"), "pools_of", lambda _: frozenset())
    assert search_after(["decide 0 a", "decide 0 b"], scenes.one_device(lease_moves=0, deaths=0, faults=1))


def search_after(path, scene, *, max_worlds=400, table=TABLE):
    """Take a path of named moves, search from there, and return the broken invariant that is found, or ""."""
    world = World(scene, table)
    for name in path:
        make_move = next(make_move for full_name, make_move in world.next_moves() if full_name.startswith(name))
        make_move(world)
    try:
        explore(scene, max_worlds=max_worlds, start=world)
    except Broken as violation:
        return str(violation)
    return ""
