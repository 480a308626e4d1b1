"""One piece of work at a time. Accounts take turns."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Crowded(Exception):  # noqa: N818  names the outcome
    """Too much work of an account waits for its turn."""


class Turns:
    """Each account has at most one piece of work in the queue of all accounts."""

    def __init__(self, max_waiting: int) -> None:
        """At most `max_waiting` pieces of an account wait behind its first one."""
        self._max_waiting = max_waiting
        self._queue = asyncio.Lock()
        self._queues: dict[str, asyncio.Lock] = {}  # by account
        self._unfinished: Counter[str] = Counter()

    @asynccontextmanager
    async def turn(self, account: str) -> AsyncIterator[None]:
        """Wait for a turn of this account. Raises Crowded."""
        if self._unfinished[account] > self._max_waiting:
            raise Crowded
        self._unfinished[account] += 1
        try:
            async with self._queues.setdefault(account, asyncio.Lock()), self._queue:
                yield
        finally:
            self._unfinished[account] -= 1
            if not self._unfinished[account]:
                del self._unfinished[account], self._queues[account]
