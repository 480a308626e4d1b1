"""Model checking of the ledger with two pods, two claims and two replicas, and tests that the search finds planted faults."""

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
from tests.draws import draws

SCENES = {
    "one device": scenes.one_device,
    "one claim for both": scenes.one_claim,
    "one claim for both, protected": scenes.one_protected_claim,
    "two claims for both": scenes.crossed,
    "capacity for one": scenes.one_capacity,
    "a counter for one": scenes.one_counter,
    "devices that no other device may accompany": scenes.one_of_a_pair,
    "a quota for one": scenes.one_by_quota,
}


@pytest.mark.parametrize("name", SCENES)
def test_no_order_of_events_allocates_twice_or_leaks(name):
    exploration = explore(SCENES[name](), max_worlds=draws(300))
    assert exploration.states == draws(300)


@pytest.mark.long
@pytest.mark.time_limit(3600, "it walks through tens of thousands of worlds")
@pytest.mark.parametrize("name", SCENES)
def test_no_order_of_events_allocates_twice_in_long_runs(name):
    exploration = explore(SCENES[name](), max_worlds=30_000)
    print(f"{name}: {exploration.states} worlds, {exploration.moves} moves, {exploration.depth} deep")


class Bridge(RuleBasedStateMachine):
    """Take one long random path; the search takes all short paths."""

    scene = staticmethod(scenes.one_device)

    def __init__(self):
        super().__init__()
        self.world = World(self.scene(faults=6, lease_moves=3, deaths=1))
        self.ended = False

    @precondition(lambda self: not self.ended)
    @rule(choice=st.integers(0, 10**6))
    def move(self, choice):
        moves = list(self.world.next_moves())
        if not moves:
            self.ended = True
            return
        _, act = moves[choice % len(moves)]
        act(self.world)

    @invariant()
    def holds(self):
        self.world.check()

    def teardown(self):
        self.world.check_at_rest()


class SharedBridge(Bridge):
    scene = staticmethod(scenes.crossed)


for _machine in (Bridge, SharedBridge):
    _machine.TestCase.settings = settings(
        max_examples=draws(15), stateful_step_count=60, deadline=None, derandomize=True
    )
TestBridge = Bridge.TestCase
TestSharedBridge = SharedBridge.TestCase


def without(state, *signals):
    """Return a broken table in which a state ignores signals."""
    return {**TABLE, state: {signal: to for signal, to in TABLE[state].items() if signal not in signals}}


def with_(state, signal, to):
    """Return a broken table in which a signal leads to another state."""
    return {**TABLE, state: {**TABLE[state], signal: to}}


BROKEN_TABLES = {
    "assumed never expires": without(ReservationState.ASSUMED, Signal.EXPIRED),
    "a released reservation is never removed": without(ReservationState.RELEASED, Signal.CLEAN),
    "a doubt never ends": without(ReservationState.DOUBT, Signal.KNOWN, Signal.HELD),
    "a bound pod never ends": without(ReservationState.BOUND, Signal.DONE),
    "reserved never expires": without(ReservationState.RESERVED, Signal.EXPIRED),
    "binding never expires": without(ReservationState.BINDING, Signal.EXPIRED),
    "a pod that is released while binding loses its devices at once": with_(
        ReservationState.BINDING, Signal.UNRESERVE, ReservationState.RELEASED
    ),
    "a binding pod loses unusable devices at once": with_(
        ReservationState.BINDING, Signal.UNUSABLE, ReservationState.RELEASED
    ),
    "a confirmed commit is not recorded": without(ReservationState.RESERVED, Signal.CONFIRMED),
}


@pytest.mark.parametrize("name", BROKEN_TABLES)
def test_the_search_finds_a_broken_table(name):
    assert fault_in(BROKEN_TABLES[name])


def fault_in(table=TABLE):
    for scene in (
        scenes.one_device(lease_moves=0, deaths=0, faults=1),
        scenes.one_claim(lease_moves=0, deaths=0, faults=1),
    ):
        try:
            explore(scene, max_worlds=250, table=table)
        except Broken as fault:
            return str(fault)
    before_bound = search_after(
        BOUND[:-2], scenes.one_device(lease_moves=0, deaths=0, faults=1), max_worlds=50, table=table
    )
    return before_bound or search_after(
        BOUND, scenes.one_device(lease_moves=0, deaths=1, faults=0), max_worlds=50, table=table
    )


BOUND = [
    "decide 0 a",
    "reserve 0 a",
    "commit 0 a",
    "land 0 PatchFinalizer",
    "land 0 PatchAllocation",
    "bind 0 a",
    "bound a",
    "placed 0 a",
]


def test_the_same_search_finds_nothing_in_the_real_table():
    assert fault_in() == ""


LOST = [
    "decide 0 a",
    "reserve 0 a",
    "commit 0 a",
    "land 0 PatchFinalizer",
    "late, no answer 0 PatchAllocation",
    "unreserve 0 a",
]


def test_search_finds_devices_freed_before_a_lost_write_is_invalid(monkeypatch):
    as_intended = Ledger.as_intended

    def forgetful(ledger, hold):
        return as_intended(ledger, hold) if ledger.needs(hold) else hold.claim

    monkeypatch.setattr(Ledger, "as_intended", forgetful)
    assert search_after(LOST, scenes.one_device(lease_moves=0, deaths=0, faults=2))


def test_the_search_finds_a_lost_write_that_stays_valid(monkeypatch):
    monkeypatch.setattr(import_module("allocator.reservations.step"), "invalidate_lost_write", lambda _: None)
    assert search_after(LOST, scenes.one_device(lease_moves=0, deaths=0, faults=2))


def test_the_search_finds_decisions_on_an_old_ledger(monkeypatch):
    monkeypatch.setattr(import_module("allocator.reservations.step"), "pools_of", lambda _: frozenset())
    assert search_after(["decide 0 a", "decide 0 b"], scenes.one_device(lease_moves=0, deaths=0, faults=1))


def test_the_same_searches_find_nothing_in_the_real_ledger():
    assert search_after(LOST, scenes.one_device(lease_moves=0, deaths=0, faults=2)) == ""
    assert search_after(["decide 0 a", "decide 0 b"], scenes.one_device(lease_moves=0, deaths=0, faults=1)) == ""


def search_after(path, scene, *, max_worlds=400, table=TABLE):
    """Take a path of named moves, search from there, and return the fault that is found."""
    world = World(scene, table)
    for name in path:
        act = next(act for title, act in world.next_moves() if title.startswith(name))
        act(world)
    try:
        explore(scene, max_worlds=max_worlds, start=world)
    except Broken as fault:
        return str(fault)
    return ""
