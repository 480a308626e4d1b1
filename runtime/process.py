"""A long-running process: its work goes on side by side until it is told to stop, then it drains and ends."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

logger = logging.getLogger("drawbridge.process")


async def run_until(
    stop: asyncio.Event, *works: Coroutine[Any, Any, object], drain: Callable[[], Awaitable[None]] | None = None
) -> None:
    """Do all works until `stop` is set, drain while they go on, then cancel them; an error in one ends all."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one) for one in works]
        await stop.wait()
        logger.info("stopping")
        if drain is not None:
            await drain()
        for task in tasks:
            task.cancel()
