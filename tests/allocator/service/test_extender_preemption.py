"""Preemption for pods of a stock (unmodified) scheduler. Such a scheduler calls the allocator as its extender, and never calls postfilter."""

import pytest

from allocator.service.preemption.nominations import OUTBID
from allocator.service.settings import Preempting
from tests.allocator.service.preemptors import (
    event_messages,
    extender_filter,
    full_node_and_preemptor,
    important_pod,
    pod_exists,
    start_pod,
)
from tests.allocator.service.sidecar import claim, fleet, free_claim, loaded, pod, running, until


async def test_a_pod_preempts_through_the_extender_and_gets_the_device():
    cluster = loaded(*full_node_and_preemptor("a", requested=1), claim("late"), pod("late", "late", priority=2))
    async with running(cluster, preempting=Preempting.EVICT) as sidecar:
        await start_pod(sidecar, "a", "n0")
        assert (await extender_filter(sidecar, "urgent", "n0"))["NodeNames"] == []
        await until(lambda: sidecar.service.pods.find("pod-a") is None)
        await free_claim(cluster, "a")
        await until(lambda: sidecar.service.knowledge.stock.claims["default/a"].status.allocation is None)
        refusal = await extender_filter(sidecar, "late", "n0")
        assert refusal["FailedAndUnresolvableNodes"]["n0"] == OUTBID
        assert refusal["NodeNames"] == []
        assert (await extender_filter(sidecar, "urgent", "n0"))["NodeNames"] == ["n0"]


async def test_in_advise_mode_victims_are_reported_once_and_not_evicted():
    cluster = loaded(*full_node_and_preemptor("a", requested=1))
    async with running(cluster, preempting=Preempting.ADVISE) as sidecar:
        await start_pod(sidecar, "a", "n0")
        sidecar.service.extender_preemption._again = 0.0  # no pause between two scans for a pod
        for _ in range(3):
            earlier_scans = sidecar.service.extender_preemption.scans
            await extender_filter(sidecar, "urgent", "n0")
            await until(lambda earlier=earlier_scans: sidecar.service.extender_preemption.scans > earlier)
        words = "would fit on n0 if lower-priority pod default/a were evicted; --extender-preemption is advise, so no pod is evicted"
        assert await event_messages(cluster) == [words]
        assert await pod_exists(sidecar, "a")


@pytest.mark.parametrize(
    ("preempting", "preemptor"),
    [
        (Preempting.OFF, important_pod("urgent", "urgent")),
        (Preempting.EVICT, important_pod("urgent", "urgent", preemptionPolicy="Never")),
    ],
    ids=["preemption is off", "the pod's policy is Never"],
)
async def test_no_pod_is_evicted_for_pods_that_must_not_preempt(preempting, preemptor):
    cluster = loaded(*fleet(1, 1), claim("a"), claim("urgent"), pod("a", "a", priority=1), preemptor, claim("able"), important_pod("able", "able"))  # fmt: skip
    async with running(cluster, preempting=preempting) as sidecar:
        await start_pod(sidecar, "a", "n0")
        await extender_filter(sidecar, "urgent", "n0")
        if preempting is Preempting.EVICT:
            await extender_filter(sidecar, "able", "n0")  # this pod may preempt, and evicts a
            await until(lambda: sidecar.service.pods.find("pod-a") is None)
            await until(lambda: event_messages(cluster))
            assert await event_messages(cluster) == ["preempted by pod default/able, which has a higher priority"]
        else:
            await sidecar.place("a", "n0")
            assert sidecar.service.extender_preemption.scans == 0
            assert await pod_exists(sidecar, "a")
