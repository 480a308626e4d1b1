"""Which pods are worth another try: said to whoever holds a long poll, in a numbered row of news. No news is lost between polls.

Somebody who has missed more than is remembered, or comes with a number of an earlier life of this process, is told to try all.

When a device comes free, only pods are worth it that it would help: of those that ask for the same, one is looked at for all.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict, deque
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

logger = logging.getLogger("drawbridge.allocator")
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


class Refusals:
    """Pods that found no room, and which of them are worth another try."""

    def __init__(
        self, wakes: Wakes, may_fit: Callable[[str], bool], later: Callable[[Coroutine[None, None, None]], None]
    ) -> None:
        """`may_fit` says of a pod whether there may be room by now; `later` has something done."""
        self._wakes = wakes
        self._may_fit = may_fit
        self._later = later
        self._names: dict[str, str] = {}  # by uid
        self._shapes: dict[str, bytes] = {}  # what they ask for, by uid; who is unlike all others asks for nothing here
        self._freed = False
        self._looking = False

    def put(self, uid: str, name: str, shape: bytes = b"") -> None:
        """Keep a pod in mind."""
        self._names[uid] = name
        self._shapes[uid] = shape

    def pop(self, uid: str) -> None:
        """Wake a pod no more."""
        self._names.pop(uid, None)
        self._shapes.pop(uid, None)

    def wake(self) -> None:
        """Have all of them tried again."""
        self._rouse(tuple(self._names))

    def look(self) -> None:
        """Have those tried again for whom there is room now. What comes free meanwhile is looked at at once with it."""
        self._freed = True
        if self._names and not self._looking:
            self._looking = True
            self._later(self._look())

    async def _look(self) -> None:
        try:
            while self._freed:
                self._freed = False
                for alike in self._alike():
                    if self._has_room(alike):
                        self._rouse(alike)
                    await asyncio.sleep(0)
        finally:
            self._looking = False

    def _alike(self) -> list[list[str]]:
        groups: defaultdict[bytes, list[str]] = defaultdict(list)
        alone: list[list[str]] = []
        for uid, shape in self._shapes.items():
            if shape:
                groups[shape].append(uid)
            else:
                alone.append([uid])
        return [*groups.values(), *alone]

    def _has_room(self, alike: list[str]) -> bool:
        still = next((uid for uid in alike if uid in self._names), None)
        if still is None:
            return False
        try:
            return self._may_fit(still)
        except Exception:
            logger.exception("a bug while looking for room; please report it", extra={"pod": self._names[still]})
            return True

    def _rouse(self, uids: Iterable[str]) -> None:
        found = [uid for uid in uids if uid in self._names]
        self._wakes.wake([self._names[uid] for uid in found])
        for uid in found:
            self.pop(uid)
