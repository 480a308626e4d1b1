"""The connections of the dashboard are limited, in total and per address, and have deadlines."""

import asyncio
from contextlib import asynccontextmanager

import aiohttp
import pytest

from dashboard import Dashboard, Login, PictureSource, server
from tests.cli.explain.scenes import fleet
from tests.dashboard.test_dashboard import scene
from tests.dashboard.test_login import Server, bearing
from tests.limits import PATIENCE
from tests.waiting import until


@asynccontextmanager
async def served(monkeypatch, login=None, **limits):
    """The dashboard with these limits; its host and port."""
    monkeypatch.setattr(server, "LIMITS", server.LIMITS._replace(**limits))
    source = PictureSource("a test", lambda: scene(*fleet()), lives=True)
    async with Dashboard(source, login=login, fresh=0.1).open("127.0.0.1", 0) as url:
        host, _, port = url.removeprefix("http://").partition(":")
        yield host, int(port)


async def silent(where, source="127.0.0.1"):
    reader, writer = await asyncio.open_connection(*where, local_addr=(source, 0))
    return reader, writer


def closed(peers):
    """Return how many of these connections the server has closed."""
    return sum(reader.at_eof() or reader.exception() is not None for reader, _ in peers)


async def page_of(where, **options):
    async with aiohttp.ClientSession() as session, session.get(f"http://{where[0]}:{where[1]}/", **options) as answer:
        return answer.status


@pytest.mark.parametrize(
    ("limits", "sources"),
    [
        ({"peer": 8}, ["127.0.0.1"]),
        pytest.param({"connections": 8}, ["127.0.0.1", "127.0.0.2"], marks=pytest.mark.linux("127.0.0.2 is an address of the loopback")),
    ],
)  # fmt: skip
async def test_silent_connections_are_limited_and_do_not_lock_viewers_out(monkeypatch, limits, sources):
    async with asyncio.timeout(PATIENCE), served(monkeypatch, **limits) as where:
        peers = [await silent(where, sources[i % len(sources)]) for i in range(60)]
        assert await page_of(where) == 200
        await until(lambda: closed(peers) >= 60 - 8)
        for _, writer in peers:
            writer.close()


@pytest.mark.parametrize(
    ("limits", "sent", "answer"),
    [
        ({"quiet": 0.1}, b"", b""),
        ({"head": 0.1}, b"GET / HTTP/1.1\r\nHost: 127", b"HTTP/1.1 408"),
        (
            {"deadline": 0.1},
            b"POST /what-if HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\nremove",
            b"HTTP/1.1 408",
        ),
    ],
)
async def test_a_slow_request_is_closed(monkeypatch, limits, sent, answer):
    async with asyncio.timeout(PATIENCE), served(monkeypatch, **limits) as where:
        reader, writer = await silent(where)
        writer.write(sent)
        assert (await reader.readline())[: len(answer) or None] == answer
        writer.close()
        assert await page_of(where) == 200


async def test_a_listener_is_not_closed_to_make_room(monkeypatch):
    async with (
        asyncio.timeout(PATIENCE),
        served(monkeypatch, connections=4) as where,
        aiohttp.ClientSession() as session,
        session.get(f"http://{where[0]}:{where[1]}/events") as answer,
    ):
        assert await answer.content.readline() == b"retry: 5000\n"
        peers = [await silent(where) for _ in range(20)]
        await until(lambda: closed(peers) >= 16)
        for _ in range(3):
            while not (await answer.content.readline()).startswith((b"data: ", b":")):
                pass
        for _, writer in peers:
            writer.close()


async def test_new_tokens_of_one_address_wait_sixteen_at_a_time(monkeypatch):
    """A token that was accepted before does not wait behind new tokens."""
    reviewed, answers = [], asyncio.Event()

    class Slow(Server):
        async def create(self, resource, obj):
            token = obj["spec"].get("token", "")
            if token.startswith("token-guess"):
                reviewed.append(token)
                await answers.wait()
            return await super().create(resource, obj)

    async with asyncio.timeout(PATIENCE), served(monkeypatch, login=Login(Slow())) as where:
        assert await page_of(where, headers=bearing("all")) == 200
        guesses = [asyncio.create_task(page_of(where, headers=bearing(f"guess{i}"))) for i in range(40)]
        await until(lambda: sum(guess.done() for guess in guesses) >= 24)
        assert [guess.result() for guess in guesses if guess.done()] == [429] * 24
        assert await page_of(where, headers=bearing("all")) == 200
        answers.set()
        assert len(await asyncio.gather(*guesses)) == 40
