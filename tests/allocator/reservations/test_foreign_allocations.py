"""The ledger when another writer allocates the same claim or the same device: which allocation stays."""

import pytest
from msgspec.structs import replace

from allocator.reservations import FINALIZER, ReservationState
from allocator.reservations.effects import Dropped, PatchFinalizer, PodEvent, Unallocate
from allocator.reservations.events import ClaimGone, ClaimSeen, CommitConfirmed, Overlapped, PodSeen, TakeBack
from dra.objects import ResourceClaimConsumerReference
from tests.allocator.reservations.server import allocation_of, claim, pod
from tests.allocator.reservations.world import World, world_after_commit, world_during_commit, world_with_reservation


def test_a_foreign_allocation_returns_the_pod_to_pending():
    world = world_during_commit()
    foreign_claim = replace(claim("c"), status=replace(claim("c").status, allocation=allocation_of("d1", node="n2")))
    world.server.put(foreign_claim)
    assert [type(write) for write in world.run()] == [PatchFinalizer]
    assert any(isinstance(effect, Dropped) for effect in world.reported_effects)
    assert world.state("a") is ReservationState.PENDING
    assert world.server.claims["c"].status.allocation == allocation_of("d1", node="n2")


@pytest.mark.parametrize("is_reserved", [False, True])
def test_a_foreign_allocation_is_removed_only_without_pods(is_reserved):
    """Two cases: the other scheduler has reserved the claim for no pod, or for a pod."""
    unallocated = claim("c", finalizers=(FINALIZER,))
    consumers = (ResourceClaimConsumerReference(resource="pods", name="x", uid="x"),) if is_reserved else ()
    status = replace(unallocated.status, allocation=allocation_of("d0"), reserved_for=consumers)
    world = World(replace(unallocated, status=status))
    world.apply(PodSeen(pod("a", "c")))
    world.apply(TakeBack("a", ("c",), "node n1 does not take the pod"))
    assert [type(write) for write in world.run()] == ([] if is_reserved else [Unallocate])
    assert (world.server.claims["c"].status.allocation is None) is not is_reserved


def test_recreating_a_claim_ends_the_reservation_of_the_old_claim():
    world = world_with_reservation()
    world.apply(ClaimSeen(claim("c", uid="again", resourceVersion="9")))
    assert world.state("a") is ReservationState.PENDING
    assert world.ledger.keys["team/c"] == "again"


def test_an_unstarted_pod_yields_its_devices_to_a_foreign_allocation():
    world = world_after_commit(claim("e"))
    world.apply(CommitConfirmed("t-a"))
    foreign_claim = replace(claim("e"), status=replace(claim("e").status, allocation=allocation_of("d0")))
    world.apply(ClaimSeen(world.server.put(foreign_claim)))
    # The pod may be bound, so the ledger reads the pod first.
    assert world.apply(Overlapped(frozenset(["c", "e"]))) == []
    assert [type(write) for write in world.run()] == [Unallocate]
    assert any(isinstance(effect, PodEvent) and "gave them up" in effect.sentence for effect in world.reported_effects)
    world.deliver_claim_events()
    assert world.held_devices() == {"d0"}


def test_holders_of_a_device_are_rivals_until_a_deletion():
    world = world_after_commit(claim("e"))
    world.apply(PodSeen(pod("a", "c", node="n1")))
    foreign_claim = replace(claim("e"), status=replace(claim("e").status, allocation=allocation_of("d0")))
    world.apply(ClaimSeen(world.server.put(foreign_claim)))
    effects = world.apply(Overlapped(frozenset(["c", "e"])))
    assert [type(effect) for effect in effects] == [PodEvent]
    assert world.apply(Overlapped(frozenset(["c", "e"]))) == []
    assert world.ledger.holds["c"].rivals == {"e"}
    assert world.run() == []
    world.apply(ClaimGone("team/e", "e"))
    assert world.ledger.holds["c"].rivals == frozenset()
    assert world.held_devices() == {"d0"}
