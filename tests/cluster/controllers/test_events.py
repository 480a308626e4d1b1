"""Events about objects: repetitions are counted in one event, and an event that cannot be written is no error for the caller."""

import asyncio
import random
import re

import pytest

from cluster.controllers.event_recorder import MAX_REMEMBERED, Recorder
from cluster.embedded.embedded import Embedded
from cluster.errors import Unavailable
from cluster.resources import EVENTS, NODES, RESOURCE_CLAIMS
from tests.cluster.objects import claim


class Time:
    seconds = 0.0


def recorder(cluster, time):
    return Recorder(
        cluster,
        "drawbridge",
        instance="pod-1",
        now=lambda: f"2026-01-01T00:00:{int(time.seconds) % 60:02}Z",
        clock=lambda: time.seconds,
    )


async def events(cluster, namespace):
    """Return the reason, the message, the type and the count of each event that the recorder wrote."""
    recorded = (await cluster.list(EVENTS, namespace)).items
    return sorted(
        (event.reason, event.message, event.type, event.count)
        for event in recorded
        if event.source.component == "drawbridge"
    )


async def test_a_repeated_event_is_counted(cluster, namespace):
    """The count is written at most once in five seconds, and then includes the repetitions since the last write."""
    time = Time()
    events_recorder = recorder(cluster, time)
    subject = await cluster.create(RESOURCE_CLAIMS, claim("one"), namespace)
    for second in (0, 1, 2, 7, 8):
        time.seconds = second
        await events_recorder.record(subject, "Busy", "all GPUs are in use", warning=True)
    await events_recorder.record(subject, "Reserved", "gpu-0")
    assert await events(cluster, namespace) == [
        ("Busy", "all GPUs are in use", "Warning", 4),
        ("Reserved", "gpu-0", "Normal", 1),
    ]
    time.seconds = 20
    await events_recorder.record(subject, "Busy", "all GPUs are in use", warning=True)
    assert (await events(cluster, namespace))[0][3] == 6
    (busy, _) = sorted((await cluster.list(EVENTS, namespace)).items, key=lambda event: event.reason)
    assert (busy.first_timestamp, busy.last_timestamp) == ("2026-01-01T00:00:00Z", "2026-01-01T00:00:20Z")
    assert busy.involved_object.uid == subject.metadata.uid
    assert busy.involved_object.kind == "ResourceClaim"


async def test_a_deleted_event_is_written_as_a_new_event(cluster, namespace):
    time = Time()
    events_recorder = recorder(cluster, time)
    subject = await cluster.create(RESOURCE_CLAIMS.raw, claim("one"), namespace)
    await events_recorder.record(subject, "Busy", "m")
    (deleted_event,) = (await cluster.list(EVENTS, namespace)).items
    await cluster.delete(EVENTS, deleted_event.metadata.name, namespace)
    time.seconds = 10
    await events_recorder.record(subject, "Busy", "m")
    assert await events(cluster, namespace) == [("Busy", "m", "Normal", 1)]


async def test_the_long_message_of_a_nodes_event_is_shortened():
    cluster = Embedded()
    node = await cluster.create(NODES, {"metadata": {"name": "node-a"}})
    await recorder(cluster, Time()).record(node, "Drift", "m" * 5000)
    ((_, message, _, _),) = await events(cluster, "default")
    assert len(message) == 1024


@pytest.mark.parametrize("name", ["a" * 199 + "-" + "b" * 50, "a" * 199 + "." + "b" * 50, "a" * 198 + "--" + "b" * 50])
async def test_an_event_about_a_long_object_name_is_valid(name):
    cluster = Embedded()
    subject = await cluster.create(NODES, {"metadata": {"name": name}})
    events_recorder = recorder(cluster, Time())
    assert await events_recorder.record(subject, "Drift", "m")
    for event in (await cluster.list(EVENTS, "default")).items:
        assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", event.metadata.name)


async def test_an_event_that_cannot_be_written_is_logged(caplog):
    class WithoutCreations(Embedded):
        async def create(self, *_args, **_options):
            raise Unavailable("no server answers")

    assert not await recorder(WithoutCreations(), Time()).record(claim("one"), "Busy", "m")
    assert "event Busy about ResourceClaim one was not written: no server answers" in caplog.text


async def test_the_number_of_remembered_events_is_bounded():
    cluster = Embedded()
    events_recorder = recorder(cluster, Time())
    body = claim("one", metadata={"namespace": "default"})
    for number in range(MAX_REMEMBERED + 10):
        await events_recorder.record(body, "Busy", str(number))
    assert len(events_recorder._written) == MAX_REMEMBERED


async def test_a_new_recorder_updates_an_existing_event(cluster, namespace):
    subject = await cluster.create(RESOURCE_CLAIMS, claim("one"), namespace)
    time = Time()
    assert await recorder(cluster, time).record(subject, "Busy", "all GPUs are in use", warning=True, replaces=True)
    assert await recorder(cluster, time).record(subject, "Busy", "one GPU is in use", warning=True, replaces=True)
    assert await events(cluster, namespace) == [("Busy", "one GPU is in use", "Warning", 1)]


class YieldingCluster(Embedded):
    """A cluster that yields to other tasks a random number of times before each write."""

    def __init__(self, seed):
        super().__init__()
        self.random = random.Random(seed)

    async def create(self, *args, **options):
        await self.yield_to_tasks()
        return await super().create(*args, **options)

    async def patch(self, *args, **options):
        await self.yield_to_tasks()
        return await super().patch(*args, **options)

    async def yield_to_tasks(self):
        for _ in range(self.random.randrange(6)):
            await asyncio.sleep(0)


@pytest.mark.parametrize("seed", range(5))
async def test_an_event_recorded_several_times_at_once_is_one_event(seed):
    cluster, time = YieldingCluster(seed), Time()
    subject = await cluster.create(RESOURCE_CLAIMS, claim("one"), "default")
    events_recorder = recorder(cluster, time)
    await asyncio.gather(*(events_recorder.record(subject, "Busy", "m") for _ in range(4)))
    time.seconds = 10
    await events_recorder.record(subject, "Busy", "m")
    assert await events(cluster, "default") == [("Busy", "m", "Normal", 5)]


@pytest.mark.parametrize("seed", range(5))
async def test_two_recorders_write_the_same_event_only_once(seed):
    cluster = YieldingCluster(seed)
    subject = await cluster.create(RESOURCE_CLAIMS, claim("one"), "default")
    recorders = [recorder(cluster, Time()) for _ in range(2)]
    assert await asyncio.gather(*(events_recorder.record(subject, "Busy", "m") for events_recorder in recorders)) == [
        True,
        True,
    ]
    assert len(await events(cluster, "default")) == 1
