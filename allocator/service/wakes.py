"""Which pods are worth another try: said to whoever holds a long poll, in a numbered row of news. No news is lost between polls.

Somebody who has missed more than is remembered, or comes with a number of an earlier life of this process, is told to try all.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

REMEMBERED = 256


class News(msgspec.Struct, frozen=True):
    """What happened after a number: pods by namespace/name, or all of them."""

    seq: int
    pods: tuple[str, ...] = ()
    all: bool = False


class Wakes:
    """The row of news."""

    def __init__(self) -> None:
        self.seq = 1
        self._row: deque[News] = deque(maxlen=REMEMBERED)
        self._come = asyncio.Event()

    def wake(self, pods: Iterable[str] = (), *, everybody: bool = False) -> None:
        """Add to the row, unless there is nobody to wake."""
        named = tuple(sorted(set(pods)))
        if not named and not everybody:
            return
        self.seq += 1
        self._row.append(News(self.seq, named, everybody))
        self._come.set()
        self._come = asyncio.Event()

    async def after(self, seq: int, seconds: float) -> News:
        """Wait for news after a number; without any, say so when the time is over."""
        if seq == self.seq:
            try:
                async with asyncio.timeout(seconds):
                    await self._come.wait()
            except TimeoutError:
                return News(self.seq)
        return self._since(seq)

    def _since(self, seq: int) -> News:
        everybody = News(self.seq, all=True)
        first = self._row[0].seq if self._row else self.seq + 1
        if seq > self.seq or seq < first - 1:
            return everybody
        pods: set[str] = set()
        for news in self._row:
            if news.seq <= seq:
                continue
            if news.all:
                return everybody
            pods.update(news.pods)
        return News(self.seq, tuple(sorted(pods)))
