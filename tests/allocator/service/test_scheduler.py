"""The small scheduler of `drawbridge standalone` beside other writers, on the embedded store."""

import asyncio
from itertools import pairwise

from allocator.service import WITHOUT_CLAIMS, StandaloneScheduler
from cluster import resources
from cluster.embedded import Embedded
from cluster.errors import Conflict, Unavailable
from cluster.informers import Backoff
from dra.objects import results_of
from tests.allocator.service import sidecar
from tests.objects import claim_entries, node, pod
from tests.objects import container as main_container
from tests.waiting import until

MAX_BINDINGS = 200  # a scheduler that does not loop forever makes fewer calls


def plain_pod(name, container=None, **spec):
    """Return a pod without devices, whose container has these fields."""
    return pod(name, containers=[main_container() | (container or {})], **spec)


class StoreWithBindingHook(Embedded):
    """The embedded store, with a function that runs before each binding."""

    bindings = 0

    async def before_binding(self, name):
        raise NotImplementedError

    async def bind(self, name, namespace, node, *, uid="", dry_run=False):
        self.bindings += 1
        assert self.bindings < MAX_BINDINGS, "the scheduler retries a conflict forever without a pause"
        await self.before_binding(name)
        await super().bind(name, namespace, node, uid=uid, dry_run=dry_run)


async def running(cluster, condition, *, backoff=None):
    """Run the scheduler until a condition is true."""
    scheduler = asyncio.create_task(StandaloneScheduler(cluster, backoff=backoff).run())
    try:
        reached = asyncio.create_task(until(condition))
        await asyncio.wait({scheduler, reached}, return_when=asyncio.FIRST_COMPLETED)
        if scheduler.done():
            reached.cancel()
            await scheduler
        await reached
    finally:
        scheduler.cancel()
        await asyncio.gather(scheduler, return_exceptions=True)


async def node_of(cluster, name):
    return (await cluster.get(resources.PODS, name, "default")).spec.node_name


def have_nodes(cluster, *names):
    """Return a condition: all these pods have a node."""

    async def condition():
        return all([await node_of(cluster, name) for name in names])

    return condition


async def test_another_schedulers_binding_does_not_stop_the_scheduler():
    class FirstBindingByAnotherScheduler(StoreWithBindingHook):
        async def before_binding(self, name):
            if name == "a-wanted" and self.bindings == 1:
                await Embedded.bind(self, name, "default", "other")

    cluster = FirstBindingByAnotherScheduler()
    cluster.load([node("mine"), node("other"), plain_pod("a-wanted"), plain_pod("b-later")])

    await running(cluster, have_nodes(cluster, "a-wanted", "b-later"))
    assert await node_of(cluster, "a-wanted") == "other"
    assert cluster.bindings <= 4


async def test_a_pod_with_failing_writes_does_not_stop_the_scheduler():
    class FirstPodCannotBeBound(StoreWithBindingHook):
        async def before_binding(self, name):
            if name == "first":
                raise Unavailable("the server is away")

    cluster = FirstPodCannotBeBound()
    cluster.load([node("mine"), plain_pod("first"), plain_pod("second")])

    await running(cluster, have_nodes(cluster, "second"))


async def test_an_unreadable_allocation_affects_only_its_own_pod():
    terms = [{"matchExpressions": [{"key": "a", "operator": "Sideways"}]}]
    allocation = {"devices": {}, "nodeSelector": {"nodeSelectorTerms": terms}}
    unreadable_claim = sidecar.claim("odd", status={"allocation": allocation})
    first = plain_pod("a-first", resourceClaims=claim_entries("odd"))
    cluster = Embedded.holding([node("mine"), unreadable_claim, first, plain_pod("second")])

    await running(cluster, have_nodes(cluster, "second"))


async def test_pods_placed_in_one_round_do_not_share_cpu():
    fields = {"container": {"resources": {"requests": {"cpu": "1"}}}}
    cluster = Embedded.holding(
        [node("mine", allocatable={"cpu": "1", "pods": "10"}), plain_pod("a", **fields), plain_pod("b", **fields)]
    )

    async def second_has_reason():
        waiting = await cluster.get(resources.PODS, "b", "default")
        return any("Insufficient cpu" in condition.message for condition in waiting.status.conditions)

    await running(cluster, second_has_reason)
    assert await node_of(cluster, "a") == "mine"
    assert not await node_of(cluster, "b")


async def test_a_missing_claim_and_too_little_cpu_have_different_reasons():
    waiting = plain_pod("a", resourceClaims=claim_entries("later"))
    large = plain_pod("b", container={"resources": {"requests": {"cpu": "9"}}})
    cluster = Embedded.holding([node("mine", allocatable={"cpu": "1", "pods": "10"}), waiting, large])
    reasons = {}

    async def have_reasons():
        for name in ("a", "b"):
            waiting = await cluster.get(resources.PODS, name, "default")
            for condition in waiting.status.conditions:
                reasons[name] = condition.reason
        return len(reasons) == 2

    await running(cluster, have_reasons)
    assert reasons == {"a": WITHOUT_CLAIMS, "b": "Unschedulable"}


async def test_the_scheduler_creates_the_claim_for_extended_resources():
    """With a claim, two of these pods share the two devices of a node, and the third waits for devices."""
    pods = [sidecar.pod_with_extended_resource(name) for name in ("a", "b", "c")]
    cluster = sidecar.loaded(*sidecar.fleet(1, 2), sidecar.EXTENDED_RESOURCE_CLASS, *pods)
    waiting = []

    async def third_has_reason():
        waiting[:] = (await cluster.get(resources.PODS, "c", "default")).status.conditions
        return any(condition.reason == "Unschedulable" for condition in waiting)

    await running(cluster, third_has_reason)
    assert [bool(await node_of(cluster, name)) for name in ("a", "b", "c")] == [True, True, False]
    claims = (await cluster.list(resources.RESOURCE_CLAIMS)).items
    assert len({result.device for claim in claims for result in results_of(claim)}) == 2
    assert "2 of 2 devices are in use" in waiting[-1].message


async def test_a_device_plugin_serves_an_extended_resource_without_a_claim():
    plugin_node = sidecar.node("old", allocatable={"example.com/gpu": "1", "pods": "10"})
    cluster = sidecar.loaded(plugin_node, sidecar.EXTENDED_RESOURCE_CLASS, sidecar.pod_with_extended_resource("a"))

    async def has_node():
        return await node_of(cluster, "a")

    await running(cluster, has_node)
    assert (await cluster.list(resources.RESOURCE_CLAIMS)).items == ()


async def test_a_lasting_conflict_is_retried_after_longer_pauses():
    class AlwaysConflicting(StoreWithBindingHook):
        async def before_binding(self, _name):
            self.times.append(asyncio.get_running_loop().time())
            raise Conflict("another writer is always faster")

    cluster = AlwaysConflicting()
    cluster.times = []
    cluster.load([node("mine"), plain_pod("cursed")])

    async def has_tried_six_times():
        return cluster.bindings >= 6

    await running(cluster, has_tried_six_times, backoff=Backoff(least=0.01, most=0.08))
    pauses = [later - earlier for earlier, later in pairwise(cluster.times)]
    shortest_pauses = [0.005, 0.01, 0.02, 0.04, 0.04]  # half of each pause is random
    assert all(pause >= shortest for pause, shortest in zip(pauses, shortest_pauses, strict=False)), pauses


async def test_pods_placed_in_one_round_do_not_share_a_device():
    names = [f"p{number}" for number in range(4)]
    cluster = sidecar.loaded(*sidecar.fleet(1, 2), *sidecar.pods_with_claims(*names))

    async def all_decided():
        stored = [await cluster.get(resources.PODS, name, "default") for name in names]
        return all(pod.spec.node_name or pod.status.conditions for pod in stored)

    await running(cluster, all_decided)
    claims = (await cluster.list(resources.RESOURCE_CLAIMS)).items
    devices = [result.device for claim in claims for result in results_of(claim)]
    assert len(devices) == len(set(devices)) == 2
    assert [bool(await node_of(cluster, name)) for name in names] == [True, True, False, False]
