"""The line: requests that have arrived whole wait here until it is their turn to be answered.

All answers are made on one loop, so whoever takes long holds everybody else. Two rules keep that short. After some
milliseconds of answering, the loop looks at its connections again, so that nobody who has come meanwhile stands unseen. And who
has lately asked for something dear stands in a lane of their own, of which one is answered a turn, or in every second one where
others take a whole turn: they hold up few, and are never forgotten.

Who that is, is said twice: by the connection, and by the account that the request is on (for a review its namespace). Only a
request dear by both stands in that lane. Peers share accounts, an API server puts all accounts on its connections, and neither
is to pay for the other.
What it is not: it reads no request, and ends none (`connection`, and whoever answers).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from time import thread_time
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from cluster.serving.connection import Head

logger = logging.getLogger("drawbridge.door")

# Seconds of the processor: what is answered in one turn of the loop, and what makes a request a dear one.
SHARE = 0.01
DEAR = 0.005
# How long that is remembered, and of how many accounts.
MEMORY_SECONDS = 10.0
ACCOUNTS = 1024


class Guest(Protocol):
    """Whoever waits: a connection."""

    # Until when it counts as one that asks for dear things.
    dear_until: float

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

    def __init__(self, *, dear: float = DEAR, memory: float = MEMORY_SECONDS) -> None:
        """What costs more than `dear` seconds of the processor is remembered for `memory` seconds."""
        self._loop = asyncio.get_running_loop()
        self._dear_seconds = dear
        self._memory = memory
        self._quick: deque[Place] = deque()
        self._dear: deque[Place] = deque()
        self._accounts: dict[str, float] = {}
        self._called = False
        # Whether the last turn was over before it came to a dear one: then one of them is first in the next.
        self._passed_over = False
        # How long the request that is being answered now has waited.
        self.waited = 0.0

    def __len__(self) -> int:
        """How many wait."""
        return len(self._quick) + len(self._dear)

    def join(self, guest: Guest, account: str, head: Head, body: bytes) -> None:
        """Wait for a turn."""
        now = self._loop.time()
        place = Place(guest, account, head, body, now)
        dear = guest.dear_until > now and self._accounts.get(account, 0.0) > now
        lane = self._dear if dear else self._quick
        lane.append(place)
        self._call()

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
        while self._quick and thread_time() < until:
            self._answer(self._quick.popleft())
        if not served and thread_time() < until:
            served = self._serve_dear()
        self._passed_over = bool(self._dear) and not served
        if len(self):
            self._call()

    def _serve_dear(self) -> bool:
        if self._dear:
            self._answer(self._dear.popleft())
        return True

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
        if thread_time() - begun > self._dear_seconds:
            self._mark(guest, account)

    def _mark(self, guest: Guest, account: str) -> None:
        until = self._loop.time() + self._memory
        guest.dear_until = until
        if len(self._accounts) >= ACCOUNTS:
            self._accounts.clear()
        self._accounts[account] = until
