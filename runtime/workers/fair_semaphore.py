"""A semaphore for the workers' slots, so that one caller's slow reviews do not occupy all workers.

A slow review takes a worker for a second and a half, and large reviews can only be decided in workers. So accounts (a review's namespace) take
turns, and no account gets all slots. No peer address gets all slots either once others were seen, because a caller can name any namespace;
waiting peers with fewer slots go first. When too many wait, the last one of the largest account of the largest peer is turned away.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from typing import NamedTuple

RECENT_SECONDS = 600.0  # that a peer is remembered since its last request
PEERS = 64  # remembered


class Crowded(Exception):  # noqa: N818  names the outcome
    """Too many wait for a slot."""


class Requester(NamedTuple):
    """The account of a review, and the address that it came from."""

    account: str
    peer: str = ""


class FairSemaphore:
    """Slots, and a queue for each requester."""

    def __init__(self, size: int, queue: int) -> None:
        """At most `queue` wait."""
        self._loop = asyncio.get_running_loop()
        self._size = self._free = size
        self._most = max(1, size - 1)  # slots of one account, or of one of several peers
        self._queue = queue
        self._held: Counter[str] = Counter()
        self._held_by_peer: Counter[str] = Counter()
        self._waiting: dict[Requester, deque[asyncio.Future[None]]] = {}
        self._recent_peers: dict[str, float] = {}

    async def take(self, requester: Requester) -> None:
        """Wait for a slot; raises Crowded if too many wait."""
        now = self._loop.time()
        self._recent_peers.pop(requester.peer, None)
        self._recent_peers[requester.peer] = now
        oldest = next(iter(self._recent_peers))
        if len(self._recent_peers) > PEERS or now - self._recent_peers[oldest] > RECENT_SECONDS:
            del self._recent_peers[oldest]
        if requester not in self._waiting and self._may_take(requester):
            self._grant(requester)
            return
        if sum(map(len, self._waiting.values())) >= self._queue:
            # Turn away the last of the largest account: of the peer with the most waiting, if it has more than this peer would have with
            # this request; otherwise of this peer.
            of_peer: Counter[str] = Counter()
            for one, line in self._waiting.items():
                of_peer[one.peer] += len(line)
            peer, own = max(of_peer, key=of_peer.__getitem__, default=requester.peer), 0
            if of_peer[peer] <= of_peer[requester.peer] + 1:
                peer, own = requester.peer, len(self._waiting.get(requester, ())) + 1
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
        self._waiting.setdefault(requester, deque()).append(future)
        try:
            await future
        except asyncio.CancelledError:
            if future.cancelled():
                queue = self._waiting.get(requester, deque())
                if future in queue:
                    queue.remove(future)
                if not queue:
                    self._waiting.pop(requester, None)
            elif future.exception() is None:
                self.leave(requester)  # it got a slot just before it was cancelled
            raise

    def leave(self, requester: Requester) -> None:
        """Release a slot, and grant free slots to those waiting."""
        self._free += 1
        for slots, name in ((self._held, requester.account), (self._held_by_peer, requester.peer)):
            slots[name] -= 1
            if not slots[name]:
                del slots[name]
        while self._free > 0:
            able = [one for one in self._waiting if self._may_take(one)]
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

    def _may_take(self, requester: Requester) -> bool:
        peers_most = self._most if len(self._recent_peers) > 1 else self._size
        return (
            self._free > 0
            and self._held[requester.account] < self._most
            and self._held_by_peer[requester.peer] < peers_most
        )

    def _grant(self, requester: Requester) -> None:
        self._free -= 1
        self._held[requester.account] += 1
        self._held_by_peer[requester.peer] += 1
