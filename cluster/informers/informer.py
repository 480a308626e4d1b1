"""An informer: a copy of a collection that follows the cluster, and tells those who asked what changed.

The decisions are `cluster.informers.reflection`'s (what to ask next) and `cluster.informers.cache`'s (what an answer means); here they meet
a clock and a cluster. Listeners are plain functions called in line with one `Batch` at a time, so each sees the copy
exactly as the batch left it, and no queue can grow. A listener that has slow work marks it and returns
(`cluster.controllers.workqueue`).
"""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING, Generic, TypeVar, assert_never

import msgspec

from cluster.errors import ApiError
from cluster.informers.backoff import Backoff
from cluster.informers.cache import Cache, Delta
from cluster.informers.reflection import SHORT_WATCH, Outcome, Phase, State, outcome
from cluster.protocol import Bookmark, Change, Unreadable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cluster.protocol import Cluster
    from cluster.resources import Key, Resource

T = TypeVar("T")
WATCH_SECONDS = 300.0
# In a storm of events everybody else on the loop gets a turn this often: a webhook answers beside its informers.
TURN = 0.001
logger = logging.getLogger("drawbridge.informer")


class Batch(msgspec.Struct, Generic[T], frozen=True):
    """What changed at once. `complete` marks a copy that was read as a whole: from here on it is the collection."""

    deltas: tuple[Delta[T], ...]
    version: str
    complete: bool = False


class Health(msgspec.Struct, frozen=True):
    """How an informer fares, as a value for readiness, metrics and people."""

    resource: str
    synced: bool
    version: str
    objects: int
    unreadable: int
    events: int
    reads: int  # times the whole collection was read
    failures: int  # in a row, now
    error: str  # the last one, while failures are not zero


class Informer(Generic[T]):
    """Follows one collection of one cluster."""

    def __init__(
        self,
        cluster: Cluster,
        resource: Resource[T],
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        page: int = 0,
        stream: bool = True,
        backoff: Backoff | None = None,
        watch_seconds: float = WATCH_SECONDS,
    ) -> None:
        self._cluster = cluster
        self.resource = resource
        self._namespace = namespace
        self._labels = labels
        self._fields = fields
        self._page = page or resource.page
        self._backoff = backoff or Backoff()
        self._watch_seconds = watch_seconds
        self._state = State(phase=Phase.STREAM if stream else Phase.LIST, streams=stream)
        self._cache: Cache[T] = Cache()
        self._listeners: list[Callable[[Batch[T]], None]] = []
        self._synced = asyncio.Event()
        self._read: list[T] = []
        self._broken: list[Unreadable] = []
        self._events = 0
        self._reads = 0
        self._error = ""

    @property
    def objects(self) -> Mapping[Key, T]:
        """The copy: objects by namespace and name. A live view, consistent whenever our code runs."""
        return self._cache.objects

    @property
    def unreadable(self) -> Mapping[Key, Unreadable]:
        """Objects that do not have the type they should; the copy keeps their last readable form, if any."""
        return self._cache.unreadable

    @property
    def health(self) -> Health:
        """How it fares."""
        return Health(
            resource=self.resource.id,
            synced=self._synced.is_set(),
            version=self._state.version,
            objects=len(self._cache.objects),
            unreadable=len(self._cache.unreadable),
            events=self._events,
            reads=self._reads,
            failures=self._state.failures,
            error=self._error if self._state.failures else "",
        )

    def listen(self, listener: Callable[[Batch[T]], None]) -> None:
        """Call a function with every batch; one that comes late gets the present copy as its first."""
        self._listeners.append(listener)
        if self._synced.is_set():
            present = tuple(Delta(where, None, one) for where, one in self._cache.objects.items())
            listener(Batch(present, self._state.version, complete=True))

    async def synced(self, seconds: float) -> bool:
        """Wait until the whole collection was read once; say whether it was in time."""
        try:
            async with asyncio.timeout(seconds):
                await self._synced.wait()
        except TimeoutError:
            return False
        return True

    async def run(self) -> None:
        """Follow until cancelled. Errors of the API are waited out; any other is a bug or a broken set-up, and raised."""
        while True:
            try:
                result = await self._step()
            except ApiError as error:
                self._error = error.message
                await self._move(outcome(error), error)
            else:
                self._error = "the server ended the watch before it said anything"
                await self._move(result)

    async def _move(self, result: Outcome, error: ApiError | None = None) -> None:
        self._state = self._state.after(result)
        if not self._state.more:
            self._read, self._broken = [], []
        if not self._state.failures:
            return
        seconds = self._backoff.seconds(self._state.failures, random.random(), error)  # noqa: S311  jitter, no secret
        logger.warning("%s: %s; trying again in %.1f s", self.resource.id, self._error, seconds)
        await asyncio.sleep(seconds)

    async def _step(self) -> Outcome:
        match self._state.phase:
            case Phase.LIST:
                return await self._list()
            case Phase.STREAM | Phase.WATCH:
                return await self._watch()

    async def _list(self) -> Outcome:
        """Read page after page. What was read stays for the next try, unless its token turns out to be too old."""
        while True:
            page = await self._cluster.list(
                self.resource,
                self._namespace,
                labels=self._labels,
                fields=self._fields,
                limit=self._page,
                more=self._state.more,
            )
            self._read.extend(page.items)
            self._broken.extend(page.unreadable)
            if not page.more:
                self._complete(page.resource_version)
                return Outcome.COMPLETE
            self._state = self._state.paged(page.more)

    async def _watch(self) -> Outcome:
        """Follow one watch to its end. One that streams the collection first becomes an ordinary one by that."""
        clock = asyncio.get_running_loop().time
        begun, before = clock(), self._events
        async with self._cluster.watch(
            self.resource,
            self._namespace,
            labels=self._labels,
            fields=self._fields,
            resource_version=self._state.version,
            initial=self._state.phase is Phase.STREAM,
            timeout=self._watch_seconds * (1 + random.random()),  # noqa: S311  so that watches do not all end at once
        ) as events:
            turn = begun
            async for event in events:
                if clock() - turn > TURN:
                    await asyncio.sleep(0)
                    turn = clock()
                self._events += 1
                if self._state.phase is Phase.WATCH:
                    self._take(event)
                elif self._gathered(event):
                    self._complete(event.resource_version)
                    self._state = self._state.after(Outcome.COMPLETE)
        silent = self._events == before and clock() - begun < SHORT_WATCH
        return Outcome.FAILED if silent else Outcome.ENDED

    def _gathered(self, event: Change[T] | Bookmark | Unreadable) -> bool:
        """Keep an event of a streamed list; say whether it was its end."""
        match event:
            case Bookmark():
                return event.initial_end
            case Unreadable():
                self._broken.append(event)
            case Change():
                self._read.append(event.object)
        return False

    def _complete(self, version: str) -> None:
        """The whole collection was read: it becomes the copy at once."""
        deltas = self._cache.replace(self._read, self._broken)
        self._read, self._broken = [], []
        self._reads += 1
        self._state = self._state.seen(version)
        self._synced.set()
        self._tell(Batch(deltas, version, complete=True))

    def _take(self, event: Change[T] | Bookmark | Unreadable) -> None:
        self._state = self._state.seen(event.resource_version)
        match event:
            case Bookmark():
                return
            case Unreadable():
                logger.warning(
                    "%s %s/%s cannot be read: %s", self.resource.id, event.namespace, event.name, event.problem
                )
                delta = self._cache.skip(event)
            case Change():
                delta = self._cache.change(event)
            case _:
                assert_never(event)
        if delta is not None:
            self._tell(Batch((delta,), event.resource_version))

    def _tell(self, batch: Batch[T]) -> None:
        for listener in self._listeners:
            listener(batch)
