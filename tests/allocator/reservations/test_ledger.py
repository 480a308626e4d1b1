"""The ledger (the allocator's record of reservations), event by event: it reserves, commits and releases claims."""

import sys

import pytest
from msgspec.structs import asdict, replace

from allocator.reservations import FINALIZER, ReservationState, step
from allocator.reservations.effects import (
    Declined,
    Exceeded,
    Freed,
    PatchAllocation,
    PatchFinalizer,
    PatchReservedFor,
    PodEvent,
    Ready,
    Requeue,
)
from allocator.reservations.events import (
    BecameFollower,
    BecameLeader,
    ClaimGone,
    Commit,
    Conflicted,
    Denied,
    Lost,
    Overlapped,
    PodGone,
    PodSeen,
    Tick,
    Unreserve,
    Written,
)
from allocator.reservations.ledger import FORGOTTEN
from allocator.reservations.table import TABLE, Signal
from dra.objects import ResourceClaimConsumerReference, is_reserved_for
from dra.policy import QuotaLine
from tests.allocator.reservations.server import allocation_of, claim, claim_part, copy_ledger, pod
from tests.allocator.reservations.world import (
    POOL,
    World,
    world_after_commit,
    world_during_commit,
    world_with_reservation,
)
from tests.dra.samples import DRIVER


def test_a_pod_may_be_bound_after_two_writes():
    world = World(claim("c"))
    assert world.assume("a", claim_part(claim("c"), allocation_of("d0"))) == []
    assert world.held_devices() == {"d0"}
    assert [type(write) for write in world.commit("a")] == [PatchFinalizer, PatchAllocation]
    assert world.reported_effects[-1] == Ready("t-a", "a", "n1")
    assert is_reserved_for(world.server.claims["c"], "a")
    world.deliver_claim_events()
    assert len(world.ledger.ahead) == 0
    assert world.held_devices() == {"d0"}
    world.apply(PodSeen(pod("a", "c", node="n1")))
    assert world.state("a") is ReservationState.BOUND


def test_an_assumed_allocation_is_freed_without_a_write():
    world = world_with_reservation()
    effects = world.apply(Unreserve("t-a"))
    assert Freed(frozenset([POOL])) in effects
    assert Requeue(frozenset(["a"])) in effects
    assert world.run() == []
    assert world.held_devices() == frozenset()
    assert world.state("a") is ReservationState.PENDING


def test_an_assumed_reservation_expires_and_its_pod_is_notified():
    world = world_with_reservation()
    world.now = 119
    assert world.apply(Tick()) == []
    world.now = 120
    effects = world.apply(Tick())
    assert any(isinstance(effect, PodEvent) and "too long" in effect.sentence for effect in effects)
    assert world.held_devices() == frozenset()


def test_a_decision_that_rests_on_an_older_ledger_is_declined():
    world = World(claim("c"), claim("e"))
    old_generation = world.ledger.generation
    world.assume("a", claim_part(claim("c"), allocation_of("d0")))
    declined = world.assume("b", claim_part(claim("e"), allocation_of("d0")), generation=old_generation)
    assert declined == [Declined("t-b", f"pool p of {DRIVER} has changed since the decision")]
    assert world.state("b") is ReservationState.PENDING


def test_a_released_reservation_awaits_no_commit():
    """Its write is still in progress. A commit that waited for it would wait in vain."""
    world = world_during_commit()
    world.apply(PodGone("a"))
    assert world.state("a") is ReservationState.RELEASED
    assert not world.ledger.reservations["a"].awaited


def test_the_ledger_records_a_limited_number_of_changes(monkeypatch):
    """A decision that rests on a ledger from before the forgotten changes is declined."""
    monkeypatch.setattr(sys.modules["allocator.reservations.step"], "MAX_CHANGED", 2)
    world = World(claim("c"), claim("e"), claim("f"))
    old_generation = world.ledger.generation
    world.assume("a", claim_part(claim("c"), allocation_of("d0")))
    world.assume("b", claim_part(claim("e"), allocation_of("d1")))
    assert set(world.ledger.changed) == {FORGOTTEN, "team", f"{DRIVER}/p"}
    assert world.ledger.changed_at("another/pool") > old_generation
    declined = world.assume("x", claim_part(claim("f"), allocation_of("d2")), generation=old_generation)
    assert declined == [Declined("t-x", f"pool p of {DRIVER} has changed since the decision")]


def test_a_reservation_beyond_a_quota_is_refused():
    world = World(claim("c"))
    quota_line = QuotaLine("team/gpus", requested=3, hard=8, used=6)
    assert world.assume("a", claim_part(claim("c"), allocation_of("d0")), quota=[quota_line]) == [
        Exceeded("t-a", quota_line)
    ]
    assert quota_line.remaining == 2
    assert world.state("a") is ReservationState.PENDING


def test_a_second_pod_of_a_claim_only_extends_reserved_for():
    world = world_with_reservation()
    world.assume("b", claim_part(claim("c")))
    world.commit("a")
    assert [type(write) for write in world.commit("b")] == [PatchReservedFor]
    reserved = [consumer.uid for consumer in world.server.claims["c"].status.reserved_for]
    assert reserved == ["a", "b"]


def test_the_first_commit_allocates_a_shared_claim():
    world = world_with_reservation()
    world.assume("b", claim_part(claim("c")))
    world.apply(Unreserve("t-a"))
    assert world.held_devices() == {"d0"}
    assert [type(write) for write in world.commit("b")] == [PatchFinalizer, PatchAllocation]
    assert world.state("b") is ReservationState.RESERVED


def test_a_decision_about_an_outdated_claim_is_declined():
    world = World(claim("c"))
    declined = world.assume("a", claim_part(claim("c")))
    assert declined == [Declined("t-a", "claim team/c is not allocated any more")]
    world.assume("a", claim_part(claim("c"), allocation_of("d0")))
    declined = world.assume("b", claim_part(claim("c"), allocation_of("d1")))
    assert declined == [Declined("t-b", "claim team/c was allocated meanwhile")]


def test_at_most_256_pods_share_a_claim():
    shared_claim = claim("c")
    other_pods = tuple(ResourceClaimConsumerReference(resource="pods", name=f"p{n}", uid=f"p{n}") for n in range(255))
    world = World(
        replace(
            shared_claim, status=replace(shared_claim.status, allocation=allocation_of("d0"), reserved_for=other_pods)
        )
    )
    assert world.assume("last", claim_part(shared_claim)) == []
    world.commit("last")
    assert len(world.server.claims["c"].status.reserved_for) == 256
    assert world.assume("late", claim_part(shared_claim)) == [
        Declined("t-late", "claim team/c already has the maximum number of pods")
    ]


def test_committing_a_claim_that_has_its_finalizer_takes_one_write():
    world = World(claim("c", finalizers=[FINALIZER]))
    world.assume("a", claim_part(claim("c", finalizers=[FINALIZER]), allocation_of("d0")))
    assert [type(write) for write in world.commit("a")] == [PatchAllocation]
    assert world.state("a") is ReservationState.RESERVED


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
@pytest.mark.parametrize("was_seen_running", [True, False])
def test_a_finished_pod_loses_its_reservation(phase, was_seen_running):
    """The finished pod still has a node, and the claim still lists the pod: the signal DONE wins over PLACED."""
    world = world_after_commit()
    world.deliver_claim_events()
    if was_seen_running:
        world.apply(PodSeen(pod("a", "c", node="n1", phase="Running")))
        assert world.state("a") is ReservationState.BOUND
    world.apply(PodSeen(pod("a", "c", node="n1", phase=phase)))
    assert world.state("a") in (ReservationState.RELEASED, ReservationState.PENDING)
    world.run()
    world.apply(PodGone("a"))
    world.run()
    assert world.state("a") is ReservationState.PENDING


def test_a_step_ends_although_the_table_has_a_cycle():
    """Contradictory facts about a reservation must not cause an endless loop."""
    cyclic_table = {**TABLE, ReservationState.BOUND: {Signal.HELD: ReservationState.RESERVED}}
    world = world_after_commit()
    step(world.ledger, PodSeen(pod("a", "c", node="n1", phase="Running")), 0.0, cyclic_table)
    assert world.ledger.reservations["a"].state in (ReservationState.RESERVED, ReservationState.BOUND)


def test_events_without_news_change_nothing():
    world = World(claim("c"))
    events = [
        Commit("t-a"),
        Written("1", claim("c")),
        Conflicted("c", "1"),
        Denied("x", "1", "no"),
        Lost("c", "9"),
        Lost("x", "9"),
        Unreserve("t-x"),
        ClaimGone("team/x", "x"),
        PodGone("x"),
        Overlapped(frozenset(["c", "x"])),
        BecameLeader(),
        Tick(),
    ]
    world.assume("a", claim_part(claim("c"), allocation_of("d0")))
    world.commit("a")
    world.deliver_claim_events()
    reservation = world.ledger.reservations["a"]
    for event in events:
        world.apply(event)
        assert world.ledger.reservations["a"] == reservation
        assert world.queued_requests == []
    assert world.assume("a", claim_part(claim("c"), allocation_of("d0"))) == []
    assert world.ledger.reservations["a"] == reservation


def test_a_failed_event_leaves_the_ledger_unchanged(monkeypatch):
    """A failed event is applied again later, so the first attempt must not change anything."""
    world = world_with_reservation(claim("e"))
    before = copy_ledger(world.ledger)
    monkeypatch.setattr(sys.modules["allocator.reservations.step"], "same_devices", lambda *_: 1 / 0)
    for event in (Unreserve("t-a"), ClaimGone("team/c", "c"), PodGone("a"), BecameFollower()):
        with pytest.raises(ZeroDivisionError):
            world.apply(event)
        assert asdict(world.ledger) == asdict(before)
