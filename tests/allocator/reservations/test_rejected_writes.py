"""The ledger after writes that the API server rejects: it retries with growing pauses."""

from allocator.reservations import ReservationState
from allocator.reservations.effects import Declined, Dropped, PodEvent, Requeue
from allocator.reservations.events import (
    BecameFollower,
    BecameLeader,
    ClaimGone,
    ClaimSeen,
    Commit,
    Denied,
    PodGone,
    Tick,
)
from tests.allocator.reservations.server import allocation_of, claim, claim_part
from tests.allocator.reservations.world import World, world_after_commit, world_during_commit


def test_a_rejected_write_requeues_the_pod_with_the_reason():
    world = world_during_commit()
    effects = world.apply(Denied("c", "1", "claims are not yours to write"))
    assert Dropped("t-a", "a", "claims are not yours to write") in effects
    assert world.held_devices() == frozenset()


def reject_writes(world, name, reason="the API server rejects the write", accepted_claims=()):
    """Commit the reservation of a pod. Accept the writes of `accepted_claims`; reject all others, and return how many were rejected."""
    world.apply(Commit(f"t-{name}"))
    rejected = 0
    while world.queued_requests:
        write = world.queued_requests.pop(0)
        meta = write.claim.metadata
        if meta.uid in accepted_claims:
            world.apply(world.server.apply(write))
            continue
        world.apply(Denied(meta.uid, meta.resource_version, reason))
        rejected += 1
    return rejected


def test_a_claim_with_rejected_writes_is_retried_with_backoff():
    """The first retry comes at once, because the cause of the first rejection may have been temporary."""
    world = World(claim("c"))
    world.reported_effects = [Requeue(frozenset({"a"}))]  # starts the first attempt
    times = []
    for second in range(400):
        world.now = float(second)
        world.apply(Tick())
        while Requeue(frozenset({"a"})) in world.reported_effects:
            world.reported_effects.clear()
            assert world.assume("a", claim_part(claim("c"), allocation_of("d0"))) == []
            times += [second] * reject_writes(world, "a")
            assert world.held_devices() == frozenset()
    assert times == [0, 0, 1, 3, 7, 15, 31, 63, 123, 183, 243, 303, 363]


def test_a_claim_is_not_reserved_after_two_rejected_writes():
    world = World(claim("c"), claim("e"))
    for _ in range(2):
        parts = (claim_part(claim("c"), allocation_of("d0")), claim_part(world.server.claims["e"], allocation_of("d1")))
        assert world.assume("a", *parts) == []
        assert reject_writes(world, "a", "parameters are too long", accepted_claims=("e",)) == 1
        assert world.held_devices() == frozenset()
    sentences = [effect.sentence for effect in world.reported_effects if isinstance(effect, PodEvent)]
    assert sentences == ["parameters are too long"] * 2
    parts = (claim_part(claim("c"), allocation_of("d0")), claim_part(world.server.claims["e"], allocation_of("d1")))
    [declined] = world.assume("a", *parts)
    assert declined == Declined("t-a", "claim team/c cannot be written for now: parameters are too long")
    assert world.queued_requests == []
    assert world.assume("b", claim_part(world.server.claims["e"], allocation_of("d1"))) == []
    assert world.commit("b")
    assert world.state("b") is ReservationState.RESERVED


def test_a_rejected_deallocation_is_retried_with_growing_pauses():
    """Without pauses, each rejection would cause another write, endlessly."""
    world = world_after_commit()
    world.apply(PodGone("a"))
    times = []
    for second in range(300):
        world.now = float(second)
        world.apply(Tick())
        while world.queued_requests:
            times.append(second)
            meta = world.queued_requests.pop().claim.metadata
            world.apply(Denied(meta.uid, meta.resource_version, "no"))
    assert times == [0, 0, 1, 3, 7, 15, 31, 63, 123, 183, 243]
    assert world.held_devices() == {"d0"}


def test_success_deletion_or_new_leadership_resets_the_backoff():
    world = World(claim("c"))
    for _ in range(2):
        world.assume("a", claim_part(claim("c"), allocation_of("d0")))
        reject_writes(world, "a")
    assert world.ledger.holds["c"].refusal
    world.apply(BecameFollower())
    world.apply(BecameLeader())
    assert (world.ledger.holds["c"].refusals, world.ledger.holds["c"].refusal) == (0, "")
    world.assume("a", claim_part(claim("c"), allocation_of("d0")))
    reject_writes(world, "a")
    world.assume("a", claim_part(claim("c"), allocation_of("d0")))
    world.commit("a")
    assert world.ledger.holds["c"].refusals == 0
    world.apply(ClaimGone("team/c", "c"))
    assert "c" not in world.ledger.holds


def test_a_new_claim_version_does_not_skip_the_backoff():
    """Otherwise the claim's owner could cause any number of writes."""
    world = World(claim("c"))
    for _ in range(2):
        world.assume("a", claim_part(claim("c"), allocation_of("d0")))
        reject_writes(world, "a")
    world.apply(ClaimSeen(claim("c", resourceVersion="9")))
    [declined] = world.assume("a", claim_part(world.ledger.holds["c"].claim, allocation_of("d0")))
    assert isinstance(declined, Declined)
