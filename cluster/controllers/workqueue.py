"""A queue of distinct keys between informers and a controller (client-go util/workqueue).

Informers add keys and return. A worker takes one key at a time, reads the current state, and acts. A key that is added while a worker handles it
is queued again. If the API server rejects the worker's requests, the key is retried with backoff. If the work fails with another error, the key
is quarantined (`cluster.informers.quarantine`) until its object changes and adds it again, or until `healing` seconds have passed. The queue
holds each key once, so its size is bounded by the number of objects.
"""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING, Generic, TypeVar

from cluster.errors import ApiError, Conflict
from cluster.informers import Backoff, Quarantine

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable

K = TypeVar("K", bound="Hashable")
logger = logging.getLogger("drawbridge.workqueue")
HEALING_SECONDS = 600.0


class WorkQueue(Generic[K]):
    """An ordered set of keys, for one event loop."""

    def __init__(
        self,
        name: str,
        *,
        backoff: Backoff | None = None,
        quarantine: Quarantine | None = None,
        healing: float = HEALING_SECONDS,
    ) -> None:
        """After `healing` seconds a quarantined key is tried again."""
        self._name = name
        self._healing = healing
        self.quarantine = Quarantine() if quarantine is None else quarantine
        self._backoff = backoff or Backoff(least=0.05, most=60.0)
        self._ready: dict[K, None] = {}
        self._later: dict[K, asyncio.TimerHandle] = {}
        self._working: set[K] = set()
        self._again: set[K] = set()
        self._failures: dict[K, int] = {}
        self._filled = asyncio.Event()

    def __len__(self) -> int:
        return len(self._ready) + len(self._later)

    def add(self, key: K) -> None:
        """Queue a key, unless it is queued already."""
        if key in self._working:
            self._again.add(key)
            return
        if timer := self._later.pop(key, None):
            timer.cancel()
        self._ready[key] = None
        self._filled.set()

    def add_after(self, key: K, seconds: float) -> None:
        """Queue a key after a delay, unless the key is queued or is due sooner."""
        loop = asyncio.get_running_loop()
        timer = self._later.get(key)
        if key in self._ready or (timer is not None and timer.when() <= loop.time() + seconds):
            return
        if timer is not None:
            timer.cancel()
        self._later[key] = loop.call_later(seconds, self._due, key)

    async def run(self, work: Callable[[K], Awaitable[None]], *, deadline: float = 60.0) -> None:
        """Work on keys until cancelled. API errors are retried with backoff; a key with any other error is quarantined."""
        try:
            while True:
                while not self._ready:
                    self._filled.clear()
                    await self._filled.wait()
                key = next(iter(self._ready))
                del self._ready[key]
                self._working.add(key)
                parts = key if isinstance(key, tuple) else (key,)
                guard = self.quarantine.guard(self._name, *map(str, parts))
                try:
                    with guard:
                        try:
                            async with asyncio.timeout(deadline):
                                await work(key)
                        except (ApiError, OSError) as error:  # TimeoutError is an OSError
                            failures = self._failures.get(key, 0) + 1
                            self._failures[key] = failures
                            seconds = self._backoff.seconds(failures, random.random(), error)  # noqa: S311  jitter
                            # Conflicts are expected; only repeated ones are warnings.
                            is_usual = isinstance(error, Conflict) and failures < 5
                            level = logging.INFO if is_usual else logging.WARNING
                            message = str(error) or type(error).__name__
                            logger.log(level, "%s %s: %s; again in %.2f s", self._name, key, message, seconds)
                            self.add_after(key, seconds)
                        else:
                            self._failures.pop(key, None)
                    if guard.failed:
                        self._failures.pop(key, None)
                        self.add_after(key, self._healing)
                finally:
                    self._working.discard(key)
                    if key in self._again:
                        self._again.discard(key)
                        self.add(key)
                await asyncio.sleep(0)  # let other tasks run: work on an embedded store may never suspend
        finally:
            for timer in self._later.values():
                timer.cancel()
            self._later.clear()

    def _due(self, key: K) -> None:
        self._later.pop(key, None)
        self.add(key)
