"""Requeueing of a stock scheduler's pods, over the embedded store: which pods are requeued."""

import asyncio

import pytest

from allocator.service.preemption.requeue import ANNOTATION, ExtenderRequeue
from cluster import resources
from cluster.errors import Forbidden, Invalid
from runtime.informers import Backoff
from tests.allocator.service.preemptors import extender_filter
from tests.allocator.service.sidecar import claim, fleet, free_claim, gpus, loaded, pod, running, until
from tests.allocator.service.stores import faulty_cluster


def full():
    """Return a fleet with one device, a pod that holds it, and a pod that waits for it."""
    return [*fleet(1, 1), claim("a"), pod("a", "a"), claim("late"), pod("late", "late")]


def is_called(sidecar, name):
    claim = sidecar.service.knowledge.stock.claims[f"default/{name}"]
    return ANNOTATION in claim.metadata.annotations


async def requeue_of(sidecar, **terms):
    """Return an ExtenderRequeue that does not run yet, and a function that counts its writes by outcome."""
    metrics = sidecar.service.metrics

    def counted():
        total = metrics.registry.get_sample_value
        return {
            outcome: count
            for outcome in ("Written", "Failed")
            if (count := total("drawbridge_claim_writes_total", {"what": "Requeue", "outcome": outcome}))
        }

    requeue = ExtenderRequeue(
        cluster=sidecar.cluster,
        knowledge=sidecar.service.knowledge,
        lead=sidecar.service.lead,
        pods=sidecar.service.pods,
        requeue_events=sidecar.service.requeue_events,
        metrics=metrics,
        **terms,
    )
    return requeue, counted


async def test_a_pod_refused_on_stale_data_is_requeued():
    async with running(loaded(*full())) as sidecar:
        await sidecar.place("a")
        await sidecar.cluster.bind("a", "default", "n0")
        assert (await extender_filter(sidecar, "late", "n0"))["NodeNames"] == []
        await free_claim(sidecar.cluster, "a")
        await until(lambda: is_called(sidecar, "late"))
        assert not is_called(sidecar, "a")


async def test_a_new_device_requeues_a_pod_of_a_stock_scheduler():
    async with running(loaded(*fleet(1, 1)[:-1], claim("late"), pod("late", "late"))) as sidecar:
        assert (await extender_filter(sidecar, "late", "n0"))["NodeNames"] == []
        await sidecar.cluster.create(resources.RESOURCE_SLICES.raw, gpus("n0", 1))
        await until(lambda: is_called(sidecar, "late"))
        assert (await extender_filter(sidecar, "late", "n0"))["NodeNames"] == ["n0"]


@pytest.mark.parametrize("change", ["nothing", "asked since", "requeued later", "has a node"])
async def test_a_pod_that_retried_or_stopped_waiting_is_not_requeued(change):
    async with running(loaded(*full())) as client:
        requeue, counted = await requeue_of(client)
        late = client.service.pods.find("pod-late")
        now = asyncio.get_running_loop().time()
        client.service.pods.waiting.requeue([late])
        match change:
            case "asked since":
                await client.plugin("prefilter", {"pod": await client.pod("late")})
            case "requeued later":
                now -= 1.0
            case "has a node":
                await client.cluster.bind("late", "default", "n0")
                await until(lambda: not client.service.pods.waits("pod-late"))
        await requeue._annotate_claim(now + 0.5)
        assert counted() == ({"Written": 1} if change == "nothing" else {})


async def test_pods_woken_together_are_requeued_with_one_write():
    more = [pod("other", "late"), pod("unknown", "none")]
    async with running(loaded(*full(), *more)) as client:
        requeue, counted = await requeue_of(client)
        later = asyncio.get_running_loop().time() + 1.0
        await requeue._annotate_claim(later)
        assert counted() == {}
        client.service.pods.waiting.requeue(
            client.service.pods.find(uid) for uid in ("pod-unknown", "pod-other", "pod-late")
        )
        await requeue._annotate_claim(later)
        assert counted() == {"Written": 1}
        await until(lambda: is_called(client, "late"))


async def test_a_refused_requeue_write_is_counted_and_retried():
    cluster = faulty_cluster(*full())
    async with running(cluster) as sidecar:
        requeue, counted = await requeue_of(sidecar, patience=0.0, backoff=Backoff(least=0.01))
        run = asyncio.create_task(requeue.run())
        try:
            late = sidecar.service.pods.find("pod-late")
            cluster.errors_before[1] = Forbidden("no")
            await asyncio.sleep(0)  # the requeue listens from now on
            sidecar.service.pods.waiting.requeue([late])
            await until(lambda: counted() == {"Written": 1, "Failed": 1})
            sidecar.service.pods.waiting.requeue([late])
            await until(lambda: counted() == {"Written": 2, "Failed": 1})
        finally:
            run.cancel()


async def test_a_pod_is_requeued_after_a_moment_of_uncertain_lease(monkeypatch):
    async with running(loaded(*full())) as sidecar:
        requeue, counted = await requeue_of(sidecar, patience=0.0, backoff=Backoff(least=0.01))
        lease_checks = [False, False]
        may_write = sidecar.service.lead.may_write
        monkeypatch.setattr(
            sidecar.service.lead, "may_write", lambda: lease_checks.pop() if lease_checks else may_write()
        )
        run = asyncio.create_task(requeue.run())
        try:
            await asyncio.sleep(0)  # the requeue listens from now on
            sidecar.service.pods.waiting.requeue([sidecar.service.pods.find("pod-late")])
            await until(lambda: counted().get("Written") == 1)
        finally:
            run.cancel()


@pytest.mark.parametrize(("refusals", "expected"), [(1, ["Written"]), (3, ["Failed", "Written"])])
async def test_a_claim_with_refused_writes_does_not_block_other_requeues(monkeypatch, refusals, expected):
    """The next claim is tried, up to the maximum number of refusals before a pause."""
    monkeypatch.setattr("allocator.service.preemption.requeue.REFUSALS", 2)
    cluster = faulty_cluster(*full(), claim("other"), pod("other", "other"), claim("third"), pod("third", "third"))
    async with running(cluster) as sidecar:
        requeue, counted = await requeue_of(sidecar, patience=0.0, backoff=Backoff(least=0.01))
        written = len(cluster.writes)
        cluster.errors_before |= {written + i: Invalid("spec: field is immutable") for i in range(1, refusals + 1)}
        run = asyncio.create_task(requeue.run())
        await asyncio.sleep(0)  # the requeue listens from now on
        sidecar.service.pods.waiting.requeue(
            sidecar.service.pods.find(uid) for uid in ("pod-late", "pod-other", "pod-third")
        )
        await until(lambda: "Written" in counted())
        run.cancel()
        assert counted() == dict.fromkeys(expected, 1)
        assert len(cluster.writes) == written + refusals + 1
