"""Limits of the webhook's server: large bodies and incomplete requests. `tests/serving/http` tests the limits of connections."""

import asyncio
from contextlib import suppress

import pytest

from serving.http import Limits
from tests.limits import PATIENCE
from tests.waiting import until
from tests.webhook.service.serving import connections_with


@pytest.mark.parametrize("running", [Limits(body=1000)], indirect=True)
async def test_a_body_beyond_the_limit_is_not_read(running):
    assert (await running.post(b"x" * 1001))[0] == 413
    assert (await running.post())[0] == 200


@pytest.mark.parametrize("running", [Limits(quiet=0.5, idle=0.5, handshake=0.5)], indirect=True)
async def test_silent_connections_are_closed_before_and_after_the_handshake(running):
    without_tls, writer = await asyncio.open_connection("127.0.0.1", running.port)
    running.writers.append(writer)
    ((quiet, _),) = await connections_with(running, 1, b"")
    async with asyncio.timeout(PATIENCE):
        for reader in (without_tls, quiet):
            with suppress(ConnectionError):
                await reader.read()
    await until(lambda: not running.app._listener.connections)
    assert (
        running.metrics.registry.get_sample_value("drawbridge_closed_connections_total", {"reason": "handshake"}) == 1
    )
