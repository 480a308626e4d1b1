"""Watches of an API server that is slow, truncates its answer or does not end."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from cluster.errors import Gone, Throttled, Unavailable
from cluster.kubernetes.client import Kubernetes
from cluster.resources import CONFIG_MAPS, RESOURCE_CLAIMS
from runtime.informers.backoff import Backoff
from runtime.informers.informer import Informer
from tests.cluster.kubernetes.server import connected, event, failure, versioned, watched
from tests.cluster.peer import kubeconfig
from tests.limits import PATIENCE
from tests.webhook import tls


async def test_a_throttling_server_refuses_a_watch_at_once(tmp_path):
    async def answer(exchange):
        await exchange.reply("429 Too Many Requests", b"", Retry_After="2")

    async with connected(answer, tmp_path) as (reached, _):
        seen, error = await watched(reached)
    assert seen == []
    assert isinstance(error, Throttled)


async def test_a_watch_survives_any_cutting_into_chunks(tmp_path):
    data = event("ADDED", versioned("a", 1)) + event("MODIFIED", versioned("ü", 2))

    async def answer(exchange):
        await exchange.begin()
        for start in range(0, len(data), 7):
            await exchange.chunk(data[start : start + 7])
        await exchange.end()

    async with connected(answer, tmp_path) as (reached, _):
        assert await watched(reached) == (["1", "2"], None)


async def test_a_truncated_watch_yields_its_complete_events(tmp_path):
    heard = asyncio.Event()

    async def answer(exchange):
        await exchange.begin()
        await exchange.chunk(event("ADDED", versioned("a", 1)) + event("ADDED", versioned("b", 2))[:-10])
        await heard.wait()  # the library returns no more data once it has seen the end of the stream
        exchange.writer.close()

    async with connected(answer, tmp_path) as (reached, _):
        seen, error = await watched(reached, heard)
    assert seen == ["1"]
    assert isinstance(error, Unavailable)


async def test_an_expired_version_within_a_watch_is_gone(tmp_path):
    async def answer(exchange):
        await exchange.begin()
        body = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version: 1 (99)"}
        await exchange.chunk(event("ADDED", versioned("a", 1)) + event("ERROR", body))
        await exchange.end()

    async with connected(answer, tmp_path) as (reached, _):
        seen, error = await watched(reached)
    assert seen == ["1"]
    assert isinstance(error, Gone)


async def test_a_dead_peer_is_noticed(tmp_path):
    async def answer(exchange):
        await exchange.begin()
        await exchange.chunk(event("ADDED", versioned("a", 1)))
        await asyncio.sleep(30)

    async with connected(answer, tmp_path, idle=2) as (reached, _):
        seen, error = await watched(reached)
    assert seen == ["1"]
    assert isinstance(error, Unavailable)
    assert "did not answer in time" in str(error)


async def test_a_slow_peer_is_waited_for(tmp_path):
    data = event("ADDED", versioned("a", 1))

    async def answer(exchange):
        await exchange.begin()
        size = len(data) // 50
        for start in range(0, len(data), size):  # longer than `idle` in total, and each pause is far shorter
            await exchange.chunk(data[start : start + size])
            await asyncio.sleep(0.15)
        await exchange.end()

    async with connected(answer, tmp_path, idle=6) as (reached, _):
        assert await watched(reached) == (["1"], None)


async def test_a_watch_that_is_not_read_holds_the_peer_back(tmp_path):
    """Unread bytes stay at the server, so the client's memory is bounded."""
    data, sent, much = event("ADDED", versioned("a", 1)) * 200, 0, 64 << 20

    async def answer(exchange):
        nonlocal sent
        await exchange.begin()
        while sent < much:
            await exchange.chunk(data)
            sent += len(data)

    async with (
        connected(answer, tmp_path) as (reached, _),
        reached.watch(RESOURCE_CLAIMS, resource_version="1") as events,
    ):
        await anext(events)
        for _ in range(5000):  # enough turns for a peer without back pressure to send everything
            await asyncio.sleep(0)
        held = sent
        assert held < much // 2
        while sent == held:  # the peer sends more once the client reads
            await anext(events)


async def test_a_watch_that_is_left_ends_at_the_peer_too(tmp_path):
    left = asyncio.Event()

    async def answer(exchange):
        await exchange.begin()
        try:
            while True:
                await exchange.chunk(event("ADDED", versioned("a", 1)))
                await asyncio.sleep(0.01)
        except ConnectionError:
            left.set()
            raise

    async with connected(answer, tmp_path) as (reached, _):
        async with reached.watch(RESOURCE_CLAIMS, resource_version="1") as events:
            await anext(events)
        await asyncio.wait_for(left.wait(), PATIENCE)


async def test_an_error_of_the_reader_is_no_connection_error(tmp_path):
    async def answer(exchange):
        await exchange.begin()
        await exchange.chunk(event("ADDED", versioned("a", 1)))

    async with connected(answer, tmp_path) as (reached, _):
        with pytest.raises(TimeoutError, match="mine"):  # noqa: PT012  the watch is what raises must pass through
            async with reached.watch(RESOURCE_CLAIMS, resource_version="1") as events:
                await anext(events)
                raise TimeoutError("mine")


async def test_an_informer_survives_every_server_failure(tmp_path):
    watches = 0
    items = [versioned("a", 1), versioned("b", 2)]

    async def answer(exchange):
        nonlocal watches
        if "watch=1" not in exchange.request:
            listing = {"metadata": {"resourceVersion": "5"}, "items": items}
            await exchange.reply(body=msgspec.json.encode(listing))
            return
        watches += 1
        match watches:
            case 1:
                await exchange.reply("422 Unprocessable Entity", failure(422, "Invalid"))
            case 2:
                await exchange.reply("503 Service Unavailable", b"")
            case 3:
                exchange.hang_up()
            case 4:
                await exchange.begin()
                await exchange.chunk(event("MODIFIED", versioned("a", 6)) + b'{"type":"ADD')
                exchange.writer.close()
            case 5:
                await exchange.reply("429 Too Many Requests", b"", Retry_After="0")
            case 6:
                await exchange.begin()
                await exchange.chunk(event("ERROR", {"code": 410, "reason": "Expired", "message": "too old"}))
                await exchange.end()
            case _:
                await exchange.begin()
                await exchange.chunk(event("DELETED", versioned("b", 7)))
                await asyncio.sleep(30)

    async with connected(answer, tmp_path) as (reached, made):
        informer = Informer(reached, RESOURCE_CLAIMS, backoff=Backoff(least=0.001, most=0.01))
        task = asyncio.ensure_future(informer.run())
        while watches < 7 or len(informer.objects) != 1:
            assert not task.done()
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert informer.reads == 2
    versions = [
        exchange.request.partition("resourceVersion=")[2].partition("&")[0].split(" ")[0] for exchange in made.exchanges
    ]
    assert versions[-1] == "5"


@pytest.mark.linux("reads /proc")
async def test_leaving_a_watch_always_closes_its_connection(tmp_path):
    """The orderly end of TLS waits for an answer of the peer, and this peer never sends it."""
    _, leaf = tls.authority_and_leaf()
    begun, ended = asyncio.Event(), asyncio.Event()

    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        writer.transport.pause_reading()
        begun.set()
        await ended.wait()
        writer.transport.abort()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=tls.server(leaf))
    address = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    path = tmp_path / "kubeconfig"
    path.write_text(kubeconfig(address).replace("server:", "insecure-skip-tls-verify: true\n    server:"))
    reached = Kubernetes.connect(kubeconfig=str(path))
    async with asyncio.timeout(PATIENCE), server:
        async with reached.watch(CONFIG_MAPS, resource_version="1", timeout=60) as events:
            reading = asyncio.ensure_future(anext(aiter(events)))
            await begun.wait()
            held = open_sockets()
            reading.cancel()
            await asyncio.wait([reading])
        await reached.close()
        await turns()
        still = open_sockets()
        ended.set()
        await turns()
    assert still == held - 1


async def turns():
    for _ in range(5):
        await asyncio.sleep(0)


def open_sockets():
    return sum(
        str(path.readlink()).startswith("socket:") for path in Path("/proc/self/fd").iterdir() if path.is_symlink()
    )
