"""A process reports its readiness, drains while it still works, and ends."""

import asyncio

import aiohttp
import pytest

from runtime.http import Address
from runtime.metrics import MetricsPort
from runtime.process import run_until


async def test_a_stopping_process_is_unready_and_drains():
    metrics, stop, seen = MetricsPort(), asyncio.Event(), []
    metrics.checks["cluster"] = str

    async def readiness():
        async with aiohttp.ClientSession() as session, session.get(f"http://{metrics.address}/readyz") as answer:
            seen.append((answer.status, await answer.text()))

    async def work():
        try:
            await readiness()
            stop.set()
            await asyncio.Event().wait()
        finally:
            seen.append("cancelled")

    async def drain():
        await readiness()

    await run_until(stop, work, metrics=metrics, at=Address(), drain=drain)
    assert seen == [
        (200, "[+]cluster ok\n"),
        (503, "[+]cluster ok\n[-]serving: shutting down\n"),
        "cancelled",
    ]


async def test_an_error_in_one_task_ends_the_process():
    metrics, ended = MetricsPort(), []

    async def fail():
        await asyncio.sleep(0)
        raise OSError("taken")

    async def work():
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(metrics.address)

    with pytest.raises(ExceptionGroup) as failed:
        await run_until(asyncio.Event(), work, fail, metrics=metrics, at=Address())
    assert [str(exception) for exception in failed.value.exceptions] == ["taken"]
    [address] = ended
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientConnectorError):
            await session.get(f"http://{address}/livez")
