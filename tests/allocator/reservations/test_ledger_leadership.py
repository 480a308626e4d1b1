"""The ledger of a follower and of a new leader."""

import sys

from msgspec.structs import replace

from allocator.reservations import ReservationState
from allocator.reservations.effects import Declined, Dropped, Unallocate
from allocator.reservations.events import BecameFollower, BecameLeader, ClaimSeen, Commit, PodSeen, Tick
from tests.allocator.reservations.server import claim, granted, part, pod
from tests.allocator.reservations.world import World


def test_a_follower_writes_nothing_and_makes_no_decision():
    world = World(claim("c"))
    world.assume("a", part(claim("c"), granted("d0")))
    world.apply(Commit("t-a"))
    finalizer = world.errands.pop()
    effects = world.apply(BecameFollower())
    assert Dropped("t-a", "a", "another replica leads") in effects
    world.apply(world.server.apply(finalizer))
    assert world.errands == []
    assert world.assume("a", part(claim("c"), granted("d0"))) == [Declined("t-a", "another replica leads")]


def test_a_new_leader_recovers_reservations_from_claims_and_pods():
    before = World(claim("c"), claim("e"))
    before.assume("a", part(claim("c"), granted("d0")))
    before.commit("a")
    before.assume("b", part(claim("e"), granted("d1")))
    before.commit("b")
    world = World(*before.server.claims.values())
    world.apply(PodSeen(pod("a", "c")))
    world.apply(PodSeen(pod("b", "e", node="n1")))
    assert world.held() == {"d0", "d1"}
    assert (world.state("a"), world.state("b")) == (ReservationState.BINDING, ReservationState.BOUND)
    world.now = 60
    world.apply(Tick())
    assert [type(write) for write in world.run()] == [Unallocate]
    world.watch()
    assert world.held() == {"d1"}


def record_examined_pods(monkeypatch):
    """Return a list of the pods for which the ledger derives signals from now on."""
    examined = []

    def noted(ledger, reservation):
        examined.append(reservation.pod)
        return signals(ledger, reservation)

    module = sys.modules["allocator.reservations.step"]
    signals = module.signals
    monkeypatch.setattr(module, "signals", noted)
    return examined


def test_a_claim_event_does_not_reexamine_bound_pods(monkeypatch):
    """256 pods may share a claim, and each of them changes the claim."""
    world = World(claim("c"))
    for name in ("a", "b", "c"):
        seen = world.server.claims["c"]
        world.assume(name, part(seen, None if seen.status.allocation else granted("d0")))
        world.commit(name)
        world.watch()
    for name in ("a", "b"):
        world.apply(PodSeen(pod(name, "c", node="n1")))
    assert [world.state(name) for name in ("a", "b", "c")] == [
        ReservationState.BOUND,
        ReservationState.BOUND,
        ReservationState.RESERVED,
    ]
    examined = record_examined_pods(monkeypatch)
    stored = world.server.claims["c"]
    world.apply(ClaimSeen(replace(stored, metadata=replace(stored.metadata, resource_version="99"))))
    assert examined == ["c"]


def test_a_new_leader_does_not_reexamine_bound_pods(monkeypatch):
    """Nearly all of thirty thousand pods are bound, and a new leader has two seconds."""
    world = World(claim("c"), claim("e"))
    for name, its in (("a", "c"), ("b", "e")):
        world.assume(name, part(world.server.claims[its], granted("d0" if name == "a" else "d1")))
        world.commit(name)
    world.watch()
    world.apply(PodSeen(pod("a", "c", node="n1")))
    world.apply(BecameFollower())
    examined = record_examined_pods(monkeypatch)
    world.apply(BecameLeader())
    assert set(examined) == {"b"}
    assert [world.state(name) for name in ("a", "b")] == [ReservationState.BOUND, ReservationState.BINDING]
