"""Pods with a nominated node, on the embedded store: the devices that are freed for them are kept, and other pods wait."""

import asyncio

import pytest

from allocator.service.preemption.nominations import OUTBID, SECONDS
from cluster import resources
from tests.allocator.service.preemptors import (
    full_node_and_preemptor,
    important_pod,
    nominate,
    postfilter,
    start_pod,
)
from tests.allocator.service.sidecar import (
    claim,
    device_class,
    fleet,
    free_claim,
    gpus,
    loaded,
    node,
    pod,
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
    names = ("low", "lower", "urgent", "rival")
    pods = [pod("low", "low", priority=2), pod("lower", "lower", priority=1), important_pod("urgent", "urgent"), important_pod("rival", "rival")]  # fmt: skip
    cluster = loaded(device_class(), node("n0"), node("n1"), slice_for_all_nodes(2), *map(claim, names), *pods)
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
            await free_claim(cluster, name)
        await until(lambda: not any(sidecar.service.knowledge.stock.claims[f"default/{name}"].status.allocation for name in ("low", "lower")))  # fmt: skip
        for name, node_name in (("rival", "n1"), ("urgent", "n0")):
            assert (await sidecar.place(name, node_name))[0] == 200


async def prefilter(sidecar, name):
    """Return the answer to the plugin's prefilter call for a pod."""
    return (await sidecar.plugin("prefilter", {"pod": await sidecar.pod(name)}))[1]


@pytest.mark.parametrize("leader", ["the same leader", "a new leader"])
async def test_devices_freed_for_a_nominated_pod_are_kept(leader):
    """A new leader reads the nomination from the pod's status. Otherwise a second pod would be evicted."""
    shared_slice = slice_for_all_nodes(1)
    names = ("low", "next", "urgent")
    pods = [pod("low", "low", priority=1), pod("next", "next", priority=2), important_pod("urgent", "urgent")]
    cluster = loaded(device_class(), node("n0"), node("n1"), shared_slice, *(claim(name) for name in names), *pods)
    async with running(cluster) as sidecar:
        await start_pod(sidecar, "low", "n0")
        assert (await postfilter(sidecar, "urgent", "n0"))[1]["nominatedNode"] == "n0"
        await until(lambda: sidecar.service.pods.find("pod-low") is None)
        await nominate(cluster, "n0")
        await until(lambda: sidecar.service.pods.find("pod-urgent").status.nominated_node_name)
        if leader == "a new leader":
            sidecar.service.pods.nominations._ours.clear()
        await free_claim(cluster, "low")
        await until(lambda: sidecar.service.knowledge.stock.claims["default/low"].status.allocation is None)
        answer = await prefilter(sidecar, "next")
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
    confined = pod("next", "next", priority=2, nodeSelector={"pool": "n1"})
    claims = [claim(name) for name in ("next", "urgent")]
    cluster = loaded(
        device_class(), *nodes, slice_for_all_nodes(1), *claims, confined, important_pod("urgent", "urgent")
    )
    async with running(cluster) as sidecar:
        await nominate(cluster, "n0")
        await until(lambda: sidecar.service.pods.find("pod-urgent").status.nominated_node_name)
        answer = await prefilter(sidecar, "next")
        barred = "2 node(s) didn't match Pod's node affinity/selector"
        assert answer["message"] == f"0 of 3 nodes can serve the claims: 1 {OUTBID}; {barred}"
        assert [reason["nodes"] for reason in answer["reasons"]] == [["n1"], ["n0", "n2"]]


async def test_a_preemptor_does_not_get_an_equal_pods_nominated_node():
    rival = important_pod("rival", "rival")
    claims = [claim(name) for name in ("low", "rival", "urgent")]
    cluster = loaded(*fleet(1, 1), *claims, pod("low", "low", priority=1), rival, important_pod("urgent", "urgent"))
    async with running(cluster) as sidecar:
        await start_pod(sidecar, "low", "n0")
        await nominate(cluster, "n0", "rival")
        await until(lambda: sidecar.service.pods.find("pod-rival").status.nominated_node_name == "n0")
        assert (await postfilter(sidecar, "urgent", "n0"))[1]["nominatedNode"] == ""
        assert (await postfilter(sidecar, "rival", "n0"))[1]["nominatedNode"] == "n0"


async def keep_device_for_urgent(cluster, sidecar):
    """Keep a device for `urgent`, so that `late` is refused; return the number of the last requeue event."""
    await start_pod(sidecar, "a", "n0")
    await postfilter(sidecar, "urgent", "n0")
    await until(lambda: sidecar.service.pods.find("pod-a") is None)
    await free_claim(cluster, "a")
    await until(lambda: sidecar.service.knowledge.stock.claims["default/a"].status.allocation is None)
    assert (await prefilter(sidecar, "late"))["nodes"] == []
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
    cluster = loaded(*full_node_and_preemptor("a", requested=1), claim("late"), pod("late", "late", priority=2))
    async with running(cluster) as sidecar:
        last_seq = await keep_device_for_urgent(cluster, sidecar)
        if ending.startswith("the scheduler"):
            sidecar.service.pods.nominations._ours.clear()  # from now on, only the pod's status has a nomination
            await nominate(cluster, "n0")
            await until(lambda: sidecar.service.pods.find("pod-urgent").status.nominated_node_name)
            assert (await prefilter(sidecar, "late"))["nodes"] == []
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
                await nominate(cluster, None)
        async with asyncio.timeout(PATIENCE):
            event = await sidecar.service.requeue_events.after(last_seq, PATIENCE)
        assert "default/late" in event.pods
        assert [node["name"] for node in (await prefilter(sidecar, "late"))["nodes"]] == ["n0"]


async def test_a_nominated_node_is_excluded_for_other_pods():
    pods = [pod("urgent", "urgent", priority=2), pod("late", "late", priority=2)]
    cluster = loaded(*fleet(1, 1), claim("urgent"), claim("late"), *pods)
    async with running(cluster) as sidecar:
        await nominate(cluster, "n0")
        await until(lambda: sidecar.service.pods.find("pod-urgent").status.nominated_node_name)
        answer = await prefilter(sidecar, "late")
        assert (answer["verdict"], answer["nodes"], answer["reasons"][0]["message"]) == ("full", [], OUTBID)


async def test_a_preemptor_blocked_by_a_nomination_is_requeued():
    rival = important_pod("rival", "rival")
    claims = [claim(name) for name in ("low", "rival", "urgent")]
    cluster = loaded(*fleet(1, 1), *claims, pod("low", "low", priority=1), rival, important_pod("urgent", "urgent"))
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
