"""Pods that are worth another try, and are tried again though a scheduler may drop what it is told of them."""

import pytest

from allocator.service.requeue_events import AGAIN, RefusedPods, RequeueEvents
from tests.allocator.service.sidecar import claim, fleet, loaded, pod, running, until
from tests.allocator.service.test_requeue import free


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
def refused(events, times):
    """One pod that was refused, and requeued."""
    pods = RefusedPods(events, times)
    pods.put("u", "team/big", b"two")
    pods.requeue_all()
    return pods


def told_since(events, refused, seq):
    refused.tick()
    return events.since(seq).pods


def test_a_pod_that_its_scheduler_does_not_ask_about_is_requeued_again_and_again(events, times, refused):
    seq = events.seq
    assert told_since(events, refused, seq) == ()
    for _ in range(3):
        times.now += AGAIN
        assert told_since(events, refused, seq) == ("team/big",)
        seq = events.seq
        assert told_since(events, refused, seq) == ()


@pytest.mark.parametrize("what", ["confirm", "pop"])
def test_a_pod_that_was_asked_about_or_is_gone_is_not_requeued_again(events, times, refused, what):
    seq = events.seq
    getattr(refused, what)("u")
    times.now += AGAIN
    assert told_since(events, refused, seq) == ()


async def verdict(one, name):
    return (await one.plugin("prefilter", {"pod": await one.pod(name)}))[1]["verdict"]


async def test_a_pod_whose_scheduler_drops_that_a_device_is_free_is_told_again_until_it_asks():
    """As kube-scheduler drops it while DefaultPreemption evicts for the pod: it would come with the next flush of its queue, after five minutes."""
    objects = [*fleet(1, 1), claim("a"), pod("a", "a"), claim("late"), pod("late", "late")]
    async with running(loaded(*objects)) as one:
        times = one.bridge.pods.refused._clock = Times()
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
