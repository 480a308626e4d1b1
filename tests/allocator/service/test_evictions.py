"""Room for important pods, over the embedded store: which pods are evicted, where the pod is sent, and when no pod has to go."""

import asyncio
import threading

import pytest

from allocator.service.app import HttpError
from allocator.service.preemption import choices
from allocator.service.preemption.nominations import OUTBID, SECONDS
from allocator.service.question_runner import TURN
from allocator.service.settings import Preempting
from cluster import resources
from cluster.embedded import Embedded
from cluster.errors import Forbidden, NotFound
from cluster.patch import Merge
from tests.allocator.service.sidecar import DRIVER, claim, device_class, fleet, gpus, loaded, node, pod, running, until
from tests.allocator.service.test_bridge import faulty
from tests.allocator.service.test_quotas import quota_of
from tests.limits import PATIENCE


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
    await until(lambda: one.bridge.pods.find(f"pod-{name}").spec.node_name == node)


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
        await until(lambda: one.bridge.pods.find("pod-low") is None)
        again = (await room_for(one, "urgent", "n0", "n1"))[1]
        assert (again["nominatedNode"], again["victims"]) == ("n1", []), "the claim is free in a moment"
        freed = Merge({"status": {"allocation": None, "reservedFor": None}})  # as kube-controller-manager does it
        await cluster.patch(resources.RESOURCE_CLAIMS, "low", freed, "default", subresource="status")
        await until(lambda: one.bridge.knowledge.stock.claims["default/low"].status.allocation is None)
        assert (await one.place("urgent"))[0] == 200
        assert await one.held("urgent") == ["n1/gpu-0"]
        events = (await cluster.list(resources.EVENTS, "default")).items
        assert [event.message for event in events] == ["preempted by pod default/urgent, which has a higher priority"]


async def test_a_pod_that_got_its_device_by_an_extended_resource_goes_like_any_other():
    """kube-scheduler made its claim, which only the pod's status names."""
    low = pod("low", priority=1, nodeName="n0", schedulerName="default-scheduler")
    extended = {"resourceClaimName": "made", "requestMappings": []}
    low["status"] = {"phase": "Running", "extendedResourceClaimStatus": extended}
    made = claim("made")
    result = {"request": "r", "driver": DRIVER, "pool": "n0", "device": "gpu-0"}
    consumer = {"resource": "pods", "name": "low", "uid": "pod-low"}
    made["status"] = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [consumer]}
    cluster = loaded(*fleet(1, 1), made, low, claim("urgent"), important("urgent", "urgent"))
    async with running(cluster) as one:
        said = (await room_for(one, "urgent", "n0"))[1]
        assert (said["nominatedNode"], [victim["name"] for victim in said["victims"]]) == ("n0", ["low"])
        assert not await is_there(one, "low")


def from_all_nodes(count):
    reached = gpus("shared", count)
    del reached["spec"]["nodeName"]
    reached["spec"]["allNodes"] = True
    return reached


async def test_two_pods_of_equal_priority_each_get_room_of_their_own_in_a_pool_of_several_nodes():
    """Room freed for the one pod is not taken for the room of the other, on another node: each would wait for the other."""
    names = ("low", "lower", "urgent", "also")
    pods = [pod("low", "low", priority=2), pod("lower", "lower", priority=1), important("urgent", "urgent"), important("also", "also")]  # fmt: skip
    cluster = loaded(device_class(), node("n0"), node("n1"), from_all_nodes(2), *map(claim, names), *pods)
    async with running(cluster) as one:
        await started(one, "low", "n0")
        await started(one, "lower", "n1")
        gone = []
        for name, where in (("urgent", "n0"), ("also", "n1")):
            said = (await room_for(one, name, where))[1]
            assert said["nominatedNode"] == where
            gone += [victim["name"] for victim in said["victims"]]
        assert gone == ["lower", "low"]
        for name in ("low", "lower"):
            freed = Merge({"status": {"allocation": None, "reservedFor": None}})
            await cluster.patch(resources.RESOURCE_CLAIMS, name, freed, "default", subresource="status")
        await until(lambda: not any(one.bridge.knowledge.stock.claims[f"default/{name}"].status.allocation for name in ("low", "lower")))  # fmt: skip
        for name, where in (("also", "n1"), ("urgent", "n0")):
            assert (await one.place(name, where))[0] == 200


@pytest.mark.parametrize("leader", ["the same", "another"])
async def test_a_device_freed_for_a_nominated_pod_goes_to_no_lesser_pod_on_any_node(leader):
    """Another leader knows of it by the pod's status. Else room would have to be made again, and a second pod go where one was enough."""
    reached = from_all_nodes(1)
    names = ("low", "next", "urgent")
    pods = [pod("low", "low", priority=1), pod("next", "next", priority=2), important("urgent", "urgent")]
    cluster = loaded(device_class(), node("n0"), node("n1"), reached, *(claim(name) for name in names), *pods)
    async with running(cluster) as one:
        await started(one, "low", "n0")
        assert (await room_for(one, "urgent", "n0"))[1]["nominatedNode"] == "n0"
        await until(lambda: one.bridge.pods.find("pod-low") is None)
        await nominated(cluster, "n0")
        await until(lambda: one.bridge.pods.find("pod-urgent").status.nominated_node_name)
        if leader == "another":
            one.bridge.pods.nominations._ours.clear()
        freed = Merge({"status": {"allocation": None, "reservedFor": None}})
        await cluster.patch(resources.RESOURCE_CLAIMS, "low", freed, "default", subresource="status")
        await until(lambda: one.bridge.knowledge.stock.claims["default/low"].status.allocation is None)
        for question in ("plugin", "extender"):
            if question == "plugin":
                _, said = await one.plugin("prefilter", {"pod": await one.pod("next")})
                assert (said["verdict"], said["nodes"]) == ("full", [])
            else:
                asked = {"Pod": await one.pod("next"), "NodeNames": ["n0", "n1"]}
                _, said = await one.ask("/extender/filter", asked)
                assert said["NodeNames"] == []
            assert "reserved for a nominated pod" in str(said)
        _, begun = await one.plugin("wake", after=0)
        assert (await one.place("urgent", "n0"))[0] == 200
        await cluster.bind("urgent", "default", "n0")
        _, news = await one.plugin("wake", after=begun["seq"])
        assert "default/next" in news["pods"]


async def test_a_slow_victim_is_marked_and_waited_for_and_no_other_pod_is_evicted():
    slow = pod("slow", "slow", priority=1)
    slow["metadata"]["finalizers"] = ["example.com/slow"]
    claims = [claim(name) for name in ("slow", "other", "urgent")]
    cluster = loaded(*fleet(2, 1), *claims, slow, pod("other", "other", priority=1), important("urgent", "urgent"))
    async with running(cluster) as one:
        await started(one, "slow", "n0")
        await started(one, "other", "n1")
        assert (await room_for(one, "urgent", "n0"))[1]["nominatedNode"] == "n0"
        marked = await cluster.get(resources.PODS, "slow", "default")
        conditions = [(condition.type, condition.status, condition.reason) for condition in marked.status.conditions]
        assert ("DisruptionTarget", "True", "PreemptionByScheduler") in conditions
        await cluster.patch(resources.PODS, "urgent", Merge({"status": {"nominatedNodeName": "n0"}}), "default", subresource="status")  # fmt: skip
        await until(lambda: one.bridge.pods.find("pod-urgent").status.nominated_node_name == "n0")
        await until(lambda: one.bridge.pods.find("pod-slow").metadata.deletion_timestamp)
        said = (await room_for(one, "urgent", "n0", "n1"))[1]
        assert said == {"nominatedNode": "n0", "victims": [], "message": "waits for pod default/slow to end"}
        assert await is_there(one, "other")


async def test_a_pod_protected_by_a_budget_is_evicted_only_if_no_other_pod_can_be():
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
        (pod("urgent", "urgent", priority=1), [], "evicting lower-priority pods would not free"),
        (important("urgent", "big"), [], "evicting lower-priority pods would not free"),
        (important("urgent", "urgent"), [quota_of(gpu__devices=0)], "evicting lower-priority pods would not free"),
    ],
    ids=["it must not", "no pod is less important", "it would not fit anyway", "a quota would hold it back"],
)
async def test_no_pod_is_evicted_where_that_is_forbidden_or_would_not_help(asking, more, words):
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


async def test_a_place_that_was_nominated_for_a_pod_as_important_is_not_counted_on():
    rival = important("rival", "rival")
    claims = [claim(name) for name in ("low", "rival", "urgent")]
    cluster = loaded(*fleet(1, 1), *claims, pod("low", "low", priority=1), rival, important("urgent", "urgent"))
    async with running(cluster) as one:
        await started(one, "low", "n0")
        await cluster.patch(resources.PODS, "rival", Merge({"status": {"nominatedNodeName": "n0"}}), "default", subresource="status")  # fmt: skip
        await until(lambda: one.bridge.pods.find("pod-rival").status.nominated_node_name == "n0")
        assert (await room_for(one, "urgent", "n0"))[1]["nominatedNode"] == ""
        assert (await room_for(one, "rival", "n0"))[1]["nominatedNode"] == "n0"


async def test_a_forbidden_eviction_is_reported():
    cluster = faulty(*fleet(1, 1), claim("low"), claim("urgent"), pod("low", "low", priority=1), important("urgent", "urgent"))  # fmt: skip

    async def refuse(*_, **__):
        raise Forbidden("pods is forbidden")

    async with running(cluster) as one:
        await started(one, "low", "n0")
        cluster.delete = refuse
        status, said = await room_for(one, "urgent", "n0")
        assert (status, said["error"]) == (503, "pod default/low could not be evicted: pods is forbidden")


async def test_a_simulation_names_the_victims_and_evicts_none():
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


# While it goes on


class Interrupted(Embedded):
    """A store in which something happens before a pod's deletion: once, by the name of the pod."""

    def __init__(self):
        super().__init__()
        self.before = {}

    async def delete(self, resource, name, namespace=None, **more):
        if resource.kind == "Pod" and name in self.before:
            await self.before.pop(name)()
        return await super().delete(resource, name, namespace, **more)


def interrupted(*objects):
    cluster = Interrupted()
    cluster.load(list(objects))
    return cluster


def elsewhere(obj, namespace):
    obj["metadata"]["namespace"] = namespace
    return obj


def crowd(*names, want=2):
    """Pods on one node, each with a device, and an important pod that wants some."""
    lows = [pod(name, name, priority=1) for name in names]
    claims = [claim(name) for name in names]
    return [*fleet(1, len(names)), *claims, *lows, claim("urgent", want), important("urgent", "urgent")]


async def there(one, *names):
    return [name for name in names if await is_there(one, name)]


@pytest.mark.parametrize("dies_at", ["b", "c"])
async def test_a_leader_that_replaces_one_killed_mid_eviction_evicts_no_extra_pod(
    dies_at,
):
    """The pod is marked and not deleted when it dies; the other of two victims is gone by then, or is not touched yet."""
    cluster = interrupted(*crowd("a", "b", "c"))
    reached = asyncio.Event()

    async def hang():
        reached.set()
        await asyncio.Event().wait()

    async with running(cluster) as one:
        for name in "abc":
            await started(one, name, "n0")
    cluster.before[dies_at] = hang
    async with running(cluster) as one:
        asking = asyncio.create_task(room_for(one, "urgent", "n0"))
        await asyncio.wait_for(reached.wait(), PATIENCE)
        asking.cancel()
    marked = await cluster.get(resources.PODS, dies_at, "default")
    assert "DisruptionTarget" in [condition.type for condition in marked.status.conditions]
    async with running(cluster, identity="next") as one:
        before = await there(one, "a", "b", "c")
        said = (await room_for(one, "urgent", "n0"))[1]
        assert said["nominatedNode"] == "n0"
        assert dies_at in [victim["name"] for victim in said["victims"]], "the marked pod goes"
        assert len(await there(one, "a", "b", "c")) == 1, "two had to go, and not one more"
        assert len(said["victims"]) == len(before) - 1


async def test_no_further_pod_is_evicted_once_the_devices_disappear():
    """The driver takes its slice back while the first of two victims is deleted."""
    cluster = interrupted(*crowd("a", "b", "c"))
    async with running(cluster) as one:
        for name in "abc":
            await started(one, name, "n0")

        async def shrink():
            await cluster.delete(resources.RESOURCE_SLICES, "n0-gpus")
            await until(lambda: not one.bridge.knowledge.stock.slices)

        cluster.before = {"a": shrink, "b": shrink, "c": shrink}
        said = (await room_for(one, "urgent", "n0"))[1]
        assert said == {"nominatedNode": "", "victims": [], "message": "devices changed during preemption; no other pod is evicted"}  # fmt: skip
        assert len(await there(one, "a", "b", "c")) == 2


async def test_no_further_pod_is_evicted_once_enough_devices_are_free():
    cluster = interrupted(*crowd("a", "b", "c", "d"))
    async with running(cluster) as one:
        for name in "abcd":
            await started(one, name, "n0")

        async def end():
            """Others end by themselves."""
            cluster.before.clear()
            for name in await there(one, "a", "b"):
                await cluster.delete(resources.PODS, name, "default")
            await until(lambda: not {"pod-a", "pod-b"} & one.bridge.pods.by_uid.keys())

        cluster.before = {"c": end, "d": end}
        said = (await room_for(one, "urgent", "n0"))[1]
        assert said["nominatedNode"] == "n0"
        assert len(said["victims"]) == 1
        assert len(await there(one, "c", "d")) == 1


async def test_a_pod_that_was_replaced_under_its_name_is_not_evicted_for_it():
    cluster = interrupted(*crowd("a", want=1))
    async with running(cluster) as one:
        await started(one, "a", "n0")

        async def replace():
            await cluster.delete(resources.PODS, "a", "default")
            await cluster.create(resources.PODS.raw, pod("a", "a") | {"status": {}}, "default")

        cluster.before["a"] = replace
        status, _ = await room_for(one, "urgent", "n0")
        assert status == 200
        assert await is_there(one, "a")


async def test_two_questions_at_once_have_one_pod_evicted():
    """A scheduler that gave up waiting asks again while the API server takes its time."""
    cluster = interrupted(*crowd("a", "b", want=1))
    going, slowly = asyncio.Event(), asyncio.Event()

    async def wait():
        going.set()
        await slowly.wait()

    async with running(cluster) as one:
        for name in "ab":
            await started(one, name, "n0")
        cluster.before = {"a": wait, "b": wait}
        first = asyncio.create_task(room_for(one, "urgent", "n0"))
        await asyncio.wait_for(going.wait(), PATIENCE)
        second = asyncio.create_task(room_for(one, "urgent", "n0"))
        third = asyncio.create_task(one.plugin("state"))
        await asyncio.wait_for(third, PATIENCE)
        slowly.set()
        said = [(await each)[1] for each in (first, second)]
        assert [(one["nominatedNode"], len(one["victims"])) for one in said] == [("n0", 1), ("n0", 0)]
        assert len(await there(one, "a", "b")) == 1


async def test_a_budget_that_has_not_heard_of_an_eviction_is_not_counted_on_twice():
    """Its controller takes a moment. Until then the budget allows less by the pods that went on its account."""
    kept = [pod(name, name, priority=1) for name in ("kept", "kept2")]
    for one in kept:
        one["metadata"]["labels"] = {"app": "kept"}
    free = pod("free", "free", priority=50)
    names = ("kept", "kept2", "free", "urgent", "second")
    asking = [important("urgent", "urgent"), important("second", "second")]
    cluster = loaded(*fleet(1, 3), *map(claim, names), *kept, free, *asking, budget(1))
    async with running(cluster) as one:
        for name in ("kept", "kept2", "free"):
            await started(one, name, "n0")
        [first] = (await room_for(one, "urgent", "n0"))[1]["victims"]
        assert first["name"].startswith("kept")
        await until(lambda: one.bridge.pods.find(first["uid"]) is None)
        nominate = Merge({"status": {"nominatedNodeName": "n0"}})
        await cluster.patch(resources.PODS, "urgent", nominate, "default", subresource="status")
        await until(lambda: one.bridge.pods.find("pod-urgent").status.nominated_node_name)
        [second] = (await room_for(one, "second", "n0"))[1]["victims"]
        assert second["name"] == "free"


async def test_no_pod_is_evicted_on_the_basis_of_stale_caches():
    cluster = loaded(*crowd("a", want=1), budget(0))
    async with running(cluster) as one:
        await started(one, "a", "n0")
        asking = await cluster.get(resources.PODS, "urgent", "default")
        one.bridge.evictions._trusted = 0.01
        await until(lambda: "poddisruptionbudgets" in one.bridge.knowledge.silent_for(0.01))
        with pytest.raises(
            HttpError, match=r"no pod is evicted: there was no update about .*poddisruptionbudgets.* for 0 s"
        ):
            await one.bridge.evictions.make_room(asking, ["n0"])
        assert await is_there(one, "a")
        one.bridge.evictions._trusted = 60.0
        await one.bridge.evictions.make_room(asking, ["n0"])
        assert not await is_there(one, "a")


async def test_pods_of_other_namespaces_are_not_named_in_an_event():
    """Neither victim nor beneficiary is told of the other; the log and the answer's victims are the administrator's."""
    theirs = elsewhere(pod("secret", "secret", priority=1), "theirs")
    cluster = loaded(*fleet(1, 1), elsewhere(claim("secret"), "theirs"), theirs, claim("urgent"), important("urgent", "urgent"))  # fmt: skip
    async with running(cluster) as one:
        _, found = await one.plugin("prefilter", {"pod": theirs})
        assert (await one.plugin("reserve", {"token": found["token"], "node": "n0"}))[0] == 200
        await one.plugin("commit", {"reservation": found["token"]})
        await cluster.bind("secret", "theirs", "n0")
        await until(lambda: one.bridge.pods.find("pod-secret").spec.node_name)
        said = (await room_for(one, "urgent", "n0"))[1]
        assert said["message"] == "evicted a pod of another namespace"
        assert said["victims"] == [{"namespace": "theirs", "name": "secret", "uid": "pod-secret"}]
        [event] = (await cluster.list(resources.EVENTS, "theirs")).items
        assert event.message == "preempted by a pod of another namespace, which has a higher priority"


def counted(one, name):
    """A counter's values, by outcome."""
    series = one.service.metrics.registry.collect()
    return {sample.labels["outcome"]: sample.value for family in series if family.name == name for sample in family.samples if sample.name.endswith("_total")}  # fmt: skip


async def test_evictions_and_room_requests_are_counted_by_outcome():
    """Room is made, is being made, cannot be made; a pod is evicted, is deleted first, and may not be deleted."""
    cluster = interrupted(*crowd("a", "b", want=1), claim("vain", 3), important("vain", "vain"))
    async with running(cluster) as one:
        for name in "ab":
            await started(one, name, "n0")

        async def go():
            cluster.before.clear()
            for name in "ab":
                await cluster.delete(resources.PODS, name, "default")

        async def refuse():
            raise Forbidden("pods is forbidden")

        cluster.before = {"a": refuse, "b": refuse}
        assert (await room_for(one, "urgent", "n0"))[0] == 503
        cluster.before = {"a": go, "b": go}
        assert (await room_for(one, "urgent", "n0"))[0] == 200
        assert (await room_for(one, "vain", "n0"))[1]["nominatedNode"] == ""
        assert counted(one, "drawbridge_evictions") == {"failed": 1, "gone": 1}
        assert counted(one, "drawbridge_preemptions") == {"made": 1, "nobody": 1}


async def test_other_questions_are_answered_while_victims_are_chosen(monkeypatch):
    """The choice takes as long as it takes for another question to be answered."""
    answered, choose = threading.Event(), choices.choose
    in_thread = []

    def choose_long(*arguments, **more):
        in_thread.append(threading.current_thread() is not threading.main_thread())
        assert not in_thread[-1] or answered.wait(PATIENCE)
        return choose(*arguments, **more)

    cluster = loaded(*crowd("a", want=1), claim("other"), pod("other", "other"))
    async with running(cluster) as one:
        await started(one, "a", "n0")
        monkeypatch.setattr(choices, "choose", choose_long)
        asking = await cluster.get(resources.PODS, "urgent", "default")
        other = await one.pod("other")
        one.bridge.runner._turn = -1.0  # every question takes longer
        advice = asyncio.create_task(one.bridge.evictions.advise(asking, ["n0"]))
        await until(lambda: in_thread == [False, True])
        one.bridge.runner._turn = TURN
        assert (await one.plugin("prefilter", {"pod": other}))[1]["verdict"] == "full"
        assert not advice.done()
        answered.set()
        assert "would fit on n0" in await advice


# For a stock scheduler, which asks for no room


async def wait_for(one, name, *nodes):
    """Ask as a stock scheduler does, which has a pod refused."""
    question = {"Pod": await one.pod(name), "NodeNames": nodes}
    return (await one.ask("/extender/filter", question))[1]


async def told(cluster, namespace="default"):
    return [event.message for event in (await cluster.list(resources.EVENTS, namespace)).items]


async def test_an_extender_pod_preempts_where_enabled_and_keeps_the_freed_device():
    cluster = loaded(*crowd("a", want=1), claim("late"), pod("late", "late", priority=2))
    async with running(cluster, preempting=Preempting.EVICT) as one:
        await started(one, "a", "n0")
        assert (await wait_for(one, "urgent", "n0"))["NodeNames"] == []
        await until(lambda: one.bridge.pods.find("pod-a") is None)
        freed = Merge({"status": {"allocation": None, "reservedFor": None}})  # as kube-controller-manager does it
        await cluster.patch(resources.RESOURCE_CLAIMS, "a", freed, "default", subresource="status")
        await until(lambda: one.bridge.knowledge.stock.claims["default/a"].status.allocation is None)
        refused = await wait_for(one, "late", "n0")
        assert "reserved for a nominated pod" in refused["FailedAndUnresolvableNodes"]["n0"]
        assert refused["NodeNames"] == []
        assert (await wait_for(one, "urgent", "n0"))["NodeNames"] == ["n0"]


async def outbid(cluster, one):
    """Have `late` refused for the sake of `urgent`, for which a free device is reserved; answer with the number of the last news."""
    await started(one, "a", "n0")
    await wait_for(one, "urgent", "n0")
    await until(lambda: one.bridge.pods.find("pod-a") is None)
    freed = Merge({"status": {"allocation": None, "reservedFor": None}})
    await cluster.patch(resources.RESOURCE_CLAIMS, "a", freed, "default", subresource="status")
    await until(lambda: one.bridge.knowledge.stock.claims["default/a"].status.allocation is None)
    assert (await wait_for(one, "late", "n0"))["NodeNames"] == []
    return one.bridge.requeue_events.seq


async def nominated(cluster, node):
    said = Merge({"status": {"nominatedNodeName": node}})
    await cluster.patch(resources.PODS, "urgent", said, "default", subresource="status")


@pytest.mark.parametrize(
    "how",
    [
        "it lapses",
        "its holder is deleted",
        "the scheduler's, and its holder goes elsewhere",
        "the scheduler's, and it is taken back",
    ],
)
async def test_a_pod_that_gives_way_to_a_nomination_is_woken_as_soon_as_that_ends(how, monkeypatch):
    cluster = loaded(*crowd("a", want=1), claim("late"), pod("late", "late", priority=2))
    async with running(cluster, preempting=Preempting.EVICT) as one:
        before = await outbid(cluster, one)
        if how.startswith("the scheduler's"):
            one.bridge.pods.nominations._ours.clear()
            await nominated(cluster, "n0")
            await until(lambda: one.bridge.pods.find("pod-urgent").status.nominated_node_name)
            assert (await wait_for(one, "late", "n0"))["NodeNames"] == []
        one.bridge.tick()
        assert one.bridge.requeue_events.seq == before
        match how:
            case "it lapses":
                monkeypatch.setattr(
                    one.bridge.pods.nominations, "_clock", lambda: asyncio.get_running_loop().time() + SECONDS
                )
                one.bridge.tick()
            case "its holder is deleted":
                await cluster.delete(resources.PODS, "urgent", "default")
            case "the scheduler's, and its holder goes elsewhere":
                await cluster.bind("urgent", "default", "n1")
            case "the scheduler's, and it is taken back":
                await nominated(cluster, None)
        async with asyncio.timeout(PATIENCE):
            news = await one.bridge.requeue_events.after(before, PATIENCE)
        assert "default/late" in news.pods
        assert (await wait_for(one, "late", "n0"))["NodeNames"] == ["n0"]


async def test_plugin_and_extender_leave_out_the_same_nodes_for_a_nominated_pod():
    pods = [pod("urgent", "urgent", priority=2), pod("late", "late", priority=2)]
    cluster = loaded(*fleet(1, 1), claim("urgent"), claim("late"), *pods)
    async with running(cluster) as one:
        await nominated(cluster, "n0")
        await until(lambda: one.bridge.pods.find("pod-urgent").status.nominated_node_name)
        _, said = await one.plugin("prefilter", {"pod": await one.pod("late")})
        refused = await wait_for(one, "late", "n0")
        assert (said["verdict"], said["nodes"]) == ("full", [])
        assert refused["NodeNames"] == []
        assert refused["FailedAndUnresolvableNodes"]["n0"] == said["reasons"][0]["message"] == OUTBID


async def test_a_pod_blocked_by_a_nomination_is_requeued_when_the_nomination_ends():
    rival = important("rival", "rival")
    claims = [claim(name) for name in ("low", "rival", "urgent")]
    cluster = loaded(*fleet(1, 1), *claims, pod("low", "low", priority=1), rival, important("urgent", "urgent"))
    async with running(cluster) as one:
        await started(one, "low", "n0")
        one.bridge.pods.nominations.nominate(one.bridge.pods.find("pod-rival"), "n0", ())
        assert (await room_for(one, "urgent", "n0"))[1]["nominatedNode"] == ""
        before = one.bridge.requeue_events.seq
        await cluster.delete(resources.PODS, "rival", "default")
        async with asyncio.timeout(PATIENCE):
            news = await one.bridge.requeue_events.after(before, PATIENCE)
        assert "default/urgent" in news.pods
        assert (await room_for(one, "urgent", "n0"))[1]["nominatedNode"] == "n0"


async def test_without_eviction_enabled_victims_are_reported_once_and_not_evicted():
    cluster = loaded(*crowd("a", want=1))
    async with running(cluster) as one:
        await started(one, "a", "n0")
        one.service.extender_preemption._again = 0.0
        for _ in range(3):
            looked = one.service.extender_preemption.looks
            await wait_for(one, "urgent", "n0")
            await until(lambda before=looked: one.service.extender_preemption.looks > before)
        words = (
            "would fit on n0 if lower-priority pod default/a were evicted; no pod is evicted (--extender-preemption)"
        )
        assert await told(cluster) == [words]
        assert await is_there(one, "a")


@pytest.mark.parametrize(
    ("preempting", "asking"),
    [
        (Preempting.OFF, important("urgent", "urgent")),
        (Preempting.EVICT, important("urgent", "urgent", preemptionPolicy="Never")),
    ],
    ids=["off", "it must not"],
)
async def test_no_victim_is_searched_for_where_preemption_is_off_or_forbidden(preempting, asking):
    cluster = loaded(*fleet(1, 1), claim("a"), claim("urgent"), pod("a", "a", priority=1), asking, claim("able"), important("able", "able"))  # fmt: skip
    async with running(cluster, preempting=preempting) as one:
        await started(one, "a", "n0")
        await wait_for(one, "urgent", "n0")
        if preempting is Preempting.EVICT:
            await wait_for(one, "able", "n0")  # the pod after it has its turn
            await until(lambda: one.bridge.pods.find("pod-a") is None)
            async with asyncio.timeout(PATIENCE):
                while not await told(cluster):  # noqa: ASYNC110  an evicted pod goes, and the allocator is told then
                    await asyncio.sleep(0.005)
            assert await told(cluster) == ["preempted by pod default/able, which has a higher priority"]
        else:
            await one.place("a", "n0")
            assert one.service.extender_preemption.looks == 0
            assert await is_there(one, "a")
