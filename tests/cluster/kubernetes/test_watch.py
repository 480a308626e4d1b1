"""Watches of an API server that is slow, truncates its answer or never ends it."""

import asyncio
import sys
from pathlib import Path

import msgspec
import pytest

from cluster.errors import Unavailable
from cluster.informers.backoff import Backoff
from cluster.informers.informer import Informer
from cluster.kubernetes.client import Kubernetes
from cluster.resources import CONFIG_MAPS, RESOURCE_CLAIMS
from tests.cluster.kubernetes.server import claim_of_version, connected, encoded_event, encoded_failure, follow_watch
from tests.cluster.peer import kubeconfig
from tests.limits import PATIENCE
from tests.webhook import tls


async def test_a_watch_ends_if_the_server_stays_silent(tmp_path):
    async def answer(exchange):
        await exchange.begin()
        await exchange.chunk(encoded_event("ADDED", claim_of_version("a", 1)))
        await asyncio.sleep(30)

    async with connected(answer, tmp_path, idle=2) as (client, _):
        versions, error = await follow_watch(client)
    assert versions == ["1"]
    assert isinstance(error, Unavailable)
    assert "did not answer in time" in str(error)


async def test_a_watch_waits_for_a_slow_server(tmp_path):
    data = encoded_event("ADDED", claim_of_version("a", 1))

    async def answer(exchange):
        await exchange.begin()
        size = len(data) // 50
        for start in range(0, len(data), size):  # longer than `idle` in total, and each pause is far shorter
            await exchange.chunk(data[start : start + size])
            await asyncio.sleep(0.15)
        await exchange.end()

    async with connected(answer, tmp_path, idle=6) as (client, _):
        assert await follow_watch(client) == (["1"], None)


async def test_the_server_of_an_unread_watch_cannot_send_everything(tmp_path):
    """Unread bytes stay at the server, so the client's memory is bounded."""
    data, sent, limit = encoded_event("ADDED", claim_of_version("a", 1)) * 200, 0, 64 << 20

    async def answer(exchange):
        nonlocal sent
        await exchange.begin()
        while sent < limit:
            await exchange.chunk(data)
            sent += len(data)

    async with (
        connected(answer, tmp_path) as (client, _),
        client.watch(RESOURCE_CLAIMS, resource_version="1") as events,
    ):
        await anext(events)
        for _ in range(5000):  # enough turns for a peer without back pressure to send everything
            await asyncio.sleep(0)
        sent_before_reading = sent
        assert sent_before_reading < limit // 2
        while sent == sent_before_reading:  # the peer sends more once the client reads
            await anext(events)


async def test_leaving_a_watch_ends_its_connection_at_the_server(tmp_path):
    connection_lost = asyncio.Event()

    async def answer(exchange):
        await exchange.begin()
        try:
            while True:
                await exchange.chunk(encoded_event("ADDED", claim_of_version("a", 1)))
                await asyncio.sleep(0.01)
        except ConnectionError:
            connection_lost.set()
            raise

    async with connected(answer, tmp_path) as (client, _):
        async with client.watch(RESOURCE_CLAIMS, resource_version="1") as events:
            await anext(events)
        await asyncio.wait_for(connection_lost.wait(), PATIENCE)


async def test_an_error_raised_inside_a_watch_passes_through(tmp_path):
    async def answer(exchange):
        await exchange.begin()
        await exchange.chunk(encoded_event("ADDED", claim_of_version("a", 1)))

    async with connected(answer, tmp_path) as (client, _):
        with pytest.raises(TimeoutError, match="mine"):  # noqa: PT012  the error has to pass through the watch
            async with client.watch(RESOURCE_CLAIMS, resource_version="1") as events:
                await anext(events)
                raise TimeoutError("mine")


async def test_an_informer_survives_every_server_failure(tmp_path):
    watches = 0
    items = [claim_of_version("a", 1), claim_of_version("b", 2)]

    async def answer(exchange):
        nonlocal watches
        if "watch=1" not in exchange.request:
            listing = {"metadata": {"resourceVersion": "5"}, "items": items}
            await exchange.reply(body=msgspec.json.encode(listing))
            return
        watches += 1
        match watches:
            case 1:
                await exchange.reply("422 Unprocessable Entity", encoded_failure(422, "Invalid"))
            case 2:
                await exchange.reply("503 Service Unavailable", b"")
            case 3:
                exchange.hang_up()
            case 4:
                await exchange.begin()
                await exchange.chunk(encoded_event("MODIFIED", claim_of_version("a", 6)) + b'{"type":"ADD')
                exchange.writer.close()
            case 5:
                await exchange.reply("429 Too Many Requests", b"", Retry_After="0")
            case 6:
                await exchange.begin()
                await exchange.chunk(encoded_event("ERROR", {"code": 410, "reason": "Expired", "message": "too old"}))
                await exchange.end()
            case _:
                await exchange.begin()
                await exchange.chunk(encoded_event("DELETED", claim_of_version("b", 7)))
                await asyncio.sleep(30)

    async with connected(answer, tmp_path) as (client, api_server):
        informer = Informer(client, RESOURCE_CLAIMS, backoff=Backoff(least=0.001, most=0.01))
        task = asyncio.ensure_future(informer.run())
        while watches < 7 or len(informer.objects) != 1:
            assert not task.done()
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert informer.full_list_count == 2
    versions = [
        exchange.request.partition("resourceVersion=")[2].partition("&")[0].split(" ")[0]
        for exchange in api_server.exchanges
    ]
    assert versions[-1] == "5"


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_leaving_a_watch_needs_no_answer_of_the_server(tmp_path):
    """TLS ends a connection in order only after an answer of the server, and this server never sends one."""
    _, certificate = tls.authority_and_leaf()
    request_received, watch_left = asyncio.Event(), asyncio.Event()

    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        writer.transport.pause_reading()
        request_received.set()
        await watch_left.wait()
        writer.transport.abort()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=tls.server(certificate))
    address = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    path = tmp_path / "kubeconfig"
    path.write_text(kubeconfig(address).replace("server:", "insecure-skip-tls-verify: true\n    server:"))
    client = Kubernetes.connect(kubeconfig=str(path))
    async with asyncio.timeout(PATIENCE), server:
        async with client.watch(CONFIG_MAPS, resource_version="1", timeout=60) as events:
            read_task = asyncio.ensure_future(anext(aiter(events)))
            await request_received.wait()
            sockets_during_watch = count_open_sockets()
            read_task.cancel()
            await asyncio.wait([read_task])
        await client.close()
        await yield_to_loop()
        sockets_after_watch = count_open_sockets()
        watch_left.set()
        await yield_to_loop()
    assert sockets_after_watch == sockets_during_watch - 1


async def yield_to_loop():
    for _ in range(5):
        await asyncio.sleep(0)


def count_open_sockets():
    return sum(
        str(path.readlink()).startswith("socket:") for path in Path("/proc/self/fd").iterdir() if path.is_symlink()
    )
