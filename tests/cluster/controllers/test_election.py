"""Leader election with a Lease: at most one candidate leads at any time, and the others can replace it."""

import asyncio
from contextlib import suppress

import pytest
from msgspec.structs import replace

from cluster import resources
from cluster.controllers.election import Election, StoreRestoredError, Term
from cluster.embedded.embedded import Embedded
from cluster.errors import Unavailable
from cluster.patch import Merge
from tests.limits import PATIENCE
from tests.waiting import until

# A quick term may end during a test, so only single candidates use it. A slow term does not end even if the machine stalls.
QUICK_TERM = Term(duration=0.2, retry=0.01)
SLOW_TERM = Term(duration=3600, retry=0.01)


class Candidate:
    """A candidate whose identity is in `leading` while it leads."""

    def __init__(self, cluster, identity, leading, term=QUICK_TERM):
        self.identity, self.leading = identity, leading
        self.election = Election(cluster, namespace="default", name="lock", identity=identity, term=term)
        self.task = asyncio.create_task(self.election.run(self.lead))

    async def lead(self):
        assert not self.leading, "two candidates lead at once"
        self.leading.add(self.identity)
        try:
            await asyncio.Event().wait()
        finally:
            self.leading.discard(self.identity)

    async def leave(self):
        self.task.cancel()
        with suppress(asyncio.CancelledError):  # two leaders at once raise an AssertionError here
            await self.task


async def lease_holder(cluster):
    return (await cluster.get(resources.LEASES, "lock", "default")).spec.holder_identity


async def test_exactly_one_of_several_candidates_leads():
    cluster, leading = Embedded(), set()
    candidates = [Candidate(cluster, f"c{i}", leading, SLOW_TERM) for i in range(4)]
    await until(lambda: leading)
    version = (await cluster.get(resources.LEASES, "lock", "default")).metadata.resource_version
    async with cluster.watch(resources.LEASES, "default", resource_version=version) as renewals:
        for _ in range(10):
            await anext(renewals)
            assert len(leading) == 1
    assert await lease_holder(cluster) in leading
    for candidate in candidates:
        await candidate.leave()


async def test_a_leaving_leader_releases_its_lease():
    cluster, leading = Embedded(), set()
    first = Candidate(cluster, "first", leading, SLOW_TERM)
    await until(lambda: leading == {"first"})
    second = Candidate(cluster, "second", leading, SLOW_TERM)
    await first.leave()
    await until(lambda: leading == {"second"})
    await second.leave()


@pytest.mark.parametrize("leaders_clock", ["2000-01-01T00:00:00.000000Z", "2100-01-01T00:00:00.000000Z"])
async def test_a_killed_leader_is_replaced_after_its_term(leaders_clock):
    cluster, leading = Embedded(), set()
    spec = {"holderIdentity": "killed", "leaseDurationSeconds": 1, "renewTime": leaders_clock}
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "lock"}, "spec": spec}
    await cluster.create(resources.LEASES, lease, "default")
    begun_at = asyncio.get_running_loop().time()
    candidate = Candidate(cluster, "next", leading)
    await until(lambda: leading == {"next"})
    waited_seconds = asyncio.get_running_loop().time() - begun_at
    assert waited_seconds >= 1, "the candidate took the Lease before it had seen it unchanged for a whole term"
    assert (await cluster.get(resources.LEASES, "lock", "default")).spec.lease_transitions == 1
    await candidate.leave()


async def test_a_leader_that_cannot_renew_stops_and_leads_again_later():
    class Disconnectable(Embedded):
        is_disconnected = False

        async def get(self, *args, **kwargs):
            if self.is_disconnected:
                raise Unavailable("the network is gone")
            return await super().get(*args, **kwargs)

    cluster, leading = Disconnectable(), set()
    candidate = Candidate(cluster, "c", leading)
    await until(lambda: leading)
    cluster.is_disconnected = True
    await until(lambda: not leading)
    cluster.is_disconnected = False
    await until(lambda: leading)
    await candidate.leave()


async def test_a_leaders_deadline_counts_from_the_start_of_a_renewal():
    """Other candidates count the term from the write of the Lease, not from the moment when the leader learns of its success."""
    term = Term(duration=9.0, retry=0.01)  # on a busy machine, seconds pass until the test sees the end

    class SlowStore(Embedded):
        written_at = 0.0

        async def patch(self, *args, **kwargs):
            if self.written_at:
                raise Unavailable("the network is gone")
            result = await super().patch(*args, **kwargs)
            self.written_at = asyncio.get_running_loop().time()
            await asyncio.sleep(term.duration / 2)
            return result

    cluster, leading = SlowStore(), set()
    candidate = Candidate(cluster, "c", leading, term)
    await until(lambda: cluster.written_at)
    await until(lambda: not leading)
    assert asyncio.get_running_loop().time() - cluster.written_at < term.duration
    await candidate.leave()


async def give_lease_to(cluster, identity):
    spec = {"holderIdentity": identity, "leaseDurationSeconds": 3600}
    await cluster.patch(resources.LEASES, "lock", Merge({"spec": spec}), "default")


async def test_a_former_leader_does_not_lead_during_its_rest():
    """The rest is the time in which late writes of the former term may still take effect."""
    cluster, leading = Embedded(), set()
    first = Candidate(cluster, "first", leading, SLOW_TERM._replace(rest=3600))
    await until(lambda: leading == {"first"})
    await give_lease_to(cluster, "other")
    await until(lambda: not leading)
    reads = []
    read_lease = first.election._read
    first.election._read = lambda: reads.append(1) or read_lease()
    await give_lease_to(cluster, None)
    reads_before = len(reads)
    await until(lambda: len(reads) > reads_before + 5)
    assert not leading
    second = Candidate(cluster, "second", leading, SLOW_TERM._replace(rest=3600))
    await until(lambda: leading == {"second"})
    await give_lease_to(cluster, "other")
    await until(lambda: not leading)
    await give_lease_to(cluster, "first")  # the Lease names this candidate, so the rest does not apply
    await until(lambda: leading == {"first"})
    await first.leave()
    await second.leave()


async def test_a_former_leader_leads_again_after_its_rest():
    cluster, leading = Embedded(), set()
    candidate = Candidate(cluster, "c", leading, SLOW_TERM._replace(rest=0.3))
    await until(lambda: leading)
    await give_lease_to(cluster, "other")
    await until(lambda: not leading)
    ended_at = candidate.election._ended_at  # the real end, which the test sees only later
    await give_lease_to(cluster, None)
    await until(lambda: leading)
    assert asyncio.get_running_loop().time() - ended_at >= 0.3
    await candidate.leave()


async def test_a_former_leader_without_pending_writes_needs_no_rest():
    """If it rested anyway, no candidate would lead when its successor ended during the rest."""
    cluster, leading = Embedded(), set()
    candidate = Candidate(cluster, "c", leading, SLOW_TERM._replace(rest=3600))
    await until(lambda: leading)
    await give_lease_to(cluster, "other")
    await until(lambda: not leading)
    candidate.election.may_write_late = lambda: False
    await give_lease_to(cluster, None)
    await until(lambda: leading)
    await candidate.leave()


class RestorableStore(Embedded):
    """A store that returns Leases with an older resourceVersion once `is_restored` is set."""

    is_restored = False

    async def get(self, resource, name, namespace=None):
        obj = await super().get(resource, name, namespace)
        return self._aged(obj) if resource is resources.LEASES else obj

    async def patch(self, resource, name, patch, namespace=None, **options):
        if self.is_restored:
            patch.body["metadata"].pop("resourceVersion", None)
        obj = await super().patch(resource, name, patch, namespace, **options)
        return self._aged(obj) if resource is resources.LEASES else obj

    def _aged(self, lease):
        return replace(lease, metadata=replace(lease.metadata, resource_version="1")) if self.is_restored else lease


@pytest.mark.parametrize("is_leader", [True, False], ids=["leader", "standby"])
async def test_a_candidate_ends_with_an_error_on_a_restored_store(is_leader):
    cluster, leading = RestorableStore(), set()
    if not is_leader:
        leader = Candidate(cluster, "first", set(), SLOW_TERM)
        await until(lambda: leader.leading)
    election = Election(
        cluster, namespace="default", name="lock", identity="c", term=Term(retry=0.01), ends_on_restore=True
    )

    async def lead():
        leading.add("c")
        await asyncio.Event().wait()

    task = asyncio.create_task(election.run(lead))
    await until(lambda: election.lease)
    await until(lambda: bool(leading) is is_leader)
    cluster.is_restored = True
    with pytest.raises(StoreRestoredError, match=r"has resourceVersion 1 after [0-9]+: .* restored to an older copy"):
        await asyncio.wait_for(task, PATIENCE)
    assert not election.leading
    if not is_leader:
        await leader.leave()


async def test_an_error_of_the_leaders_work_is_raised():
    async def fail():
        raise RuntimeError("a bug")

    election = Election(Embedded(), namespace="default", name="lock", identity="c", term=QUICK_TERM)
    with pytest.raises(RuntimeError, match="a bug"):
        await election.run(fail)


@pytest.mark.parametrize("duration", [0.2, 1.0, 2.0, 5.0, 9.9, 15.0, 3600.0])
def test_a_leader_gives_up_before_another_candidate_may_lead(duration):
    term = Term(duration=duration)
    assert term.renew_deadline < duration <= term.lease_duration_seconds
