"""Places at the workers, and who waits for one: nobody's slow reviews take the workers from everybody else's.

A review that takes long has a worker for a second and a half, and large reviews have no other way to be decided. So accounts (for a
review its namespace) take turns, and one account never has all places: somebody else finds one that is free. When too many
wait, whoever wants most goes: the newcomer, or the last of those who stand there for the account that has most of them.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque

Queue = deque[asyncio.Future[None]]


class Crowded(Exception):  # noqa: N818  it is an answer, of a kind
    """Too many wait for a place."""


class Places:
    """A number of places, and a queue for each account."""

    def __init__(self, size: int, queue: int) -> None:
        """Beyond `queue` nobody begins to wait."""
        self._free = size
        self._most = max(1, size - 1)  # that one account has
        self._queue = queue
        self._held: Counter[str] = Counter()
        # Accounts stand here in the order of their turns.
        self._waiting: dict[str, Queue] = {}

    async def take(self, account: str) -> None:
        """Wait for a place; raise Crowded where there is none and too many wait."""
        if account not in self._waiting and self._may(account):
            self._grant(account)
            return
        self._make_room(account)
        future = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(account, deque()).append(future)
        try:
            await future
        except asyncio.CancelledError:
            if future.cancelled():
                self._forget(account, future)
            elif future.exception() is None:
                self.leave(account)  # it was given one, and nobody is there any more
            raise

    def leave(self, account: str) -> None:
        """Give a place back."""
        self._free += 1
        self._held[account] -= 1
        if not self._held[account]:
            del self._held[account]
        for other in tuple(self._waiting):
            if self._may(other):
                self._serve(other)

    def _serve(self, account: str) -> None:
        queue = self._waiting.pop(account)
        future = queue.popleft()
        if queue:
            self._waiting[account] = queue  # behind all others
        if not future.done():
            self._grant(account)
            future.set_result(None)
        elif queue:
            self._serve(account)  # who was first has gone at this very moment

    def _may(self, account: str) -> bool:
        return self._free > 0 and self._held[account] < self._most

    def _grant(self, account: str) -> None:
        self._free -= 1
        self._held[account] += 1

    def _make_room(self, account: str) -> None:
        if sum(map(len, self._waiting.values())) < self._queue:
            return
        most = max(self._waiting, key=lambda one: len(self._waiting[one]))
        theirs = self._waiting[most]
        mine = self._waiting.get(account, ())
        if len(mine) + 1 >= len(theirs):
            raise Crowded
        last = theirs.pop()
        if not last.done():
            last.set_exception(Crowded())

    def _forget(self, account: str, future: asyncio.Future[None]) -> None:
        queue = self._waiting.get(account, deque())
        if future in queue:
            queue.remove(future)
        if not queue:
            self._waiting.pop(account, None)
