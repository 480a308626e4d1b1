"""Shares the CPU among viewers: expensive work runs one after another, and accounts take turns."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, TypeVar

from runtime.http import Refused

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

T = TypeVar("T")
MAX_WAITING = 2  # questions of an account that wait behind its first one


class Turns:
    """One question at a time. Each account has at most one question in the queue of all accounts."""

    def __init__(self) -> None:
        self._queue = asyncio.Lock()
        self._queues: dict[str, asyncio.Lock] = {}  # by account
        self._unanswered: Counter[str] = Counter()

    @asynccontextmanager
    async def turn(self, account: str) -> AsyncIterator[None]:
        """Wait until a question of this account can be answered. Raises Refused if too many of them wait."""
        if self._unanswered[account] > MAX_WAITING:
            raise Refused(HTTPStatus.TOO_MANY_REQUESTS, ("Retry-After", "5"))
        self._unanswered[account] += 1
        try:
            async with self._queues.setdefault(account, asyncio.Lock()), self._queue:
                yield
        finally:
            self._unanswered[account] -= 1
            if not self._unanswered[account]:
                del self._unanswered[account], self._queues[account]


async def finish_in_thread(function: Callable[..., T], *arguments: object) -> T:
    """Run a function in a thread. If the caller is cancelled, wait for the end of the thread, so that the caller's locks stay locked until then."""
    work = asyncio.ensure_future(asyncio.to_thread(function, *arguments))
    try:
        return await asyncio.shield(work)
    finally:
        await asyncio.wait([work])
