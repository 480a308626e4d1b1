"""Which pods of a stock (unmodified) scheduler the allocator requeues, on the embedded store.

The allocator annotates a claim. This is an event for the scheduler, which then retries all pods that its extender has refused.
"""

import asyncio

import pytest

from allocator.service.preemption.requeue import ANNOTATION, ExtenderRequeue
from cluster import resources
from cluster.errors import Forbidden, Invalid
from runtime.informers import Backoff
from tests.allocator.service.preemptors import extender_filter
from tests.allocator.service.sidecar import claim, fleet, free_claim, gpus, loaded, pod, running, until
from tests.allocator.service.stores import faulty_cluster


def full_fleet():
    """Return a fleet with one device, the pod `a`, which gets the device, and the pod `late`, which has to wait for it."""
    return [*fleet(1, 1), claim("a"), pod("a", "a"), claim("late"), pod("late", "late")]


def is_requeued(sidecar, name):
    """Return whether the allocator has annotated a claim."""
    stored_claim = sidecar.service.knowledge.stock.claims[f"default/{name}"]
    return ANNOTATION in stored_claim.metadata.annotations


async def requeue_and_counts(sidecar, **options):
    """Return an ExtenderRequeue that does not run yet, and a function that counts its writes by outcome."""
    metrics = sidecar.service.metrics

    def write_counts():
        sample_value = metrics.registry.get_sample_value
        return {
            outcome: count
            for outcome in ("Written", "Failed")
            if (count := sample_value("drawbridge_claim_writes_total", {"what": "Requeue", "outcome": outcome}))
        }

    requeue = ExtenderRequeue(
        cluster=sidecar.cluster,
        knowledge=sidecar.service.knowledge,
        lead=sidecar.service.lead,
        pods=sidecar.service.pods,
        requeue_events=sidecar.service.requeue_events,
        metrics=metrics,
        **options,
    )
    return requeue, write_counts


async def test_a_refused_pod_is_requeued_once_a_device_is_free():
    async with running(loaded(*full_fleet())) as sidecar:
        await sidecar.place("a")
        await sidecar.cluster.bind("a", "default", "n0")
        assert (await extender_filter(sidecar, "late", "n0"))["NodeNames"] == []
        await free_claim(sidecar.cluster, "a")
        await until(lambda: is_requeued(sidecar, "late"))
        assert not is_requeued(sidecar, "a")


async def test_a_new_device_requeues_a_pod_of_a_stock_scheduler():
    async with running(loaded(*fleet(1, 1)[:-1], claim("late"), pod("late", "late"))) as sidecar:
        assert (await extender_filter(sidecar, "late", "n0"))["NodeNames"] == []
        await sidecar.cluster.create(resources.RESOURCE_SLICES.raw, gpus("n0", 1))
        await until(lambda: is_requeued(sidecar, "late"))
        assert (await extender_filter(sidecar, "late", "n0"))["NodeNames"] == ["n0"]


@pytest.mark.parametrize(
    "event", ["nothing", "the pod was tried again", "the pod was requeued too recently", "the pod was bound"]
)
async def test_after_a_pause_only_waiting_pods_are_requeued(event):
    """`event` is what happens to the pod before the allocator would annotate its claim."""
    async with running(loaded(*full_fleet())) as sidecar:
        requeue, write_counts = await requeue_and_counts(sidecar)
        late_pod = sidecar.service.pods.find("pod-late")
        now = asyncio.get_running_loop().time()
        sidecar.service.pods.waiting.requeue([late_pod])
        match event:
            case "the pod was tried again":
                await sidecar.plugin("prefilter", {"pod": await sidecar.pod("late")})
            case "the pod was requeued too recently":
                now -= 1.0
            case "the pod was bound":
                await sidecar.cluster.bind("late", "default", "n0")
                await until(lambda: not sidecar.service.pods.waits("pod-late"))
        await requeue._annotate_claim(now + 0.5)
        assert write_counts() == ({"Written": 1} if event == "nothing" else {})


async def test_one_annotation_of_a_claim_serves_all_requeued_pods():
    other_pods = [pod("other", "late"), pod("unknown", "none")]
    async with running(loaded(*full_fleet(), *other_pods)) as sidecar:
        requeue, write_counts = await requeue_and_counts(sidecar)
        later_time = asyncio.get_running_loop().time() + 1.0
        await requeue._annotate_claim(later_time)
        assert write_counts() == {}
        sidecar.service.pods.waiting.requeue(
            sidecar.service.pods.find(uid) for uid in ("pod-unknown", "pod-other", "pod-late")
        )
        await requeue._annotate_claim(later_time)
        assert write_counts() == {"Written": 1}
        await until(lambda: is_requeued(sidecar, "late"))


async def test_a_refused_requeue_write_is_counted_and_retried():
    cluster = faulty_cluster(*full_fleet())
    async with running(cluster) as sidecar:
        requeue, write_counts = await requeue_and_counts(sidecar, patience=0.0, backoff=Backoff(least=0.01))
        run = asyncio.create_task(requeue.run())
        try:
            late_pod = sidecar.service.pods.find("pod-late")
            cluster.errors_before[1] = Forbidden("no")
            await asyncio.sleep(0)  # the requeue listens from now on
            sidecar.service.pods.waiting.requeue([late_pod])
            await until(lambda: write_counts() == {"Written": 1, "Failed": 1})
            sidecar.service.pods.waiting.requeue([late_pod])
            await until(lambda: write_counts() == {"Written": 2, "Failed": 1})
        finally:
            run.cancel()


async def test_a_pod_is_requeued_once_the_lease_is_certain_again(monkeypatch):
    async with running(loaded(*full_fleet())) as sidecar:
        requeue, write_counts = await requeue_and_counts(sidecar, patience=0.0, backoff=Backoff(least=0.01))
        lease_checks = [False, False]
        may_write = sidecar.service.lead.may_write
        monkeypatch.setattr(
            sidecar.service.lead, "may_write", lambda: lease_checks.pop() if lease_checks else may_write()
        )
        run = asyncio.create_task(requeue.run())
        try:
            await asyncio.sleep(0)  # the requeue listens from now on
            sidecar.service.pods.waiting.requeue([sidecar.service.pods.find("pod-late")])
            await until(lambda: write_counts().get("Written") == 1)
        finally:
            run.cancel()


@pytest.mark.parametrize(("refusals", "expected_outcomes"), [(1, ["Written"]), (3, ["Failed", "Written"])])
async def test_a_claim_with_refused_writes_does_not_block_other_requeues(monkeypatch, refusals, expected_outcomes):
    """After a refusal the next claim is tried at once. After two refusals there is a pause, and the attempt counts as failed."""
    monkeypatch.setattr("allocator.service.preemption.requeue.REFUSALS", 2)
    cluster = faulty_cluster(
        *full_fleet(), claim("other"), pod("other", "other"), claim("third"), pod("third", "third")
    )
    async with running(cluster) as sidecar:
        requeue, write_counts = await requeue_and_counts(sidecar, patience=0.0, backoff=Backoff(least=0.01))
        earlier_writes = len(cluster.writes)
        cluster.errors_before |= {
            earlier_writes + i: Invalid("spec: field is immutable") for i in range(1, refusals + 1)
        }
        run = asyncio.create_task(requeue.run())
        await asyncio.sleep(0)  # the requeue listens from now on
        sidecar.service.pods.waiting.requeue(
            sidecar.service.pods.find(uid) for uid in ("pod-late", "pod-other", "pod-third")
        )
        await until(lambda: "Written" in write_counts())
        run.cancel()
        assert write_counts() == dict.fromkeys(expected_outcomes, 1)
        assert len(cluster.writes) == earlier_writes + refusals + 1
