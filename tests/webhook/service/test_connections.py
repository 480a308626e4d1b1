"""Connections to the webhook's server: shutdown, malformed requests and unsupported protocols."""

import asyncio

import aiohttp
import pytest

from tests.limits import PATIENCE
from tests.waiting import until
from tests.webhook.service.serving import HEAD, JSON, REVIEW, connections_with


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


async def test_http_2_is_not_offered(running):
    context = running.tls
    context.set_alpn_protocols(["h2", "http/1.1"])
    _, writer = await running.connect()
    assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"
    writer.close()
