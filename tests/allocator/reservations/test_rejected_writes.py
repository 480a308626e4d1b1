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
from tests.allocator.reservations.server import claim, granted, part
from tests.allocator.reservations.world import World


def test_a_rejected_write_requeues_the_pod_with_the_reason():
    world = World(claim("c"))
    world.assume("a", part(claim("c"), granted("d0")))
    world.apply(Commit("t-a"))
    effects = world.apply(Denied("c", "1", "claims are not yours to write"))
    assert Dropped("t-a", "a", "claims are not yours to write") in effects
    assert world.held() == frozenset()


def refused(world, name, why="the API server will not have it", others=()):
    """Commit a pod and reject its writes, except those of some claims; return how many were rejected."""
    world.apply(Commit(f"t-{name}"))
    writes = 0
    while world.errands:
        write = world.errands.pop(0)
        meta = write.claim.metadata
        if meta.uid in others:
            world.apply(world.server.apply(write))
            continue
        world.apply(Denied(meta.uid, meta.resource_version, why))
        writes += 1
    return writes


def test_a_claim_with_rejected_writes_is_retried_with_backoff():
    """The first retry comes at once, because the cause of the first rejection may have been temporary."""
    world = World(claim("c"))
    world.reported = [Requeue(frozenset({"a"}))]
    times = []
    for second in range(400):
        world.now = float(second)
        world.apply(Tick())
        while Requeue(frozenset({"a"})) in world.reported:
            world.reported.clear()
            assert world.assume("a", part(claim("c"), granted("d0"))) == []
            times += [second] * refused(world, "a")
            assert world.held() == frozenset()
    assert times == [0, 0, 1, 3, 7, 15, 31, 63, 123, 183, 243, 303, 363]


def test_a_claim_with_rejected_writes_is_not_reserved():
    world = World(claim("c"), claim("e"))
    for _ in range(2):
        both = (part(claim("c"), granted("d0")), part(world.server.claims["e"], granted("d1")))
        assert world.assume("a", *both) == []
        assert refused(world, "a", "parameters are too long", others=("e",)) == 1
        assert world.held() == frozenset()
    sentences = [effect.sentence for effect in world.reported if isinstance(effect, PodEvent)]
    assert sentences == ["parameters are too long"] * 2
    both = (part(claim("c"), granted("d0")), part(world.server.claims["e"], granted("d1")))
    [declined] = world.assume("a", *both)
    assert declined == Declined("t-a", "claim team/c cannot be written for now: parameters are too long")
    assert world.errands == []
    assert world.assume("b", part(world.server.claims["e"], granted("d1"))) == []
    assert world.commit("b")
    assert world.state("b") is ReservationState.RESERVED


def test_a_refused_deallocation_is_retried_with_growing_pauses():
    """Without pauses, each rejection would cause another write, endlessly."""
    world = World(claim("c"))
    world.assume("a", part(claim("c"), granted("d0")))
    world.commit("a")
    world.apply(PodGone("a"))
    times = []
    for second in range(300):
        world.now = float(second)
        world.apply(Tick())
        while world.errands:
            times.append(second)
            meta = world.errands.pop().claim.metadata
            world.apply(Denied(meta.uid, meta.resource_version, "no"))
    assert times == [0, 0, 1, 3, 7, 15, 31, 63, 123, 183, 243]
    assert world.held() == {"d0"}


def test_success_deletion_or_new_leadership_resets_the_backoff():
    world = World(claim("c"))
    for _ in range(2):
        world.assume("a", part(claim("c"), granted("d0")))
        refused(world, "a")
    assert world.ledger.holds["c"].refusal
    world.apply(BecameFollower())
    world.apply(BecameLeader())
    assert (world.ledger.holds["c"].refusals, world.ledger.holds["c"].refusal) == (0, "")
    world.assume("a", part(claim("c"), granted("d0")))
    refused(world, "a")
    world.assume("a", part(claim("c"), granted("d0")))
    world.commit("a")
    assert world.ledger.holds["c"].refusals == 0
    world.apply(ClaimGone("team/c", "c"))
    assert "c" not in world.ledger.holds


def test_a_new_claim_version_does_not_skip_the_backoff():
    """Otherwise the claim's owner could cause any number of writes."""
    world = World(claim("c"))
    for _ in range(2):
        world.assume("a", part(claim("c"), granted("d0")))
        refused(world, "a")
    world.apply(ClaimSeen(claim("c", resourceVersion="9")))
    [declined] = world.assume("a", part(world.ledger.holds["c"].claim, granted("d0")))
    assert isinstance(declined, Declined)
