"""Connections to the webhook's server: shutdown, malformed requests and unsupported protocols."""

import asyncio

import aiohttp
import pytest

from tests.limits import PATIENCE
from tests.waiting import until
from tests.webhook.service.serving import HEAD, JSON, REVIEW, connections_with


async def test_plain_http_gets_no_answer(running):
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientError):
            await session.get(f"http://127.0.0.1:{running.port}/livez")


async def test_a_draining_webhook_is_unready_and_still_answers(running):
    drain = asyncio.create_task(running.app.drain(notice=3600, grace=2))
    await asyncio.sleep(0)
    assert (await running.get("/readyz"))[0] == 503
    for _ in range(5):
        async with running.session.post(f"{running.url}/mutate", data=REVIEW, headers=JSON) as response:
            assert response.status == 200
            assert response.headers["Connection"] == "close"
    assert not drain.done()
    drain.cancel()
    await asyncio.wait([drain])
    await running.app.drain(notice=0.01, grace=2)
    with pytest.raises(aiohttp.ClientConnectorError):
        await running.post()


async def test_an_open_review_is_answered_after_the_listener_closes(running):
    head = HEAD.replace(b"99", str(len(REVIEW)).encode())
    ((reader, writer),) = await connections_with(running, 1, head + REVIEW[:9])
    await until(lambda: [connection.is_waiting for connection in running.app._listener.connections] == [False])
    drain = asyncio.create_task(running.app.drain(notice=0, grace=5))
    await until(lambda: not running.app._listener.is_open)
    writer.write(REVIEW[9:])
    assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    writer.close()
    await drain


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x00" * 500,
        b"POST /mutate HTTP/9.9\r\n\r\n",
        b"GET " + b"x" * 20_000 + b" HTTP/1.1\r\n\r\n",
        b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: -1\r\n\r\n",
        b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST /mutate HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 1000 + b"\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
    ids=["zeros", "version", "long line", "negative length", "bad chunk", "many headers", "HTTP/2"],
)
async def test_garbage_on_one_connection_does_not_affect_other_connections(running, garbage, caplog):
    reader, writer = await running.connect()
    writer.write(garbage)
    async with asyncio.timeout(PATIENCE):
        answer = await reader.read(200)
    assert answer == b"" or answer.startswith(b"HTTP/1.")
    writer.close()
    assert (await running.post())[0] == 200


async def test_an_aborted_connection_leaves_nothing_behind(running):
    for _, writer in await connections_with(running, 3, HEAD + b"{"):
        writer.transport.abort()
    await until(lambda: not running.app._listener.connections and running.app._listener._body_bytes == 0)
    assert (await running.post())[0] == 200


async def test_a_client_that_pipelines_requests_gets_each_answer(running):
    head = HEAD.replace(b"99", str(len(REVIEW)).encode())
    ((reader, _),) = await connections_with(running, 1, (head + REVIEW) * 50)
    async with asyncio.timeout(PATIENCE):
        for _ in range(50):
            await reader.readuntil(b"HTTP/1.1 200")
    await until(lambda: running.decider.decisions["mutate"] == 50)


@pytest.mark.parametrize(
    "headers",
    [
        b"Content-Length: 5\r\nContent-Length: 6\r\n",
        b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        b"Content-Length: +5\r\n",
        b"Content-Length: 5, 5\r\n",
        b"Content-Length: 0x5\r\n",
        b"Content-Length : 5\r\n",
        b"Content-Length: 99999999999999999999999999\r\n",
        b"Transfer-Encoding: identity, chunked\r\n",
        b"Transfer-Encoding:\x0bchunked\r\n",
        b"X: a\r\n b\r\nContent-Length: 5\r\n Content-Length: 6\r\n",
        b"X: " + b"x" * 20_000 + b"\r\n",
        b"X" * 20_000 + b": x\r\n",
        b"Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABk\r\nContent-Length: 0\r\n",
        b"Host: y\r\n",
    ],
)
async def test_an_ambiguous_or_excessive_request_is_refused_and_disconnected(running, headers):
    data = b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" + headers + b"\r\nhello"
    ((reader, writer),) = await connections_with(running, 1, data + b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
    async with asyncio.timeout(PATIENCE):
        answer = await reader.read()
    assert answer.split()[1].startswith(b"4"), answer
    assert answer.count(b"\r\nDate: ") == 1, "the request behind the refused one was answered too"
    assert running.decider.decisions.total() == 0
    writer.close()


async def test_http_2_is_not_offered(running):
    context = running.tls
    context.set_alpn_protocols(["h2", "http/1.1"])
    _, writer = await running.connect()
    assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"
    writer.close()
