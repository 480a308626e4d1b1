"""Places at the workers, and who waits for one: nobody's slow reviews take the workers from everybody else's.

A review that takes long has a worker for a second and a half, and large reviews have no other way to be decided. So accounts (for a
review its namespace) take turns, and one account never has all places: somebody else finds one that is free. Nor has one peer all of them
once others have been heard of, for who is nobody's tenant may name any namespace; of those who wait a peer that has fewer places goes first. When too many
wait, whoever wants most goes: of the peer that has most waiting there, the last of the account that has most.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from typing import NamedTuple

Queue = deque[asyncio.Future[None]]
# For how long a peer counts as somebody who may ask, and how many such are remembered.
LATELY = 600.0
PEERS = 64


class Crowded(Exception):  # noqa: N818  it is an answer, of a kind
    """Too many wait for a place."""


class Asker(NamedTuple):
    """On whose account somebody asks, and from where."""

    account: str
    peer: str = ""


class Places:
    """A number of places, and a queue for each who asks."""

    def __init__(self, size: int, queue: int) -> None:
        """Beyond `queue` nobody begins to wait."""
        self._loop = asyncio.get_running_loop()
        self._size = self._free = size
        self._most = max(1, size - 1)  # that one account has, or one of several peers
        self._queue = queue
        self._held: Counter[str] = Counter()
        self._held_by_peer: Counter[str] = Counter()
        # Askers stand here in the order of their turns.
        self._waiting: dict[Asker, Queue] = {}
        self._heard: dict[str, float] = {}

    async def take(self, asker: Asker) -> None:
        """Wait for a place; raise Crowded where there is none and too many wait."""
        self._hear(asker.peer)
        if asker not in self._waiting and self._may(asker):
            self._grant(asker)
            return
        self._make_room(asker)
        future = self._loop.create_future()
        self._waiting.setdefault(asker, deque()).append(future)
        try:
            await future
        except asyncio.CancelledError:
            if future.cancelled():
                self._forget(asker, future)
            elif future.exception() is None:
                self.leave(asker)  # it was given one, and nobody is there any more
            raise

    def leave(self, asker: Asker) -> None:
        """Give a place back."""
        self._free += 1
        for held, who in ((self._held, asker.account), (self._held_by_peer, asker.peer)):
            held[who] -= 1
            if not held[who]:
                del held[who]
        while self._free > 0:
            able = [one for one in self._waiting if self._may(one)]
            if not able:
                return
            self._serve(min(able, key=lambda one: self._held_by_peer[one.peer]))

    def _hear(self, peer: str) -> None:
        now = self._loop.time()
        self._heard.pop(peer, None)
        self._heard[peer] = now
        oldest = next(iter(self._heard))
        if len(self._heard) > PEERS or now - self._heard[oldest] > LATELY:
            del self._heard[oldest]

    def _serve(self, asker: Asker) -> None:
        queue = self._waiting.pop(asker)
        future = queue.popleft()
        if queue:
            self._waiting[asker] = queue  # behind all others
        if not future.done():  # else who was first has gone at this very moment
            self._grant(asker)
            future.set_result(None)

    def _may(self, asker: Asker) -> bool:
        peers_most = self._most if len(self._heard) > 1 else self._size
        return self._free > 0 and self._held[asker.account] < self._most and self._held_by_peer[asker.peer] < peers_most

    def _grant(self, asker: Asker) -> None:
        self._free -= 1
        self._held[asker.account] += 1
        self._held_by_peer[asker.peer] += 1

    def _make_room(self, asker: Asker) -> None:
        waiting = sum(map(len, self._waiting.values()))
        if waiting < self._queue:
            return
        victim = self._find_larger_peer(asker) or self._find_larger_account(asker)
        if victim is None:
            raise Crowded
        queue = self._waiting[victim]
        last = queue.pop()
        if not queue:
            del self._waiting[victim]
        if not last.done():
            last.set_exception(Crowded())

    def _find_larger_peer(self, asker: Asker) -> Asker | None:
        """Find the largest account of the peer that has most waiting, if that is more than this one's would have."""
        of_peer: Counter[str] = Counter()
        for one, queue in self._waiting.items():
            of_peer[one.peer] += len(queue)
        most = max(of_peer, key=of_peer.__getitem__, default=asker.peer)
        own = of_peer[asker.peer] + 1
        if most == asker.peer or of_peer[most] <= own:
            return None
        return self._find_largest(most)

    def _find_larger_account(self, asker: Asker) -> Asker | None:
        """Find the largest account of the same peer, if more wait for it than would for this one."""
        largest = self._find_largest(asker.peer)
        if largest is None:
            return None
        own = len(self._waiting.get(asker, ())) + 1
        theirs = len(self._waiting[largest])
        return largest if theirs > own else None

    def _find_largest(self, peer: str) -> Asker | None:
        accounts = [one for one in self._waiting if one.peer == peer]
        return max(accounts, key=lambda one: len(self._waiting[one]), default=None)

    def _forget(self, asker: Asker, future: asyncio.Future[None]) -> None:
        queue = self._waiting.get(asker, deque())
        if future in queue:
            queue.remove(future)
        if not queue:
            self._waiting.pop(asker, None)
