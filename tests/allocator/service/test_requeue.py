"""Another try for pods of a stock scheduler, over the embedded store: which are called back, and which are not."""

import asyncio

import pytest

from allocator.service.preemption.requeue import ANNOTATION, ExtenderRequeue
from cluster import resources
from cluster.errors import Forbidden, Invalid
from cluster.patch import Merge
from runtime.informers import Backoff
from tests.allocator.service.sidecar import claim, fleet, gpus, loaded, pod, running, until
from tests.allocator.service.test_bridge import faulty
from tests.allocator.service.test_evictions import wait_for


def full():
    """A device that one pod has and another waits for."""
    return [*fleet(1, 1), claim("a"), pod("a", "a"), claim("late"), pod("late", "late")]


async def free(one, name):
    """Take a claim's devices away, as kube-controller-manager does when its pod is gone."""
    freed = Merge({"status": {"allocation": None, "reservedFor": None}})
    await one.cluster.patch(resources.RESOURCE_CLAIMS, name, freed, "default", subresource="status")


def is_called(one, name):
    known = one.bridge.knowledge.stock.claims[f"default/{name}"]
    return ANNOTATION in known.metadata.annotations


async def requeue_of(one, **terms):
    """Those of a service, which nothing runs, and what they count."""
    metrics = one.service.metrics

    def counted():
        total = metrics.registry.get_sample_value
        return {
            outcome: count
            for outcome in ("Written", "Failed")
            if (count := total("drawbridge_claim_writes_total", {"what": "Requeue", "outcome": outcome}))
        }

    made = ExtenderRequeue(
        cluster=one.cluster,
        knowledge=one.bridge.knowledge,
        lead=one.bridge.lead,
        pods=one.bridge.pods,
        requeue_events=one.bridge.requeue_events,
        metrics=metrics,
        **terms,
    )
    return made, counted


async def test_a_pod_that_was_refused_before_we_heard_of_its_room_is_called_back():
    async with running(loaded(*full())) as one:
        await one.place("a")
        await one.cluster.bind("a", "default", "n0")
        assert (await wait_for(one, "late", "n0"))["NodeNames"] == []
        await free(one, "a")
        await until(lambda: is_called(one, "late"))
        assert not is_called(one, "a")


async def test_a_pod_is_called_back_when_a_device_is_published_which_its_scheduler_never_learns_of():
    async with running(loaded(*fleet(1, 1)[:-1], claim("late"), pod("late", "late"))) as one:
        assert (await wait_for(one, "late", "n0"))["NodeNames"] == []
        await one.cluster.create(resources.RESOURCE_SLICES.raw, gpus("n0", 1))
        await until(lambda: is_called(one, "late"))
        assert (await wait_for(one, "late", "n0"))["NodeNames"] == ["n0"]


@pytest.mark.parametrize("what", ["nothing", "asked since", "woken later", "has a node"])
async def test_a_pod_that_asked_again_or_no_longer_waits_is_not_requeued(what):
    async with running(loaded(*full())) as one:
        found, counted = await requeue_of(one)
        late = one.bridge.pods.find("pod-late")
        now = asyncio.get_running_loop().time()
        one.bridge.pods.waiting.wake([late])
        match what:
            case "asked since":
                await one.plugin("prefilter", {"pod": await one.pod("late")})
            case "woken later":
                now -= 1.0
            case "has a node":
                await one.cluster.bind("late", "default", "n0")
                await until(lambda: not one.bridge.pods.waits("pod-late"))
        await found._call(now + 0.5)
        assert counted() == ({"Written": 1} if what == "nothing" else {})


async def test_pods_that_were_woken_together_are_requeued_with_one_write():
    more = [pod("other", "late"), pod("unknown", "none")]
    async with running(loaded(*full(), *more)) as one:
        found, counted = await requeue_of(one)
        later = asyncio.get_running_loop().time() + 1.0
        await found._call(later)
        assert counted() == {}
        one.bridge.pods.waiting.wake(one.bridge.pods.find(uid) for uid in ("pod-unknown", "pod-other", "pod-late"))
        await found._call(later)
        assert counted() == {"Written": 1}
        await until(lambda: is_called(one, "late"))


async def test_a_server_that_refuses_is_counted_and_asked_again_without_other_news():
    cluster = faulty(*full())
    async with running(cluster) as one:
        found, counted = await requeue_of(one, patience=0.0, backoff=Backoff(least=0.01))
        run = asyncio.create_task(found.run())
        try:
            late = one.bridge.pods.find("pod-late")
            cluster.faults[1] = Forbidden("no")
            await asyncio.sleep(0)  # it listens from here on
            one.bridge.pods.waiting.wake([late])
            await until(lambda: counted() == {"Written": 1, "Failed": 1})
            one.bridge.pods.waiting.wake([late])
            await until(lambda: counted() == {"Written": 2, "Failed": 1})
        finally:
            run.cancel()


async def test_a_replica_that_is_not_sure_of_its_lease_for_a_moment_calls_a_pod_back_all_the_same(monkeypatch):
    async with running(loaded(*full())) as one:
        found, counted = await requeue_of(one, patience=0.0, backoff=Backoff(least=0.01))
        sure = [False, False]
        may_write = one.bridge.lead.may_write
        monkeypatch.setattr(one.bridge.lead, "may_write", lambda: sure.pop() if sure else may_write())
        run = asyncio.create_task(found.run())
        try:
            await asyncio.sleep(0)  # it listens from here on
            one.bridge.pods.waiting.wake([one.bridge.pods.find("pod-late")])
            await until(lambda: counted().get("Written") == 1)
        finally:
            run.cancel()


@pytest.mark.parametrize(("refusals", "expected"), [(1, ["Written"]), (3, ["Failed", "Written"])])
async def test_one_unannotatable_claim_does_not_stop_the_requeue_of_other_pods(monkeypatch, refusals, expected):
    """Another is tried, so many of them before there is a rest."""
    monkeypatch.setattr("allocator.service.preemption.requeue.REFUSALS", 2)
    cluster = faulty(*full(), claim("other"), pod("other", "other"), claim("third"), pod("third", "third"))
    async with running(cluster) as one:
        found, counted = await requeue_of(one, patience=0.0, backoff=Backoff(least=0.01))
        written = len(cluster.writes)
        cluster.faults |= {written + at: Invalid("spec: field is immutable") for at in range(1, refusals + 1)}
        run = asyncio.create_task(found.run())
        await asyncio.sleep(0)  # it listens from here on
        one.bridge.pods.waiting.wake(one.bridge.pods.find(uid) for uid in ("pod-late", "pod-other", "pod-third"))
        await until(lambda: "Written" in counted())
        run.cancel()
        assert counted() == dict.fromkeys(expected, 1)
        assert len(cluster.writes) == written + refusals + 1
