"""Evictions on the embedded store while pods, devices or leaders change: no pod is evicted in vain."""

import asyncio
import threading

import pytest

from allocator.service.app import HttpError
from allocator.service.preemption import choices, evictions
from allocator.service.question_runner import TURN
from cluster import resources
from tests.allocator.service.preemptors import (
    StoreWithDeletionHooks,
    disruption_budget,
    existing_pods,
    full_node_and_preemptor,
    nominate,
    pod_exists,
    postfilter,
    start_pod,
)
from tests.allocator.service.sidecar import fleet, loaded, pod, pods_with_claims, running, until
from tests.limits import PATIENCE


@pytest.mark.parametrize("marked_pod", ["b", "c"])
async def test_a_new_leader_resumes_an_eviction_without_extra_victims(marked_pod):
    """The old leader dies after it marked a victim and before it deletes that pod. The other victim is deleted or not marked yet."""
    cluster = StoreWithDeletionHooks(*full_node_and_preemptor("a", "b", "c"))
    hook_reached = asyncio.Event()

    async def hang():
        hook_reached.set()
        await asyncio.Event().wait()

    async with running(cluster) as sidecar:
        for name in "abc":
            await start_pod(sidecar, name, "n0")
    cluster.before_deletion[marked_pod] = hang
    async with running(cluster) as sidecar:
        preemption = asyncio.create_task(postfilter(sidecar, "urgent", "n0"))
        await asyncio.wait_for(hook_reached.wait(), PATIENCE)
        preemption.cancel()
    stored_pod = await cluster.get(resources.PODS, marked_pod, "default")
    assert "DisruptionTarget" in [condition.type for condition in stored_pod.status.conditions]
    async with running(cluster, identity="next") as sidecar:
        pods_before = await existing_pods(sidecar, "a", "b", "c")
        answer = (await postfilter(sidecar, "urgent", "n0"))[1]
        assert answer["nominatedNode"] == "n0"
        assert marked_pod in [victim["name"] for victim in answer["victims"]], (
            "the pod that the old leader marked is no victim"
        )
        assert len(await existing_pods(sidecar, "a", "b", "c")) == 1, "the two leaders did not evict exactly two pods"
        assert len(answer["victims"]) == len(pods_before) - 1


async def test_no_further_pod_is_evicted_once_the_devices_disappear():
    """The driver deletes its ResourceSlice while the first of two victims is deleted."""
    cluster = StoreWithDeletionHooks(*full_node_and_preemptor("a", "b", "c"))
    async with running(cluster) as sidecar:
        for name in "abc":
            await start_pod(sidecar, name, "n0")

        async def delete_slice():
            await cluster.delete(resources.RESOURCE_SLICES, "n0-gpus")
            await until(lambda: not sidecar.service.knowledge.stock.slices)

        cluster.before_deletion = {"a": delete_slice, "b": delete_slice, "c": delete_slice}
        answer = (await postfilter(sidecar, "urgent", "n0"))[1]
        assert answer == {"nominatedNode": "", "victims": [], "message": "devices changed during preemption; no other pod is evicted"}  # fmt: skip
        assert len(await existing_pods(sidecar, "a", "b", "c")) == 2


async def test_no_further_pod_is_evicted_once_enough_devices_are_free():
    cluster = StoreWithDeletionHooks(*full_node_and_preemptor("a", "b", "c", "d"))
    async with running(cluster) as sidecar:
        for name in "abcd":
            await start_pod(sidecar, name, "n0")

        async def end_other_pods():
            """Delete the pods a and b, as if they had ended by themselves."""
            cluster.before_deletion.clear()
            for name in await existing_pods(sidecar, "a", "b"):
                await cluster.delete(resources.PODS, name, "default")
            await until(lambda: not {"pod-a", "pod-b"} & sidecar.service.pods.by_uid.keys())

        cluster.before_deletion = {"c": end_other_pods, "d": end_other_pods}
        answer = (await postfilter(sidecar, "urgent", "n0"))[1]
        assert answer["nominatedNode"] == "n0"
        assert len(answer["victims"]) == 1
        assert len(await existing_pods(sidecar, "c", "d")) == 1


async def test_a_new_pod_with_the_victims_name_is_not_evicted():
    cluster = StoreWithDeletionHooks(*full_node_and_preemptor("a", requested=1))
    async with running(cluster) as sidecar:
        await start_pod(sidecar, "a", "n0")

        async def replace():
            await cluster.delete(resources.PODS, "a", "default")
            await cluster.create(resources.PODS.raw, pod("a", "a") | {"status": {}}, "default")

        cluster.before_deletion["a"] = replace
        status, _ = await postfilter(sidecar, "urgent", "n0")
        assert status == 200
        assert await pod_exists(sidecar, "a")


async def test_two_concurrent_calls_evict_one_pod():
    """A scheduler calls a second time after a timeout, while a slow API server still deletes the victim of the first call."""
    cluster = StoreWithDeletionHooks(*full_node_and_preemptor("a", "b", requested=1))
    deletion_started, may_answer = asyncio.Event(), asyncio.Event()

    async def wait():
        deletion_started.set()
        await may_answer.wait()

    async with running(cluster) as sidecar:
        for name in "ab":
            await start_pod(sidecar, name, "n0")
        cluster.before_deletion = {"a": wait, "b": wait}
        first_call = asyncio.create_task(postfilter(sidecar, "urgent", "n0"))
        await asyncio.wait_for(deletion_started.wait(), PATIENCE)
        second_call = asyncio.create_task(postfilter(sidecar, "urgent", "n0"))
        state_call = asyncio.create_task(sidecar.plugin("state"))
        await asyncio.wait_for(state_call, PATIENCE)
        may_answer.set()
        answers = [(await call)[1] for call in (first_call, second_call)]
        assert [(answer["nominatedNode"], len(answer["victims"])) for answer in answers] == [("n0", 1), ("n0", 0)]
        assert len(await existing_pods(sidecar, "a", "b")) == 1


async def test_a_stale_disruption_budget_allows_one_eviction_of_protected_pods():
    """The budget's controller updates the budget's status later. Until then the allocator subtracts the pods that it evicted."""
    protected_names = ("protected-1", "protected-2")
    protected = pods_with_claims(*protected_names, priority=1, labels={"app": "protected"})
    others = [*pods_with_claims("unprotected", priority=50), *pods_with_claims("urgent", "second", priority=100)]
    cluster = loaded(*fleet(1, 3), *protected, *others, disruption_budget(1))
    async with running(cluster) as sidecar:
        for name in (*protected_names, "unprotected"):
            await start_pod(sidecar, name, "n0")
        [first_victim] = (await postfilter(sidecar, "urgent", "n0"))[1]["victims"]
        assert first_victim["name"] in protected_names
        await until(lambda: sidecar.service.pods.find(first_victim["uid"]) is None)
        await nominate(sidecar, "n0")
        [second_victim] = (await postfilter(sidecar, "second", "n0"))[1]["victims"]
        assert second_victim["name"] == "unprotected"


async def test_no_pod_is_evicted_on_the_basis_of_stale_caches(monkeypatch):
    cluster = loaded(*full_node_and_preemptor("a", requested=1), disruption_budget(0))
    async with running(cluster) as sidecar:
        await start_pod(sidecar, "a", "n0")
        preemptor = await cluster.get(resources.PODS, "urgent", "default")
        monkeypatch.setattr(evictions, "TRUSTED", 0.01)
        await until(lambda: "poddisruptionbudgets" in sidecar.service.knowledge.silent_for(0.01))
        with pytest.raises(
            HttpError, match=r"no pod is evicted: there was no update about .*poddisruptionbudgets.* for 0 s"
        ):
            await sidecar.service.evictions.make_room([(preemptor, "n0")])
        assert await pod_exists(sidecar, "a")
        monkeypatch.undo()
        await sidecar.service.evictions.make_room([(preemptor, "n0")])
        assert not await pod_exists(sidecar, "a")


async def test_other_calls_are_answered_while_victims_are_chosen(monkeypatch):
    """The choice of victims lasts until another call is answered."""
    other_call_answered, choose = threading.Event(), choices.choose
    in_thread = []

    def choose_long(*arguments, **options):
        in_thread.append(threading.current_thread() is not threading.main_thread())
        assert not in_thread[-1] or other_call_answered.wait(PATIENCE)
        return choose(*arguments, **options)

    cluster = loaded(*full_node_and_preemptor("a", requested=1), *pods_with_claims("other"))
    async with running(cluster) as sidecar:
        await start_pod(sidecar, "a", "n0")
        monkeypatch.setattr(choices, "choose", choose_long)
        other_pod = await sidecar.pod("other")
        # The event loop has no time to choose the victims, so a thread chooses them.
        sidecar.service.runner._turn = -1.0
        preemption = asyncio.create_task(postfilter(sidecar, "urgent", "n0"))
        await until(lambda: in_thread == [False, True])
        sidecar.service.runner._turn = TURN
        assert (await sidecar.plugin("prefilter", {"pod": other_pod}))[1]["verdict"] == "full"
        assert not preemption.done()
        other_call_answered.set()
        assert (await preemption)[1]["nominatedNode"] == "n0"
