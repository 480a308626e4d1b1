"""Pods with a nominated node, on the embedded store: the devices that are freed for them are kept, and other pods wait."""

import asyncio

import pytest

from allocator.service.preemption.nominations import OUTBID, SECONDS
from cluster import resources
from tests.allocator.service.preemptors import (
    full_node_and_preemptor,
    nominate,
    postfilter,
    start_pod,
)
from tests.allocator.service.sidecar import (
    device_class,
    gpus,
    loaded,
    node,
    pods_with_claims,
    running,
    until,
)
from tests.limits import PATIENCE


def slice_for_all_nodes(count):
    """Return a ResourceSlice whose devices can be used on every node."""
    shared_slice = gpus("shared", count)
    del shared_slice["spec"]["nodeName"]
    shared_slice["spec"]["allNodes"] = True
    return shared_slice


async def test_two_equal_pods_get_separate_victims_in_a_shared_pool():
    """Devices that are freed for one pod do not count as free for the other pod. Otherwise each pod would wait for the other."""
    low_pods = [*pods_with_claims("low", priority=2), *pods_with_claims("lower", priority=1)]
    preemptors = pods_with_claims("urgent", "rival", priority=100)
    cluster = loaded(device_class(), node("n0"), node("n1"), slice_for_all_nodes(2), *low_pods, *preemptors)
    async with running(cluster) as sidecar:
        await start_pod(sidecar, "low", "n0")
        await start_pod(sidecar, "lower", "n1")
        victims = []
        for name, node_name in (("urgent", "n0"), ("rival", "n1")):
            answer = (await postfilter(sidecar, name, node_name))[1]
            assert answer["nominatedNode"] == node_name
            victims += [victim["name"] for victim in answer["victims"]]
        assert victims == ["lower", "low"]
        for name in ("low", "lower"):
            await sidecar.free_claim(name)
        for name, node_name in (("rival", "n1"), ("urgent", "n0")):
            assert (await sidecar.place(name, node_name))[0] == 200


@pytest.mark.parametrize("leader", ["the same leader", "a new leader"])
async def test_devices_freed_for_a_nominated_pod_are_kept(leader):
    """A new leader reads the nomination from the pod's status. Otherwise a second pod would be evicted."""
    priorities = {"low": 1, "next": 2, "urgent": 100}
    pods = [obj for name, priority in priorities.items() for obj in pods_with_claims(name, priority=priority)]
    cluster = loaded(device_class(), node("n0"), node("n1"), slice_for_all_nodes(1), *pods)
    async with running(cluster) as sidecar:
        await start_pod(sidecar, "low", "n0")
        assert (await postfilter(sidecar, "urgent", "n0"))[1]["nominatedNode"] == "n0"
        await until(lambda: sidecar.service.pods.find("pod-low") is None)
        await nominate(sidecar, "n0")
        if leader == "a new leader":
            sidecar.service.pods.nominations._ours.clear()
        await sidecar.free_claim("low")
        answer = await sidecar.prefilter("next")
        assert (answer["verdict"], answer["nodes"]) == ("full", [])
        assert answer["message"] == f"0 of 2 nodes can serve the claims: 2 {OUTBID}"
        _, first_wake = await sidecar.plugin("wake", after=0)
        assert (await sidecar.place("urgent", "n0"))[0] == 200
        await cluster.bind("urgent", "default", "n0")
        _, next_wake = await sidecar.plugin("wake", after=first_wake["seq"])
        assert "default/next" in next_wake["pods"]


async def test_only_nodes_that_a_pod_can_run_on_are_reserved_for_another_pod():
    """Three nodes share one device. The pod selects n1, and another pod is nominated to n0."""
    nodes = [node(name) | {"metadata": {"name": name, "labels": {"pool": name}}} for name in ("n0", "n1", "n2")]
    confined = pods_with_claims("next", priority=2, nodeSelector={"pool": "n1"})
    cluster = loaded(
        device_class(), *nodes, slice_for_all_nodes(1), *confined, *pods_with_claims("urgent", priority=100)
    )
    async with running(cluster) as sidecar:
        await nominate(sidecar, "n0")
        answer = await sidecar.prefilter("next")
        barred = "2 node(s) didn't match Pod's node affinity/selector"
        assert answer["message"] == f"0 of 3 nodes can serve the claims: 1 {OUTBID}; {barred}"
        assert [reason["nodes"] for reason in answer["reasons"]] == [["n1"], ["n0", "n2"]]


async def keep_device_for_urgent(cluster, sidecar):
    """Keep a device for `urgent`, so that `late` is refused; return the number of the last requeue event."""
    await start_pod(sidecar, "a", "n0")
    await postfilter(sidecar, "urgent", "n0")
    await until(lambda: sidecar.service.pods.find("pod-a") is None)
    await sidecar.free_claim("a")
    assert (await sidecar.prefilter("late"))["nodes"] == []
    return sidecar.service.requeue_events.seq


@pytest.mark.parametrize(
    "ending",
    [
        "the nomination expires",
        "the nominated pod is deleted",
        "the scheduler binds its nominated pod to another node",
        "the scheduler withdraws its nomination",
    ],
)
async def test_the_end_of_a_nomination_requeues_the_refused_pod(ending, monkeypatch):
    cluster = loaded(*full_node_and_preemptor("a", requested=1), *pods_with_claims("late", priority=2))
    async with running(cluster) as sidecar:
        last_seq = await keep_device_for_urgent(cluster, sidecar)
        if ending.startswith("the scheduler"):
            sidecar.service.pods.nominations._ours.clear()  # from now on, only the pod's status has a nomination
            await nominate(sidecar, "n0")
            assert (await sidecar.prefilter("late"))["nodes"] == []
        sidecar.service.tick()
        assert sidecar.service.requeue_events.seq == last_seq
        match ending:
            case "the nomination expires":
                monkeypatch.setattr(
                    sidecar.service.pods.nominations, "_clock", lambda: asyncio.get_running_loop().time() + SECONDS
                )
                sidecar.service.tick()
            case "the nominated pod is deleted":
                await cluster.delete(resources.PODS, "urgent", "default")
            case "the scheduler binds its nominated pod to another node":
                await cluster.bind("urgent", "default", "n1")
            case "the scheduler withdraws its nomination":
                await nominate(sidecar, None)
        async with asyncio.timeout(PATIENCE):
            event = await sidecar.service.requeue_events.after(last_seq, PATIENCE)
        assert "default/late" in event.pods
        assert [node["name"] for node in (await sidecar.prefilter("late"))["nodes"]] == ["n0"]


async def test_a_preemptor_blocked_by_a_nomination_is_requeued():
    cluster = loaded(*full_node_and_preemptor("low", requested=1), *pods_with_claims("rival", priority=100))
    async with running(cluster) as sidecar:
        await start_pod(sidecar, "low", "n0")
        sidecar.service.pods.nominations.nominate(sidecar.service.pods.find("pod-rival"), "n0", ())
        assert (await postfilter(sidecar, "urgent", "n0"))[1]["nominatedNode"] == ""
        last_seq = sidecar.service.requeue_events.seq
        await cluster.delete(resources.PODS, "rival", "default")
        async with asyncio.timeout(PATIENCE):
            event = await sidecar.service.requeue_events.after(last_seq, PATIENCE)
        assert "default/urgent" in event.pods
        assert (await postfilter(sidecar, "urgent", "n0"))[1]["nominatedNode"] == "n0"
