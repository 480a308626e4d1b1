"""A PodGroup whose pods are disrupted together is evicted as a whole or not at all."""

from operator import attrgetter

import pytest

from cluster.errors import ApiError
from cluster.patch import Merge
from cluster.resources import PODS
from tests.allocator.service.preemptors import (
    StoreWithDeletionHooks,
    existing_pods,
    important_pod,
    postfilter,
    start_pod,
)
from tests.allocator.service.sidecar import claim, fleet, gpus, loaded, node, pod, pods_with_claims, running, until

TYPE = attrgetter("type")
MEMBERS = ("m0", "m1", "m2", "m3")
ALL, SINGLE = {"all": {}}, {"single": {}}


def pod_group(mode, *, priority=1, version="v1beta1", **spec):
    spec = {"schedulingPolicy": {"gang": {"minCount": 4}}, "disruptionMode": mode, "priority": priority} | spec
    metadata = {"name": "job", "namespace": "default"}
    return {"apiVersion": f"scheduling.k8s.io/{version}", "kind": "PodGroup", "metadata": metadata, "spec": spec}


def full_nodes(*groups, requested=1):
    """Return two nodes with two GPUs each, which a group of four pods holds, its launcher without a GPU, and a more important pod."""
    group = {"schedulingGroup": {"podGroupName": "job"}, "priority": 1}
    members = [*pods_with_claims(*MEMBERS, **group), pod("launcher", **group)]
    return [*groups, *fleet(2, 2), *members, claim("urgent", requested), important_pod("urgent", "urgent")]


async def start_group(sidecar):
    for index, name in enumerate(MEMBERS):
        await start_pod(sidecar, name, f"n{index // 2}")
    await sidecar.cluster.bind("launcher", "default", "n1")
    await until(lambda: sidecar.service.knowledge.pod("default", "launcher").spec.node_name == "n1")


async def remaining_members(sidecar):
    return await existing_pods(sidecar, *MEMBERS, "launcher")


@pytest.mark.parametrize(
    ("group", "number_of_victims"),
    [
        (pod_group(ALL), 5),
        (pod_group("PodGroup", version="v1alpha2"), 5),
        (pod_group(SINGLE), 1),
        (None, 1),
        (pod_group(ALL, priority=100), 0),
        (pod_group(SINGLE, priority=100), 0),
        (pod_group(SINGLE, parentCompositePodGroupName="jobs"), 0),
    ],
    ids=[
        "all pods are evicted",
        "all pods are evicted in Kubernetes 1.36",
        "one pod is evicted if pods are disrupted one by one",
        "a pod whose group does not exist is evicted alone",
        "the priority of the group counts",
        "the priority of the group counts for single pods",
        "pods below a CompositePodGroup stay",
    ],
)
async def test_victims_of_a_group(group, number_of_victims):
    cluster = loaded(*full_nodes(*[group] if group else []))
    async with running(cluster) as sidecar:
        await start_group(sidecar)
        victims = (await postfilter(sidecar, "urgent", "n0", "n1"))[1]["victims"]
        assert len(victims) == number_of_victims
        assert len(await remaining_members(sidecar)) == 5 - number_of_victims


async def test_a_single_pod_is_evicted_before_a_group_of_the_same_priority():
    cluster = loaded(*full_nodes(pod_group(ALL)), node("n2"), gpus("n2", 2), *pods_with_claims("x", "y", priority=1))
    async with running(cluster) as sidecar:
        await start_group(sidecar)
        for name in ("x", "y"):
            await start_pod(sidecar, name, "n2")
        victims = (await postfilter(sidecar, "urgent", "n0", "n1", "n2"))[1]["victims"]
        assert len(victims) == 1
        assert len(await remaining_members(sidecar)) == 5


async def test_a_group_is_evicted_to_its_end():
    """The first deleted member frees enough devices, and the API server fails to delete one member at first."""
    cluster = StoreWithDeletionHooks(*full_nodes(pod_group(ALL)))
    marked = []
    async with running(cluster) as sidecar:
        await start_group(sidecar)

        async def wait_until_seen():
            stored = await remaining_members(sidecar)
            marked.append([name for name in stored if await has_mark(sidecar, name)] == stored)
            pods = sidecar.service.knowledge.pods.objects
            await until(lambda: all(name in stored for _, name in pods if name != "urgent"))

        async def fail():
            raise ApiError("the API server is busy")

        cluster.before_deletion = dict.fromkeys(MEMBERS, wait_until_seen) | {"m1": fail}
        status, _ = await postfilter(sidecar, "urgent", "n0", "n1")
        assert status == 503
        assert marked == [True] * 3
        await until(lambda: [key for key in sidecar.service.knowledge.pods.objects if key[1] != "urgent"] == [])


async def has_mark(sidecar, name):
    conditions = (await sidecar.cluster.get(PODS, name, "default")).status.conditions
    return "PreemptionByScheduler" in {condition.reason for condition in conditions}


@pytest.mark.parametrize(
    ("mode", "condition", "remaining"),
    [
        (ALL, {}, 0),
        (SINGLE, {}, 4),
        (ALL, {"reason": "EvictionByEvictionAPI"}, 4),
        (ALL, {"status": "False"}, 4),
    ],
    ids=["the rest is evicted", "pods are disrupted one by one", "another eviction", "withdrawn"],
)
async def test_the_next_leader_finishes_the_eviction_of_a_group(mode, condition, remaining):
    """The former leader has deleted one member, and one of the others has the condition."""
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", **condition}
    async with running(loaded(*full_nodes(pod_group(mode)))) as sidecar:
        await start_group(sidecar)
        await sidecar.cluster.delete(PODS, "m0", "default")
        status = Merge({"status": {"conditions": [condition]}})
        await sidecar.cluster.patch(PODS, "m1", status, "default", subresource="status")
        # A tick may already have evicted the pod.
        pods = sidecar.service.pods
        await until(
            lambda: (pod := pods.find("pod-m1")) is None or condition["type"] in map(TYPE, pod.status.conditions)
        )
        await sidecar.service.evictions.finish()
        assert len(await remaining_members(sidecar)) == remaining
