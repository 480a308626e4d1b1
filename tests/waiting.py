"""Polls for conditions without an event."""

import asyncio
import inspect

from tests.limits import PATIENCE


async def until(check, seconds=PATIENCE):
    """Wait until a check, which may be a coroutine function, is true; fail after `seconds`."""
    async with asyncio.timeout(seconds):
        while not (await value if inspect.isawaitable(value := check()) else value):  # noqa: ASYNC110  it has no event
            await asyncio.sleep(0.005)
