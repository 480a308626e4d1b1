"""Work queues: a key is worked on by one task at a time, and again after a failure or a delay."""

import asyncio
import contextlib

import pytest

from cluster.controllers.workqueue import WorkQueue
from cluster.errors import ConfigError, Unavailable
from cluster.informers.backoff import Backoff
from tests.cluster.conftest import eventually
from tests.limits import PATIENCE


@contextlib.asynccontextmanager
async def running(queue, work, **options):
    task = asyncio.ensure_future(queue.run(work, **options))
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_a_key_added_several_times_waits_only_once():
    queue, done = WorkQueue("q"), []

    async def work(key):
        done.append(key)

    for name in "abaab":
        queue.add(name)
    assert len(queue) == 2
    async with running(queue, work):
        await eventually(lambda: asyncio.sleep(0, len(done) == 2))
    assert done == ["a", "b"]


async def test_a_key_added_during_its_work_is_worked_on_again():
    queue, done = WorkQueue("q"), []

    async def work(key):
        if not done:
            queue.add(key)
            queue.add(key)
        done.append(key)

    queue.add("a")
    async with running(queue, work):
        await eventually(lambda: asyncio.sleep(0, len(done) == 2))
        queue.add("later")
        await eventually(lambda: asyncio.sleep(0, "later" in done))
    assert done == ["a", "a", "later"]


async def test_a_failed_key_is_retried_without_delaying_others():
    queue, attempts = WorkQueue("q", backoff=Backoff(least=0.01, most=0.01)), []

    async def work(key):
        attempts.append(key)
        if key == "bad" and attempts.count("bad") < 3:
            raise Unavailable("not yet")

    for name in ("bad", "good"):
        queue.add(name)
    async with running(queue, work):
        await eventually(lambda: asyncio.sleep(0, attempts.count("bad") == 3))
    assert attempts[:2] == ["bad", "good"]
    assert len(queue) == 0


async def test_work_that_takes_too_long_is_ended_and_tried_again():
    queue, started_keys = WorkQueue("q", backoff=Backoff(least=0.01, most=0.01)), []

    async def work(key):
        started_keys.append(key)
        if len(started_keys) == 1:
            await asyncio.sleep(30)

    queue.add("a")
    async with running(queue, work, deadline=0.05):
        await eventually(lambda: asyncio.sleep(0, len(started_keys) >= 2))


async def test_a_configuration_error_ends_the_queue():
    queue = WorkQueue("q")

    async def work(_):
        raise ConfigError("no kubeconfig")

    queue.add("a")
    with pytest.raises(ConfigError):
        await asyncio.wait_for(queue.run(work), PATIENCE)


async def test_a_cancelled_queue_leaves_no_timer_behind():
    queue = WorkQueue("q")
    async with running(queue, lambda _: asyncio.sleep(0)):
        queue.add_after("a", 60)
        await asyncio.sleep(0)
    assert len(queue) == 0


async def test_a_delayed_key_can_be_added_without_delay():
    queue, done = WorkQueue("q"), []

    async def work(key):
        done.append(key)

    queue.add_after("a", 60)
    queue.add("a")
    async with running(queue, work):
        await eventually(lambda: asyncio.sleep(0, done == ["a"]))
    assert len(queue) == 0


async def test_a_key_with_two_delays_is_due_at_the_earlier_time():
    for delays in ((60, 0.01), (0.01, 60)):
        queue, done = WorkQueue("q"), asyncio.Event()

        async def work(_, done=done):
            done.set()

        for seconds in delays:
            queue.add_after("a", seconds)
        assert len(queue) == 1
        async with running(queue, work):
            await asyncio.wait_for(done.wait(), 30)
        assert len(queue) == 0
