"""Open pages receive each new reading. A page without rights receives nothing, and connected clients do not delay shutdown."""

import asyncio
import time

import aiohttp
import pytest

from analysis.errors import Failed
from dashboard import Dashboard, Login, ReadingSource, live
from tests.cli.explain.scenes import fleet
from tests.dashboard.test_dashboard import dashboard_session, reading_with
from tests.dashboard.test_login import ReviewServer, bearer_header
from tests.waiting import until


def live_session(read=lambda: reading_with(*fleet()), *, fresh=1.0, **options):
    return dashboard_session(ReadingSource("a test", read, is_live=True), fresh=fresh, **options)


async def next_event(answer):
    """Return the next event, or None at the end of the stream. Comments, which only keep the connection open, are skipped."""
    async for line in answer.content:
        if line.startswith(b"data: "):
            return line.decode().removeprefix("data: ").strip()
    return None


async def test_a_page_names_its_reading_and_receives_the_next():
    async with live_session() as session, session.get("/events") as answer:
        assert (answer.status, answer.content_type) == (200, "text/event-stream")
        assert answer.headers["Cache-Control"] == "no-store"
        first = await next_event(answer)
        async with session.get("/") as page:
            assert f'data-reading="{first}"' in await page.text()
        second = await next_event(answer)
        assert second > first


async def test_a_client_receives_an_event_when_its_page_is_outdated():
    readings = []

    def read():
        readings.append(None)
        if len(readings) > 1:
            raise Failed("away", "wait")
        return reading_with(*fleet())

    async with live_session(read) as session, session.get("/events") as answer:
        first = await next_event(answer)
        assert await next_event(answer) == f"{first} old"


async def test_a_slow_source_is_read_less_often_while_clients_listen():
    starts = []

    def read():
        starts.append(time.monotonic())
        time.sleep(0.3)
        return reading_with(*fleet())

    async with live_session(read, fresh=0.1) as session, session.get("/events") as answer:
        await next_event(answer)
        while len(starts) < 3:
            await next_event(answer)
    assert starts[2] - starts[1] > 1.5  # a read of 0.3 s takes at most a fifth of the time


async def test_a_source_is_not_read_while_no_client_listens():
    readings = []
    async with live_session(lambda: readings.append(None) or reading_with(*fleet()), fresh=0.1) as session:
        async with session.get("/events") as answer:
            await next_event(answer)

        async def is_not_read_for_a_second():
            reading_count = len(readings)
            await asyncio.sleep(1)
            return len(readings) == reading_count

        await until(is_not_read_for_a_second)


async def test_events_require_a_valid_login():
    async with live_session(login=Login(ReviewServer())) as session:
        async with session.get("/events") as answer:
            assert answer.status == 401
        async with session.get("/events", headers=bearer_header("mine")) as answer:
            assert answer.status == 200
            assert await next_event(answer)


async def test_an_event_stream_ends_so_that_clients_authenticate_again():
    async with live_session(fresh=0.1, listening=0.5) as session, session.get("/events") as answer:
        assert await next_event(answer)
        async with asyncio.timeout(60):
            while await next_event(answer) is not None:
                pass


async def test_clients_are_limited_and_free_their_place_when_they_disconnect(monkeypatch):
    monkeypatch.setattr(live, "MAX_LISTENERS", 2)
    async with live_session(fresh=0.1) as session:
        async with session.get("/events") as first, session.get("/events") as second, session.get("/events") as third:
            assert (first.status, second.status, third.status) == (200, 200, 503)
            assert await next_event(second)

        async def is_accepted():
            async with session.get("/events") as answer:
                return answer.status == 200

        async with asyncio.timeout(60):
            while not await is_accepted():  # noqa: ASYNC110
                await asyncio.sleep(0.1)


@pytest.mark.parametrize("headers", [{"Origin": "https://example.com"}, {"Host": "rebound.example.com"}])
async def test_a_foreign_origin_or_host_receives_no_events(headers):
    async with live_session() as session, session.get("/events", headers=headers) as answer:
        assert answer.status == 403


async def test_connected_clients_do_not_delay_shutdown():
    source = ReadingSource("a test", lambda: reading_with(*fleet()), is_live=True)
    async with aiohttp.ClientSession() as session:
        async with Dashboard(source).open("127.0.0.1", 0) as url:
            answers = [await session.get(f"{url}/events") for _ in range(3)]
            assert all([await next_event(answer) for answer in answers])
        assert [await next_event(answer) for answer in answers] == [None] * 3
