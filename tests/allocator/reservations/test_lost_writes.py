"""The ledger after conflicts and unanswered writes: it holds the devices until it knows what was stored."""

import pytest
from msgspec.structs import replace

from allocator.reservations import FINALIZER, ReservationState
from allocator.reservations.effects import PatchAllocation, PatchFinalizer, PatchReservedFor, Unallocate
from allocator.reservations.events import ClaimSeen, Commit, Conflicted, Lost, PodGone, PodSeen, Tick, Unreserve
from dra.objects import is_reserved_for
from tests.allocator.reservations.server import claim, granted, part, pod
from tests.allocator.reservations.world import World


def test_removing_the_finalizer_invalidates_a_lost_write():
    world = World(claim("c", finalizers=[FINALIZER]))
    world.assume("a", part(claim("c", finalizers=[FINALIZER]), granted("d0")))
    world.apply(Commit("t-a"))
    lost = world.errands.pop()
    world.apply(Lost("c", lost.claim.metadata.resource_version))
    world.apply(Unreserve("t-a"))
    world.reread(world.errands.pop().claim)
    world.apply(world.server.apply(world.errands.pop()))
    assert world.held() == frozenset()
    assert isinstance(world.server.apply(lost), Conflicted)
    world.assume("b", part(world.server.claims["c"], granted("d0")))
    assert [type(write) for write in world.commit("b")] == [PatchFinalizer, PatchAllocation]


def test_a_conflicting_claim_is_read_and_written_again():
    world = World(claim("c"))
    world.assume("a", part(claim("c"), granted("d0")))
    world.apply(Commit("t-a"))
    world.server.put(replace(claim("c"), metadata=replace(claim("c").metadata, labels={"x": "y"})))
    writes = world.run()
    assert [type(write) for write in writes] == [PatchFinalizer, PatchFinalizer, PatchAllocation]
    assert world.state("a") is ReservationState.RESERVED


@pytest.mark.parametrize("other_commits", [True, False])
def test_an_unreserved_pod_stays_in_reserved_for_until_the_other_pod_commits(other_commits):
    """Otherwise the claim would be allocated with an empty reservedFor, and a new leader would not know for which pod."""
    world = World(claim("c"))
    world.assume("a", part(claim("c"), granted("d0")))
    world.apply(Commit("t-a"))
    world.apply(world.server.apply(world.errands.pop()))
    assert world.assume("b", part(world.server.claims["c"])) == []
    world.apply(Unreserve("t-a"))
    assert [type(write) for write in world.run()] == [PatchAllocation]
    assert is_reserved_for(world.server.claims["c"], "a")
    if other_commits:
        assert [type(write) for write in world.commit("b")] == [PatchReservedFor]
        assert is_reserved_for(world.server.claims["c"], "b")
    else:
        world.apply(Unreserve("t-b"))
        assert [type(write) for write in world.run()] == [Unallocate]
        assert world.held() == frozenset()
    assert world.state("a") is ReservationState.PENDING


@pytest.mark.parametrize("landed", [True, False])
def test_an_unanswered_write_is_in_doubt_until_the_claim_arrives(landed):
    world = World(claim("c"))
    world.assume("a", part(claim("c"), granted("d0")))
    world.apply(Commit("t-a"))
    world.apply(world.server.apply(world.errands.pop()))
    lost = world.errands.pop()
    if landed:
        world.server.apply(lost)
    world.apply(Lost("c", lost.claim.metadata.resource_version))
    assert world.state("a") is ReservationState.DOUBT
    assert world.held() == {"d0"}
    assert [type(write) for write in world.run()] == ([] if landed else [PatchAllocation])
    assert world.state("a") is ReservationState.RESERVED


@pytest.mark.parametrize("lands_first", [True, False])
def test_devices_of_a_lost_write_are_held_until_the_write_is_invalid(lands_first):
    world = World(claim("c"))
    world.assume("a", part(claim("c"), granted("d0")))
    world.apply(Commit("t-a"))
    world.apply(world.server.apply(world.errands.pop()))
    lost = world.errands.pop()
    world.apply(Lost("c", lost.claim.metadata.resource_version))
    world.apply(Unreserve("t-a"))
    assert world.held() == {"d0"}
    world.reread(world.errands.pop().claim)
    removal = world.errands.pop()
    assert isinstance(removal, PatchFinalizer)
    assert removal.finalizers == ()
    if lands_first:
        world.server.apply(lost)
    world.apply(world.server.apply(removal))
    assert world.held() == ({"d0"} if lands_first else frozenset())
    assert isinstance(world.server.apply(lost), Conflicted)
    world.run()
    assert world.server.claims["c"].status.allocation is None
    assert world.held() == frozenset()
    assert world.state("a") is ReservationState.PENDING


def test_a_pod_deleted_during_its_writes_leaves_nothing():
    world = World(claim("c"))
    world.assume("a", part(claim("c"), granted("d0")))
    world.apply(Commit("t-a"))
    world.apply(PodGone("a"))
    world.run()
    assert world.server.claims["c"].status.allocation is None
    assert world.held() == frozenset()
    assert world.state("a") is ReservationState.PENDING
    world.apply(PodSeen(pod("a", "c")))
    assert world.state("a") is ReservationState.PENDING


def test_a_claim_deleted_during_a_write_requeues_the_pod():
    world = World(claim("c"))
    world.assume("a", part(claim("c"), granted("d0")))
    world.apply(Commit("t-a"))
    world.server.remove("c")
    world.run()
    assert world.state("a") is ReservationState.PENDING
    assert world.held() == frozenset()
    world.apply(ClaimSeen(claim("c")))
    assert "c" not in world.ledger.holds


def test_a_write_that_is_never_answered_counts_as_lost():
    world = World(claim("c"))
    world.assume("a", part(claim("c"), granted("d0")))
    world.apply(Commit("t-a"))
    world.errands.clear()
    world.now = 60
    world.apply(Tick())
    assert [type(write) for write in world.run()] == [PatchFinalizer, PatchAllocation]
    assert world.state("a") is ReservationState.RESERVED
