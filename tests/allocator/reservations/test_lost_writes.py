"""The ledger after conflicts and unanswered writes: the devices stay held until the ledger knows what was stored."""

import pytest
from msgspec.structs import replace

from allocator.reservations import FINALIZER, ReservationState
from allocator.reservations.effects import PatchAllocation, PatchFinalizer, PatchReservedFor, Unallocate
from allocator.reservations.events import ClaimSeen, Commit, Conflicted, Lost, PodGone, PodSeen, Tick, Unreserve
from dra.objects import is_reserved_for
from tests.allocator.reservations.server import allocation_of, claim, claim_part, pod
from tests.allocator.reservations.world import World, world_during_commit


def test_removing_the_finalizer_invalidates_a_lost_write():
    world = World(claim("c", finalizers=[FINALIZER]))
    world.assume("a", claim_part(claim("c", finalizers=[FINALIZER]), allocation_of("d0")))
    world.apply(Commit("t-a"))
    lost_write = world.queued_requests.pop()
    world.apply(Lost("c", lost_write.claim.metadata.resource_version))
    world.apply(Unreserve("t-a"))
    world.reread(world.queued_requests.pop().claim)
    world.apply(world.server.apply(world.queued_requests.pop()))
    assert world.held_devices() == frozenset()
    assert isinstance(world.server.apply(lost_write), Conflicted)
    world.assume("b", claim_part(world.server.claims["c"], allocation_of("d0")))
    assert [type(write) for write in world.commit("b")] == [PatchFinalizer, PatchAllocation]


def test_a_claim_is_read_and_written_again_after_a_conflict():
    world = world_during_commit()
    world.server.put(replace(claim("c"), metadata=replace(claim("c").metadata, labels={"x": "y"})))
    writes = world.run()
    assert [type(write) for write in writes] == [PatchFinalizer, PatchFinalizer, PatchAllocation]
    assert world.state("a") is ReservationState.RESERVED


@pytest.mark.parametrize("other_pod_commits", [True, False])
def test_an_unreserved_pod_stays_listed_while_the_claim_is_needed(other_pod_commits):
    """Otherwise the claim would be allocated with an empty reservedFor, and a new leader would not know which pod needs it."""
    world = world_during_commit()
    world.apply(world.server.apply(world.queued_requests.pop()))
    assert world.assume("b", claim_part(world.server.claims["c"])) == []
    world.apply(Unreserve("t-a"))
    assert [type(write) for write in world.run()] == [PatchAllocation]
    assert is_reserved_for(world.server.claims["c"], "a")
    if other_pod_commits:
        assert [type(write) for write in world.commit("b")] == [PatchReservedFor]
        assert is_reserved_for(world.server.claims["c"], "b")
    else:
        world.apply(Unreserve("t-b"))
        assert [type(write) for write in world.run()] == [Unallocate]
        assert world.held_devices() == frozenset()
    assert world.state("a") is ReservationState.PENDING


@pytest.mark.parametrize("write_landed", [True, False])
def test_an_unanswered_write_causes_doubt_until_the_claim_is_read(write_landed):
    world = world_during_commit()
    world.apply(world.server.apply(world.queued_requests.pop()))
    lost_write = world.queued_requests.pop()
    if write_landed:
        world.server.apply(lost_write)
    world.apply(Lost("c", lost_write.claim.metadata.resource_version))
    assert world.state("a") is ReservationState.DOUBT
    assert world.held_devices() == {"d0"}
    assert [type(write) for write in world.run()] == ([] if write_landed else [PatchAllocation])
    assert world.state("a") is ReservationState.RESERVED


@pytest.mark.parametrize("lost_write_lands_first", [True, False])
def test_a_lost_writes_devices_are_held_until_it_expires(lost_write_lands_first):
    world = world_during_commit()
    world.apply(world.server.apply(world.queued_requests.pop()))
    lost_write = world.queued_requests.pop()
    world.apply(Lost("c", lost_write.claim.metadata.resource_version))
    world.apply(Unreserve("t-a"))
    assert world.held_devices() == {"d0"}
    world.reread(world.queued_requests.pop().claim)
    finalizer_removal = world.queued_requests.pop()
    assert isinstance(finalizer_removal, PatchFinalizer)
    assert finalizer_removal.finalizers == ()
    if lost_write_lands_first:
        world.server.apply(lost_write)
    world.apply(world.server.apply(finalizer_removal))
    assert world.held_devices() == ({"d0"} if lost_write_lands_first else frozenset())
    assert isinstance(world.server.apply(lost_write), Conflicted)
    world.run()
    assert world.server.claims["c"].status.allocation is None
    assert world.held_devices() == frozenset()
    assert world.state("a") is ReservationState.PENDING


def test_a_pod_deleted_during_its_writes_leaves_no_allocation():
    world = world_during_commit()
    world.apply(PodGone("a"))
    world.run()
    assert world.server.claims["c"].status.allocation is None
    assert world.held_devices() == frozenset()
    assert world.state("a") is ReservationState.PENDING
    world.apply(PodSeen(pod("a", "c")))
    assert world.state("a") is ReservationState.PENDING


def test_deleting_a_claim_during_a_write_ends_the_reservation():
    world = world_during_commit()
    world.server.remove("c")
    world.run()
    assert world.state("a") is ReservationState.PENDING
    assert world.held_devices() == frozenset()
    world.apply(ClaimSeen(claim("c")))
    assert "c" not in world.ledger.holds


def test_a_write_that_is_never_answered_is_repeated():
    world = world_during_commit()
    world.queued_requests.clear()
    world.now = 60
    world.apply(Tick())
    assert [type(write) for write in world.run()] == [PatchFinalizer, PatchAllocation]
    assert world.state("a") is ReservationState.RESERVED
