"""The ledger between reservation and binding: when it waits, when it reads the pod, and when it frees the devices."""

import pytest

from allocator.reservations import ReservationState
from allocator.reservations.effects import Dropped, PatchReservedFor, PodEvent, Ready, Requeue, RereadPod, Unallocate
from allocator.reservations.events import Commit, CommitConfirmed, PodSeen, TakeBack, Tick, Unreserve
from dra.objects import is_reserved_for
from tests.allocator.reservations.server import claim, copied, granted, part, pod
from tests.allocator.reservations.world import World


def test_a_reserved_pod_keeps_devices_while_binding_is_uncertain():
    world = World(claim("c"))
    world.assume("a", part(claim("c"), granted("d0")))
    world.commit("a")
    world.apply(CommitConfirmed("t-a"))
    world.apply(Unreserve("t-a"))
    assert world.run() == []
    world.now = 29
    world.apply(Tick())
    assert world.state("a") is ReservationState.BINDING
    bound = World.__new__(World)
    bound.__dict__ = {**world.__dict__, "ledger": copied(world.ledger), "reported": [], "errands": []}
    bound.apply(PodSeen(pod("a", "c", node="n1")))
    bound.now = 1000
    bound.apply(Tick())
    assert bound.state("a") is ReservationState.BOUND
    world.now = 30
    world.apply(Tick())
    assert [type(write) for write in world.run()] == [Unallocate]
    assert world.server.claims["c"].status.allocation is None
    assert Requeue(frozenset(["a"])) in world.reported


def test_an_unconfirmed_binding_is_checked_before_devices_are_freed():
    world = World(claim("c"))
    world.assume("a", part(claim("c"), granted("d0")))
    world.commit("a")
    world.apply(CommitConfirmed("t-a"))
    world.pods["a"] = pod("a", "c", node="n1")  # bound, without an event of the informer
    world.now = 1000
    world.apply(Tick())
    assert world.errands == [RereadPod("a", "team/a")]
    assert world.run() == []
    assert world.state("a") is ReservationState.BOUND
    assert is_reserved_for(world.server.claims["c"], "a")


def test_a_vanished_pod_loses_its_reservation():
    world = World(claim("c"))
    world.assume("a", part(claim("c"), granted("d0")))
    world.commit("a")
    world.apply(CommitConfirmed("t-a"))
    del world.pods["a"]
    world.now = 1000
    world.apply(Tick())
    assert [type(write) for write in world.run()] == [Unallocate]
    assert world.held() == frozenset()


def test_a_retry_of_a_reserved_pod_finds_everything_written():
    world = World(claim("c"))
    world.assume("a", part(claim("c"), granted("d0")))
    world.commit("a")
    world.apply(CommitConfirmed("t-a"))
    world.apply(Unreserve("t-a"))
    assert world.assume("a", part(world.server.claims["c"]), token="t2") == []
    world.apply(Commit("t2"))
    assert world.reported[-1] == Ready("t2", "a", "n1")
    assert world.run() == []
    assert world.apply(Commit("t-a")) == [Dropped("t-a", "", "the reservation is not known")]


def test_an_unanswered_reservation_ends_at_once_when_released():
    """No binding can be under way, so the ledger neither waits nor reads the pod."""
    world = World(claim("c"))
    world.assume("a", part(claim("c"), granted("d0")))
    world.commit("a")
    world.apply(Unreserve("t-a"))
    assert [type(errand) for errand in world.errands] == [Unallocate]
    world.run()
    assert world.state("a") is ReservationState.PENDING
    assert world.apply(CommitConfirmed("t-a")) == []


def test_requests_of_the_scheduler_extend_a_reservation():
    world = World(claim("c"))
    world.assume("a", part(claim("c"), granted("d0")))
    world.commit("a")
    for world.now in range(0, 3000, 500):
        world.apply(Tick())
        world.commit("a")
    assert world.state("a") is ReservationState.RESERVED
    world.now += 900
    world.apply(Tick())
    assert [type(write) for write in world.run()] == [Unallocate]


@pytest.mark.parametrize("is_binding", [False, True])
def test_unusable_devices_are_freed_unless_a_binding_is_uncertain(is_binding):
    world = World(claim("c"))
    world.assume("a", part(claim("c"), granted("d0")))
    world.commit("a")
    if is_binding:
        world.apply(CommitConfirmed("t-a"))
    effects = world.apply(TakeBack("a", ("c",), "device d0 says Broken"))
    if is_binding:
        assert (effects, world.run(), world.state("a")) == ([], [], ReservationState.BINDING)
        world.now = 9
        world.apply(TakeBack("a", ("c",), "device d0 says Broken"))  # a second attempt does not extend the time
        world.now = 10
        world.apply(Tick())
        assert world.errands == [RereadPod("a", "team/a")]
    else:
        assert PodEvent("a", "device d0 says Broken") in effects
    assert [type(write) for write in world.run()] == [Unallocate]
    assert (world.state("a"), world.held()) == (ReservationState.PENDING, frozenset())
    assert Requeue(frozenset(["a"])) in world.reported


def test_a_pod_leaves_unusable_shared_devices_to_the_others():
    world = World(claim("c"))
    for name in ("a", "b"):
        world.assume(name, part(world.server.claims["c"], None if name == "b" else granted("d0")))
        world.commit(name)
    world.apply(TakeBack("b", ("c",), "device d0 says Broken"))
    assert [type(write) for write in world.run()] == [PatchReservedFor]
    assert [consumer.uid for consumer in world.server.claims["c"].status.reserved_for] == ["a"]
    world.apply(TakeBack("a", ("c",), "device d0 says Broken"))
    assert [type(write) for write in world.run()] == [Unallocate]
