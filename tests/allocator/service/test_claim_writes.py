"""Failing writes of claims on the embedded store: conflicts, missing answers, missing permissions, rejections."""

import asyncio
import contextlib
import math
import random
import time
from typing import ClassVar

import pytest

from allocator.service import commits
from allocator.service.commits import HOLDER_POLICY
from cluster import resources
from cluster.embedded import Embedded
from cluster.errors import Conflict, Forbidden, Invalid, Throttled, Unauthorized, Unavailable
from tests.allocator.service.sidecar import claim, fleet, loaded, pod, pods_with_claims, running, until
from tests.allocator.service.stores import FaultyStore
from tests.limits import PATIENCE

MISSING_PERMISSION_ERRORS = (
    Forbidden('resourceclaims.resource.k8s.io "a" is forbidden: User "system:serviceaccount:x:y" cannot patch resource "resourceclaims" in API group'),
    Invalid('ResourceClaim.resource.k8s.io "a" is invalid: status.allocation: Forbidden: changing status.allocation or status.reservedFor requires resource="resourceclaims/binding", verb="patch" permission: no'),
    Unauthorized("Unauthorized"),
)  # fmt: skip


async def test_a_throttled_write_waits_as_long_as_the_server_asks():
    cluster = FaultyStore(*fleet(), claim("a"), pod("p", "a"))
    cluster.errors_before[2] = Throttled("too many requests", retry_after=0.2)
    async with running(cluster) as sidecar:
        begun_at = asyncio.get_running_loop().time()
        assert (await sidecar.place("p"))[0] == 200
        assert asyncio.get_running_loop().time() - begun_at >= 0.2
        assert cluster.writes == [("a", ""), ("a", "status"), ("a", "status")]
        lost_writes = {"what": "PatchAllocation", "outcome": "Lost"}
        assert sidecar.service.metrics.registry.get_sample_value("drawbridge_claim_writes_total", lost_writes) is None


async def test_a_write_refused_by_a_busy_server_cannot_land_late(caplog, monkeypatch):
    """A write lands late if the server carries it out after the allocator has stopped waiting for the answer."""
    monkeypatch.setattr(commits, "DEADLINE", 0.3)
    cluster = FaultyStore(*fleet(), claim("a"), pod("p", "a"))
    cluster.errors_before[1] = Throttled("too many requests", retry_after=60)
    async with running(cluster) as sidecar:
        assert (await sidecar.place("p"))[0] == 200
        [record] = [record for record in caplog.records if record.message.startswith("a write failed")]
        assert record.problem == "the API server is busy (too many requests)"
        assert not sidecar.service.ledger.commits.may_write_late()


@pytest.mark.parametrize(
    ("error", "may_land"), [(Unavailable("the connection broke"), True), (Conflict("another"), False)]
)
async def test_only_an_unanswered_write_may_land_late(error, may_land):
    cluster = FaultyStore(*fleet(), claim("a"), pod("p", "a"))
    cluster.errors_before[1] = error
    async with running(cluster) as sidecar:
        assert (await sidecar.place("p"))[0] == 200
        assert sidecar.service.ledger.commits.may_write_late() is may_land
        assert sidecar.service.election.may_write_late() is may_land


class SilentWatches(Embedded):
    """A store whose watches of claims show nothing while `silent` is set; its lists of claims can be outdated, too."""

    silent = False
    outdated_list = None  # if set, the answer to all lists of claims

    @contextlib.asynccontextmanager
    async def watch(self, resource, *args, **options):
        async with super().watch(resource, *args, **options) as events:
            yield self._silenced(events) if resource.kind == "ResourceClaim" else events

    async def _silenced(self, events):
        async for event in events:
            while self.silent:  # noqa: ASYNC110  until a test resets `silent`
                await asyncio.sleep(0.01)
            yield event

    async def list(self, resource, *args, **options):
        if resource.kind == "ResourceClaim" and self.outdated_list is not None:
            return self.outdated_list
        return await super().list(resource, *args, **options)


async def test_claims_are_listed_when_their_watch_misses_the_allocators_writes():
    cluster = loaded(*fleet(), claim("a"), claim("b"), pod("p", "a"), pod("q", "b"), cluster=SilentWatches())
    async with running(cluster) as sidecar:
        cluster.silent, sidecar.service.ledger.unseen_seconds = True, 0.2
        for name in "pq":
            assert await sidecar.place(name) == (200, {"committed": True, "message": ""})


async def test_claims_are_listed_when_their_watch_misses_a_claim_that_the_scheduler_sees(caplog):
    cluster = loaded(*fleet(), pod("p", "a"), cluster=SilentWatches())
    async with running(cluster) as sidecar:
        cluster.silent, sidecar.service.ledger.unseen_seconds = True, 0.2
        created = await cluster.create(resources.RESOURCE_CLAIMS.raw, claim("a"))
        question = {"pod": await sidecar.pod("p"), "claimVersions": [created["metadata"]["resourceVersion"]]}
        assert (await sidecar.plugin("prefilter", question))[1]["verdict"] == "waiting"
        begun = sidecar.service.requeue_events.seq
        await until(lambda: "default/p" in sidecar.service.requeue_events.since(begun).pods)
        # Without the versions, a watch that is silent for 30 s is replaced, too.
        assert "a watch is stale; the collection is listed again" in caplog.messages


async def test_an_allocator_blind_to_its_own_writes_is_not_ready():
    cluster = loaded(*fleet(), claim("a"), pod("p", "a"), cluster=SilentWatches())
    async with running(cluster) as sidecar:
        sidecar.service.ledger.unseen_seconds = 0.1
        cluster.outdated_list = await cluster.list(resources.RESOURCE_CLAIMS)
        cluster.silent = True
        placing = asyncio.create_task(sidecar.place("p"))
        assert not sidecar.service.metrics.readiness()[0]["watch"]
        await until(lambda: sidecar.service.metrics.readiness()[0]["watch"])
        message = "resourceclaims.resource.k8s.io: the watch has not shown a known change for"
        assert sidecar.service.metrics.readiness()[0]["watch"].startswith(message)
        cluster.silent, cluster.outdated_list = False, None
        assert (await placing)[0] == 200
        await until(lambda: not sidecar.service.metrics.readiness()[0]["watch"])


@pytest.mark.parametrize(
    "error", MISSING_PERMISSION_ERRORS, ids=["to patch claims", "to bind claims", "to authenticate"]
)
async def test_a_missing_permission_fails_readiness_until_a_write_succeeds(error):
    cluster = FaultyStore(*fleet(), claim("a"), pod("p", "a"))
    cluster.errors_before[1] = error
    async with running(cluster) as sidecar:
        status, answer = await sidecar.place("p")
        assert status == 409
        assert error.message in sidecar.service.metrics.readiness()[0]["rights"]
        assert answer["error"]
        assert (await sidecar.place("p"))[0] == 200
        assert sidecar.service.metrics.readiness()[0]["rights"] == ""


async def test_a_missing_permission_is_forgotten_after_a_while(monkeypatch):
    """The pod and the claim may be gone by then, or the permission may have been granted."""
    cluster = FaultyStore(*fleet(), claim("a"), pod("p", "a"))
    cluster.errors_before[1] = MISSING_PERMISSION_ERRORS[0]
    async with running(cluster) as sidecar:
        await sidecar.place("p")
        assert sidecar.service.metrics.readiness()[0]["rights"]
        missing_rights = sidecar.service.ledger.commits.missing_rights
        assert missing_rights()
        monkeypatch.setattr("allocator.service.commits.LACKING_SECONDS", 0.0)
        assert missing_rights() == "", "the missing permission was not forgotten"


class RejectingStore(FaultyStore):
    """A store that rejects every write of some claims, as an API server does for objects that violate a policy."""

    rejected_claims: ClassVar[set[str]] = set()

    async def patch(self, resource, name, patch, namespace=None, **options):
        if resource.kind == "ResourceClaim" and name in self.rejected_claims:
            self.writes.append((name, options.get("subresource", "")))
            raise Invalid(f"ResourceClaim {name} is invalid: spec: field is immutable")
        return await super().patch(resource, name, patch, namespace, **options)


async def test_unwritable_claims_delay_no_other_pods():
    """Without pauses the allocator would write more than a hundred times per second and not become ready again."""
    unwritable_claims = [f"bad-{i}" for i in range(20)]
    cluster = RejectingStore(*fleet(2, 20), *pods_with_claims(*unwritable_claims, "a"))
    cluster.rejected_claims = {*unwritable_claims}
    async with running(cluster) as sidecar:
        begun_at = time.monotonic()
        for _ in range(5):
            for name in unwritable_claims:
                status, answer = await sidecar.place(name)
                assert status == 409
                assert f"{name} is invalid: spec: field is immutable" in answer["error"]
        # After the second rejection, writes of a claim pause for 1 s, then 2 s, 4 s, ...: on a slow machine some pauses have ended by now.
        ended_pauses = int(math.log2(1 + time.monotonic() - begun_at))
        assert 2 * len(unwritable_claims) <= len(cluster.writes) <= (2 + ended_pauses) * len(unwritable_claims)
        assert sidecar.service.metrics.readiness()[0]["rights"] == ""
        assert (await sidecar.place("a"))[0] == 200
        events = (await sidecar.cluster.list(resources.EVENTS.raw, "default")).items
        assert {event["involvedObject"]["name"] for event in events if "field is immutable" in event["message"]} == {
            *unwritable_claims
        }
        for name in unwritable_claims:
            await sidecar.cluster.delete(resources.PODS, name, "default")
            await sidecar.cluster.delete(resources.RESOURCE_CLAIMS, name, "default")
        await until(lambda: len(sidecar.service.ledger.state.holds) == 1)
        assert len(sidecar.service.ledger.state.reservations) == 1


async def test_a_rejected_pod_is_placed_once_the_server_accepts_writes():
    cluster = RejectingStore(*fleet(), claim("a"), pod("p", "a"))
    cluster.rejected_claims = {"a"}
    async with running(cluster) as sidecar:
        for _ in range(3):
            assert (await sidecar.place("p"))[0] == 409
        cluster.rejected_claims = set()
        seq = sidecar.service.requeue_events.seq
        event = await sidecar.service.requeue_events.after(seq, PATIENCE)
        assert event.all or "default/p" in event.pods
        assert (await sidecar.place("p"))[0] == 200


async def test_a_write_is_retried_until_the_policy_accepts_it():
    """The policy accepts only writes of the replica that holds the Lease, and may see a new holder late."""
    cluster = FaultyStore(*fleet(), claim("a"), pod("p", "a"))
    cluster.errors_before[1] = Forbidden(f"ValidatingAdmissionPolicy '{HOLDER_POLICY}' denied request")
    async with running(cluster) as sidecar:
        assert (await sidecar.place("p"))[0] == 200


@pytest.mark.parametrize("seed", range(4))
async def test_each_device_serves_one_pod_although_many_writes_fail(seed):
    """There are twelve devices and sixteen pods, and about a third of the writes fail, in one of several ways."""
    rng = random.Random(seed)
    pods = [f"p{i}" for i in range(16)]
    cluster = FaultyStore(*fleet(3, 4), *pods_with_claims(*pods))
    errors = (Conflict("faster"), Unavailable("broken"), Throttled("busy", retry_after=0.01))
    for number in range(1, 200):
        if rng.random() < 0.33:
            failures, error = rng.choice((cluster.errors_before, cluster.errors_after)), rng.choice(errors)
            failures[number] = Unavailable("broken") if failures is cluster.errors_after else error
    async with running(cluster) as sidecar:
        placed_pods = set()
        async with asyncio.timeout(PATIENCE):
            while len(placed_pods) < 12:
                unserved = [name for name in pods if name not in placed_pods]
                answers = await asyncio.gather(*map(sidecar.try_to_place, unserved))
                placed_pods |= {name for name, is_placed in zip(unserved, answers, strict=True) if is_placed}
        devices = [device for name in pods for device in await sidecar.allocated_devices(name)]
        assert len(devices) == len(set(devices)) == 12
        for name in pods:
            users = [consumer.name for consumer in (await sidecar.claim(name)).status.reserved_for]
            assert users == ([name] if name in placed_pods else [])
