"""The ledger of a replica that follows or has just become the leader."""

import sys

from msgspec.structs import replace

from allocator.reservations import ReservationState
from allocator.reservations.effects import Declined, Dropped, Unallocate
from allocator.reservations.events import BecameFollower, BecameLeader, ClaimSeen, PodSeen, Tick
from tests.allocator.reservations.server import allocation_of, claim, claim_part, pod
from tests.allocator.reservations.world import World, world_during_commit


def test_a_follower_writes_nothing_and_declines_reservations():
    world = world_during_commit()
    finalizer = world.queued_requests.pop()
    effects = world.apply(BecameFollower())
    assert Dropped("t-a", "a", "another replica leads") in effects
    world.apply(world.server.apply(finalizer))
    assert world.queued_requests == []
    assert world.assume("a", claim_part(claim("c"), allocation_of("d0"))) == [Declined("t-a", "another replica leads")]


def test_a_new_leader_recovers_reservations_from_claims_and_pods():
    old_leader = World(claim("c"), claim("e"))
    old_leader.assume("a", claim_part(claim("c"), allocation_of("d0")))
    old_leader.commit("a")
    old_leader.assume("b", claim_part(claim("e"), allocation_of("d1")))
    old_leader.commit("b")
    new_leader = World(*old_leader.server.claims.values())
    new_leader.apply(PodSeen(pod("a", "c")))
    new_leader.apply(PodSeen(pod("b", "e", node="n1")))
    assert new_leader.held_devices() == {"d0", "d1"}
    assert (new_leader.state("a"), new_leader.state("b")) == (ReservationState.BINDING, ReservationState.BOUND)
    new_leader.now = 60
    new_leader.apply(Tick())
    assert [type(write) for write in new_leader.run()] == [Unallocate]
    new_leader.deliver_claim_events()
    assert new_leader.held_devices() == {"d1"}


def record_examined_pods(monkeypatch):
    """Return a list of the pods for which the ledger derives signals from now on."""
    examined = []

    def record_pod(ledger, reservation):
        examined.append(reservation.pod)
        return signals(ledger, reservation)

    module = sys.modules["allocator.reservations.step"]
    signals = module.signals
    monkeypatch.setattr(module, "signals", record_pod)
    return examined


def test_a_claim_event_does_not_reexamine_bound_pods(monkeypatch):
    """Up to 256 pods share a claim, and each of them causes an event of the claim."""
    world = World(claim("c"))
    for name in ("a", "b", "c"):
        stored_claim = world.server.claims["c"]
        world.assume(name, claim_part(stored_claim, None if stored_claim.status.allocation else allocation_of("d0")))
        world.commit(name)
        world.deliver_claim_events()
    for name in ("a", "b"):
        world.apply(PodSeen(pod(name, "c", node="n1")))
    assert [world.state(name) for name in ("a", "b", "c")] == [
        ReservationState.BOUND,
        ReservationState.BOUND,
        ReservationState.RESERVED,
    ]
    examined = record_examined_pods(monkeypatch)
    changed_claim = world.server.claims["c"]
    world.apply(ClaimSeen(replace(changed_claim, metadata=replace(changed_claim.metadata, resource_version="99"))))
    assert examined == ["c"]


def test_a_new_leader_does_not_reexamine_bound_pods(monkeypatch):
    """In a large cluster, nearly all of 30,000 pods are bound, and a new leader must be ready within two seconds."""
    world = World(claim("c"), claim("e"))
    for name, claim_name in (("a", "c"), ("b", "e")):
        world.assume(name, claim_part(world.server.claims[claim_name], allocation_of("d0" if name == "a" else "d1")))
        world.commit(name)
    world.deliver_claim_events()
    world.apply(PodSeen(pod("a", "c", node="n1")))
    world.apply(BecameFollower())
    examined = record_examined_pods(monkeypatch)
    world.apply(BecameLeader())
    assert set(examined) == {"b"}
    assert [world.state(name) for name in ("a", "b")] == [ReservationState.BOUND, ReservationState.BINDING]
