"""The line: requests that have arrived whole wait here until it is their turn to be answered.

All answers are made on one loop, so whoever takes long holds everybody else. Three rules keep that short. After some
milliseconds of answering, the loop looks at its connections again, so that nobody who has come meanwhile stands unseen. Who has
been cheap is answered before a stranger. And what may be slow is done one piece a turn: the request of somebody dear, of somebody who has
waited too long, or what is left to do of a request that was not answered in its turn (`turn`). Such a piece comes last;
first, where the turn before had no time for it; and between those who are cheap and strangers if that turn was a long one.
So nobody slow is forgotten, and between two looks at those who are cheap there is one slow piece at most, whoever else has come.

Who is cheap and who dear is said twice, by what was answered lately: on the connection, and on the account that the request is on
(for a review its namespace). The cheaper of the two counts. Peers share accounts, an API server puts all accounts on its
connections, and neither is to pay for the other. Where both are taken to cost
the same, the connection's own name decides. Nor does a single answer say much: what an honest review costs just after others
have had a memory emptied, or when the collector runs, is not its own fault.
What it is not: it reads no request, and ends none (`connection`, and whoever answers).
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

logger = logging.getLogger("drawbridge.door")

# Seconds of the processor: what is answered in one turn of the loop, and what makes a request a dear one.
SHARE = 0.01
DEAR = 0.005
# A turn of the loop that took longer is followed by one that begins with who is cheap.
LONG = 2 * SHARE
# What somebody is taken to cost who has asked for nothing yet, and less than which is cheap; how much of it an answer corrects, and the most that it can say.
STRANGER = DEAR
LESSON = 0.1
LOUDEST = 0.02
# Of how many accounts it is remembered.
ACCOUNTS = 1024
# Who has stood here for so long is answered next, whoever is cheaper.
OVERDUE = 0.1


class Guest(Protocol):
    """Whoever waits: a connection."""

    # What its requests cost of late, in seconds of the processor.
    cost: float

    def answer(self, head: Head, body: bytes) -> None:
        """Have the request answered."""
        ...

    def cut(self) -> None:
        """End."""
        ...


class Place(NamedTuple):
    """One request in the line; `cost` is what it is taken to cost, `own` what its connection alone says."""

    guest: Guest
    account: str
    head: Head
    body: bytes
    since: float
    cost: float
    own: float


class FairQueue:
    """Requests that wait for their turn."""

    def __init__(self, *, dear: float = DEAR, overdue: float = OVERDUE) -> None:
        """What costs more than `dear` seconds of the processor is dear; nobody waits longer than `overdue` for who is cheaper."""
        self._loop = asyncio.get_running_loop()
        self._dear_seconds = dear
        self._overdue = overdue
        # Requests by their number, which is the order in which they came; and the numbers by what they are taken to cost.
        self._quick: dict[int, Place] = {}
        self._ranked: list[tuple[float, float, int]] = []
        self._number = 0
        self._dear: deque[Place] = deque()
        self._left: deque[asyncio.Future[None]] = deque()
        self._accounts: dict[str, float] = {}
        self._called = False
        # By the processor's clock: when this turn began, and when it is over.
        self._begun = self._until = 0.0
        # Whether the last turn was over before it came to what may be slow, and of which kind the next such piece is.
        self._is_owed = False
        self._next_slow = 0
        # Of the request that is being answered now: how long it has waited, and whether who asks has been cheap.
        self.waited = 0.0
        self.is_cheap = False

    def __len__(self) -> int:
        """How many wait."""
        return len(self._quick) + len(self._dear) + len(self._left)

    def join(self, guest: Guest, account: str, head: Head, body: bytes) -> None:
        """Wait for a turn."""
        now = self._loop.time()
        self._number += 1
        place = Place(guest, account, head, body, now, self._expect(guest, account), guest.cost)
        self._stand(place, self._number)
        self._call()

    def _expect(self, guest: Guest, account: str) -> float:
        known = self._accounts.get(account, STRANGER)
        return min(guest.cost, known)

    def _stand(self, place: Place, number: int) -> None:
        if place.cost > self._dear_seconds:
            self._quick.pop(number, None)
            self._dear.append(place)
            return
        self._quick[number] = place
        rank = place.cost, place.own, number
        insort(self._ranked, rank)

    async def turn(self) -> None:
        """Wait until there is time for what is left to do of a request that came earlier."""
        future = self._loop.create_future()
        self._left.append(future)
        self._call()
        await future

    def _call(self) -> None:
        if not self._called:
            self._called = True
            self._loop.call_soon(self._serve)

    def _serve(self) -> None:
        """Answer for one turn of the loop."""
        self._called = False
        now = thread_time()
        long_ago, self._begun, self._until = self._begun, now, now + SHARE
        first, second, third = self._serve_cheap, self._serve_strangers, self._serve_slow
        if self._is_owed or self._find_overdue() is not None:
            was_long = now - long_ago > LONG
            first, second, third = (first, third, second) if was_long else (third, first, second)
        self._is_owed = True
        for serve in (first, second, third):
            serve()
        self._is_owed = self._is_owed and bool(self._dear or self._left)
        if len(self):
            # A loop does what it was told to do soon before what it hears of at its next look, and what is due after that.
            self._called = True
            self._loop.call_soon(self._loop.call_later, 0, self._serve)

    def _has_time(self) -> bool:
        return thread_time() < self._until

    def _serve_cheap(self) -> None:
        while self._ranked and self._has_time() and self._is_rank_true() and self._ranked[0][0] < STRANGER:
            self._serve_ranked(0)

    def _serve_strangers(self) -> None:
        while self._ranked and self._has_time() and self._is_rank_true():
            self._serve_ranked(0)

    def _is_rank_true(self) -> bool:
        """See that the first is still taken to cost what it was when it came: a crowd that comes at once is not told by who they were."""
        while self._ranked:
            known, _, number = self._ranked[0]
            place = self._quick[number]
            cost = self._expect(place.guest, place.account)
            if cost <= known:
                return True
            del self._ranked[0]
            self._stand(place._replace(cost=cost, own=place.guest.cost), number)
        return False

    def _serve_slow(self) -> None:
        """Do one piece of what may be slow, each kind in its turn."""
        if not self._has_time():
            return
        self._is_owed = False
        kinds = (self._resume_one, self._serve_overdue, self._serve_dear)
        for step in range(len(kinds)):
            kind = (self._next_slow + step) % len(kinds)
            if kinds[kind]():
                self._next_slow = kind + 1
                return

    def _find_overdue(self) -> int | None:
        """Say which number has waited too long, if one has."""
        first = next(iter(self._quick), None)
        if first is None or self._loop.time() - self._quick[first].since <= self._overdue:
            return None
        return first

    def _serve_overdue(self) -> bool:
        first = self._find_overdue()
        if first is None:
            return False
        place = self._quick[first]
        rank = place.cost, place.own, first
        self._serve_ranked(bisect_left(self._ranked, rank))
        return True

    def _serve_ranked(self, index: int) -> None:
        _, _, number = self._ranked.pop(index)
        self._answer(self._quick.pop(number))

    def _serve_dear(self) -> bool:
        if not self._dear:
            return False
        self._answer(self._dear.popleft())
        return True

    def _resume_one(self) -> bool:
        """Let one of them go on, as soon as this turn is over, and that is now. Who has gone meanwhile takes nobody's place."""
        while self._left:
            future = self._left.popleft()
            if not future.done():
                future.set_result(None)
                self._until = 0.0
                return True
        return False

    def _answer(self, place: Place) -> None:
        guest, account, head, body, since, cost, _ = place
        self.waited, self.is_cheap = self._loop.time() - since, cost < STRANGER
        begun = thread_time()
        try:
            guest.answer(head, body)
        except Exception:
            # One request may fail; that the others are never answered would be worse.
            logger.exception("a bug while answering; please report it")
            guest.cut()
        self.waited, self.is_cheap = 0.0, False
        self._learn(guest, account, thread_time() - begun)

    def _learn(self, guest: Guest, account: str, took: float) -> None:
        took = min(took, LOUDEST)
        guest.cost += (took - guest.cost) * LESSON
        known = self._accounts.get(account, STRANGER)
        if len(self._accounts) >= ACCOUNTS and account not in self._accounts:
            self._accounts.clear()
        self._accounts[account] = known + (took - known) * LESSON
