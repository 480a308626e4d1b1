"""The ledger and allocations of other writers: which allocation stays."""

import pytest
from msgspec.structs import replace

from allocator.reservations import FINALIZER, ReservationState
from allocator.reservations.effects import Dropped, PatchFinalizer, PodEvent, Unallocate
from allocator.reservations.events import ClaimGone, ClaimSeen, Commit, CommitConfirmed, Overlapped, PodSeen, TakeBack
from dra.objects import ResourceClaimConsumerReference
from tests.allocator.reservations.server import claim, granted, part, pod
from tests.allocator.reservations.world import World


def test_a_foreign_allocation_returns_the_pod_to_pending():
    world = World(claim("c"))
    world.assume("a", part(claim("c"), granted("d0")))
    world.apply(Commit("t-a"))
    taken = replace(claim("c"), status=replace(claim("c").status, allocation=granted("d1", node="n2")))
    world.server.put(taken)
    assert [type(write) for write in world.run()] == [PatchFinalizer]
    assert any(isinstance(effect, Dropped) for effect in world.reported)
    assert world.state("a") is ReservationState.PENDING
    assert world.server.claims["c"].status.allocation == granted("d1", node="n2")


@pytest.mark.parametrize("reserved", [False, True])
def test_a_foreign_allocation_is_removed_only_without_pods(reserved):
    """Two cases: the other scheduler has reserved the claim for no pod, or for a pod."""
    unallocated = claim("c", finalizers=(FINALIZER,))
    consumers = (ResourceClaimConsumerReference(resource="pods", name="x", uid="x"),) if reserved else ()
    status = replace(unallocated.status, allocation=granted("d0"), reserved_for=consumers)
    world = World(replace(unallocated, status=status))
    world.apply(PodSeen(pod("a", "c")))
    world.apply(TakeBack("a", ("c",), "node n1 does not take the pod"))
    assert [type(write) for write in world.run()] == ([] if reserved else [Unallocate])
    assert (world.server.claims["c"].status.allocation is None) is not reserved


def test_a_recreated_claim_is_another_claim():
    world = World(claim("c"))
    world.assume("a", part(claim("c"), granted("d0")))
    world.apply(ClaimSeen(claim("c", uid="again", resourceVersion="9")))
    assert world.state("a") is ReservationState.PENDING
    assert world.ledger.keys["team/c"] == "again"


def test_an_allocation_of_an_unstarted_pod_yields_to_another_writers():
    world = World(claim("c"), claim("e"))
    world.assume("a", part(claim("c"), granted("d0")))
    world.commit("a")
    world.apply(CommitConfirmed("t-a"))
    theirs = replace(claim("e"), status=replace(claim("e").status, allocation=granted("d0")))
    world.apply(ClaimSeen(world.server.put(theirs)))
    assert world.apply(Overlapped(frozenset(["c", "e"]))) == []  # the pod may be bound, so the ledger reads it first
    assert [type(write) for write in world.run()] == [Unallocate]
    assert any(isinstance(effect, PodEvent) and "gave them up" in effect.sentence for effect in world.reported)
    world.watch()
    assert world.held() == {"d0"}


def test_overlapping_allocations_are_in_doubt_until_one_is_gone():
    world = World(claim("c"), claim("e"))
    world.assume("a", part(claim("c"), granted("d0")))
    world.commit("a")
    world.apply(PodSeen(pod("a", "c", node="n1")))
    theirs = replace(claim("e"), status=replace(claim("e").status, allocation=granted("d0")))
    world.apply(ClaimSeen(world.server.put(theirs)))
    effects = world.apply(Overlapped(frozenset(["c", "e"])))
    assert [type(effect) for effect in effects] == [PodEvent]
    assert world.apply(Overlapped(frozenset(["c", "e"]))) == []
    assert world.ledger.holds["c"].rivals == {"e"}
    assert world.run() == []
    world.apply(ClaimGone("team/e", "e"))
    assert world.ledger.holds["c"].rivals == frozenset()
    assert world.held() == {"d0"}
