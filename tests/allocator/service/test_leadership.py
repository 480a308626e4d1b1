"""Replicas of the allocator, on the embedded store: when a replica leads, and what a new leader keeps."""

import asyncio
import re
from types import SimpleNamespace

import pytest
from prometheus_client import generate_latest

from allocator.decisions import Outlook
from allocator.reservations import events
from allocator.service import commits
from allocator.service.commits import HOLDER_POLICY
from allocator.service.metrics import Metrics
from cluster import resources
from cluster.embedded import Embedded
from cluster.errors import Forbidden, Invalid, NotFound
from cluster.patch import Merge
from tests.allocator.service.sidecar import claim, fleet, loaded, pod, running, until
from tests.allocator.service.stores import FaultyStore
from tests.objects import allocated, result


async def test_only_the_leader_shows_allocations_and_waiting_pods_as_metrics():
    """PromQL queries add up the metrics of all replicas, so a second replica must not show the same values."""
    cluster = loaded(*fleet(1, 1), claim("a"), claim("b"), pod("p", "a"), pod("q", "b"))
    async with running(cluster, identity="one") as leader:
        await until(lambda: leader.service.lead.leads)
        assert (await leader.place("p"))[0] == 200
        async with running(cluster, identity="two", leads=False) as follower:
            pages = [generate_latest(replica.service.metrics.registry).decode() for replica in (leader, follower)]
    assert ["drawbridge_pod_device{" in page for page in pages] == [True, False]
    assert [re.findall(r"^drawbridge_waiting_pods (.*)$", page, re.MULTILINE) for page in pages] == [["2.0"], ["0.0"]]


def test_each_answer_to_schedulers_has_a_line_before_the_first_one():
    page = generate_latest(Metrics().registry).decode()
    assert len(re.findall(r"^drawbridge_outlooks_total\{.*\} 0.0$", page, re.MULTILINE)) == len(Outlook)


async def test_a_second_replica_takes_over_with_all_reservations():
    cluster = loaded(*fleet(1, 2), claim("a"), claim("b"), pod("p", "a"), pod("q", "b"))
    async with running(cluster, identity="two", leads=False) as second_replica:
        async with running(cluster, identity="one", leads=False) as first_replica:
            await until(lambda: first_replica.service.lead.leads or second_replica.service.lead.leads)
            replicas = first_replica, second_replica
            leader, follower = sorted(replicas, key=lambda replica: not replica.service.lead.leads)
            assert (await follower.plugin("prefilter", {"pod": await follower.pod("q")}))[0] == 503
            answer = (await follower.plugin("state"))[1]
            assert (answer["leading"], answer["ready"], answer["message"]) == (False, True, "another replica leads")
            assert (await leader.place("p"))[0] == 200
        await until(lambda: second_replica.service.lead.leads)
        assert (await second_replica.place("q"))[0] == 200
        assert len({*await second_replica.allocated_devices("a"), *await second_replica.allocated_devices("b")}) == 2


@pytest.mark.parametrize("answered_writes", [1, 2], ids=["after the finalizer", "after the allocation"])
async def test_a_new_service_finishes_the_writes_of_a_killed_one(answered_writes):
    """The first service is killed after it wrote the finalizer or the allocation. The pods are then placed on different devices."""
    cluster = FaultyStore(*fleet(1, 2), claim("a"), claim("b"), pod("p", "a"), pod("q", "b"))
    cluster.last_answered = answered_writes
    async with running(cluster, identity="one") as killed_service:
        placing = asyncio.create_task(killed_service.place("p"))
        await until(lambda: placing.done() or cluster.unanswered)
    await asyncio.gather(placing, return_exceptions=True)
    assert len(cluster.writes) == answered_writes
    cluster.last_answered = None
    async with running(cluster, identity="two") as new_service:
        assert (await new_service.place("p"))[0] == 200
        assert (await new_service.place("q"))[0] == 200
        assert len({*await new_service.allocated_devices("a"), *await new_service.allocated_devices("b")}) == 2


async def test_a_claim_that_only_the_new_leader_read_is_forgotten_after_its_deletion():
    """The informer lists the claims again after the deletion, so it never shows the claim."""
    read_by_leader = await loaded(claim("gone")).get(resources.RESOURCE_CLAIMS, "gone", "default")
    cluster = loaded(*fleet(1, 1), claim("kept"))
    async with running(cluster) as leader:
        ledger, claims = leader.service.ledger, leader.service.knowledge.claims
        ledger.apply(events.ClaimRead(read_by_leader))
        assert {hold.claim.metadata.name for hold in ledger.state.holds.values()} == {"gone", "kept"}
        await until(claims.distrust_watch)
        await until(lambda: len(ledger.state.holds) == 1)
        rows = (await leader.ask("/api/v1/claims"))[1]["claims"]
    assert [row["claim"] for row in rows] == ["default/kept"]


class StoreWithLatePolicy(Embedded):
    """A store whose policy (only the holder of the Lease may write) rejects dry-run writes until `policy_has_seen_the_lease` is set."""

    def __init__(self):
        super().__init__()
        self.policy_has_seen_the_lease = asyncio.Event()
        self.rejected = 0
        self.claim_errors = {}
        self.failed_checks = 0
        self.calls = []  # accepted dry-run writes, and lists of claims

    async def list(self, resource, **options):
        if resource.kind == "ResourceClaim":
            self.calls.append("list")
        return await super().list(resource, **options)

    async def patch(self, resource, name, patch, namespace=None, **options):
        if options.get("dry_run"):
            if name in self.claim_errors:
                self.failed_checks += 1
                raise self.claim_errors[name]
            if not self.policy_has_seen_the_lease.is_set():
                self.rejected += 1
                raise Forbidden(
                    f"ValidatingAdmissionPolicy '{HOLDER_POLICY}' denied request: one does not hold the lease"
                )
            self.calls.append("accepted write")
        return await super().patch(resource, name, patch, namespace, **options)


@pytest.mark.parametrize(
    "claim_errors",
    [{}, {"a": NotFound("a is gone")}, {"a": Invalid("a is invalid: spec: field is immutable")}],
    ids=["no error", "the first claim is gone", "the first claim is invalid"],
)
async def test_a_new_leader_lists_claims_after_the_policy_check(claim_errors):
    """Before this check succeeds, the policy may still accept writes of the former leader."""
    cluster = StoreWithLatePolicy()
    cluster.claim_errors = claim_errors
    cluster.load([*fleet(1, 1), claim("a"), claim("b"), pod("p", "a"), pod("q", "b")])
    async with running(cluster, leads=False) as sidecar:
        await until(lambda: cluster.rejected > 1)
        assert not sidecar.service.lead.leads
        late_write = {"status": allocated(result("gpu-0", pool="n0"), pods=["p"])}
        await cluster.patch(resources.RESOURCE_CLAIMS, "b", Merge(late_write), "default", subresource="status")
        cluster.policy_has_seen_the_lease.set()
        await until(lambda: sidecar.service.lead.leads)
        assert cluster.calls[-2:] == ["accepted write", "list"]
        assert (await sidecar.prefilter("p"))["verdict"] == "full"


async def test_a_rejecting_policy_delays_leadership_for_a_limited_time(caplog):
    cluster = StoreWithLatePolicy()
    cluster.load([claim("a")])
    claims = await cluster.list(resources.RESOURCE_CLAIMS)
    writer = commits.Commits(cluster, SimpleNamespace(may_write=lambda: True), Metrics())
    await writer.wait_for_policy(claims.items, seconds=0.2)
    assert cluster.rejected
    assert "the policy has not seen that this replica holds the Lease" in caplog.text


async def test_leadership_starts_although_no_claim_exists_for_the_policy_check():
    cluster = StoreWithLatePolicy()
    cluster.claim_errors = {f"c-{i}": NotFound("gone") for i in range(100)}
    cluster.load([*fleet(1, 1), *map(claim, cluster.claim_errors)])
    async with running(cluster) as sidecar:
        assert sidecar.service.lead.leads
        assert cluster.failed_checks < len(cluster.claim_errors)


async def test_a_leader_with_an_expired_lease_writes_nothing():
    cluster = FaultyStore(*fleet(), claim("a"), pod("p", "a"))
    async with running(cluster) as sidecar:
        resume = await block_renewals(sidecar.service.election)
        sidecar.service.election._renewed_at -= 60.0  # the Lease has expired, but the replica does not know yet
        _, reserved = await sidecar.reserve("p", "n0")
        commit = asyncio.create_task(sidecar.plugin("commit", reserved))
        await until(lambda: sidecar.service.ledger.commits.unsure)
        assert cluster.writes == []
        resume.set()
        assert (await commit)[0] == 200  # after a renewal of the Lease the commit continues


async def block_renewals(election):
    """Block renewals of the Lease until the returned Event is set; return once the next renewal is blocked."""
    resume, is_blocked, hold = asyncio.Event(), asyncio.Event(), election._hold

    async def blocked_hold():
        is_blocked.set()
        await resume.wait()
        return await hold()

    election._hold = blocked_hold
    await is_blocked.wait()
    return resume
