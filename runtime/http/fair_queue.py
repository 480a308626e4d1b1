"""The queue of complete requests: in which order they are answered, and how many in one turn of the event loop.

All requests are answered in one event loop, so a slow request delays all others. Two kinds of turns alternate, and the loop serves its
connections between them:

    quick   answers requests that are expected to be cheap, until it has used QUICK_TURN_SECONDS of CPU time; the cheapest and the oldest
            request alternate
    slow    does one piece of work: a request that is expected to be expensive, or a part of an earlier request (`wait_turn`); accounts
            take turns

So a cheap request waits behind at most one slow piece, and slow work always progresses. A request that was expected to be cheap may turn out to
be expensive and end its quick turn at once. Every quick turn begins with the cheapest request, so the oldest one could wait forever. Therefore,
while quick turns end before they have answered the oldest request, every other slow turn answers this request instead of a slow piece.

Whether a request is cheap depends on its expected cost: the recent cost of its connection or of its account (for a review, the namespace),
whichever is smaller. The smaller cost counts, because several clients may use one account, and an API server sends reviews of all accounts on
one connection. So no client pays for other clients of its account, and no account for others on its connection. A single answer changes the
recent cost little, because any review may be slow once: after a cache was cleared, or when the garbage collector runs.

`make soak` measures how long an honest review waits among hostile ones. The limit is 100 ms of CPU, on a machine whose CPU clock is steady. In
two runs, an earlier form of this queue kept the limit (75 and 78 ms). A queue in order of arrival, with the same pauses for I/O,
exceeded it (144 and 189 ms).
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left, insort
from time import thread_time
from typing import TYPE_CHECKING, NamedTuple

from runtime.http.turns import Turns

if TYPE_CHECKING:
    from runtime.http.connection import PeerConnection
    from runtime.http.messages import Head

logger = logging.getLogger("drawbridge.listener")

QUICK_TURN_SECONDS = 0.01  # CPU seconds of a quick turn
# CPU seconds that a cheap request is expected to cost, at most. A client whose answers take 1.3 ms stays cheap after one slow answer.
CHEAP = 0.0028
UNKNOWN_COST = 0.0035  # CPU seconds expected of an unknown client; after three cheap answers it is cheap
LEARNING_RATE = 0.1  # weight of one answer in the recent cost
MAX_LEARNED = 0.015  # the most CPU seconds that one answer counts in the recent cost
MAX_ACCOUNTS = 1024  # accounts whose cost is remembered


class Queued(NamedTuple):
    client: PeerConnection
    account: str
    head: Head
    body: bytes
    since: float


_Rank = tuple[float, float, int]


class FairQueue:
    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        # Cheap requests by number, in order of arrival; and their ranks in ascending order: (expected cost, the client's cost, number).
        self._quick: dict[int, tuple[Queued, _Rank]] = {}
        self._ranked: list[_Rank] = []
        self._number = 0
        self._ended_early = 0  # how many quick turns in succession ended without answering the oldest request
        # `Turns` alternates between two groups. Here the group "not known" has requests, and the group "known" has futures of `wait_turn`.
        self._slow = Turns["Queued | asyncio.Future[None]"]()
        self._length = 0
        self._accounts: dict[str, float] = {}
        self._is_scheduled = False
        self._is_slow_next = False
        self.waited = 0.0  # seconds in the queue of the request that is being answered

    def __len__(self) -> int:
        return self._length

    def join(self, client: PeerConnection, account: str, head: Head, body: bytes) -> None:
        queued = Queued(client, account, head, body, self._loop.time())
        cost = self._cost_of(queued)
        if cost <= CHEAP:
            self._number += 1
            rank = (cost, client.cost, self._number)
            self._quick[self._number] = queued, rank
            insort(self._ranked, rank)
        else:
            self._slow.add(queued, account, is_known=False)
        self._schedule()

    def _cost_of(self, queued: Queued) -> float:
        return min(queued.client.cost, self._accounts.get(queued.account, UNKNOWN_COST))

    async def wait_turn(self) -> None:
        """Wait for a slow turn, in which the caller continues the work on an earlier request."""
        future = self._loop.create_future()
        self._slow.add(future, "", is_known=True)
        self._schedule()
        await future

    def _schedule(self) -> None:
        self._length += 1
        if not self._is_scheduled:
            self._is_scheduled, self._is_slow_next, self._ended_early = True, False, 0
            self._loop.call_soon(self._serve)

    def _serve(self) -> None:
        is_oldest_next = self._ended_early > 0 and self._ended_early % 2 == 0
        if self._quick and self._is_slow_next and is_oldest_next:
            self._is_slow_next = False
            self._answer_quick(self._oldest())
        elif self._slow and (self._is_slow_next or not self._quick):
            self._is_slow_next = False
            self._serve_slow()
        else:
            self._is_slow_next = True
            self._serve_quick()
        self._is_scheduled = bool(self._length)
        if self._is_scheduled:
            # A callback of `call_soon` runs before new I/O is handled. So this one only starts a timer, which ends after that I/O.
            self._loop.call_soon(self._loop.call_later, 0, self._serve)

    def _serve_quick(self) -> None:
        deadline = thread_time() + QUICK_TURN_SECONDS
        answered = 0
        while self._quick:
            number = self._oldest() if answered % 2 else self._ranked[0][2]
            if self._answer_quick(number) >= deadline:
                break
            answered += 1
        self._ended_early = self._ended_early + 1 if self._quick and not answered else 0

    def _oldest(self) -> int:
        return next(iter(self._quick))

    def _answer_quick(self, number: int) -> float:
        """Answer a request, and return the thread's CPU time after it; 0.0 if it has become expensive and waits for a slow turn."""
        queued, rank = self._quick.pop(number)
        del self._ranked[bisect_left(self._ranked, rank)]
        if self._cost_of(queued) <= CHEAP:
            return self._answer(queued)
        self._slow.add(queued, queued.account, is_known=False)
        return 0.0

    def _serve_slow(self) -> None:
        while (piece := self._slow.pop()) is not None:
            if isinstance(piece, Queued):
                self._answer(piece)
                return
            self._length -= 1
            if not piece.done():  # not cancelled
                piece.set_result(None)
                return

    def _answer(self, queued: Queued) -> float:
        """Answer a request; return the thread's CPU time after it."""
        client, account, head, body, since = queued
        self._length -= 1
        self.waited = self._loop.time() - since
        started_at = thread_time()
        try:
            client.answer(head, body)
        except Exception:
            # The other requests must still be answered.
            logger.exception("a bug while answering; please report it")
            client.cut()
        self.waited = 0.0
        ended_at = thread_time()
        seconds = min(ended_at - started_at, MAX_LEARNED)
        client.cost += (seconds - client.cost) * LEARNING_RATE
        account_cost = self._accounts.get(account, UNKNOWN_COST)
        if len(self._accounts) >= MAX_ACCOUNTS and account not in self._accounts:
            self._accounts.clear()
        self._accounts[account] = account_cost + (seconds - account_cost) * LEARNING_RATE
        return ended_at
