"""Slots at the workers and the queue for them: one caller's slow reviews do not take all workers.

A slow review has a worker for a second and a half, and a large review can only be decided there. So accounts (for a review
its namespace) take turns, and one account never has all slots. Nor has one peer all of them once others were heard of,
because a caller may name any namespace; of those who wait, a peer that has fewer slots goes first. When too many wait, the
largest goes: of the peer that has most waiting, the last of the account that has most.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from typing import NamedTuple

# For how long a peer counts as one that may ask, and how many such are remembered.
LATELY = 600.0
PEERS = 64


class Crowded(Exception):  # noqa: N818  it is an answer, of a kind
    """Too many wait for a slot."""


class Asker(NamedTuple):
    """The account that a review is on, and the address that it came from."""

    account: str
    peer: str = ""


class FairSemaphore:
    """A number of slots, and a queue for each asker."""

    def __init__(self, size: int, queue: int) -> None:
        """At most `queue` wait."""
        self._loop = asyncio.get_running_loop()
        self._size = self._free = size
        self._most = max(1, size - 1)  # that one account has, or one of several peers
        self._queue = queue
        self._held: Counter[str] = Counter()
        self._held_by_peer: Counter[str] = Counter()
        # In the order of their turns.
        self._waiting: dict[Asker, deque[asyncio.Future[None]]] = {}
        self._heard: dict[str, float] = {}

    async def take(self, asker: Asker) -> None:
        """Wait for a slot; raise Crowded where there is none and too many wait."""
        now = self._loop.time()
        self._heard.pop(asker.peer, None)
        self._heard[asker.peer] = now
        oldest = next(iter(self._heard))
        if len(self._heard) > PEERS or now - self._heard[oldest] > LATELY:
            del self._heard[oldest]
        if asker not in self._waiting and self._may(asker):
            self._grant(asker)
            return
        if sum(map(len, self._waiting.values())) >= self._queue:
            # The last of the account that has most waiting is turned away: of the peer with most, if it has more than this one would,
            # else of this one's.
            of_peer: Counter[str] = Counter()
            for one, line in self._waiting.items():
                of_peer[one.peer] += len(line)
            peer, own = max(of_peer, key=of_peer.__getitem__, default=asker.peer), 0
            if of_peer[peer] <= of_peer[asker.peer] + 1:
                peer, own = asker.peer, len(self._waiting.get(asker, ())) + 1
            accounts = [one for one in self._waiting if one.peer == peer]
            largest = max(accounts, key=lambda one: len(self._waiting[one]), default=None)
            if largest is None or len(self._waiting[largest]) <= own:
                raise Crowded
            last = self._waiting[largest].pop()
            if not self._waiting[largest]:
                del self._waiting[largest]
            if not last.done():
                last.set_exception(Crowded())
        future = self._loop.create_future()
        self._waiting.setdefault(asker, deque()).append(future)
        try:
            await future
        except asyncio.CancelledError:
            if future.cancelled():
                queue = self._waiting.get(asker, deque())
                if future in queue:
                    queue.remove(future)
                if not queue:
                    self._waiting.pop(asker, None)
            elif future.exception() is None:
                self.leave(asker)  # it was given a slot that it does not use any more
            raise

    def leave(self, asker: Asker) -> None:
        """Give a slot back."""
        self._free += 1
        for held, name in ((self._held, asker.account), (self._held_by_peer, asker.peer)):
            held[name] -= 1
            if not held[name]:
                del held[name]
        while self._free > 0:
            able = [one for one in self._waiting if self._may(one)]
            if not able:
                return
            following = min(able, key=lambda one: self._held_by_peer[one.peer])
            queue = self._waiting.pop(following)
            future = queue.popleft()
            if queue:
                self._waiting[following] = queue  # behind all others
            if not future.done():  # it may have been cancelled at this moment
                self._grant(following)
                future.set_result(None)

    def _may(self, asker: Asker) -> bool:
        peers_most = self._most if len(self._heard) > 1 else self._size
        return self._free > 0 and self._held[asker.account] < self._most and self._held_by_peer[asker.peer] < peers_most

    def _grant(self, asker: Asker) -> None:
        self._free -= 1
        self._held[asker.account] += 1
        self._held_by_peer[asker.peer] += 1
