"""Waiting for what has no event of its own."""

import asyncio
import inspect

from tests.limits import PATIENCE


async def until(check, seconds=PATIENCE):
    """Wait until a check, which may be a coroutine function, is true; fail after so many seconds."""
    async with asyncio.timeout(seconds):
        while not (await found if inspect.isawaitable(found := check()) else found):  # noqa: ASYNC110  it has no event
            await asyncio.sleep(0.005)
