"""The small scheduler beside others that write, over the real embedded store."""

import asyncio

import pytest

from allocator import all_nodes, allocate
from allocator.one_node import find
from allocator.service import WITHOUT_CLAIMS, Scheduler
from allocator.service.standalone import scheduler
from allocator.service.standalone.retries import MOST, Retries
from cluster import resources
from cluster.embedded import Embedded
from cluster.errors import Conflict, NotFound, Unavailable
from runtime.informers import Backoff
from tests.allocator.service import sidecar as devices
from tests.objects import container as main_container
from tests.objects import node, pod
from tests.waiting import until

ENOUGH = 200  # calls that only a loop which never ends makes


def plain_pod(name, container=None, **spec):
    """A pod without devices; its container has these fields."""
    return pod(name, containers=[main_container() | (container or {})], **spec)


class Race(Embedded):
    """The embedded store, with a call right before each binding."""

    calls = 0

    async def before(self, name):
        raise NotImplementedError

    async def bind(self, name, namespace, node, *, uid="", dry_run=False):
        self.calls += 1
        assert self.calls < ENOUGH, "a conflict is answered by trying again at once, forever"
        await self.before(name)
        await super().bind(name, namespace, node, uid=uid, dry_run=dry_run)


async def running(cluster, condition, *, retries=None):
    """Let the scheduler work until something is true."""
    scheduler = asyncio.create_task(Scheduler(cluster, retries=retries).run())
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


async def placed(cluster, name):
    return (await cluster.get(resources.PODS, name, "default")).spec.node_name


async def test_a_pod_that_another_scheduler_binds_first_does_not_stop_the_loop():
    class Taken(Race):
        async def before(self, name):
            if name == "a-wanted" and self.calls == 1:
                await Embedded.bind(self, name, "default", "other")

    cluster = Taken()
    cluster.load([node("mine"), node("other"), plain_pod("a-wanted"), plain_pod("b-later")])

    async def both():
        return await placed(cluster, "a-wanted") and await placed(cluster, "b-later")

    await running(cluster, both)
    assert await placed(cluster, "a-wanted") == "other"
    assert cluster.calls <= 4


async def test_a_conflict_that_does_not_end_is_given_up_until_there_is_news():
    class Refusing(Race):
        async def before(self, name):
            if name == "cursed":
                raise Conflict("another writer is always faster")

    cluster = Refusing()
    cluster.load([node("mine"), plain_pod("cursed")])
    retries = Retries(Backoff(least=0.001, most=0.002))

    async def tried():
        return cluster.calls >= MOST

    async def given_up():
        return await tried() and retries.next_due() == float("inf")

    await running(cluster, given_up, retries=retries)
    assert cluster.calls == MOST


async def test_one_pod_that_cannot_be_written_does_not_end_the_scheduler():
    class Away(Race):
        async def before(self, name):
            if name == "first":
                raise Unavailable("the server is away")

    cluster = Away()
    cluster.load([node("mine"), plain_pod("first"), plain_pod("second")])

    async def second():
        return await placed(cluster, "second")

    await running(cluster, second)


async def test_an_allocation_that_cannot_be_read_concerns_its_own_pod_only():
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "odd", "namespace": "default"},
        "spec": {},
        "status": {
            "allocation": {
                "devices": {},
                "nodeSelector": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Sideways"}]}],
                },
            }
        },
    }
    cluster = Embedded.holding(
        [
            node("mine"),
            claim,
            plain_pod("a-first", resourceClaims=[{"name": "odd", "resourceClaimName": "odd"}]),
            plain_pod("second"),
        ]
    )

    async def second():
        return await placed(cluster, "second")

    await running(cluster, second)


async def test_pods_placed_in_one_go_do_not_share_what_only_one_can_have():
    asks = {"container": {"resources": {"requests": {"cpu": "1"}}}}
    cluster = Embedded.holding(
        [node("mine", allocatable={"cpu": "1", "pods": "10"}), plain_pod("a", **asks), plain_pod("b", **asks)]
    )

    async def told():
        waiting = await cluster.get(resources.PODS, "b", "default")
        return any("Insufficient cpu" in condition.message for condition in waiting.status.conditions)

    await running(cluster, told)
    assert await placed(cluster, "a") == "mine"
    assert not await placed(cluster, "b")


async def test_equal_pods_and_equal_nodes_share_one_allocator_search(monkeypatch):
    """And of the nodes that changed since; why not is found out once for each kind of node, whatever their number."""
    asked, explained = [], set()
    monkeypatch.setattr(all_nodes, "find", lambda *given: asked.append(1) or find(*given))
    monkeypatch.setattr(
        scheduler, "allocate", lambda *given, **named: explained.add(given[1]) or allocate(*given, **named)
    )
    names = [f"p{number}" for number in range(8)]
    pods = [devices.pod(name, name) for name in names]
    cluster = devices.loaded(*devices.fleet(20, 2), *(devices.claim(name) for name in names), *pods)
    too_much = [devices.claim("big", 3), devices.pod("big", "big")]

    async def all_placed():
        return all([await placed(cluster, name) for name in names])

    async def big_is_told():
        return (await cluster.get(resources.PODS, "big", "default")).status.conditions

    await running(cluster, all_placed)
    assert 0 < len(asked) < len(names)  # of a full node, one that has one device left, and one that has two
    assert explained == set()
    cluster.load([*too_much])
    await running(cluster, big_is_told)
    [condition] = await big_is_told()
    assert "nearest of 20 nodes" in condition.message
    assert 1 <= len(explained) <= 3  # nodes with no, one and two devices in use


async def test_a_pod_without_its_claims_is_told_apart_from_one_that_fits_nowhere():
    missing = [{"name": "later", "resourceClaimName": "later"}]
    large = {"container": {"resources": {"requests": {"cpu": "9"}}}}
    cluster = Embedded.holding(
        [
            node("mine", allocatable={"cpu": "1", "pods": "10"}),
            plain_pod("a", resourceClaims=missing),
            plain_pod("b", **large),
        ]
    )
    reasons = {}

    async def told():
        for name in ("a", "b"):
            waiting = await cluster.get(resources.PODS, name, "default")
            for condition in waiting.status.conditions:
                reasons[name] = condition.reason
        return len(reasons) == 2

    await running(cluster, told)
    assert reasons == {"a": WITHOUT_CLAIMS, "b": "Unschedulable"}


def test_pauses_grow_and_a_conflict_ends_them():
    retries = Retries(Backoff(least=1.0, most=100.0))
    pauses, now = [], 0.0
    for _ in range(MOST):
        assert retries.due("pod", ("1",), now)
        failure = retries.note_failure("pod", ("1",), Conflict("faster"), now=now, fraction=0.0)
        assert not retries.due("pod", ("1",), now)
        pauses.append(failure.pause_ends - now)
        now = failure.pause_ends
    assert pauses == sorted(pauses)
    assert pauses[-1] > 8 * pauses[0]
    assert not retries.due("pod", ("1",), now + 1e9)
    assert retries.due("pod", ("2",), now), "news begins anew"


@pytest.mark.parametrize("error", [Unavailable("away"), ValueError("odd")])
def test_an_error_that_may_pass_by_itself_is_retried_forever_with_pauses(error):
    retries, now = Retries(), 0.0
    for _ in range(3 * MOST):
        assert retries.due("pod", ("1",), now)
        now = retries.note_failure("pod", ("1",), error, now=now, fraction=0.5).pause_ends
    assert now > 60


def test_pods_that_are_gone_are_forgotten():
    retries = Retries()
    for number in range(100):
        retries.note_failure(str(number), (), NotFound("gone"), now=0.0, fraction=0.0)
    retries.keep(["7"])
    assert len(retries) == 1
