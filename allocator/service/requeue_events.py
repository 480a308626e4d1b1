"""The pods that a scheduler should requeue, as numbered events for long polls. No event is lost between two polls.

A caller that missed more events than are kept, or that sends a number from an earlier process, gets an event for all pods.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

REMEMBERED = 256


class RequeueEvent(msgspec.Struct, frozen=True):
    """The pods that should be requeued, as namespace/name, or all pods. `seq` is the number of the event."""

    seq: int
    pods: tuple[str, ...] = ()
    all: bool = False


class RequeueEvents:
    """The last `REMEMBERED` events."""

    def __init__(self) -> None:
        self.seq = 1
        self._events: deque[RequeueEvent] = deque(maxlen=REMEMBERED)
        self._added = asyncio.Event()

    def add(self, pods: Iterable[str] = (), *, all_pods: bool = False) -> None:
        """Add an event for these pods, or for all pods. Without pods, add none."""
        keys = tuple(sorted(set(pods)))
        if not keys and not all_pods:
            return
        self.seq += 1
        self._events.append(RequeueEvent(self.seq, keys, all_pods))
        self._added.set()
        self._added = asyncio.Event()

    async def after(self, seq: int, seconds: float) -> RequeueEvent:
        """Wait up to `seconds` for an event after `seq`. Return all events after `seq` as one event, which is empty if there are none."""
        if seq == self.seq:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._added.wait()
        return self.since(seq)

    def since(self, seq: int) -> RequeueEvent:
        """Return the events after a number as one event."""
        first = self._events[0].seq if self._events else self.seq + 1
        missed = [event for event in self._events if event.seq > seq]
        if not first - 1 <= seq <= self.seq or any(event.all for event in missed):
            return RequeueEvent(self.seq, all=True)
        return RequeueEvent(self.seq, tuple(sorted({pod for event in missed for pod in event.pods})))
