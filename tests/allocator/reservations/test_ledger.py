"""The ledger, event by event: what it reserves, writes and takes back, and how it counts claims meanwhile."""

import sys

import pytest
from msgspec.structs import asdict, replace

from allocator.reservations import FINALIZER, Ledger, ReservationState, step
from allocator.reservations.effects import (
    Declined,
    Dropped,
    Exceeded,
    Freed,
    OverlayClaim,
    PatchAllocation,
    PatchFinalizer,
    PatchReservedFor,
    PodEvent,
    Ready,
    Reread,
    RereadPod,
    Unallocate,
    Wake,
)
from allocator.reservations.events import (
    Assume,
    BecameFollower,
    BecameLeader,
    BindingReported,
    ClaimGone,
    ClaimRead,
    ClaimSeen,
    Commit,
    Conflicted,
    Denied,
    Lost,
    Overlapped,
    PodGone,
    PodRead,
    PodSeen,
    TakeBack,
    Tick,
    Unreserve,
    Written,
)
from allocator.reservations.table import TABLE, Signal
from dra.objects import ResourceClaimConsumerReference, is_reserved_for
from dra.policy import QuotaLine
from dra.stock import Stock
from tests.allocator.reservations.server import WRITES, Server, claim, copied, granted, part, pod
from tests.dra.samples import DRIVER, slice_

POOL = (DRIVER, "p")
ERRANDS = (*WRITES, Reread, RereadPod)


class World:
    """A leading ledger, a model of the API server, and the writes and reads between them."""

    def __init__(self, *claims):
        self.server = Server(*claims)
        self.ledger = Ledger()
        self.now = 0.0
        self.reported = []
        self.errands = []
        self.pods = {}
        for one in claims:
            self.apply(ClaimSeen(one))
        self.apply(BecameLeader())

    def apply(self, event):
        """Apply an event; queue writes and reads for `run`, and return the other effects."""
        effects = step(self.ledger, event, self.now)
        self.errands += [effect for effect in effects if isinstance(effect, ERRANDS)]
        others = [effect for effect in effects if not isinstance(effect, (*ERRANDS, OverlayClaim))]
        self.reported += others
        return others

    def run(self):
        """Carry out queued writes and reads until none is left; return the writes."""
        done = []
        while self.errands:
            errand = self.errands.pop(0)
            if isinstance(errand, Reread):
                self.reread(errand.claim)
            elif isinstance(errand, RereadPod):
                found = self.pods.get(errand.pod)
                self.apply(PodRead(found) if found else PodGone(errand.pod))
            else:
                done.append(errand)
                self.apply(self.server.apply(errand))
        return done

    def reread(self, one):
        found = self.server.claims.get(one.metadata.uid)
        self.apply(ClaimRead(found) if found else ClaimGone(f"team/{one.metadata.name}", one.metadata.uid))

    def assume(self, name, *parts, node="n1", token=None, basis=None, quota=()):
        who = pod(name, *(one.claim.metadata.name for one in parts))
        self.pods[name] = who
        generation = self.ledger.generation if basis is None else basis
        return self.apply(Assume(token or f"t-{name}", who, node, parts, generation, quota))

    def commit(self, name):
        self.apply(Commit(f"t-{name}"))
        return self.run()

    def state(self, name):
        reservation = self.ledger.reservations.get(name)
        return reservation.state if reservation else ReservationState.PENDING

    def stock(self):
        seen = [self.ledger.holds[uid].claim for uid in self.ledger.holds if self.ledger.holds[uid].informer_version]
        return Stock.of(slices=[slice_("s", "d0", "d1")], claims=[one for one in seen if one.status.allocation])

    def held(self):
        return self.stock().with_all(self.ledger.ahead.values()).use(POOL).dedicated

    def watch(self):
        for one in list(self.server.claims.values()):
            self.apply(ClaimSeen(one))


def test_a_pod_may_be_bound_after_two_writes():
    world = World(claim("c"))
    assert world.assume("a", part(claim("c"), granted("d0"))) == []
    assert world.held() == {"d0"}
    assert [type(write) for write in world.commit("a")] == [PatchFinalizer, PatchAllocation]
    assert world.reported[-1] == Ready("t-a", "a", "n1")
    assert is_reserved_for(world.server.claims["c"], "a")
    world.watch()
    assert len(world.ledger.ahead) == 0
    assert world.held() == {"d0"}
    world.apply(PodSeen(pod("a", "c", node="n1")))
    assert world.state("a") is ReservationState.BOUND


def test_an_assumed_allocation_is_freed_without_a_write():
    world = World(claim("c"))
    world.assume("a", part(claim("c"), granted("d0")))
    told = world.apply(Unreserve("t-a"))
    assert Freed(frozenset([POOL])) in told
    assert Wake(frozenset(["a"])) in told
    assert world.run() == []
    assert world.held() == frozenset()
    assert world.state("a") is ReservationState.PENDING


def test_an_assumed_reservation_expires_and_its_pod_is_notified():
    world = World(claim("c"))
    world.assume("a", part(claim("c"), granted("d0")))
    world.now = 119
    assert world.apply(Tick()) == []
    world.now = 120
    told = world.apply(Tick())
    assert any(isinstance(one, PodEvent) and "too long" in one.sentence for one in told)
    assert world.held() == frozenset()


def test_a_decision_that_rests_on_an_older_ledger_is_declined():
    world = World(claim("c"), claim("e"))
    basis = world.ledger.generation
    world.assume("a", part(claim("c"), granted("d0")))
    declined = world.assume("b", part(claim("e"), granted("d0")), basis=basis)
    assert declined == [Declined("t-b", f"pool p of {DRIVER} has changed since then")]
    assert world.state("b") is ReservationState.PENDING


def test_a_reservation_beyond_a_quota_is_refused():
    world = World(claim("c"))
    line = QuotaLine("team/gpus", requested=3, hard=8, used=6)
    assert world.assume("a", part(claim("c"), granted("d0")), quota=[line]) == [Exceeded("t-a", line)]
    assert line.remaining == 2
    assert world.state("a") is ReservationState.PENDING


def test_a_second_pod_of_a_claim_only_reserves_it():
    world = World(claim("c"))
    world.assume("a", part(claim("c"), granted("d0")))
    world.assume("b", part(claim("c")))
    world.commit("a")
    assert [type(write) for write in world.commit("b")] == [PatchReservedFor]
    reserved = [one.uid for one in world.server.claims["c"].status.reserved_for]
    assert reserved == ["a", "b"]


def test_the_first_commit_allocates_a_shared_claim():
    world = World(claim("c"))
    world.assume("a", part(claim("c"), granted("d0")))
    world.assume("b", part(claim("c")))
    world.apply(Unreserve("t-a"))
    assert world.held() == {"d0"}
    assert [type(write) for write in world.commit("b")] == [PatchFinalizer, PatchAllocation]
    assert world.state("b") is ReservationState.RESERVED


def test_256_pods_share_a_claim_and_not_one_more():
    one = claim("c")
    others = tuple(ResourceClaimConsumerReference(resource="pods", name=f"p{n}", uid=f"p{n}") for n in range(255))
    world = World(replace(one, status=replace(one.status, allocation=granted("d0"), reserved_for=others)))
    assert world.assume("last", part(one)) == []
    world.commit("last")
    assert len(world.server.claims["c"].status.reserved_for) == 256
    assert world.assume("late", part(one)) == [Declined("t-late", "claim team/c has no room for another pod")]


def test_a_claim_with_its_finalizer_takes_one_write():
    world = World(claim("c", finalizers=[FINALIZER]))
    world.assume("a", part(claim("c", finalizers=[FINALIZER]), granted("d0")))
    assert [type(write) for write in world.commit("a")] == [PatchAllocation]
    assert world.state("a") is ReservationState.RESERVED


def test_removing_the_finalizer_fences_a_lost_write():
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


def test_a_foreign_allocation_returns_the_pod_to_pending():
    world = World(claim("c"))
    world.assume("a", part(claim("c"), granted("d0")))
    world.apply(Commit("t-a"))
    taken = replace(claim("c"), status=replace(claim("c").status, allocation=granted("d1", node="n2")))
    world.server.put(taken)
    assert [type(write) for write in world.run()] == [PatchFinalizer]
    assert any(isinstance(one, Dropped) for one in world.reported)
    assert world.state("a") is ReservationState.PENDING
    assert world.server.claims["c"].status.allocation == granted("d1", node="n2")


@pytest.mark.parametrize("comes", [True, False])
def test_an_unreserved_pod_stays_listed_until_the_other_pod_commits(comes):
    """Otherwise the claim would be allocated with an empty reservedFor, and a new leader could not tell for which pod."""
    world = World(claim("c"))
    world.assume("a", part(claim("c"), granted("d0")))
    world.apply(Commit("t-a"))
    world.apply(world.server.apply(world.errands.pop()))
    assert world.assume("b", part(world.server.claims["c"])) == []
    world.apply(Unreserve("t-a"))
    assert [type(write) for write in world.run()] == [PatchAllocation]
    assert is_reserved_for(world.server.claims["c"], "a")
    if comes:
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


@pytest.mark.parametrize("late", [True, False])
def test_devices_of_a_lost_write_are_held_until_fenced(late):
    world = World(claim("c"))
    world.assume("a", part(claim("c"), granted("d0")))
    world.apply(Commit("t-a"))
    world.apply(world.server.apply(world.errands.pop()))
    lost = world.errands.pop()
    world.apply(Lost("c", lost.claim.metadata.resource_version))
    world.apply(Unreserve("t-a"))
    assert world.held() == {"d0"}
    world.reread(world.errands.pop().claim)
    fence = world.errands.pop()
    assert isinstance(fence, PatchFinalizer)
    assert fence.finalizers == ()
    if late:
        world.server.apply(lost)
    world.apply(world.server.apply(fence))
    assert world.held() == ({"d0"} if late else frozenset())
    assert isinstance(world.server.apply(lost), Conflicted)
    world.run()
    assert world.server.claims["c"].status.allocation is None
    assert world.held() == frozenset()
    assert world.state("a") is ReservationState.PENDING


def test_a_reserved_pod_keeps_devices_while_binding_is_uncertain():
    world = World(claim("c"))
    world.assume("a", part(claim("c"), granted("d0")))
    world.commit("a")
    world.apply(BindingReported("t-a"))
    world.apply(Unreserve("t-a"))
    assert world.run() == []
    world.now = 29
    world.apply(Tick())
    assert world.state("a") is ReservationState.BINDING
    bound = World.__new__(World)
    bound.__dict__ = {**world.__dict__, "ledger": copied(world.ledger), "told": [], "errands": []}
    bound.apply(PodSeen(pod("a", "c", node="n1")))
    bound.now = 1000
    bound.apply(Tick())
    assert bound.state("a") is ReservationState.BOUND
    world.now = 30
    world.apply(Tick())
    assert [type(write) for write in world.run()] == [Unallocate]
    assert world.server.claims["c"].status.allocation is None
    assert Wake(frozenset(["a"])) in world.reported


def test_an_unconfirmed_binding_is_checked_before_devices_are_freed():
    world = World(claim("c"))
    world.assume("a", part(claim("c"), granted("d0")))
    world.commit("a")
    world.apply(BindingReported("t-a"))
    world.pods["a"] = pod("a", "c", node="n1")  # and its informer is silent
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
    world.apply(BindingReported("t-a"))
    del world.pods["a"]
    world.now = 1000
    world.apply(Tick())
    assert [type(write) for write in world.run()] == [Unallocate]
    assert world.held() == frozenset()


def test_a_retry_of_a_reserved_pod_finds_everything_written():
    world = World(claim("c"))
    world.assume("a", part(claim("c"), granted("d0")))
    world.commit("a")
    world.apply(BindingReported("t-a"))
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
    assert world.apply(BindingReported("t-a")) == []


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


@pytest.mark.parametrize("told", [False, True])
def test_unusable_devices_are_freed_unless_a_binding_is_uncertain(told):
    world = World(claim("c"))
    world.assume("a", part(claim("c"), granted("d0")))
    world.commit("a")
    if told:
        world.apply(BindingReported("t-a"))
    said = world.apply(TakeBack("a", ("c",), "device d0 says Broken"))
    if told:
        assert (said, world.run(), world.state("a")) == ([], [], ReservationState.BINDING)
        world.now = 9
        world.apply(TakeBack("a", ("c",), "device d0 says Broken"))  # asking again gives it no more time
        world.now = 10
        world.apply(Tick())
        assert world.errands == [RereadPod("a", "team/a")]
    else:
        assert PodEvent("a", "device d0 says Broken") in said
    assert [type(write) for write in world.run()] == [Unallocate]
    assert (world.state("a"), world.held()) == (ReservationState.PENDING, frozenset())
    assert Wake(frozenset(["a"])) in world.reported


def test_a_pod_leaves_unusable_shared_devices_to_the_others():
    world = World(claim("c"))
    for name in ("a", "b"):
        world.assume(name, part(world.server.claims["c"], None if name == "b" else granted("d0")))
        world.commit(name)
    world.apply(TakeBack("b", ("c",), "device d0 says Broken"))
    assert [type(write) for write in world.run()] == [PatchReservedFor]
    assert [one.uid for one in world.server.claims["c"].status.reserved_for] == ["a"]
    world.apply(TakeBack("a", ("c",), "device d0 says Broken"))
    assert [type(write) for write in world.run()] == [Unallocate]


@pytest.mark.parametrize("reserved", [False, True])
def test_a_foreign_allocation_is_removed_only_without_pods(reserved):
    """The other scheduler allocated and left no pod, or a pod uses the allocation."""
    one = claim("c", finalizers=(FINALIZER,))
    consumers = (ResourceClaimConsumerReference(resource="pods", name="x", uid="x"),) if reserved else ()
    given = replace(one.status, allocation=granted("d0"), reserved_for=consumers)
    world = World(replace(one, status=given))
    world.apply(PodSeen(pod("a", "c")))
    world.apply(TakeBack("a", ("c",), "node n1 does not take the pod"))
    assert [type(write) for write in world.run()] == ([] if reserved else [Unallocate])
    assert (world.server.claims["c"].status.allocation is None) is not reserved


def test_a_rejected_write_requeues_the_pod_with_the_reason():
    world = World(claim("c"))
    world.assume("a", part(claim("c"), granted("d0")))
    world.apply(Commit("t-a"))
    told = world.apply(Denied("c", "1", "claims are not yours to write"))
    assert Dropped("t-a", "a", "claims are not yours to write") in told
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
    world.reported = [Wake(frozenset({"a"}))]
    times = []
    for second in range(400):
        world.now = float(second)
        world.apply(Tick())
        while Wake(frozenset({"a"})) in world.reported:
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
    told = [one.sentence for one in world.reported if isinstance(one, PodEvent)]
    assert told == ["parameters are too long"] * 2
    both = (part(claim("c"), granted("d0")), part(world.server.claims["e"], granted("d1")))
    [declined] = world.assume("a", *both)
    assert declined == Declined("t-a", "claim team/c cannot be written for now: parameters are too long")
    assert world.errands == []
    assert world.assume("b", part(world.server.claims["e"], granted("d1"))) == []
    assert world.commit("b")
    assert world.state("b") is ReservationState.RESERVED


def test_a_refused_deallocation_is_retried_with_growing_pauses():
    """Without pauses, each rejection caused another write, endlessly."""
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


def test_a_follower_writes_nothing_and_makes_no_decision():
    world = World(claim("c"))
    world.assume("a", part(claim("c"), granted("d0")))
    world.apply(Commit("t-a"))
    finalizer = world.errands.pop()
    told = world.apply(BecameFollower())
    assert Dropped("t-a", "a", "another replica leads") in told
    world.apply(world.server.apply(finalizer))
    assert world.errands == []
    assert world.assume("a", part(claim("c"), granted("d0"))) == [Declined("t-a", "another replica leads")]


def test_a_new_leader_recovers_reservations_from_claims_and_pods():
    before = World(claim("c"), claim("e"))
    before.assume("a", part(claim("c"), granted("d0")))
    before.commit("a")
    before.assume("b", part(claim("e"), granted("d1")))
    before.commit("b")
    world = World(*before.server.claims.values())
    world.apply(PodSeen(pod("a", "c")))
    world.apply(PodSeen(pod("b", "e", node="n1")))
    assert world.held() == {"d0", "d1"}
    assert (world.state("a"), world.state("b")) == (ReservationState.BINDING, ReservationState.BOUND)
    world.now = 60
    world.apply(Tick())
    assert [type(write) for write in world.run()] == [Unallocate]
    world.watch()
    assert world.held() == {"d1"}


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


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
@pytest.mark.parametrize("seen_running", [True, False])
def test_a_finished_pod_frees_its_devices(phase, seen_running):
    """The pod has a node and is finished, and its claim still lists it: DONE wins over PLACED."""
    world = World(claim("c"))
    world.assume("a", part(claim("c"), granted("d0")))
    world.commit("a")
    world.watch()
    if seen_running:
        world.apply(PodSeen(pod("a", "c", node="n1", phase="Running")))
        assert world.state("a") is ReservationState.BOUND
    world.apply(PodSeen(pod("a", "c", node="n1", phase=phase)))
    assert world.state("a") in (ReservationState.RELEASED, ReservationState.PENDING)
    world.run()
    world.apply(PodGone("a"))
    world.run()
    assert world.state("a") is ReservationState.PENDING


def test_contradictory_facts_about_a_reservation_do_not_loop_forever():
    """With a table whose transitions form a cycle, one step still ends."""
    circle = {**TABLE, ReservationState.BOUND: {Signal.HELD: ReservationState.RESERVED}}
    world = World(claim("c"))
    world.assume("a", part(claim("c"), granted("d0")))
    world.commit("a")
    step(world.ledger, PodSeen(pod("a", "c", node="n1", phase="Running")), 0.0, circle)
    assert world.ledger.reservations["a"].state in (ReservationState.RESERVED, ReservationState.BOUND)


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
    world.apply(BindingReported("t-a"))
    theirs = replace(claim("e"), status=replace(claim("e").status, allocation=granted("d0")))
    world.apply(ClaimSeen(world.server.put(theirs)))
    assert world.apply(Overlapped(frozenset(["c", "e"]))) == []  # its pod may be bound by now: that is looked at first
    assert [type(write) for write in world.run()] == [Unallocate]
    assert any(isinstance(one, PodEvent) and "yields" in one.sentence for one in world.reported)
    world.watch()
    assert world.held() == {"d0"}


def test_overlapping_allocations_are_in_doubt_until_one_is_gone():
    world = World(claim("c"), claim("e"))
    world.assume("a", part(claim("c"), granted("d0")))
    world.commit("a")
    world.apply(PodSeen(pod("a", "c", node="n1")))
    theirs = replace(claim("e"), status=replace(claim("e").status, allocation=granted("d0")))
    world.apply(ClaimSeen(world.server.put(theirs)))
    told = world.apply(Overlapped(frozenset(["c", "e"])))
    assert [type(one) for one in told] == [PodEvent]
    assert world.apply(Overlapped(frozenset(["c", "e"]))) == []
    assert world.ledger.holds["c"].rivals == {"e"}
    assert world.run() == []
    world.apply(ClaimGone("team/e", "e"))
    assert world.ledger.holds["c"].rivals == frozenset()
    assert world.held() == {"d0"}


def test_repeated_events_change_nothing():
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
    world.assume("a", part(claim("c"), granted("d0")))
    world.commit("a")
    world.watch()
    state = world.ledger.reservations["a"]
    for event in events:
        world.apply(event)
        assert world.ledger.reservations["a"] == state
        assert world.errands == []
    assert world.assume("a", part(claim("c"), granted("d0"))) == []
    assert world.ledger.reservations["a"] == state


def test_a_write_that_is_never_answered_counts_as_lost():
    world = World(claim("c"))
    world.assume("a", part(claim("c"), granted("d0")))
    world.apply(Commit("t-a"))
    world.errands.clear()
    world.now = 60
    world.apply(Tick())
    assert [type(write) for write in world.run()] == [PatchFinalizer, PatchAllocation]
    assert world.state("a") is ReservationState.RESERVED


def record_examined_pods(monkeypatch):
    """Return a list of the pods for which the ledger derives signals from now on."""
    examined = []

    def noted(ledger, reservation):
        examined.append(reservation.pod)
        return signals(ledger, reservation)

    module = sys.modules["allocator.reservations.step"]
    signals = module.signals
    monkeypatch.setattr(module, "signals", noted)
    return examined


def test_a_claim_event_does_not_reexamine_bound_pods(monkeypatch):
    """256 pods may share a claim, and each of them changes the claim."""
    world = World(claim("c"))
    for name in ("a", "b", "c"):
        seen = world.server.claims["c"]
        world.assume(name, part(seen, None if seen.status.allocation else granted("d0")))
        world.commit(name)
        world.watch()
    for name in ("a", "b"):
        world.apply(PodSeen(pod(name, "c", node="n1")))
    assert [world.state(name) for name in ("a", "b", "c")] == [
        ReservationState.BOUND,
        ReservationState.BOUND,
        ReservationState.RESERVED,
    ]
    examined = record_examined_pods(monkeypatch)
    one = world.server.claims["c"]
    world.apply(ClaimSeen(replace(one, metadata=replace(one.metadata, resource_version="99"))))
    assert examined == ["c"]


def test_a_new_leader_does_not_reexamine_bound_pods(monkeypatch):
    """Nearly all of thirty thousand pods are bound, and a new leader has two seconds."""
    world = World(claim("c"), claim("e"))
    for name, its in (("a", "c"), ("b", "e")):
        world.assume(name, part(world.server.claims[its], granted("d0" if name == "a" else "d1")))
        world.commit(name)
    world.watch()
    world.apply(PodSeen(pod("a", "c", node="n1")))
    world.apply(BecameFollower())
    examined = record_examined_pods(monkeypatch)
    world.apply(BecameLeader())
    assert set(examined) == {"b"}
    assert [world.state(name) for name in ("a", "b")] == [ReservationState.BOUND, ReservationState.BINDING]


def test_a_failed_event_leaves_the_ledger_unchanged(monkeypatch):
    """The event is applied again later, so a failed one must not change anything."""
    world = World(claim("c"), claim("e"))
    world.assume("a", part(claim("c"), granted("d0")))
    before = copied(world.ledger)
    monkeypatch.setattr(sys.modules["allocator.reservations.step"], "same_devices", lambda *_: 1 / 0)
    for event in (Unreserve("t-a"), ClaimGone("team/c", "c"), PodGone("a"), BecameFollower()):
        with pytest.raises(ZeroDivisionError):
            world.apply(event)
        assert asdict(world.ledger) == asdict(before)
