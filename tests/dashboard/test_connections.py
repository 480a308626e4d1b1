"""The connections of the dashboard are limited, in total and per address, and have deadlines."""

import asyncio
import sys
from contextlib import asynccontextmanager, suppress

import aiohttp
import pytest

from dashboard import Dashboard, ReadingSource, server
from tests.cli.explain.scenes import fleet
from tests.dashboard.test_dashboard import reading_with
from tests.limits import PATIENCE
from tests.waiting import until


@asynccontextmanager
async def dashboard_address(monkeypatch, login=None, **limits):
    """Run a dashboard with these limits; yield its host and port."""
    monkeypatch.setattr(server, "LIMITS", server.LIMITS._replace(**limits))
    source = ReadingSource("a test", lambda: reading_with(*fleet()), is_live=True)
    async with Dashboard(source, login=login, fresh=0.1).open("127.0.0.1", 0) as url:
        host, _, port = url.removeprefix("http://").partition(":")
        yield host, int(port)


async def open_connection(address, local_host="127.0.0.1"):
    reader, writer = await asyncio.open_connection(*address, local_addr=(local_host, 0))
    return reader, writer


def count_closed(connections):
    """Return how many of these connections the server has closed."""
    return sum(reader.at_eof() or reader.exception() is not None for reader, _ in connections)


async def status_of_page(address, **options):
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{address[0]}:{address[1]}/", **options) as answer,
    ):
        return answer.status


@pytest.mark.parametrize(
    ("limits", "local_hosts"),
    [
        ({"peer": 8}, ["127.0.0.1"]),
        pytest.param({"connections": 8}, ["127.0.0.1", "127.0.0.2"], marks=pytest.mark.skipif(sys.platform != "linux", reason="127.0.0.2 is an address of the loopback")),
    ],
    ids=["per address", "in total"],
)  # fmt: skip
async def test_silent_connections_are_limited_and_do_not_lock_viewers_out(monkeypatch, limits, local_hosts):
    async with asyncio.timeout(PATIENCE), dashboard_address(monkeypatch, **limits) as address:
        connections = [await open_connection(address, local_hosts[i % len(local_hosts)]) for i in range(60)]
        assert await status_of_page(address) == 200
        await until(lambda: count_closed(connections) >= 60 - 8)
        for _, writer in connections:
            writer.close()


@pytest.mark.parametrize(
    ("limits", "request_bytes"),
    [
        ({"quiet": 0.1}, b""),
        ({"deadline": 0.1}, b"GET / HTTP/1.1\r\nHost: 127"),
        ({"deadline": 0.1}, b"POST /what-if HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\nremove"),
    ],
    ids=["no request", "unfinished header", "unfinished body"],
)
async def test_the_connection_of_a_slow_or_silent_client_is_closed(monkeypatch, limits, request_bytes):
    async with asyncio.timeout(PATIENCE), dashboard_address(monkeypatch, **limits) as address:
        reader, writer = await open_connection(address)
        writer.write(request_bytes)
        with suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()
