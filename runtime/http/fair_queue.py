"""The queue of complete requests: in which order they are answered, and how many in one turn of the event loop.

All requests are answered in one event loop, so a slow one delays all others; between two turns the loop serves its connections. Requests of
cheap clients are answered together in quick turns of SHARE seconds; the first request of an unknown connection gets its own quick turn.
Slow work gets a turn for each piece: the request of an expensive client, the request that has waited longest, or the rest of a request that
was not finished in its turn (`turn`). Between two slow pieces there are QUICK_TURNS quick turns, if requests wait, and one more for cheap
clients if the last quick turn took long. So slow work always progresses, and a cheap client waits for one slow piece, unless other clients
that were cheap have become expensive.

The expected cost of a request is the smaller one of its connection and its account (for a review, the namespace): clients share accounts, and
an API server's connection carries all accounts, so neither pays for the other. A single answer changes it little: an honest review may be
slow after a cache was cleared, or when the garbage collector runs.

Answering in order of arrival instead, with the same pauses for I/O, held an honest review for 164 and 176 ms in two runs of `make soak` of half a
minute, and one of a hundred for 83 and 102 ms, where this queue held it for 79 and 88 ms, and 53 ms; 100 ms are promised.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left, insort
from collections import deque
from time import thread_time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from runtime.http.connection import PeerConnection
    from runtime.http.messages import Head

logger = logging.getLogger("drawbridge.listener")

SHARE = 0.01  # CPU seconds of a quick turn
QUICK_TURNS = 2  # between two slow pieces
EXPENSIVE = 0.005  # CPU seconds of a request
UNKNOWN_COST = EXPENSIVE  # expected of an unknown client; a cheap client is expected to cost less
LEARNING_RATE = 0.1  # by which an answer changes the expected cost
MOST_LEARNED = 0.02  # CPU seconds that one answer counts as, at most
ACCOUNTS = 1024  # remembered
OVERDUE = 0.1  # seconds after which a waiting request precedes cheaper ones


class Queued(NamedTuple):
    """A request in the queue, with its expected `cost`, and the cost by its connection alone (`own`)."""

    client: PeerConnection
    account: str
    head: Head
    body: bytes
    since: float
    cost: float
    own: float


class FairQueue:
    """Requests that wait for their answer."""

    def __init__(self, *, expensive: float = EXPENSIVE, overdue: float = OVERDUE) -> None:
        """Expensive is a request of more than `expensive` CPU seconds; none waits longer than `overdue` for cheaper ones."""
        self._loop = asyncio.get_running_loop()
        self._expensive_seconds = expensive
        self._overdue = overdue
        # Requests by number, in order of arrival; and their numbers by expected cost.
        self._quick: dict[int, Queued] = {}
        self._ranked: list[tuple[float, float, int]] = []
        self._number = 0
        self._expensive: deque[Queued] = deque()
        self._unknown: Queued | None = None  # of an unknown connection, for its own quick turn
        self._left: deque[asyncio.Future[None]] = deque()
        self._accounts: dict[str, float] = {}
        self._called = False
        self._now = 0.0  # the thread's CPU time when it was last read
        self._quick_turns = 0  # since the last slow piece
        self._was_long = False  # whether the last turn took longer than it should
        self._next_slow = 0  # the kind of the next slow piece
        self.waited = 0.0  # of the request that is being answered

    def __len__(self) -> int:
        return len(self._quick) + len(self._expensive) + len(self._left) + (self._unknown is not None)

    def join(self, client: PeerConnection, account: str, head: Head, body: bytes) -> None:
        """Queue a request."""
        self._number += 1
        cost = min(client.cost, self._accounts.get(account, UNKNOWN_COST))
        self._insert(Queued(client, account, head, body, self._loop.time(), cost, client.cost), self._number)
        self._begin()

    async def turn(self) -> None:
        """Wait for a slow turn to continue the work on an earlier request."""
        future = self._loop.create_future()
        self._left.append(future)
        self._begin()
        await future

    def _begin(self) -> None:
        if not self._called:
            self._called, self._quick_turns = True, 0
            self._loop.call_soon(self._serve)

    def _insert(self, one: Queued, number: int) -> None:
        if one.cost > self._expensive_seconds:
            self._quick.pop(number, None)
            self._expensive.append(one)
            return
        self._quick[number] = one
        insort(self._ranked, (one.cost, one.own, number))

    def _serve(self) -> None:
        """Run one turn."""
        self._called = False
        self._now = thread_time()
        until = self._now + SHARE
        is_cheap_next = bool(self._ranked) and self._ranked[0][1] < UNKNOWN_COST
        if (self._ranked or self._unknown) and self._quick_turns < QUICK_TURNS + (self._was_long and is_cheap_next):
            self._quick_turns += 1
            if self._unknown and (self._quick_turns == QUICK_TURNS or not self._ranked):
                one, self._unknown = self._unknown, None
                self._answer(one)
            else:
                self._serve_ranked(until)
        else:
            # One slow piece; the kinds take turns.
            self._quick_turns = 0
            kinds = (self._resume_one, self._serve_overdue, self._serve_expensive)
            for step in range(len(kinds)):
                kind = (self._next_slow + step) % len(kinds)
                if kinds[kind]():
                    self._next_slow = kind + 1
                    break
        self._was_long = self._now >= until + SHARE
        if len(self):
            # `call_soon` alone would run before new I/O; the timer that it starts runs after it.
            self._called = True
            self._loop.call_soon(self._loop.call_later, 0, self._serve)

    def _serve_ranked(self, until: float) -> None:
        """Answer requests of cheap clients until the turn is over, or one of an unknown connection, which ends the turn."""
        begun = self._now
        while self._now < until and self._ranked:
            known, own, number = self._ranked[0]
            one = self._quick[number]
            cost = min(one.client.cost, self._accounts.get(one.account, UNKNOWN_COST))
            if cost > known:
                # Its client or account has become more expensive since it was queued.
                del self._ranked[0]
                self._insert(one._replace(cost=cost, own=one.client.cost), number)
                continue
            is_unknown = own >= UNKNOWN_COST
            if is_unknown and self._unknown:
                return
            del self._ranked[0]
            del self._quick[number]
            if is_unknown and self._now > begun:
                self._unknown = one
                return
            self._answer(one)
            if is_unknown:
                return

    def _serve_overdue(self) -> bool:
        """Answer the oldest request if it is overdue."""
        first = next(iter(self._quick), None)
        if first is None or self._loop.time() - self._quick[first].since <= self._overdue:
            return False
        one = self._quick.pop(first)
        del self._ranked[bisect_left(self._ranked, (one.cost, one.own, first))]
        self._answer(one)
        return True

    def _serve_expensive(self) -> bool:
        if not self._expensive:
            return False
        self._answer(self._expensive.popleft())
        return True

    def _resume_one(self) -> bool:
        """Resume one waiting `turn` after this one. Cancelled ones are skipped."""
        while self._left:
            future = self._left.popleft()
            if not future.done():
                future.set_result(None)
                return True
        return False

    def _answer(self, one: Queued) -> None:
        client, account, head, body, since, _, _ = one
        self.waited = self._loop.time() - since
        begun = self._now
        try:
            client.answer(head, body)
        except Exception:
            # The other requests must still be answered.
            logger.exception("a bug while answering; please report it")
            client.cut()
        self.waited = 0.0
        self._now = thread_time()
        took = min(self._now - begun, MOST_LEARNED)
        client.cost += (took - client.cost) * LEARNING_RATE
        known = self._accounts.get(account, UNKNOWN_COST)
        if len(self._accounts) >= ACCOUNTS and account not in self._accounts:
            self._accounts.clear()
        self._accounts[account] = known + (took - known) * LEARNING_RATE
