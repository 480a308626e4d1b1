"""A process reports its readiness, drains while it still works, and ends."""

import asyncio

import aiohttp
import pytest

from serving.http import Address
from serving.metrics import MetricsPort
from serving.process import run_until


async def test_a_stopping_process_is_not_ready_and_drains():
    metrics, stop, observations = MetricsPort(), asyncio.Event(), []
    metrics.checks["cluster"] = str  # returns "", which is no problem

    async def record_readiness():
        async with aiohttp.ClientSession() as session, session.get(f"http://{metrics.address}/readyz") as answer:
            observations.append((answer.status, await answer.text()))

    async def work():
        try:
            await record_readiness()
            stop.set()
            await asyncio.Event().wait()
        finally:
            observations.append("cancelled")

    async def drain():
        await record_readiness()

    await run_until(stop, work, metrics=metrics, at=Address(), drain=drain)
    assert observations == [
        (200, "[+]cluster ok\n"),
        (503, "[+]cluster ok\n[-]serving: shutting down\n"),
        "cancelled",
    ]


async def test_an_error_in_one_task_ends_the_process():
    metrics, addresses_at_end = MetricsPort(), []

    async def fail():
        await asyncio.sleep(0)
        raise OSError("taken")

    async def work():
        try:
            await asyncio.Event().wait()
        finally:
            addresses_at_end.append(metrics.address)

    with pytest.raises(ExceptionGroup) as raised:
        await run_until(asyncio.Event(), work, fail, metrics=metrics, at=Address())
    assert [str(exception) for exception in raised.value.exceptions] == ["taken"]
    [address] = addresses_at_end
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientConnectorError):
            await session.get(f"http://{address}/livez")
