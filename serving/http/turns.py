"""One piece of work at a time. The account that has used the least CPU recently has the next turn."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from math import exp2
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

HALF_LIFE = 10.0  # seconds after which CPU time counts half
MAX_ACCOUNTS = 1024  # accounts whose CPU time is remembered


class Crowded(Exception):  # noqa: N818  names the outcome
    """Too much work of an account waits for its turn."""


class Turns:
    """The turns of all accounts. An account that is not known has used no CPU."""

    def __init__(self, max_waiting: int, clock: Callable[[], float] = monotonic) -> None:
        """At most `max_waiting` pieces of an account wait behind its first one."""
        self._max_waiting = max_waiting
        self._clock = clock
        self._waiting: dict[asyncio.Future[None], str] = {}  # the accounts of waiting pieces, in order of arrival
        self._is_taken = False
        self._unfinished: Counter[str] = Counter()
        self._used: dict[str, tuple[float, float]] = {}  # CPU seconds, and the time of the last charge

    @asynccontextmanager
    async def turn(self, account: str) -> AsyncIterator[None]:
        """Wait for a turn of this account. Raises Crowded."""
        if self._unfinished[account] > self._max_waiting:
            raise Crowded
        self._unfinished[account] += 1
        turn = asyncio.get_running_loop().create_future()
        self._waiting[turn] = account
        self._begin_next()
        try:
            await turn
            yield
        finally:
            if self._waiting.pop(turn, None) is None:  # the turn has begun
                self._is_taken = False
                self._begin_next()
            self._unfinished[account] -= 1
            if not self._unfinished[account]:
                del self._unfinished[account]

    def charge(self, account: str, seconds: float) -> None:
        """Add CPU seconds that an account has used."""
        used = self._recently_used(account) + seconds
        self._used.pop(account, None)
        self._used[account] = used, self._clock()
        if len(self._used) > MAX_ACCOUNTS:
            del self._used[next(iter(self._used))]

    def _begin_next(self) -> None:
        waiting = [turn for turn in self._waiting if not turn.done()]  # not cancelled
        if waiting and not self._is_taken:
            self._is_taken = True
            turn = min(waiting, key=lambda turn: self._recently_used(self._waiting[turn]))
            del self._waiting[turn]
            turn.set_result(None)

    def _recently_used(self, account: str) -> float:
        seconds, since = self._used.get(account, (0.0, 0.0))
        return seconds * exp2((since - self._clock()) / HALF_LIFE)
