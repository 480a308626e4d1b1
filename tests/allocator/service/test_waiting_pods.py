"""Each waiting pod has one wait reason. An event requeues the pod; if no such event will come, the pod is requeued periodically."""

import asyncio

import pytest
from msgspec.structs import replace

from allocator.decisions import Decider, Outlook
from allocator.service.requeue_events import RequeueEvents
from allocator.service.waiting_pods import CHECK_SECONDS, UNSEEN, WaitingPods, WaitReason
from cluster import resources
from dra.objects import Pod
from dra.wire import convert
from tests.allocator.service.sidecar import (
    EXTENDED_RESOURCE_CLASS,
    SettableClock,
    claim,
    fleet,
    gpus,
    loaded,
    node,
    pod,
    pod_with_extended_resource,
    pods_with_claims,
    running,
    until,
)
from tests.limits import PATIENCE

BIG_POD = convert(pod("big"), Pod)


@pytest.fixture
def events():
    return RequeueEvents()


@pytest.fixture
def clock():
    return SettableClock()


@pytest.fixture
def table(events, clock):
    """Return a table of waiting pods with one pod, which waited for devices and was requeued."""
    pods = WaitingPods(events, clock)
    pods.put(BIG_POD, WaitReason.ROOM, shape=b"two")
    pods.requeue(pods.pods_waiting_for(WaitReason.ROOM))
    return pods


def requeue_due_pods(events, table, seq):
    """Requeue the pods whose scheduler has not tried them again in time; return all pods requeued after the event `seq`."""
    table.requeue(table.due(WaitReason.SCHEDULER, lambda _: True))
    return events.since(seq).pods


def test_a_pod_is_requeued_once_per_check_interval(events, clock, table):
    seq = events.seq
    assert requeue_due_pods(events, table, seq) == ()
    for _ in range(3):
        clock.now += CHECK_SECONDS
        assert requeue_due_pods(events, table, seq) == ("default/big",)
        seq = events.seq
        assert requeue_due_pods(events, table, seq) == ()


async def test_a_free_device_requeues_one_pod_at_a_time_until_one_takes_it(events, clock):
    """The pod with the highest priority is the first. A pod that does not take the device is followed by the next."""
    table = WaitingPods(events, clock)
    pods = {name: convert(pod(name, priority=5 * (name == "q")), Pod) for name in "pqrs"}
    for name in "pqr":
        table.put(pods[name], WaitReason.ROOM, shape=b"one")

    async def requeued_with(fitting):
        seq = events.seq
        await table.requeue_fitting(lambda counted: min(fitting, len(counted)))
        return events.since(seq).pods

    assert await requeued_with(3) == (), "no device became free"
    table.note_freed()
    assert await requeued_with(1) == ("default/q",)
    assert await requeued_with(1) == (), "the scheduler has not tried q yet"
    table.note_attempt("pod-q")
    table.put(pods["q"], WaitReason.DEVICES)
    assert await requeued_with(1) == ("default/p",)
    table.note_attempt("pod-p")
    assert await requeued_with(0) == (), "p took the device"
    assert table.pods_waiting_for(WaitReason.ROOM) == [pods["r"]]
    table.put(pods["s"], WaitReason.ROOM, shape=b"one")
    assert await requeued_with(1) == (), "no other device became free"
    table.note_freed()
    assert await requeued_with(1) == ("default/r",)


async def test_a_pod_that_its_scheduler_does_not_try_is_followed_by_the_next(events, clock):
    table = WaitingPods(events, clock)
    for name in "pq":
        table.put(convert(pod(name), Pod), WaitReason.ROOM, shape=b"one")
    table.note_freed()
    await table.requeue_fitting(lambda _: 1)
    assert events.since(events.seq - 1).pods == ("default/p",)
    clock.now += CHECK_SECONDS
    seq = events.seq
    table.requeue(table.due(WaitReason.SCHEDULER, lambda _: True))
    await table.requeue_fitting(lambda _: 1)
    assert events.since(seq).pods == ("default/p", "default/q")


@pytest.mark.parametrize("method", ["note_attempt", "pop"])
def test_a_retried_or_deleted_pod_is_not_requeued_again(events, clock, table, method):
    seq = events.seq
    getattr(table, method)("pod-big")
    clock.now += CHECK_SECONDS
    assert requeue_due_pods(events, table, seq) == ()


def test_a_pod_that_the_watch_never_shows_expires(events, clock, table):
    while clock.now <= UNSEEN:
        table.requeue(table.due(WaitReason.SCHEDULER, lambda _: False))
        clock.now += CHECK_SECONDS
    assert table.due(WaitReason.SCHEDULER, lambda _: False) == table.pods_waiting_for(*WaitReason) == []


def test_a_pod_has_one_wait_reason_at_a_time(events, clock):
    table = WaitingPods(events, clock)
    for reason in WaitReason:
        table.put(BIG_POD, reason)
        assert [listed_reason for listed_reason in WaitReason if table.pods_waiting_for(listed_reason)] == [reason]


async def verdict(sidecar, name):
    return (await sidecar.prefilter(name))["verdict"]


async def test_a_requeue_that_the_scheduler_ignores_is_repeated():
    """kube-scheduler ignores a requeue while DefaultPreemption evicts for the pod. Without a repetition the pod would wait five minutes."""
    async with running(loaded(*fleet(1, 1), *pods_with_claims("a", "late"))) as sidecar:
        clock = sidecar.service.pods.waiting._clock = SettableClock()
        await sidecar.place("a")
        assert await verdict(sidecar, "late") == "full"
        seq = sidecar.service.requeue_events.seq
        await sidecar.free_claim("a")
        await until(lambda: "default/late" in sidecar.service.requeue_events.since(seq).pods)
        seq = sidecar.service.requeue_events.seq
        clock.now += CHECK_SECONDS
        sidecar.service.tick()
        assert "default/late" in sidecar.service.requeue_events.since(seq).pods
        seq = sidecar.service.requeue_events.seq
        assert await verdict(sidecar, "late") == "fits"
        clock.now += CHECK_SECONDS
        sidecar.service.tick()
        assert "default/late" not in sidecar.service.requeue_events.since(seq).pods


@pytest.mark.parametrize(
    "situation", ["the claim is being created", "nobody creates the claim", "the event of the new claim was missed"]
)
async def test_a_pod_is_requeued_periodically_if_no_event_is_expected(monkeypatch, situation):
    """The allocator creates the claim of `p`, and a user the claim of `q`. A new claim is an event that requeues its pod."""
    async with running(
        loaded(EXTENDED_RESOURCE_CLASS, node("n0"), gpus("n0", 1), pod_with_extended_resource("p"), pod("q", "later"))
    ) as sidecar:
        service = sidecar.service
        clock = service.pods.waiting._clock = SettableClock()
        monkeypatch.setattr(service.allocator, "_make_claim", lambda _: None)
        monkeypatch.setattr(service.extended, "is_making", lambda _: situation == "the claim is being created")
        assert [await verdict(sidecar, name) for name in "pq"] == ["waiting", "waiting"]
        if situation == "the event of the new claim was missed":
            monkeypatch.setattr(service.pods, "objects_changed", lambda *_: None)
            await sidecar.cluster.create(resources.RESOURCE_CLAIMS.raw, claim("later", class_name="served"))
            await until(lambda: "default/later" in service.knowledge.stock.claims)
        seq = service.requeue_events.seq
        service.tick()
        assert service.requeue_events.since(seq).pods == ()
        clock.now += CHECK_SECONDS
        service.tick()
        expected_pods = {"the claim is being created": (), "nobody creates the claim": ("default/p",)}
        assert service.requeue_events.since(seq).pods == expected_pods.get(situation, ("default/p", "default/q"))


@pytest.mark.parametrize("noticed", ["by the event", "at the next check"])
async def test_a_pod_that_lacks_another_object_now_is_requeued_once(monkeypatch, noticed):
    """Otherwise its condition would name an object that exists."""
    async with running(loaded(node("n0"), pod("q", "later"))) as sidecar:
        service = sidecar.service
        clock = service.pods.waiting._clock = SettableClock()
        assert await verdict(sidecar, "q") == "waiting"
        seq = service.requeue_events.seq
        if noticed == "at the next check":
            monkeypatch.setattr(service.pods, "objects_changed", lambda *_: None)
        await sidecar.cluster.create(resources.RESOURCE_CLAIMS.raw, claim("later", class_name="missing"))
        await until(lambda: "default/later" in service.knowledge.stock.claims)
        clock.now += CHECK_SECONDS
        service.tick()
        assert service.requeue_events.since(seq).pods == ("default/q",)
        answer = await sidecar.prefilter("q")
        assert (answer["verdict"], "DeviceClass missing does not exist" in answer["message"]) == ("waiting", True)
        seq = service.requeue_events.seq
        clock.now += CHECK_SECONDS
        service.tick()
        assert service.requeue_events.since(seq).pods == ()


@pytest.mark.parametrize("refusal", ["full", "never"])
async def test_a_device_freed_during_a_pods_decision_requeues_the_pod(monkeypatch, refusal):
    """At the time of the event the pod is not in the table of waiting pods yet, and no other event follows."""
    async with running(loaded(*fleet(1, 1), *pods_with_claims("a", "late"))) as sidecar:
        _, reserved = await sidecar.reserve("a", "n0")
        decide = Decider.outlook

        def decide_long(*arguments):
            monkeypatch.undo()
            answer = decide(*arguments)
            sidecar.service.allocator.release(reserved["reservation"])
            return replace(answer, outlook=Outlook(refusal))

        monkeypatch.setattr(Decider, "outlook", decide_long)
        seq = sidecar.service.requeue_events.seq
        assert await verdict(sidecar, "late") == refusal
        await until(lambda: "default/late" in sidecar.service.requeue_events.since(seq).pods)


async def test_a_nominations_end_requeues_a_pod_that_the_watch_lacks():
    async with running(loaded(*fleet(1, 1), claim("a"), pod("a", "a"))) as sidecar:
        nominations = sidecar.service.pods.nominations
        nominations.nominate(sidecar.service.pods.find("pod-a"), "n0", ())
        nominations.give_way(BIG_POD)
        seq = sidecar.service.requeue_events.seq
        nominations.give_up(sidecar.service.pods.find("pod-a"))
        assert sidecar.service.requeue_events.since(seq).pods == ("default/big",)


async def test_an_error_in_a_periodic_check_does_not_end_leadership(monkeypatch):
    async with running(loaded(*fleet(1, 1))) as sidecar:
        failed = asyncio.Event()

        def fail(_):
            failed.set()
            raise ValueError("a bug")

        monkeypatch.setattr(sidecar.service.pods, "tick", fail)
        async with asyncio.timeout(PATIENCE):
            await failed.wait()
        await asyncio.sleep(0.1)  # two more ticks
        assert sidecar.service.lead.leads
