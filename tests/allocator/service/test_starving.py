"""A pod that finds no room for long is not passed forever by smaller ones of its priority: a node is kept for it."""

import contextlib
import random

import pytest

from allocator.service.preemption.nominations import IDLE, LONGEST, OUTBID
from cluster import resources
from cluster.patch import Merge
from tests.allocator.service.sidecar import DRIVER, claim, device_class, fleet, gpus, loaded, node, pod, running, until
from tests.allocator.service.test_evictions import important, started


def hasty(cluster):
    """An allocator for which pods have waited for long enough when they are first refused."""
    return running(cluster, starved=0.0)


async def end(one, name):
    """Have a pod end, and its claim freed as kube-controller-manager frees it."""
    await one.cluster.delete(resources.PODS, name, "default")
    freed = Merge({"status": {"allocation": None, "reservedFor": None}})
    await one.cluster.patch(resources.RESOURCE_CLAIMS, name, freed, "default", subresource="status")
    key = f"default/{name}"
    await until(lambda: one.bridge.knowledge.stock.claims[key].status.allocation is None and one.bridge.pods.find(f"pod-{name}") is None)  # fmt: skip


async def create(one, name, **spec):
    one.cluster.load([claim(name), pod(name, name, **spec)])
    await until(lambda: one.bridge.pods.find(f"pod-{name}") and f"default/{name}" in one.bridge.knowledge.stock.claims)


async def fits(one, name):
    return (await one.plugin("prefilter", {"pod": await one.pod(name)}))[1]


async def enters(one, name):
    """Whether a pod finds a node, and is placed there."""
    found = await fits(one, name)
    if found["verdict"] == "fits":
        await started(one, name, found["nodes"][0]["name"])
    return found["verdict"] == "fits"


async def kept(one, name):
    """Wait until a node is kept for a pod; its scheduler does not ask again until there is room."""
    await until(lambda: one.bridge.pods.nominations.node_of(one.bridge.pods.find(f"pod-{name}")))


@contextlib.asynccontextmanager
async def stood(cluster, names, nodes=1):
    """Small pods run, on one node after another, and a node is kept for the big one."""
    async with hasty(cluster) as one:
        for at, name in enumerate(names):
            await started(one, name, f"n{at % nodes}")
        assert not await enters(one, "big")
        await kept(one, "big")
        yield one


def crowded(nodes, each, want):
    names = [f"s{at}" for at in range(nodes * each)]
    pods = [pod("big", "big"), *(pod(name, name) for name in names)]
    return loaded(*fleet(nodes, each), claim("big", want), *map(claim, names), *pods), names


@pytest.mark.parametrize("seed", range(8))
async def test_it_is_placed_once_those_have_ended_that_ran_when_it_was_its_turn(seed):
    rng = random.Random(seed)
    nodes, each = rng.randint(1, 2), rng.randint(3, 6)
    cluster, names = crowded(nodes, each, rng.randint(2, each))
    async with stood(cluster, names, nodes) as one:
        alive, passed = list(names), 0
        rng.shuffle(names)
        for name in names:
            await end(one, name)
            alive.remove(name)
            if await enters(one, "big"):
                return
            later = f"x{passed}"
            passed += 1
            await create(one, later)
            await enters(one, later)
        raise AssertionError(f"{passed} pods passed it")


async def test_others_use_what_it_does_not_need_yet_and_more_important_ones_what_they_like():
    cluster, names = crowded(1, 4, 2)
    async with stood(cluster, names) as one:
        await end(one, "s0")
        await create(one, "x0")
        assert await enters(one, "x0"), "three of those it waits for are left, and it needs two"
        await end(one, "s1")
        await create(one, "x1")
        assert await enters(one, "x1")
        await end(one, "s2")
        await create(one, "x2")
        refused = await fits(one, "x2")
        assert (refused["verdict"], refused["message"]) == ("full", OUTBID)
        await create(one, "urgent", priority=100)
        assert await enters(one, "urgent")


async def test_the_next_is_tried_again_when_it_is_gone():
    cluster, names = crowded(1, 2, 2)
    async with stood(cluster, names) as one:
        await end(one, "s0")
        await create(one, "x0")
        assert not await enters(one, "x0")
        seq = one.bridge.requeue_events.seq
        await cluster.delete(resources.PODS, "big", "default")
        await until(lambda: "default/x0" in one.bridge.requeue_events.since(seq).pods)
        assert await enters(one, "x0")


async def test_small_ones_that_wait_for_one_to_end_do_not_take_its_turn():
    cluster, names = crowded(1, 2, 2)
    async with hasty(cluster) as one:
        for name in names:
            await started(one, name, "n0")
        await create(one, "x0")
        assert not await enters(one, "x0")
        assert not await enters(one, "big")
        await kept(one, "big")
        assert not one.bridge.pods.nominations.node_of(one.bridge.pods.find("pod-x0"))


async def test_a_pod_that_is_being_bound_and_one_that_is_gone_with_its_claim_still_allocated_are_waited_for():
    """Where pods come and end every second, there is always one of the one kind or the other."""
    cluster, names = crowded(1, 3, 3)
    async with hasty(cluster) as one:
        for name in names[:2]:
            await started(one, name, "n0")
        assert (await one.place(names[2], "n0"))[0] == 200, "its binding is on the way"
        await cluster.delete(resources.PODS, names[0], "default")
        assert not await enters(one, "big")
        await kept(one, "big")


async def test_a_pod_of_another_scheduler_that_comes_between_is_waited_for_as_well():
    cluster, names = crowded(1, 3, 3)
    async with stood(cluster, names) as one:
        await end(one, "s0")
        result = {"request": "r", "driver": DRIVER, "pool": "n0", "device": "gpu-0"}
        consumer = {"resource": "pods", "name": "other", "uid": "pod-other"}
        other = claim("other") | {
            "status": {"allocation": {"devices": {"results": [result]}}, "reservedFor": [consumer]}
        }
        cluster.load([other, pod("other", "other", schedulerName="default-scheduler", nodeName="n0")])
        await until(
            lambda: (
                "other"
                in [
                    each.metadata.name
                    for _, kept in one.bridge.pods.nominations.kept_for_others(
                        one.bridge.pods.find("pod-s1"), one.bridge.ledger.state
                    )
                    for each in kept.awaited
                ]
            )
        )
        await end(one, "s1")
        await create(one, "small")
        assert not await enters(one, "small")


async def test_a_node_kept_for_a_pod_is_released_once_it_is_of_no_use():
    """A pod of higher priority took the devices that were reserved, and may run forever."""
    cluster, names = crowded(1, 2, 2)
    async with stood(cluster, names) as one:
        await end(one, "s0")
        await create(one, "urgent", priority=100)
        assert await enters(one, "urgent")
        await until(lambda: not one.bridge.pods.nominations.node_of(one.bridge.pods.find("pod-big")))


async def test_one_at_a_time_and_not_again_at_once_so_that_one_tenant_does_not_keep_the_fleet(monkeypatch):
    names = [f"s{at}" for at in range(4)]
    bigs = [f"big{at}" for at in range(5)]
    pods = [pod(name, name) for name in (*names, *bigs)]
    cluster = loaded(*fleet(2, 2), *map(claim, names), *(claim(name, 2) for name in bigs), *pods)
    async with hasty(cluster) as one:
        for at, name in enumerate(names):
            await started(one, name, f"n{at % 2}")
        for name in bigs:
            assert not await enters(one, name)
        await kept(one, "big0")
        held = one.bridge.pods.nominations
        now = held._clock
        monkeypatch.setattr(held, "_clock", lambda: now() + LONGEST + 1)
        await kept(one, "big1")
        turns = [held.node_of(one.bridge.pods.find(f"pod-{name}")) for name in bigs]
        assert turns == ["", "n0", "", "", ""]


@pytest.mark.parametrize("ended", [False, True], ids=["nothing ended", "one ended"])
async def test_a_kept_node_where_no_pod_has_ended_for_a_while_passes_its_turn_to_another_starved_pod(
    ended, monkeypatch
):
    names, bigs = [f"s{at}" for at in range(4)], ["big0", "big1"]
    pods = [pod(name, name) for name in (*names, *bigs)]
    cluster = loaded(*fleet(2, 2), *map(claim, names), *(claim(name, 2) for name in bigs), *pods)
    async with hasty(cluster) as one:
        for at, name in enumerate(names):
            await started(one, name, f"n{at % 2}")
        held, later = one.bridge.pods.nominations, 0.0
        now = held._clock
        monkeypatch.setattr(held, "_clock", lambda: now() + later)
        assert not await enters(one, "big0")
        await kept(one, "big0")
        assert not await enters(one, "big1")
        later = IDLE - 5
        if ended:
            await end(one, "s0")  # on the node that is kept
        later = IDLE + 1
        looks = []
        look = held.next_starved_pod
        monkeypatch.setattr(held, "next_starved_pod", lambda helps: looks.append(1) or look(helps))
        await until(lambda: len(looks) > 3)
        kept_for = [name for name in bigs if held.node_of(one.bridge.pods.find(f"pod-{name}"))]
        assert kept_for == ["big0" if ended else "big1"]


async def test_devices_freed_by_leaving_victims_are_kept_for_the_preempting_pod():
    """It needs two devices; the first that came free went to a less important pod, and one more pod had to go."""
    names = ("a", "b")
    slow = {"finalizers": ["example.com/slow"]}
    pods = [pod(name, name, priority=1) for name in names]
    for each in pods:
        each["metadata"] |= slow
    cluster = loaded(*fleet(1, 2), *map(claim, names), claim("urgent", 2), *pods, important("urgent", "urgent"))
    async with hasty(cluster) as one:
        for name in names:
            await started(one, name, "n0")
        said = (await one.plugin("postfilter", {"pod": await one.pod("urgent"), "nodes": ["n0"]}))[1]
        assert len(said["victims"]) == 2
        await cluster.patch(resources.PODS, "a", Merge({"metadata": {"finalizers": None}}), "default")
        freed = Merge({"status": {"allocation": None, "reservedFor": None}})
        await cluster.patch(resources.RESOURCE_CLAIMS, "a", freed, "default", subresource="status")
        await until(lambda: one.bridge.knowledge.stock.claims["default/a"].status.allocation is None)
        await create(one, "low", priority=1)
        assert (await fits(one, "low"))["verdict"] == "full"


async def test_kept_devices_are_not_given_out_through_another_node_of_the_pool():
    """Two devices that both nodes reach: one pod more had to go when the first that came free was taken by way of the other node."""
    whole = gpus("n0", 2)
    whole["spec"] = {key: what for key, what in whole["spec"].items() if key != "nodeName"} | {"allNodes": True}
    pods = [pod(name, name, priority=1) for name in ("a", "b")]
    for each in pods:
        each["metadata"] |= {"finalizers": ["example.com/slow"]}
    claims = [*map(claim, ("a", "b")), claim("urgent", 2)]
    cluster = loaded(device_class(), node("n0"), node("n1"), whole, *claims, *pods, important("urgent", "urgent"))
    async with hasty(cluster) as one:
        await started(one, "a", "n0")
        await started(one, "b", "n0")
        await one.plugin("postfilter", {"pod": await one.pod("urgent"), "nodes": ["n0"]})
        await cluster.patch(resources.PODS, "a", Merge({"metadata": {"finalizers": None}}), "default")
        freed = Merge({"status": {"allocation": None, "reservedFor": None}})
        await cluster.patch(resources.RESOURCE_CLAIMS, "a", freed, "default", subresource="status")
        await until(lambda: one.bridge.knowledge.stock.claims["default/a"].status.allocation is None)
        await create(one, "low", priority=1)
        status, said = await one.place("low", "n1")
        assert (status, OUTBID in said["error"]) == (409, True)


async def test_a_reservation_that_is_decided_on_the_loop_gathers_what_it_rests_on_once(monkeypatch):
    async with running(loaded(*fleet(1, 1), claim("a"), pod("a", "a"))) as one:
        allocator = one.bridge.allocator
        gathered, gather = [], allocator.basis
        monkeypatch.setattr(allocator, "basis", lambda pod: (gathered.append(pod.metadata.name), gather(pod))[1])
        _, found = await one.plugin("prefilter", {"pod": await one.pod("a")})
        gathered.clear()
        status, _ = await one.plugin("reserve", {"token": found["token"], "node": "n0"})
        assert (status, gathered) == (200, ["a"])
