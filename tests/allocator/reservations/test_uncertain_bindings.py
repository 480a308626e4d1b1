"""The ledger between reservation and binding: when it waits, when it reads the pod, and when it frees the devices."""

import pytest

from allocator.reservations import ReservationState
from allocator.reservations.effects import (
    Declined,
    Dropped,
    PatchReservedFor,
    PodEvent,
    Ready,
    Requeue,
    RereadPod,
    Unallocate,
)
from allocator.reservations.events import Commit, CommitConfirmed, PodSeen, TakeBack, Tick, Unreserve
from dra.objects import is_reserved_for
from tests.allocator.reservations.server import allocation_of, claim, claim_part, copy_ledger, pod
from tests.allocator.reservations.world import World, world_after_commit


def test_a_reserved_pod_keeps_devices_while_binding_is_uncertain():
    world = world_after_commit()
    world.apply(CommitConfirmed("t-a"))
    world.apply(Unreserve("t-a"))
    assert world.run() == []
    world.now = 29
    world.apply(Tick())
    assert world.state("a") is ReservationState.BINDING
    # In a copy of the world, an informer reports that the pod is bound.
    bound_world = World.__new__(World)
    bound_world.__dict__ = {
        **world.__dict__,
        "ledger": copy_ledger(world.ledger),
        "reported_effects": [],
        "queued_requests": [],
    }
    bound_world.apply(PodSeen(pod("a", "c", node="n1")))
    bound_world.now = 1000
    bound_world.apply(Tick())
    assert bound_world.state("a") is ReservationState.BOUND
    world.now = 30
    world.apply(Tick())
    assert [type(write) for write in world.run()] == [Unallocate]
    assert world.server.claims["c"].status.allocation is None
    assert Requeue(frozenset(["a"])) in world.reported_effects


def test_an_unconfirmed_binding_is_checked_before_devices_are_freed():
    world = world_after_commit()
    world.apply(CommitConfirmed("t-a"))
    world.pods["a"] = pod("a", "c", node="n1")  # bound, without an event of the informer
    world.now = 1000
    world.apply(Tick())
    assert world.queued_requests == [RereadPod("a", "team/a")]
    assert world.run() == []
    assert world.state("a") is ReservationState.BOUND
    assert is_reserved_for(world.server.claims["c"], "a")


def test_a_vanished_pod_loses_its_reservation():
    world = world_after_commit()
    world.apply(CommitConfirmed("t-a"))
    del world.pods["a"]
    world.now = 1000
    world.apply(Tick())
    assert [type(write) for write in world.run()] == [Unallocate]
    assert world.held_devices() == frozenset()


def test_retrying_a_reserved_pod_causes_no_write():
    world = world_after_commit()
    world.apply(CommitConfirmed("t-a"))
    world.apply(Unreserve("t-a"))
    assert world.assume("a", claim_part(world.server.claims["c"]), token="t2") == []
    world.apply(Commit("t2"))
    assert world.reported_effects[-1] == Ready("t2", "a", "n1")
    assert world.run() == []
    assert world.apply(Commit("t-a")) == [Dropped("t-a", "", "the reservation is not known")]


@pytest.mark.parametrize("may_be_bound", [False, True])
def test_a_pod_that_names_another_claim_gives_up_the_former_claim_first(may_be_bound):
    world = world_after_commit(claim("e"))
    if may_be_bound:
        world.apply(CommitConfirmed("t-a"))
    [*_, declined] = world.assume("a", claim_part(claim("e"), allocation_of("d1")), token="t2")
    assert declined == Declined("t2", "the pod's former claims are being released")
    assert (RereadPod("a", "team/a") in world.queued_requests) == may_be_bound
    assert [type(write) for write in world.run()] == [Unallocate]
    assert (world.state("a"), world.held_devices()) == (ReservationState.PENDING, frozenset())
    assert world.assume("a", claim_part(claim("e"), allocation_of("d1")), token="t2") == []
    assert world.ledger.holds["c"].users == frozenset()


def test_a_bound_pod_keeps_the_devices_of_its_former_claim():
    world = world_after_commit(claim("e"))
    world.apply(CommitConfirmed("t-a"))
    world.apply(PodSeen(pod("a", "c", node="n1")))
    part = claim_part(claim("e"), allocation_of("d1"))
    [declined] = world.assume("a", part, token="t2", node="n2", bound=True)
    assert isinstance(declined, Declined)
    assert [type(effect) for effect in world.assume("a", part, token="t2")] == [Declined]  # by a scheduler
    assert world.assume("a", part, token="t2", bound=True) == []
    world.apply(Commit("t2"))
    world.run()
    assert (world.state("a"), world.ledger.reservations["a"].claims) == (ReservationState.BOUND, ("e",))
    assert [is_reserved_for(world.server.claims[name], "a") for name in "ce"] == [True, True]


def test_an_unconfirmed_reservation_ends_at_once_when_released():
    """The scheduler has not been told "committed", so no binding can be under way: the ledger neither waits nor reads the pod."""
    world = world_after_commit()
    world.apply(Unreserve("t-a"))
    assert [type(request) for request in world.queued_requests] == [Unallocate]
    world.run()
    assert world.state("a") is ReservationState.PENDING
    assert world.apply(CommitConfirmed("t-a")) == []


def test_requests_of_the_scheduler_extend_a_reservation():
    world = world_after_commit()
    for world.now in range(0, 3000, 500):
        world.apply(Tick())
        world.commit("a")
    assert world.state("a") is ReservationState.RESERVED
    world.now += 900
    world.apply(Tick())
    assert [type(write) for write in world.run()] == [Unallocate]


@pytest.mark.parametrize("may_be_bound", [False, True])
def test_unusable_devices_are_freed_once_no_binding_is_possible(may_be_bound):
    world = world_after_commit()
    if may_be_bound:
        world.apply(CommitConfirmed("t-a"))
    effects = world.apply(TakeBack("a", ("c",), "device d0 says Broken"))
    if may_be_bound:
        assert (effects, world.run(), world.state("a")) == ([], [], ReservationState.BINDING)
        world.now = 9
        world.apply(TakeBack("a", ("c",), "device d0 says Broken"))  # a second event does not extend the time
        world.now = 10
        world.apply(Tick())
        assert world.queued_requests == [RereadPod("a", "team/a")]
    else:
        assert PodEvent("a", "device d0 says Broken") in effects
    assert [type(write) for write in world.run()] == [Unallocate]
    assert (world.state("a"), world.held_devices()) == (ReservationState.PENDING, frozenset())
    assert Requeue(frozenset(["a"])) in world.reported_effects


def test_only_the_last_pod_frees_unusable_shared_devices():
    world = World(claim("c"))
    for name in ("a", "b"):
        world.assume(name, claim_part(world.server.claims["c"], None if name == "b" else allocation_of("d0")))
        world.commit(name)
    world.apply(TakeBack("b", ("c",), "device d0 says Broken"))
    assert [type(write) for write in world.run()] == [PatchReservedFor]
    assert [consumer.uid for consumer in world.server.claims["c"].status.reserved_for] == ["a"]
    world.apply(TakeBack("a", ("c",), "device d0 says Broken"))
    assert [type(write) for write in world.run()] == [Unallocate]
