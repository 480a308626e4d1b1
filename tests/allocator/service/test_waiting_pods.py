"""Pods that wait: each for one thing, woken by it, and again where a scheduler may have dropped that, or nothing alive would do it."""

import asyncio

import pytest
from msgspec.structs import replace

from allocator.decisions import Decider, Outlook
from allocator.service.requeue_events import RequeueEvents
from allocator.service.waiting_pods import AGAIN, UNSEEN, WaitingPods, WaitReason
from cluster import resources
from dra.objects import Pod
from dra.wire import convert
from tests.allocator.service.sidecar import claim, fleet, gpus, loaded, node, pod, running, until
from tests.allocator.service.test_bridge import SERVED, pod_by_name
from tests.allocator.service.test_requeue import free
from tests.limits import PATIENCE

BIG = convert(pod("big"), Pod)


class Times:
    """A clock that is set."""

    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def events():
    return RequeueEvents()


@pytest.fixture
def times():
    return Times()


@pytest.fixture
def table(events, times):
    """A pod that waited for room, and was woken."""
    pods = WaitingPods(events, times)
    pods.put(BIG, WaitReason.ROOM, b"two")
    pods.wake(pods.waiting_for(WaitReason.ROOM))
    return pods


def woken_since(events, table, seq):
    table.wake(table.due(WaitReason.SCHEDULER, lambda _: True))
    return events.since(seq).pods


def test_a_pod_that_its_scheduler_does_not_ask_about_is_woken_again_and_again(events, times, table):
    seq = events.seq
    assert woken_since(events, table, seq) == ()
    for _ in range(3):
        times.now += AGAIN
        assert woken_since(events, table, seq) == ("default/big",)
        seq = events.seq
        assert woken_since(events, table, seq) == ()


@pytest.mark.parametrize("what", ["confirm", "pop"])
def test_a_pod_that_was_asked_about_or_is_gone_is_not_woken_again(events, times, table, what):
    seq = events.seq
    getattr(table, what)("pod-big")
    times.now += AGAIN
    assert woken_since(events, table, seq) == ()


def test_a_pod_that_no_watch_ever_shows_is_not_named_for_good(events, times, table):
    while times.now <= UNSEEN:
        table.wake(table.due(WaitReason.SCHEDULER, lambda _: False))
        times.now += AGAIN
    assert table.due(WaitReason.SCHEDULER, lambda _: False) == table.waiting_for(*WaitReason) == []


def test_a_pod_waits_for_one_thing_at_a_time(events, times):
    table = WaitingPods(events, times)
    for reason in WaitReason:
        table.put(BIG, reason)
        assert [one for one in WaitReason if table.waiting_for(one)] == [reason]


async def verdict(one, name):
    return (await one.plugin("prefilter", {"pod": await one.pod(name)}))[1]["verdict"]


async def test_a_pod_whose_scheduler_drops_that_a_device_is_free_is_told_again_until_it_asks():
    """As kube-scheduler drops it while DefaultPreemption evicts for the pod: it would come with the next flush of its queue, after five minutes."""
    objects = [*fleet(1, 1), claim("a"), pod("a", "a"), claim("late"), pod("late", "late")]
    async with running(loaded(*objects)) as one:
        times = one.bridge.pods.waiting._clock = Times()
        await one.place("a")
        assert await verdict(one, "late") == "full"
        seq = one.bridge.requeue_events.seq
        await free(one, "a")
        await until(lambda: "default/late" in one.bridge.requeue_events.since(seq).pods)
        seq = one.bridge.requeue_events.seq
        times.now += AGAIN
        one.bridge.tick()
        assert "default/late" in one.bridge.requeue_events.since(seq).pods
        seq = one.bridge.requeue_events.seq
        assert await verdict(one, "late") == "fits"
        times.now += AGAIN
        one.bridge.tick()
        assert "default/late" not in one.bridge.requeue_events.since(seq).pods


async def test_a_pod_is_woken_when_the_object_that_it_lacked_comes_and_again_until_its_scheduler_asks():
    async with running(loaded(*fleet(1, 1), pod("p", "later"))) as one:
        times = one.bridge.pods.waiting._clock = Times()
        assert await verdict(one, "p") == "waiting"
        events = one.bridge.requeue_events
        before = events.seq
        await one.cluster.create(resources.RESOURCE_CLAIMS.raw, claim("later"))
        await until(lambda: "default/p" in events.since(before).pods)
        told = events.seq
        times.now += AGAIN
        await until(lambda: "default/p" in events.since(told).pods)
        assert await verdict(one, "p") == "fits"
        assert one.bridge.pods.waiting.waiting_for(*WaitReason) == []


@pytest.mark.parametrize("what", ["its claim is being made", "nothing makes its claim", "the claim has come unnoticed"])
async def test_a_pod_that_nothing_alive_would_wake_is_woken(monkeypatch, what):
    async with running(loaded(SERVED, node("n0"), gpus("n0", 1), pod_by_name("p"), pod("q", "later"))) as one:
        bridge = one.bridge
        times = bridge.pods.waiting._clock = Times()
        monkeypatch.setattr(bridge.allocator, "_make_claim", lambda _: None)
        monkeypatch.setattr(bridge.extended, "is_making", lambda _: what == "its claim is being made")
        assert [await verdict(one, name) for name in "pq"] == ["waiting", "waiting"]
        if what == "the claim has come unnoticed":
            monkeypatch.setattr(bridge.pods, "objects_changed", lambda *_: None)
            await one.cluster.create(resources.RESOURCE_CLAIMS.raw, claim("later", class_name="served"))
            await until(lambda: "default/later" in bridge.knowledge.stock.claims)
        seq = bridge.requeue_events.seq
        bridge.tick()
        assert bridge.requeue_events.since(seq).pods == ()
        times.now += AGAIN
        bridge.tick()
        expected = {"its claim is being made": (), "nothing makes its claim": ("default/p",)}
        assert bridge.requeue_events.since(seq).pods == expected.get(what, ("default/p", "default/q"))


@pytest.mark.parametrize("refused", ["full", "never"])
async def test_a_device_that_came_free_while_a_pod_was_decided_on_wakes_it(monkeypatch, refused):
    """The pod was not in the table yet when the event came, and no other event would follow."""
    objects = [*fleet(1, 1), claim("a"), pod("a", "a"), claim("late"), pod("late", "late")]
    async with running(loaded(*objects)) as one:
        _, found = await one.plugin("prefilter", {"pod": await one.pod("a")})
        await one.plugin("reserve", {"token": found["token"], "node": "n0"})
        decide = Decider.outlook

        def decide_long(*arguments):
            monkeypatch.undo()
            answer = decide(*arguments)
            one.bridge.allocator.release(found["token"])
            return replace(answer, outlook=Outlook(refused))

        monkeypatch.setattr(Decider, "outlook", decide_long)
        seq = one.bridge.requeue_events.seq
        assert await verdict(one, "late") == refused
        await until(lambda: "default/late" in one.bridge.requeue_events.since(seq).pods)


async def test_a_pod_that_gives_way_before_our_watch_shows_it_is_woken_when_the_nomination_ends(monkeypatch):
    async with running(loaded(*fleet(1, 1), claim("a"), pod("a", "a"))) as one:
        nominations = one.bridge.pods.nominations
        nominations.nominate(one.bridge.pods.find("pod-a"), "n0", ())
        nominations.give_way(BIG)
        seq = one.bridge.requeue_events.seq
        nominations.give_up(one.bridge.pods.find("pod-a"))
        assert one.bridge.requeue_events.since(seq).pods == ("default/big",)


async def test_a_fault_while_looking_after_waiting_pods_does_not_end_the_lead(monkeypatch):
    async with running(loaded(*fleet(1, 1))) as one:
        failed = asyncio.Event()

        def fail(_):
            failed.set()
            raise ValueError("a bug")

        monkeypatch.setattr(one.bridge.pods, "tick", fail)
        async with asyncio.timeout(PATIENCE):
            await failed.wait()
        await asyncio.sleep(0.1)  # two more ticks
        assert one.bridge.lead.leads
