"""Which pods a scheduler should try again: numbered events, read by long polls. No event is lost between two polls.

A caller that has missed more events than are remembered, or has a number of an earlier process, is told to try all pods.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

REMEMBERED = 256


class RequeueEvent(msgspec.Struct, frozen=True):
    """The pods, by namespace/name, to try again after an event of that number; or all of them."""

    seq: int
    pods: tuple[str, ...] = ()
    all: bool = False


class RequeueEvents:
    """The events that are remembered."""

    def __init__(self) -> None:
        self.seq = 1
        self._row: deque[RequeueEvent] = deque(maxlen=REMEMBERED)
        self._come = asyncio.Event()

    def add(self, pods: Iterable[str] = (), *, all_pods: bool = False) -> None:
        """Add an event, unless it names no pod."""
        named = tuple(sorted(set(pods)))
        if not named and not all_pods:
            return
        self.seq += 1
        self._row.append(RequeueEvent(self.seq, named, all_pods))
        self._come.set()
        self._come = asyncio.Event()

    async def after(self, seq: int, seconds: float) -> RequeueEvent:
        """Wait for events after a number; answer with an empty one when the time is over."""
        if seq == self.seq:
            try:
                async with asyncio.timeout(seconds):
                    await self._come.wait()
            except TimeoutError:
                return RequeueEvent(self.seq)
        return self.since(seq)

    def since(self, seq: int) -> RequeueEvent:
        """Say what there was since a number."""
        all_pods = RequeueEvent(self.seq, all=True)
        first = self._row[0].seq if self._row else self.seq + 1
        if seq > self.seq or seq < first - 1:
            return all_pods
        pods: set[str] = set()
        for news in self._row:
            if news.seq <= seq:
                continue
            if news.all:
                return all_pods
            pods.update(news.pods)
        return RequeueEvent(self.seq, tuple(sorted(pods)))
