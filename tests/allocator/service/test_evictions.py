"""Room for important pods, over the embedded store: who is evicted, where the pod is sent, and when nobody has to go."""

import pytest

from cluster import resources
from cluster.errors import Forbidden, NotFound
from cluster.patch import Merge
from tests.allocator.service.sidecar import claim, fleet, loaded, pod, running, until
from tests.allocator.service.test_bridge import faulty
from tests.allocator.service.test_quotas import quota


def important(name, *claims, **spec):
    return pod(name, *claims, priority=100, **spec)


def budget(allowed):
    meta = {"name": "b", "namespace": "default"}
    spec = {"selector": {"matchLabels": {"app": "kept"}}}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta, "spec": spec, "status": {"disruptionsAllowed": allowed}}  # fmt: skip


async def started(one, name, node):
    """Place a pod as a scheduler does, up to and with its binding."""
    status, said = await one.place(name, node)
    assert status == 200, said
    await one.cluster.bind(name, "default", node)
    await until(lambda: one.bridge.pod(f"pod-{name}").spec.node_name == node)


async def room_for(one, name, *nodes):
    return await one.plugin("postfilter", {"pod": await one.pod(name), "nodes": nodes})


async def is_there(one, name):
    try:
        await one.cluster.get(resources.PODS, name, "default")
    except NotFound:
        return False
    return True


async def test_the_less_important_pod_is_evicted_and_the_important_one_fits_on_its_node():
    names = ("low", "mid")
    pods = [pod("low", "low", priority=1), pod("mid", "mid", priority=2), important("urgent", "urgent")]
    cluster = loaded(*fleet(2, 1), *(claim(name) for name in (*names, "urgent")), *pods)
    async with running(cluster) as one:
        await started(one, "mid", "n0")
        await started(one, "low", "n1")
        status, said = await room_for(one, "urgent", "n0", "n1")
        assert (status, said["nominatedNode"]) == (200, "n1")
        assert said["victims"] == [{"namespace": "default", "name": "low", "uid": "pod-low"}]
        assert (await is_there(one, "low"), await is_there(one, "mid")) == (False, True)
        await until(lambda: one.bridge.pod("pod-low") is None)
        again = (await room_for(one, "urgent", "n0", "n1"))[1]
        assert (again["nominatedNode"], again["victims"]) == ("n1", []), "the claim is free in a moment"
        freed = Merge({"status": {"allocation": None, "reservedFor": None}})  # as kube-controller-manager does it
        await cluster.patch(resources.RESOURCE_CLAIMS, "low", freed, "default", subresource="status")
        await until(lambda: one.bridge.knowledge.stock.claims["default/low"].status.allocation is None)
        assert (await one.place("urgent"))[0] == 200
        assert await one.held("urgent") == ["n1/gpu-0"]
        events = (await cluster.list(resources.EVENTS, "default")).items
        assert [event.message for event in events] == ["makes room for the more important pod default/urgent"]


async def test_a_victim_that_needs_time_is_marked_waited_for_and_nobody_else_goes():
    slow = pod("slow", "slow", priority=1)
    slow["metadata"]["finalizers"] = ["example.com/slow"]
    claims = [claim(name) for name in ("slow", "other", "urgent")]
    cluster = loaded(*fleet(2, 1), *claims, slow, pod("other", "other", priority=1), important("urgent", "urgent"))
    async with running(cluster) as one:
        await started(one, "slow", "n0")
        await started(one, "other", "n1")
        assert (await room_for(one, "urgent", "n0"))[1]["nominatedNode"] == "n0"
        marked = await cluster.get(resources.PODS, "slow", "default")
        conditions = [(each.type, each.status, each.reason) for each in marked.status.conditions]
        assert ("DisruptionTarget", "True", "PreemptionByScheduler") in conditions
        await cluster.patch(resources.PODS, "urgent", Merge({"status": {"nominatedNodeName": "n0"}}), "default", subresource="status")  # fmt: skip
        await until(lambda: one.bridge.pod("pod-urgent").status.nominated_node_name == "n0")
        await until(lambda: one.bridge.pod("pod-slow").metadata.deletion_timestamp)
        said = (await room_for(one, "urgent", "n0", "n1"))[1]
        assert said == {"nominatedNode": "n0", "victims": [], "message": "waits for default/slow to end"}
        assert await is_there(one, "other")


async def test_whom_a_budget_protects_goes_only_if_nobody_else_can():
    kept, other = pod("kept", "kept", priority=1), pod("other", "other", priority=50)
    kept["metadata"]["labels"] = {"app": "kept"}
    claims = [claim(name) for name in ("kept", "other", "urgent")]
    cluster = loaded(*fleet(2, 1), *claims, kept, other, important("urgent", "urgent"), budget(0))
    async with running(cluster) as one:
        await started(one, "kept", "n0")
        await started(one, "other", "n1")
        said = (await room_for(one, "urgent", "n0", "n1"))[1]
        assert [victim["name"] for victim in said["victims"]] == ["other"]
        said = (await room_for(one, "urgent", "n0"))[1]
        assert [victim["name"] for victim in said["victims"]] == ["kept"]


@pytest.mark.parametrize(
    ("asking", "more", "words"),
    [
        (important("urgent", "urgent", preemptionPolicy="Never"), [], "preemptionPolicy is Never"),
        (pod("urgent", "urgent", priority=1), [], "no pod of less priority"),
        (important("urgent", "big"), [], "no pod of less priority"),
        (important("urgent", "urgent"), [quota(gpu__devices=0)], "no pod of less priority"),
    ],
    ids=["it must not", "nobody is less important", "it would not fit anyway", "a quota would hold it back"],
)
async def test_nobody_is_evicted_when_that_is_not_allowed_or_in_vain(asking, more, words):
    claims = [claim("low"), claim("urgent"), claim("big", 2)]
    cluster = loaded(*fleet(1, 1), *claims, pod("low", "low", priority=1), asking)
    async with running(cluster) as one:
        await started(one, "low", "n0")
    cluster.load(more)
    async with running(cluster) as one:
        said = (await room_for(one, "urgent", "n0"))[1]
        assert (said["nominatedNode"], said["victims"]) == ("", [])
        assert words in said["message"]
        assert await is_there(one, "low")


async def test_a_place_that_was_promised_to_somebody_as_important_is_not_counted_on():
    rival = important("rival", "rival")
    claims = [claim(name) for name in ("low", "rival", "urgent")]
    cluster = loaded(*fleet(1, 1), *claims, pod("low", "low", priority=1), rival, important("urgent", "urgent"))
    async with running(cluster) as one:
        await started(one, "low", "n0")
        await cluster.patch(resources.PODS, "rival", Merge({"status": {"nominatedNodeName": "n0"}}), "default", subresource="status")  # fmt: skip
        await until(lambda: one.bridge.pod("pod-rival").status.nominated_node_name == "n0")
        assert (await room_for(one, "urgent", "n0"))[1]["nominatedNode"] == ""
        assert (await room_for(one, "rival", "n0"))[1]["nominatedNode"] == "n0"


async def test_who_may_not_be_evicted_by_us_is_said():
    cluster = faulty(*fleet(1, 1), claim("low"), claim("urgent"), pod("low", "low", priority=1), important("urgent", "urgent"))  # fmt: skip

    async def refuse(*_, **__):
        raise Forbidden("pods is forbidden")

    async with running(cluster) as one:
        await started(one, "low", "n0")
        cluster.delete = refuse
        status, said = await room_for(one, "urgent", "n0")
        assert (status, said["error"]) == (503, "pod default/low could not be evicted: pods is forbidden")


async def test_a_simulation_says_who_would_have_to_go_and_nobody_does():
    cluster = loaded(*fleet(1, 1), claim("low"), pod("low", "low", priority=1))
    async with running(cluster) as one:
        await started(one, "low", "n0")
        meta = {"name": "t"}
        template = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": meta, "spec": {"spec": claim("x")["spec"]}}  # fmt: skip
        entries = [{"name": "g", "resourceClaimTemplateName": "t"}]
        for priority, room in ((5, {"node": "n0", "victims": ["default/low"]}), (1, None)):
            asked = pod("new", resourceClaims=entries, priority=priority)
            _, said = await one.ask("/api/v1/simulate-schedule", {"kind": "List", "apiVersion": "v1", "items": [template, asked]})  # fmt: skip
            assert (said["verdict"], said["room"]) == ("infeasible", room)
        assert await is_there(one, "low")
