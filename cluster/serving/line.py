"""The line: requests that have arrived whole wait here until it is their turn to be answered.

All answers are made on one loop, so whoever takes long holds everybody else. Three rules keep that short. After some
milliseconds of answering, the loop looks at its connections again, so that nobody who has come meanwhile stands unseen. Who has
been cheap is answered before a stranger; but who has waited too long comes first, one a turn. And who asks for what is dear
stands in a lane of their own, of which one is answered a turn, or in every second one where others take a whole turn: they
hold up few, and are never forgotten. What is left to do of a request that was not answered in its turn waits for one as
well (`turn`): whatever becomes ready at one moment, the loop does one piece of it a turn.

Who is cheap and who dear is said twice, by what was answered lately: on the connection, and on the account that the request is on
(for a review its namespace). The cheaper of the two counts. Peers share accounts, an API server puts all accounts on its
connections, and neither is to pay for the other. Nor does a single answer say much: what an honest review costs just after others
have had a memory emptied, or when the collector runs, is not its own fault.
What it is not: it reads no request, and ends none (`connection`, and whoever answers).
"""

from __future__ import annotations

import asyncio
import logging
from bisect import insort
from collections import deque
from time import thread_time
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from cluster.serving.connection import Head

logger = logging.getLogger("drawbridge.door")

# Seconds of the processor: what is answered in one turn of the loop, and what makes a request a dear one.
SHARE = 0.01
DEAR = 0.005
# What somebody is taken to cost who has asked for nothing yet; how much of it an answer corrects, and the most that it can say.
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
    """One request in the line."""

    guest: Guest
    account: str
    head: Head
    body: bytes
    since: float


class WaitingLine:
    """Requests that wait for their turn."""

    def __init__(self, *, dear: float = DEAR, overdue: float = OVERDUE) -> None:
        """What costs more than `dear` seconds of the processor is dear; nobody waits longer than `overdue` for who is cheaper."""
        self._loop = asyncio.get_running_loop()
        self._dear_seconds = dear
        self._overdue = overdue
        # Requests by their number, which is the order in which they came; and the numbers by what they are taken to cost.
        self._quick: dict[int, Place] = {}
        self._ranked: list[tuple[float, int]] = []
        self._number = 0
        self._dear: deque[Place] = deque()
        self._left: deque[asyncio.Future[None]] = deque()
        self._accounts: dict[str, float] = {}
        self._called = False
        # Whether the last turn was over before it came to a dear one: then one of them is first in the next.
        self._passed_over = False
        # How long the request that is being answered now has waited.
        self.waited = 0.0

    def __len__(self) -> int:
        """How many wait."""
        return len(self._quick) + len(self._dear) + len(self._left)

    def join(self, guest: Guest, account: str, head: Head, body: bytes) -> None:
        """Wait for a turn."""
        now = self._loop.time()
        place = Place(guest, account, head, body, now)
        known = self._accounts.get(account, STRANGER)
        cost = min(guest.cost, known)
        if cost > self._dear_seconds:
            self._dear.append(place)
        else:
            self._number += 1
            self._quick[self._number] = place
            rank = cost, self._number
            insort(self._ranked, rank)
        self._call()

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
        until = thread_time() + SHARE
        served = False
        if self._passed_over:
            served = self._serve_dear()
        self._resume_one()
        self._serve_overdue()
        while self._quick and thread_time() < until:
            self._serve_ranked(0)
        if not served and thread_time() < until:
            served = self._serve_dear()
        self._passed_over = bool(self._dear) and not served
        if len(self):
            self._call()

    def _serve_overdue(self) -> None:
        first = next(iter(self._quick), None)
        if first is not None and self._loop.time() - self._quick[first].since > self._overdue:
            rank = next(rank for rank, (_, number) in enumerate(self._ranked) if number == first)
            self._serve_ranked(rank)

    def _serve_ranked(self, rank: int) -> None:
        _, number = self._ranked.pop(rank)
        self._answer(self._quick.pop(number))

    def _serve_dear(self) -> bool:
        if self._dear:
            self._answer(self._dear.popleft())
        return True

    def _resume_one(self) -> None:
        """Let one of them go on, as soon as this turn is over. Who has gone meanwhile takes nobody's place."""
        while self._left:
            future = self._left.popleft()
            if not future.done():
                future.set_result(None)
                return

    def _answer(self, place: Place) -> None:
        guest, account, head, body, since = place
        self.waited = self._loop.time() - since
        begun = thread_time()
        try:
            guest.answer(head, body)
        except Exception:
            # One request may fail; that the others are never answered would be worse.
            logger.exception("a bug while answering; please report it")
            guest.cut()
        self.waited = 0.0
        self._learn(guest, account, thread_time() - begun)

    def _learn(self, guest: Guest, account: str, took: float) -> None:
        took = min(took, LOUDEST)
        guest.cost += (took - guest.cost) * LESSON
        known = self._accounts.get(account, STRANGER)
        if len(self._accounts) >= ACCOUNTS and account not in self._accounts:
            self._accounts.clear()
        self._accounts[account] = known + (took - known) * LESSON
