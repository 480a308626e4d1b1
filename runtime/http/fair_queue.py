"""The queue of requests that have arrived whole: in which order they are answered, and how many in one turn of the loop.

All answers are made on one loop, so a slow one holds all others: between two turns the loop looks at its connections. Clients
that have been cheap are answered in turns of their own, SHARE seconds each; one whose connection is not known has the next turn
for itself. What may be slow has a turn for each piece: the request of a dear client, the one that has waited longest, or
what is left to do of a request that was not answered in its turn (`turn`). Between two such pieces there are QUICK_TURNS turns
for the others, if there are any, and one more for cheap clients where the last took long by mistake. So nothing slow is forgotten,
and a cheap client waits for one slow piece, unless others that have been cheap are so no longer.

What a request is expected to cost is known of its connection and of its account (for a review, the namespace). The smaller
of the two counts: clients share accounts, an API server puts all accounts on its connections, and neither pays for the other.
One answer changes little of it: an honest review may be slow just after a cache was emptied, or when the collector runs.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left, insort
from collections import deque
from time import thread_time
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from runtime.http.messages import Head

logger = logging.getLogger("drawbridge.listener")

# CPU seconds of answers in one turn of the loop, how many such turns there are between slow pieces, and what makes a request dear.
SHARE = 0.01
QUICK_TURNS = 2
DEAR = 0.005
# What is expected of an unknown client; cheap is what is expected to cost less. An answer corrects the expectation by
# LESSON, and counts as LOUDEST at most.
STRANGER = DEAR
LESSON = 0.1
LOUDEST = 0.02
# Accounts that are remembered.
ACCOUNTS = 1024
# A request that has waited for so many seconds is next, whatever is cheaper.
OVERDUE = 0.1


class Client(Protocol):
    """The connection that a request came on."""

    # What its requests have cost of late, in CPU seconds.
    cost: float

    def answer(self, head: Head, body: bytes) -> None:
        """Have the request answered."""
        ...

    def cut(self) -> None:
        """End."""
        ...


class Queued(NamedTuple):
    """One request in the queue; `cost` is what is expected of it, `own` what its connection alone says."""

    client: Client
    account: str
    head: Head
    body: bytes
    since: float
    cost: float
    own: float


class FairQueue:
    """Requests that wait for their turn."""

    def __init__(self, *, dear: float = DEAR, overdue: float = OVERDUE) -> None:
        """What costs more than `dear` CPU seconds is dear; no request waits longer than `overdue` for cheaper ones."""
        self._loop = asyncio.get_running_loop()
        self._dear_seconds = dear
        self._overdue = overdue
        # Requests by their number, in the order in which they came; and the numbers by expected cost.
        self._quick: dict[int, Queued] = {}
        self._ranked: list[tuple[float, float, int]] = []
        self._number = 0
        self._dear: deque[Queued] = deque()
        # One whose connection is not known, which has the next turn.
        self._unknown: Queued | None = None
        self._left: deque[asyncio.Future[None]] = deque()
        self._accounts: dict[str, float] = {}
        self._called = False
        # The last time that was read from the clock of this thread's CPU.
        self._now = 0.0
        # How many turns there were since the last slow piece, whether the last turn was long, and of which kind the next piece is.
        self._quick_turns = 0
        self._was_long = False
        self._next_slow = 0
        # Of the request that is being answered now: how long it has waited, and whether its client has been cheap.
        self.waited = 0.0
        self.is_cheap = False

    def __len__(self) -> int:
        return len(self._quick) + len(self._dear) + len(self._left) + (self._unknown is not None)

    def join(self, client: Client, account: str, head: Head, body: bytes) -> None:
        """Wait for a turn."""
        self._number += 1
        cost = min(client.cost, self._accounts.get(account, STRANGER))
        self._insert(Queued(client, account, head, body, self._loop.time(), cost, client.cost), self._number)
        self._begin()

    async def turn(self) -> None:
        """Wait until there is time for what is left to do of a request that came earlier."""
        future = self._loop.create_future()
        self._left.append(future)
        self._begin()
        await future

    def _begin(self) -> None:
        if not self._called:
            self._called, self._quick_turns = True, 0
            self._loop.call_soon(self._serve)

    def _insert(self, one: Queued, number: int) -> None:
        if one.cost > self._dear_seconds:
            self._quick.pop(number, None)
            self._dear.append(one)
            return
        self._quick[number] = one
        insort(self._ranked, (one.cost, one.own, number))

    def _serve(self) -> None:
        """Answer for one turn of the loop."""
        self._called = False
        self._now = thread_time()
        until = self._now + SHARE
        is_cheap_next = bool(self._ranked) and self._ranked[0][1] < STRANGER
        if (self._ranked or self._unknown) and self._quick_turns < QUICK_TURNS + (self._was_long and is_cheap_next):
            self._quick_turns += 1
            if self._unknown and (self._quick_turns == QUICK_TURNS or not self._ranked):
                one, self._unknown = self._unknown, None
                self._answer(one)
            else:
                self._serve_ranked(until)
        else:
            # One piece of what may be slow, each kind in its turn.
            self._quick_turns = 0
            kinds = (self._resume_one, self._serve_overdue, self._serve_dear)
            for step in range(len(kinds)):
                kind = (self._next_slow + step) % len(kinds)
                if kinds[kind]():
                    self._next_slow = kind + 1
                    break
        self._was_long = self._now >= until + SHARE
        if len(self):
            # A loop runs what was called soon before it looks at its connections, and what is due by the clock after that.
            self._called = True
            self._loop.call_soon(self._loop.call_later, 0, self._serve)

    def _serve_ranked(self, until: float) -> None:
        """Answer the cheapest, as long as there is time and their connections have been cheap; one that is not known to be has a turn of its own."""
        begun = self._now
        while self._now < until and self._ranked:
            known, own, number = self._ranked[0]
            one = self._quick[number]
            cost = min(one.client.cost, self._accounts.get(one.account, STRANGER))
            if cost > known:
                # More is known since it came: many that come at once are not told apart by what was before.
                del self._ranked[0]
                self._insert(one._replace(cost=cost, own=one.client.cost), number)
                continue
            is_unknown = own >= STRANGER
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
        """Answer the request that has waited too long, if one has."""
        first = next(iter(self._quick), None)
        if first is None or self._loop.time() - self._quick[first].since <= self._overdue:
            return False
        one = self._quick.pop(first)
        del self._ranked[bisect_left(self._ranked, (one.cost, one.own, first))]
        self._answer(one)
        return True

    def _serve_dear(self) -> bool:
        if not self._dear:
            return False
        self._answer(self._dear.popleft())
        return True

    def _resume_one(self) -> bool:
        """Let one go on as soon as this turn is over. One that was cancelled takes no turn."""
        while self._left:
            future = self._left.popleft()
            if not future.done():
                future.set_result(None)
                return True
        return False

    def _answer(self, one: Queued) -> None:
        client, account, head, body, since, cost, _ = one
        self.waited, self.is_cheap = self._loop.time() - since, cost < STRANGER
        begun = self._now
        try:
            client.answer(head, body)
        except Exception:
            # One request may fail; that the others are never answered would be worse.
            logger.exception("a bug while answering; please report it")
            client.cut()
        self.waited, self.is_cheap = 0.0, False
        self._now = thread_time()
        took = min(self._now - begun, LOUDEST)
        client.cost += (took - client.cost) * LESSON
        known = self._accounts.get(account, STRANGER)
        if len(self._accounts) >= ACCOUNTS and account not in self._accounts:
            self._accounts.clear()
        self._accounts[account] = known + (took - known) * LESSON
