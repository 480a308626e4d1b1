"""Replicas of the allocator, over the embedded store: when a replica leads, and what a new leader keeps."""

import asyncio
import re
from types import SimpleNamespace

import pytest
from prometheus_client import generate_latest

from allocator.service import commits
from allocator.service.commits import HOLDER_POLICY
from allocator.service.metrics import Metrics
from cluster import resources
from cluster.embedded import Embedded
from cluster.errors import Forbidden, Invalid, NotFound
from cluster.patch import Merge
from tests.allocator.service.sidecar import DRIVER, claim, fleet, loaded, pod, running, until
from tests.allocator.service.stores import faulty_cluster


async def test_only_the_leader_shows_allocations_and_waiting_pods_as_metrics():
    """PromQL queries add up the metrics of all replicas."""
    cluster = loaded(*fleet(1, 1), claim("a"), claim("b"), pod("p", "a"), pod("q", "b"))
    async with running(cluster, identity="one") as sidecar:
        await until(lambda: sidecar.service.lead.leads)
        assert (await sidecar.place("p"))[0] == 200
        async with running(cluster, identity="two", leads=False) as two:
            pages = [generate_latest(replica.service.metrics.registry).decode() for replica in (sidecar, two)]
    assert ["drawbridge_pod_device{" in page for page in pages] == [True, False]
    assert [re.findall(r"^drawbridge_waiting_pods (.*)$", page, re.MULTILINE) for page in pages] == [["2.0"], ["0.0"]]


async def test_a_second_replica_takes_over_with_all_reservations():
    cluster = loaded(*fleet(1, 2), claim("a"), claim("b"), pod("p", "a"), pod("q", "b"))
    async with running(cluster, identity="two", leads=False) as two:
        async with running(cluster, identity="one", leads=False) as sidecar:
            await until(lambda: sidecar.service.lead.leads or two.service.lead.leads)
            first, second = (sidecar, two) if sidecar.service.lead.leads else (two, sidecar)
            assert (await second.plugin("prefilter", {"pod": await second.pod("q")}))[0] == 503
            answer = (await second.plugin("state"))[1]
            assert (answer["leading"], answer["ready"], answer["message"]) == (False, True, "another replica leads")
            assert (await first.place("p"))[0] == 200
        await until(lambda: two.service.lead.leads)
        assert (await two.place("q"))[0] == 200
        assert len({*await two.allocated_devices("a"), *await two.allocated_devices("b")}) == 2


@pytest.mark.parametrize("number", [1, 2])
async def test_a_new_service_finishes_the_writes_of_a_killed_one(number):
    """Killed after the finalizer, or after the allocation: the pod is placed, and no device is allocated twice or without a pod."""
    cluster = faulty_cluster(*fleet(1, 2), claim("a"), claim("b"), pod("p", "a"), pod("q", "b"))
    cluster.last_answered = number
    async with running(cluster, identity="one") as sidecar:
        placing = asyncio.create_task(sidecar.place("p"))
        await until(lambda: placing.done() or cluster.unanswered)
    await asyncio.gather(placing, return_exceptions=True)
    assert len(cluster.writes) == number
    cluster.last_answered = None
    async with running(cluster, identity="two") as two:
        assert (await two.place("p"))[0] == 200
        assert (await two.place("q"))[0] == 200
        assert len({*await two.allocated_devices("a"), *await two.allocated_devices("b")}) == 2


class LatePolicy(Embedded):
    """A store whose policy rejects dry-run writes until the test sets `has_heard`."""

    def __init__(self):
        super().__init__()
        self.has_heard = asyncio.Event()
        self.refused = 0
        self.gone = {}
        self.missed = 0
        self.calls = []  # accepted dry-run writes, and lists of claims

    async def list(self, resource, **options):
        if resource.kind == "ResourceClaim":
            self.calls.append("list")
        return await super().list(resource, **options)

    async def patch(self, resource, name, patch, namespace=None, **more):
        if more.get("dry_run"):
            if name in self.gone:
                self.missed += 1
                raise self.gone[name]
            if not self.has_heard.is_set():
                self.refused += 1
                raise Forbidden(
                    f"ValidatingAdmissionPolicy '{HOLDER_POLICY}' denied request: one does not hold the lease"
                )
            self.calls.append("let")
        return await super().patch(resource, name, patch, namespace, **more)


@pytest.mark.parametrize(
    "gone", [{}, {"a": NotFound("a is gone")}, {"a": Invalid("a is invalid: spec: field is immutable")}]
)
async def test_a_new_leader_lists_claims_after_the_policy_check(
    gone,
):
    """Until then the policy accepts writes of the former leader."""
    cluster = LatePolicy()
    cluster.gone = gone
    cluster.load([*fleet(1, 1), claim("a"), claim("b"), pod("p", "a"), pod("q", "b")])
    async with running(cluster, leads=False) as sidecar:
        await until(lambda: cluster.refused > 1)
        assert not sidecar.service.lead.leads
        devices = {"results": [{"request": "r", "driver": DRIVER, "pool": "n0", "device": "gpu-0"}]}
        late_write = {"status": {"allocation": {"devices": devices}, "reservedFor": [{"resource": "pods", "name": "p", "uid": "pod-p"}]}}  # fmt: skip
        await cluster.patch(resources.RESOURCE_CLAIMS, "b", Merge(late_write), "default", subresource="status")
        cluster.has_heard.set()
        await until(lambda: sidecar.service.lead.leads)
        assert cluster.calls[-2:] == ["let", "list"]
        assert (await sidecar.plugin("prefilter", {"pod": await sidecar.pod("p")}))[1]["verdict"] == "full"


async def test_a_silent_policy_delays_leadership_for_a_limited_time(caplog):
    cluster = LatePolicy()
    cluster.load([claim("a")])
    claims = await cluster.list(resources.RESOURCE_CLAIMS)
    writer = commits.Commits(cluster, SimpleNamespace(may_write=lambda: True), Metrics())
    await writer.wait_for_policy(claims.items, seconds=0.2)
    assert cluster.refused
    assert "the policy has not seen that this replica holds the Lease" in caplog.text


async def test_leadership_starts_without_claims_for_the_policy_check():
    cluster = LatePolicy()
    cluster.gone = {f"c-{i}": NotFound("gone") for i in range(100)}
    cluster.load([*fleet(1, 1), *map(claim, cluster.gone)])
    async with running(cluster) as sidecar:
        assert sidecar.service.lead.leads
        assert cluster.missed < len(cluster.gone)


async def test_a_leader_with_an_expired_lease_writes_nothing():
    cluster = faulty_cluster(*fleet(), claim("a"), pod("p", "a"))
    async with running(cluster) as sidecar:
        resume = await stopped(sidecar.service.election)
        sidecar.service.election._renewed_at -= 60.0  # the Lease has expired, but the replica does not know yet
        _, answer = await sidecar.plugin("prefilter", {"pod": await sidecar.pod("p")})
        _, reserved = await sidecar.plugin("reserve", {"token": answer["token"], "node": "n0"})
        commit = asyncio.create_task(sidecar.plugin("commit", {"reservation": reserved["reservation"]}))
        await until(lambda: sidecar.service.ledger.commits.unsure)
        assert cluster.writes == []
        resume.set()
        assert (await commit)[0] == 200  # after a renewal of the Lease the commit continues


async def stopped(election):
    """Block renewals of the Lease until the returned Event is set; return after a running renewal has ended."""
    resume, reached, hold = asyncio.Event(), asyncio.Event(), election._hold

    async def held():
        reached.set()
        await resume.wait()
        return await hold()

    election._hold = held
    await reached.wait()
    return resume
