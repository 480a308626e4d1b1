"""Open pages get each new reading. A page of an account without rights gets nothing, and listeners do not delay the end."""

import asyncio
import time
from contextlib import asynccontextmanager

import aiohttp
import pytest

from cli.contract import CommandFailed
from dashboard import Dashboard, Login, PictureSource, live
from tests.cli.explain.scenes import fleet
from tests.dashboard.test_dashboard import scene
from tests.dashboard.test_login import Server, bearing


@asynccontextmanager
async def served(read=lambda: scene(*fleet()), *, fresh=1.0, **options):
    source = PictureSource("a test", read, lives=True)
    async with Dashboard(source, fresh=fresh, **options).open("127.0.0.1", 0) as url, aiohttp.ClientSession(url) as it:
        yield it


async def heard(answer):
    """The next event; comments only keep the connection."""
    async for line in answer.content:
        if line.startswith(b"data: "):
            return line.decode().removeprefix("data: ").strip()
    return None


async def test_a_page_says_which_reading_it_shows_and_learns_of_the_next():
    async with served() as session, session.get("/events") as answer:
        assert (answer.status, answer.content_type) == (200, "text/event-stream")
        assert answer.headers["Cache-Control"] == "no-store"
        first = await heard(answer)
        async with session.get("/") as page:
            assert f'data-reading="{first}"' in await page.text()
        second = await heard(answer)
        assert second > first


async def test_a_listener_hears_that_what_a_page_shows_is_old():
    readings = []

    def read():
        readings.append(None)
        if len(readings) > 1:
            raise CommandFailed("away", "wait")
        return scene(*fleet())

    async with served(read) as session, session.get("/events") as answer:
        first = await heard(answer)
        assert await heard(answer) == f"{first} old"


async def test_a_slow_source_is_read_less_often_while_clients_listen():
    begun = []

    def read():
        begun.append(time.monotonic())
        time.sleep(0.3)
        return scene(*fleet())

    async with served(read, fresh=0.1) as session, session.get("/events") as answer:
        await heard(answer)
        while len(begun) < 3:
            await heard(answer)
    assert begun[2] - begun[1] > 1.5  # a fifth of the time


async def test_a_source_is_not_read_while_no_client_listens():
    count = []
    async with served(lambda: count.append(None) or scene(*fleet()), fresh=0.1) as session:
        async with session.get("/events") as answer:
            await heard(answer)
        await asyncio.sleep(0.5)
        seen = len(count)
        await asyncio.sleep(1)
        assert len(count) == seen


async def test_without_a_login_that_counts_nothing_is_heard():
    async with served(login=Login(Server())) as session:
        async with session.get("/events") as answer:
            assert answer.status == 401
        async with session.get("/events", headers=bearing("mine")) as answer:
            assert answer.status == 200
            assert await heard(answer)


async def test_a_listener_has_to_show_its_token_again_after_a_while():
    async with served(fresh=0.1, listening=0.5) as session, session.get("/events") as answer:
        assert await heard(answer)
        async with asyncio.timeout(60):
            while await heard(answer) is not None:
                pass


async def test_listeners_are_bounded_and_make_room_when_they_go(monkeypatch):
    monkeypatch.setattr(live, "MOST_LISTENERS", 2)
    async with served(fresh=0.1) as session:
        async with session.get("/events") as first, session.get("/events") as two, session.get("/events") as three:
            assert (first.status, two.status, three.status) == (200, 200, 503)
            assert await heard(two)

        async def there_is_room():
            async with session.get("/events") as answer:
                return answer.status == 200

        async with asyncio.timeout(60):
            while not await there_is_room():  # noqa: ASYNC110
                await asyncio.sleep(0.1)


@pytest.mark.parametrize("headers", [{"Origin": "https://example.com"}, {"Host": "rebound.example.com"}])
async def test_another_site_hears_nothing(headers):
    async with served() as session, session.get("/events", headers=headers) as answer:
        assert answer.status == 403


async def test_listeners_do_not_hold_up_the_end():
    source = PictureSource("a test", lambda: scene(*fleet()), lives=True)
    async with aiohttp.ClientSession() as session:
        async with Dashboard(source).open("127.0.0.1", 0) as url:
            answers = [await session.get(f"{url}/events") for _ in range(3)]
            assert all([await heard(answer) for answer in answers])
            begun = time.monotonic()
        assert time.monotonic() - begun < 5
        assert [await heard(answer) for answer in answers] == [None] * 3
