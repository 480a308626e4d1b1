"""History of the fleet: at most one sample per minute, for at most a day, and limited to what a tenant may see."""

import asyncio
import json
from datetime import UTC, datetime, timedelta

import aiohttp
import msgspec
import pytest

from allocator.decisions import Decider
from allocator.simulation import Snapshot, simulate
from analysis.loading import Unread, reading_of
from dashboard import Dashboard, Login, ReadingSource
from dashboard.history import Sample, Samples, page_of, sample_of
from dashboard.picture import draw_picture, in_use
from tests.cli.explain.scenes import claim, fleet, full_fleet, held_claim, in_phase, pod
from tests.dashboard.test_dashboard import dashboard_session, reading_with, source_of, text_of
from tests.dashboard.test_login import ReviewServer, read_as, two_tenants
from webhook.state import Features

BEGIN = datetime(2026, 11, 20, 8, tzinfo=UTC)


def sample(seconds, *objects, begin=BEGIN):
    """Return a sample of these objects, read so many seconds after `begin`."""
    time, reading = (begin + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ"), reading_with(*objects)
    return sample_of(draw_picture(reading, read_at=time, source="a test"), reading.stock)


def partly_used_fleet():
    """Return two nodes with two devices each, of which a running pod holds one, and a pod that waits."""
    return [
        *fleet(2, 2),
        held_claim("c", "p"),
        in_phase(pod("p", "c", nodeName="n0"), "Running"),
        claim("w", 9),
        pod("w", "w"),
    ]


def test_a_sample_counts_devices_idle_nodes_and_waiting_pods():
    history = Samples()
    history.add(sample(0, *partly_used_fleet()))
    [recorded] = history.samples()
    assert msgspec.to_builtins(recorded) == {"at": "2026-11-20T08:00:00Z", "devices": {"free": 3, "held": 1}, "nodes": 2, "idleNodes": 1, "fragmentation": 0.0, "waiting": 1}  # fmt: skip


def test_recorded_fragmentation_equals_that_of_simulate():
    objects = fleet(2, 2)
    for obj in objects:
        for device in obj["spec"]["devices"] if obj["kind"] == "ResourceSlice" else ():
            device |= {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "40Gi"}}}
    objects.append(held_claim("c", on="n0/gpu-0", share={"memory": "10Gi"}))
    recorded = sample(0, *objects)
    simulation = simulate(Snapshot(reading_with(*objects).stock, ()), Decider())
    assert recorded.fragmentation == simulation.totals.fragmentation == 0.2  # 30 of 150 free GiB


@pytest.mark.parametrize(("seconds", "count"), [((0, 10, 59), 1), ((0, 60, 119, 120), 3), ((0, -5, 61), 2)])
def test_readings_within_a_minute_are_one_sample(seconds, count):
    history = Samples()
    for second in seconds:
        history.add(sample(second, *fleet(1, 1)))
    assert len(history.samples()) == count


def test_samples_older_than_a_day_are_deleted():
    history, first = Samples(), sample(0, *fleet(1, 1))
    for i in range(24 * 60 + 100):
        time = (BEGIN + timedelta(minutes=i)).strftime("%Y-%m-%dT%H:%M:%SZ")
        history.add(msgspec.structs.replace(first, at=time))
    assert (len(history.samples()), history.samples()[0].at) == (24 * 60, "2026-11-20T09:40:00Z")


async def test_the_history_page_draws_the_samples_of_its_json():
    recent = datetime.now(UTC) - timedelta(hours=1)
    dashboard = Dashboard(source_of(*full_fleet()))
    async with dashboard.open("127.0.0.1", 0) as url, aiohttp.ClientSession(url) as session:
        dashboard._history.add(sample(0, *partly_used_fleet(), begin=recent))
        dashboard._history.add(sample(600, *full_fleet(), begin=recent))
        page = await text_of(session, "/history")
        samples = json.loads(await text_of(session, "/api/v1/history"))["samples"]
    assert "Devices in use: from 1 to 4, at least 1 and at most 4" in page
    assert 'd="M0.0,90.0H' in page
    assert 'V0.0H1000.0V0.0"' in page
    assert "Pods waiting: from 1 to 0" in page
    assert [point["waiting"] for point in samples] == [1, 0, 0]  # the last sample is the reading for the page
    async with dashboard_session(source_of(*full_fleet())) as session:
        assert "A line needs two readings" in await text_of(session, "/history")


async def test_a_tenant_does_not_see_the_number_of_waiting_pods():
    recent = datetime.now(UTC) - timedelta(hours=1)
    dashboard = Dashboard(source_of(*two_tenants()), login=Login(ReviewServer()))
    async with dashboard.open("127.0.0.1", 0) as url, aiohttp.ClientSession(url) as session:
        for seconds in (0, 60):
            dashboard._history.add(sample(seconds, *two_tenants(), begin=recent))
        for user, sees_pods in (("mine", False), ("all", True)):
            text = await read_as(user, session, "/history")
            assert ("Pods waiting" in text) == sees_pods
            assert "Devices in use: from 2 to 2" in text
            samples = json.loads(await read_as(user, session, "/api/v1/history"))["samples"]
            assert {point["waiting"] is not None for point in samples} == {sees_pods}
        await text_of(session, "/api/v1/history", 401)


async def test_a_live_source_is_read_again_even_without_requests():
    readings = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def read():
        loop.call_soon_threadsafe(readings.put_nowait, None)
        return reading_with(*fleet(1, 1))

    source = ReadingSource("a test", read, is_live=True)
    async with dashboard_session(source, fresh=0.01, again=0.05):
        async with asyncio.timeout(60):
            for _ in range(3):
                await readings.get()


SLICES_RESOURCE = "resourceslices.resource.k8s.io"


@pytest.mark.parametrize(
    ("unread_kinds", "device_counts"), [(("", SLICES_RESOURCE, ""), {4}), ((SLICES_RESOURCE, SLICES_RESOURCE), {0})]
)
async def test_an_incomplete_reading_is_sampled_only_before_a_complete_one(unread_kinds, device_counts):
    def reading_without(kind):
        objects = [obj for obj in full_fleet() if obj["kind"] != "ResourceSlice" or not kind]
        return reading_of(objects, Features(), unread=[Unread(kind, "forbidden")] if kind else ())

    readings = [reading_without(kind) for kind in unread_kinds]
    source = ReadingSource("a test", lambda: readings.pop(0) if readings[1:] else readings[0], is_live=True)
    dashboard = Dashboard(source, fresh=0.0)
    dashboard._history = Samples(apart=0.0)
    async with dashboard.open("127.0.0.1", 0):
        for _ in range(len(unread_kinds) + 1):
            await dashboard.view()
            await dashboard._reading
    assert {sum(recorded.devices.values()) for recorded in dashboard._history.samples()} == device_counts


async def test_a_blocked_card_counts_as_used_and_an_unknown_one_does_not():
    """A card is blocked if a device of another card uses its hardware."""
    first = sample(0, *full_fleet())
    counts = {"free": 1, "held": 1, "blocked": 2, "unknown": 1, "shared": 1, "plugin": 4}
    assert in_use(counts) == 8
    samples = [Sample(at=first.at, devices=counts, nodes=1, idle_nodes=0, waiting=0)] * 2
    assert "Devices in use: 8 of 10" in "".join(page_of(samples, ""))


def test_after_the_clock_moves_back_later_samples_are_replaced():
    history = Samples()
    for seconds in (0, 600, 1200, 300, 400):
        history.add(sample(seconds, *fleet(1, 1)))
    assert [recorded.at[-9:] for recorded in history.samples()] == ["08:00:00Z", "08:05:00Z", "08:06:40Z"]
