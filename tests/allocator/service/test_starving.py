"""A node is kept for a starved pod (one that waits long), so that smaller pods of the same priority do not pass this pod forever."""

import contextlib
import random

import pytest

from allocator.service.preemption.nominations import IDLE, LONGEST, OUTBID
from cluster import resources
from cluster.patch import Merge
from tests.allocator.service.preemptors import important_pod, postfilter, start_pod
from tests.allocator.service.sidecar import (
    claim,
    device_class,
    fleet,
    gpus,
    loaded,
    node,
    pod,
    pods_with_claims,
    running,
    until,
)
from tests.limits import draws
from tests.objects import allocated, result


def starving_at_once(cluster):
    """Run an allocator for which a pod is starved as soon as the pod has been refused."""
    return running(cluster, starved=0.0)


async def end_pod(sidecar, name):
    """Delete a pod and free its claim as kube-controller-manager does."""
    await sidecar.cluster.delete(resources.PODS, name, "default")
    await sidecar.free_claim(name)
    await until(lambda: sidecar.service.pods.find(f"pod-{name}") is None)


async def create_pod(sidecar, name, **spec):
    sidecar.cluster.load(pods_with_claims(name, **spec))
    await until(
        lambda: sidecar.service.pods.find(f"pod-{name}") and f"default/{name}" in sidecar.service.knowledge.stock.claims
    )


async def try_to_place(sidecar, name):
    """Return whether a pod fits; if so, place it."""
    answer = await sidecar.prefilter(name)
    if answer["verdict"] == "fits":
        await start_pod(sidecar, name, answer["nodes"][0]["name"])
    return answer["verdict"] == "fits"


async def until_node_is_kept(sidecar, name):
    """Wait until a node is kept for a pod. The pod's scheduler does not call again until there is room."""
    await until(lambda: sidecar.service.pods.nominations.node_of(sidecar.service.pods.find(f"pod-{name}")))


@contextlib.asynccontextmanager
async def with_starved_pod(cluster, names, nodes=1):
    """Run small pods on all devices, and keep a node for the starved pod `big`."""
    async with starving_at_once(cluster) as sidecar:
        for i, name in enumerate(names):
            await start_pod(sidecar, name, f"n{i % nodes}")
        assert not await try_to_place(sidecar, "big")
        await until_node_is_kept(sidecar, "big")
        yield sidecar


def cluster_with_big_pod(nodes, per_node, requested):
    """Return a cluster with the pod `big` and as many small pods as devices, and the names of the small pods."""
    names = [f"s{i}" for i in range(nodes * per_node)]
    return loaded(*fleet(nodes, per_node), claim("big", requested), pod("big", "big"), *pods_with_claims(*names)), names


@pytest.mark.parametrize("seed", range(draws(20)))
async def test_a_starved_pod_is_placed_after_the_running_pods_end(seed):
    rng = random.Random(seed)
    nodes, per_node = rng.randint(1, 2), rng.randint(3, 6)
    cluster, names = cluster_with_big_pod(nodes, per_node, rng.randint(2, per_node))
    async with with_starved_pod(cluster, names, nodes) as sidecar:
        rng.shuffle(names)
        for i, name in enumerate(names):
            await end_pod(sidecar, name)
            if await try_to_place(sidecar, "big"):
                return
            new_name = f"x{i}"
            await create_pod(sidecar, new_name)
            await try_to_place(sidecar, new_name)
        raise AssertionError("the starved pod was not placed, although all earlier pods have ended")


async def test_small_pods_use_devices_that_starved_pods_cannot_use_yet():
    """Pods of higher priority use any free device."""
    cluster, names = cluster_with_big_pod(1, 4, 2)
    async with with_starved_pod(cluster, names) as sidecar:
        await end_pod(sidecar, "s0")
        await create_pod(sidecar, "x0")
        assert await try_to_place(sidecar, "x0"), (
            "a small pod was refused, although `big` needs two devices and three small pods still run"
        )
        await end_pod(sidecar, "s1")
        await create_pod(sidecar, "x1")
        assert await try_to_place(sidecar, "x1")
        await end_pod(sidecar, "s2")
        await create_pod(sidecar, "x2")
        answer = await sidecar.prefilter("x2")
        assert (answer["verdict"], answer["message"]) == ("full", OUTBID)
        await create_pod(sidecar, "urgent", priority=100)
        assert await try_to_place(sidecar, "urgent")


async def test_a_big_starved_pod_keeps_a_node_before_small_pods():
    cluster, names = cluster_with_big_pod(1, 2, 2)
    async with starving_at_once(cluster) as sidecar:
        for name in names:
            await start_pod(sidecar, name, "n0")
        await create_pod(sidecar, "x0")
        assert not await try_to_place(sidecar, "x0")
        assert not await try_to_place(sidecar, "big")
        await until_node_is_kept(sidecar, "big")
        assert not sidecar.service.pods.nominations.node_of(sidecar.service.pods.find("pod-x0"))


async def test_a_node_with_binding_and_deleted_pods_is_kept():
    """While pods start and end every second, a node always has a pod in binding, or a deleted pod whose claim is still allocated."""
    cluster, names = cluster_with_big_pod(1, 3, 3)
    async with starving_at_once(cluster) as sidecar:
        for name in names[:2]:
            await start_pod(sidecar, name, "n0")
        assert (await sidecar.place(names[2], "n0"))[0] == 200, "the third pod got no device"
        await cluster.delete(resources.PODS, names[0], "default")
        assert not await try_to_place(sidecar, "big")
        await until_node_is_kept(sidecar, "big")


async def test_a_starved_pod_waits_for_pods_of_other_schedulers():
    cluster, names = cluster_with_big_pod(1, 3, 3)
    async with with_starved_pod(cluster, names) as sidecar:
        await end_pod(sidecar, "s0")
        other_claim = claim("other", status=allocated(result("gpu-0", pool="n0"), pods=["other"]))
        cluster.load([other_claim, pod("other", "other", schedulerName="default-scheduler", nodeName="n0")])

        def other_pod_is_awaited():
            nominations, running_pod = sidecar.service.pods.nominations, sidecar.service.pods.find("pod-s1")
            kept_nodes = nominations.kept_for_others(running_pod, sidecar.service.ledger.state)
            return "other" in [awaited.metadata.name for _, kept in kept_nodes for awaited in kept.awaited]

        await until(other_pod_is_awaited)
        await end_pod(sidecar, "s1")
        await create_pod(sidecar, "small")
        assert not await try_to_place(sidecar, "small")


async def test_a_kept_node_is_released_if_the_pod_cannot_fit():
    """A pod of higher priority took the kept devices, and may run forever."""
    cluster, names = cluster_with_big_pod(1, 2, 2)
    async with with_starved_pod(cluster, names) as sidecar:
        await end_pod(sidecar, "s0")
        await create_pod(sidecar, "urgent", priority=100)
        assert await try_to_place(sidecar, "urgent")
        await until(lambda: not sidecar.service.pods.nominations.node_of(sidecar.service.pods.find("pod-big")))


@contextlib.asynccontextmanager
async def with_small_and_big_pods(big_names):
    """Run four small pods on two nodes, beside pods that wait for both devices of a node."""
    big_pods = [obj for name in big_names for obj in (claim(name, 2), pod(name, name))]
    names = [f"s{i}" for i in range(4)]
    async with starving_at_once(loaded(*fleet(2, 2), *pods_with_claims(*names), *big_pods)) as sidecar:
        for i, name in enumerate(names):
            await start_pod(sidecar, name, f"n{i % 2}")
        yield sidecar


async def test_one_starved_pod_at_a_time_keeps_a_node(monkeypatch):
    """A pod whose node was kept long enough has to wait for another turn, so that one tenant cannot keep the whole fleet."""
    big_names = [f"big{i}" for i in range(5)]
    async with with_small_and_big_pods(big_names) as sidecar:
        for name in big_names:
            assert not await try_to_place(sidecar, name)
        await until_node_is_kept(sidecar, "big0")
        nominations = sidecar.service.pods.nominations
        now = nominations._clock
        monkeypatch.setattr(nominations, "_clock", lambda: now() + LONGEST + 1)
        await until_node_is_kept(sidecar, "big1")
        kept_nodes = [nominations.node_of(sidecar.service.pods.find(f"pod-{name}")) for name in big_names]
        assert kept_nodes == ["", "n0", "", "", ""]


@pytest.mark.parametrize("pod_ends", [False, True], ids=["no pod ends", "a pod on the kept node ends"])
async def test_a_kept_node_passes_to_another_pod_only_without_progress(pod_ends, monkeypatch):
    big_names = ["big0", "big1"]
    async with with_small_and_big_pods(big_names) as sidecar:
        nominations, elapsed_seconds = sidecar.service.pods.nominations, 0.0
        now = nominations._clock
        monkeypatch.setattr(nominations, "_clock", lambda: now() + elapsed_seconds)
        assert not await try_to_place(sidecar, "big0")
        await until_node_is_kept(sidecar, "big0")
        assert not await try_to_place(sidecar, "big1")
        elapsed_seconds = IDLE - 5
        if pod_ends:
            await end_pod(sidecar, "s0")  # on the kept node
        elapsed_seconds = IDLE + 1
        searches = []
        search = nominations.next_starved_pod
        monkeypatch.setattr(nominations, "next_starved_pod", lambda helps: searches.append(1) or search(helps))
        await until(lambda: len(searches) > 3)
        kept_for = [name for name in big_names if nominations.node_of(sidecar.service.pods.find(f"pod-{name}"))]
        assert kept_for == ["big0" if pod_ends else "big1"]


@contextlib.asynccontextmanager
async def with_one_freed_device(*fleet_objects):
    """Evict the pods `a` and `b` for `urgent`, which needs the devices of both; only `a` has ended."""
    slow_pods = pods_with_claims("a", "b", priority=1, finalizers=["example.com/slow"])
    cluster = loaded(*fleet_objects, *slow_pods, claim("urgent", 2), important_pod("urgent", "urgent"))
    async with starving_at_once(cluster) as sidecar:
        for name in "ab":
            await start_pod(sidecar, name, "n0")
        assert len((await postfilter(sidecar, "urgent", "n0"))[1]["victims"]) == 2
        await cluster.patch(resources.PODS, "a", Merge({"metadata": {"finalizers": None}}), "default")
        await sidecar.free_claim("a")
        yield sidecar


async def test_devices_freed_by_victims_are_kept_for_the_preemptor():
    """The preemptor needs two devices. If a less important pod got the first freed device, another pod would be evicted."""
    async with with_one_freed_device(*fleet(1, 2)) as sidecar:
        await create_pod(sidecar, "low", priority=1)
        assert (await sidecar.prefilter("low"))["verdict"] == "full"


async def test_kept_devices_are_not_allocated_through_another_node():
    """Both nodes reach both devices. An allocation of the first freed device through the other node would cause another eviction."""
    shared_slice = gpus("n0", 2)
    shared_slice["spec"] = {key: value for key, value in shared_slice["spec"].items() if key != "nodeName"} | {
        "allNodes": True
    }
    async with with_one_freed_device(device_class(), node("n0"), node("n1"), shared_slice) as sidecar:
        await create_pod(sidecar, "low", priority=1)
        status, answer = await sidecar.place("low", "n1")
        assert (status, OUTBID in answer["error"]) == (409, True)
