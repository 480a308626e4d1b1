"""Grants the workers' slots: cheap requests come first, and neither one account nor slow requests ever get all slots.

A slow review occupies a worker for a second and a half, and large reviews can only be decided in workers. So requests are ordered by their
expected cost. It is the sum of a request's own expected seconds, the worker seconds that its account (for a review, the namespace) and its peer
address have used recently, and an amount for each other request of the account and of the address. The account alone is not enough, because a
caller can name any namespace; nor is the address, because one API server serves all namespaces.

The last free slot is for requests that are expected to be quick. An account that occupies all other slots does not get the last one. Nor does a
peer address that occupies them, if another peer was seen recently. When too many requests wait, the most expensive one is rejected.
"""

from __future__ import annotations

import asyncio
from math import inf
from typing import NamedTuple

HALF_LIFE = 10.0  # seconds after which used worker seconds count half
REMEMBERED = 1024  # the most accounts and peers that are remembered
RECENT = 600.0  # seconds for which a peer counts as seen
PER_REQUEST = 0.05  # seconds added for each other request of the same account or peer
SLOW = 0.5  # expected seconds from which a request does not get the last slot


class Crowded(Exception):  # noqa: N818  names the outcome
    """Too many requests wait for a slot."""


class Requester(NamedTuple):
    """The account of a request, the address that it came from, and the worker seconds that it is expected to take."""

    account: str
    peer: str = ""
    seconds: float = 0.0


class _Caller:
    """An account or a peer: its used worker seconds, its requests and its slots."""

    def __init__(self) -> None:
        self.used = 0.0
        self.at = -inf
        self.requests = 0  # waiting and running
        self.slots = 0

    def recent(self, now: float) -> float:
        """Return the used seconds, halved for every `HALF_LIFE` since the last call."""
        self.used *= 0.5 ** ((now - self.at) / HALF_LIFE) if self.used else 0.0
        self.at = now
        return self.used


class Slots:
    def __init__(self, size: int, queue: int) -> None:
        """At most `queue` requests wait."""
        self._loop = asyncio.get_running_loop()
        self._size = self._free = size
        self._max_slots = max(1, size - 1)  # slots of one account, or of one of several peers
        self._queue = queue
        # The key is whether the caller is a peer, and its name; most recent last.
        self._callers: dict[tuple[bool, str], _Caller] = {}
        # In order of arrival, each with the number of earlier requests of its account. The result of the future is whether the request got a slot: an
        # exception in a future and the frames of its traceback would refer to each other, and keep the bodies until the garbage collector runs.
        self._waiting: dict[asyncio.Future[bool], tuple[Requester, int]] = {}

    async def take(self, requester: Requester) -> None:
        """Wait for a slot; raises Crowded if too many requests wait."""
        now = self._loop.time()
        account, peer = self._callers_of(requester)
        before = account.requests
        for caller in (account, peer):
            caller.recent(now)
            caller.requests += 1
        future = self._loop.create_future()
        self._waiting[future] = requester, before
        self._grant()
        if len(self._waiting) > self._queue:
            rejected = max(reversed(self._waiting), key=self._cost)
            self._forget(rejected)
            if not rejected.done():
                rejected.set_result(False)
        try:
            has_slot = await future
        except asyncio.CancelledError:
            if future in self._waiting:
                self._forget(future)
            elif not future.cancelled() and future.result():
                self.leave(requester)  # it got a slot just before it was cancelled
            raise
        if not has_slot:
            raise Crowded

    def leave(self, requester: Requester, seconds: float = 0.0) -> None:
        """Release a slot that was used for `seconds`, and grant it to a waiting request."""
        self._free += 1
        now = self._loop.time()
        for caller in self._callers_of(requester):
            caller.used = caller.recent(now) + seconds
            caller.requests -= 1
            caller.slots -= 1
        self._grant()

    def _grant(self) -> None:
        """Give free slots to the cheapest requests that may take one."""
        while self._free:
            eligible = [future for future, (requester, _) in self._waiting.items() if self._may_take(requester)]
            if not eligible:
                return
            future = min(eligible, key=self._cost)
            requester, _ = self._waiting.pop(future)
            if future.done():  # cancelled at this moment
                for caller in self._callers_of(requester):
                    caller.requests -= 1
                continue
            self._free -= 1
            for caller in self._callers_of(requester):
                caller.slots += 1
            future.set_result(True)

    def _cost(self, future: asyncio.Future[bool]) -> float:
        requester, before = self._waiting[future]
        now = self._loop.time()
        account, peer = self._callers_of(requester)
        others = PER_REQUEST * (before + peer.requests)
        return requester.seconds + others + account.recent(now) + peer.recent(now)

    def _may_take(self, requester: Requester) -> bool:
        account, peer = self._callers_of(requester)
        return (
            account.slots < self._max_slots
            and (peer.slots < self._max_slots or not self._has_other_peers(peer))
            and not (self._free == 1 < self._size and requester.seconds >= SLOW)
        )

    def _has_other_peers(self, peer: _Caller) -> bool:
        since = self._loop.time() - RECENT
        return any(
            is_peer and caller is not peer and caller.at > since for (is_peer, _), caller in self._callers.items()
        )

    def _callers_of(self, requester: Requester) -> tuple[_Caller, _Caller]:
        account, peer = ((False, requester.account), (True, requester.peer))
        for key in (account, peer):
            caller = self._callers.pop(key) if key in self._callers else _Caller()
            self._callers[key] = caller  # most recent last
        if len(self._callers) > REMEMBERED:
            idle = next((key for key, caller in self._callers.items() if not caller.requests), None)
            if idle not in (None, account, peer):
                del self._callers[idle]
        return self._callers[account], self._callers[peer]

    def _forget(self, future: asyncio.Future[bool]) -> None:
        requester, _ = self._waiting.pop(future)
        for caller in self._callers_of(requester):
            caller.requests -= 1
