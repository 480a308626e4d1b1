"""An informer: keeps a local copy of a collection up to date and calls listeners with the changes.

`cluster.informers.reflection` decides what to request next, and `cluster.informers.cache` applies the answers; this module adds the clock and
the cluster. Listeners are called synchronously with one `Batch` at a time, so they see the copy exactly as it is after the batch, and no queue
can grow. A listener with slow work queues the work and returns (`cluster.controllers.workqueue`).

If a listener fails on a batch, it is called again for each object, and only the objects on which it fails are quarantined
(`cluster.informers.quarantine`). So a listener must tolerate the same change twice.

Watches are short, because a server sends a bookmark with the current version shortly before it ends a watch. A watch without an event for
`silence` seconds counts as dead, even if its connection is open: the collection is listed, and then watched again. `confirmed_at` is when the
copy was last known to be current.
"""

from __future__ import annotations

import asyncio
import logging
import random
from math import inf
from typing import TYPE_CHECKING, Generic, TypeVar, assert_never

import msgspec

from cluster.errors import ApiError, Gone, Unavailable
from cluster.informers.allotment import NODE_SHARE, Allotment, scale
from cluster.informers.backoff import Backoff
from cluster.informers.cache import Delta, ObjectCache
from cluster.informers.quarantine import PASSED, Quarantine
from cluster.informers.reflection import (
    SHORT_WATCH,
    STABLE_WATCH,
    TABLE,
    ReflectionPhase,
    ReflectionState,
    SilentWatch,
    StepOutcome,
    outcome,
)
from cluster.protocol import ADDED, DELETED, Bookmark, Change, Unreadable
from cluster.resources import key, owner, version_of
from dra.footprint import footprint

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cluster.protocol import Reader
    from cluster.resources import Key, Resource

T = TypeVar("T")
# A server sends a bookmark two seconds before the requested end of a watch, and otherwise at most once a minute.
WATCH_SECONDS = 20.0
SILENCE_SECONDS = 30.0
REREAD_SECONDS = (
    300.0  # the shortest time between two complete reads, if the second one is for objects that did not fit
)
TURN = 0.001  # seconds of handling events, after which a watch lets the event loop do other work, such as a webhook's answers
logger = logging.getLogger("drawbridge.informer")


class Batch(msgspec.Struct, Generic[T], frozen=True):
    """Changes that are applied together. `complete` means that the whole collection was read again."""

    deltas: tuple[Delta[T], ...]
    version: str
    complete: bool = False


class Informer(Generic[T]):
    def __init__(
        self,
        cluster: Reader,
        resource: Resource[T],
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        stream: bool = True,
        backoff: Backoff | None = None,
        watch_seconds: float = WATCH_SECONDS,
        silence: float = SILENCE_SECONDS,
        reread: float = REREAD_SECONDS,
        quarantine: Quarantine | None = None,
        trim: Callable[[T], T] | None = None,
    ) -> None:
        """Informers can share a `quarantine`. `trim` removes unneeded fields before an object is kept."""
        self._cluster = cluster
        self.resource = resource
        self._namespace = namespace
        self._labels = labels
        self._fields = fields
        self._backoff = backoff or Backoff(least=1.6)  # like client-go's reflector: 0.8 to 1.6 s, doubling to 30 s
        self._watch_seconds = watch_seconds
        self._silence = silence
        self._reread = reread
        self._clock = asyncio.get_running_loop().time
        self._trim = trim
        self.quarantine = Quarantine() if quarantine is None else quarantine
        self._state = ReflectionState(phase=ReflectionPhase.STREAM if stream else ReflectionPhase.LIST, streams=stream)
        self._cache: ObjectCache[T] = ObjectCache()
        self._listeners: list[Callable[[Batch[T]], None]] = []
        self._synced = asyncio.Event()
        # The memory of the copy, and of the next copy while it is being read.
        self._room = self._empty_room()
        self._next_room = self._empty_room()
        self._time_limit: asyncio.Timeout | None = None  # the time limit of the open watch
        self._watching_since = inf  # when the open watch began to send changes
        self._read_at = -inf
        self._read: list[T] = []
        self._read_unreadable: list[Unreadable] = []
        self.events = 0  # events received from watches
        self.full_list_count = 0  # how often the whole collection was listed
        # When the copy was last known to be current, by the clock of the event loop.
        self.confirmed_at = -inf
        self._error = ""
        self._logged_error = ""
        # For quarantined objects: the last form that all listeners accepted.
        self._accepted: dict[Key, T | None] = {}

    @property
    def objects(self) -> Mapping[Key, T]:
        """The copy: a live view of the objects by namespace and name."""
        return self._cache.objects

    @property
    def unreadable(self) -> Mapping[Key, Unreadable]:
        """Objects that do not match their type; the copy keeps their last readable form, if any."""
        return self._cache.unreadable

    @property
    def incomplete(self) -> bool:
        """Whether the copy lacks objects or has old forms of them, because they are unreadable, quarantined or do not fit."""
        return bool(self._cache.unreadable or self._accepted or self._room.aside)

    @property
    def set_aside(self) -> frozenset[Key]:
        """The keys of objects that are missing or outdated; an empty name stands for some objects of the namespace."""
        if not self.incomplete:
            return frozenset()
        crowded = [(name, "") if self.resource.namespaced else ("", name) for name in self._room.aside]
        return frozenset((*self._cache.unreadable, *self._accepted, *crowded))

    @property
    def is_synced(self) -> bool:
        """Whether the collection was read completely since the start."""
        return self._synced.is_set()

    @property
    def version(self) -> str:
        """The copy has all changes up to this version."""
        return self._state.version

    @property
    def error(self) -> str:
        """The last error; "" if the server has answered since then."""
        return self._error

    def listen(self, listener: Callable[[Batch[T]], None]) -> None:
        """Call a function with every batch; call this before `run`. The first batch is the whole collection."""
        self._listeners.append(listener)

    async def wait_for_sync(self, seconds: float = inf) -> bool:
        """Wait for the first sync; report whether it came in time."""
        try:
            async with asyncio.timeout(seconds):
                await self._synced.wait()
        except TimeoutError:
            return False
        return True

    def distrust_watch(self) -> bool:
        """End the open watch, which seems to miss changes, and list the collection; return False if no watch is open."""
        time_limit, self._time_limit = self._time_limit, None
        if time_limit is None or time_limit.expired():
            return False
        time_limit.reschedule(self._clock())
        return True

    async def run(self) -> None:
        """Run until cancelled. API errors are retried; any other error is a bug or a broken set-up and is raised."""
        while True:
            try:
                result = await (self._list() if self._state.phase is ReflectionPhase.LIST else self._watch())
            except ApiError as error:
                self._error = error.message
                await self._move(outcome(error), error)
            else:
                await self._move(result)

    async def _move(self, result: StepOutcome, error: ApiError | None = None) -> None:
        is_failure = TABLE[self._state.phase, result].counted
        was_stable = self._clock() - self._watching_since >= STABLE_WATCH
        self._watching_since = inf
        self._state = state = self._state.after(result, was_stable=was_stable)
        if not state.more:
            self._begin_reading()
        if not state.failures:
            self._logged_error = ""
        if not is_failure:
            return
        fraction = random.random()  # noqa: S311  jitter, no secret
        seconds = self._backoff.seconds(state.failures, fraction, error)
        # Versions expire now and then. Only the first of equal errors is a warning, because an older server may never have the kind.
        is_usual = self._error == self._logged_error or (result is StepOutcome.GONE and state.failures == 1)
        level = logging.DEBUG if is_usual else logging.WARNING
        logger.log(level, "%s: %s; trying again in %.1f s", self.resource.id, self._error, seconds)
        if not is_usual:
            self._logged_error = self._error
        await asyncio.sleep(seconds)

    async def _list(self) -> StepOutcome:
        """Read all pages. After an error, the next call continues with the page that failed, unless its token has expired."""
        started_at = self._clock()
        while True:
            page = await self._cluster.list(
                self.resource,
                self._namespace,
                labels=self._labels,
                fields=self._fields,
                limit=self.resource.page,
                more=self._state.more,
            )
            for item in page.items:
                self._collect(ADDED, item)
            self._read_unreadable.extend(page.unreadable)
            if not page.more:
                self._complete(page.resource_version)
                # All pages have the version of the first.
                self.confirmed_at = max(self.confirmed_at, started_at)
                return StepOutcome.COMPLETE
            self._state = self._state.turn_page(page.more)

    async def _watch(self) -> StepOutcome:
        """Read one watch to its end. If it begins with the whole collection (a streamed list), it is an ordinary watch after that."""
        now = self._clock
        started_at = turn_began = now()
        events_before = self.events
        seconds = self._watch_seconds * (1 + random.random() / 4)  # noqa: S311  spreads the ends of watches
        self._time_limit = time_limit = asyncio.timeout(self._silence)
        try:
            async with (
                time_limit,
                self._cluster.watch(
                    self.resource,
                    self._namespace,
                    labels=self._labels,
                    fields=self._fields,
                    resource_version=self._state.version,
                    initial=self._state.phase is ReflectionPhase.STREAM,
                    timeout=seconds,
                ) as events,
            ):
                turn_began = now()
                if self._state.phase is ReflectionPhase.WATCH:
                    self._watching_since = turn_began
                time_limit.reschedule(turn_began + self._silence)
                async for event in events:
                    if (event_time := now()) - turn_began > TURN:
                        await asyncio.sleep(0)
                        turn_began = event_time
                        time_limit.reschedule(event_time + self._silence)
                    self.events += 1
                    if self._state.phase is ReflectionPhase.WATCH:
                        self._take(event)
                    else:  # a streamed list
                        match event:
                            case Unreadable():
                                self._read_unreadable.append(event)
                            case Change():
                                self._collect(event.type, event.object)
                            case Bookmark() if event.initial_end:
                                self._complete(event.resource_version)
                                self._state = self._state.after(StepOutcome.COMPLETE)
                                self._watching_since = now()
                            case _:
                                pass
                    if self._state.phase is ReflectionPhase.WATCH:
                        self.confirmed_at = self._clock()
        except TimeoutError:
            if not time_limit.expired():
                raise
            raise SilentWatch(f"the watch was silent for {min(self._silence, now() - turn_began):.3g} s") from None
        finally:
            self._time_limit = None
        if self.events == events_before and now() - started_at < SHORT_WATCH:
            raise Unavailable("the server ended the watch before sending anything")
        if self._state.phase is ReflectionPhase.STREAM:
            raise Unavailable("the server ended the watch before sending all objects")
        self.confirmed_at = now()  # a watch that ends regularly has sent everything
        if self._room.is_freed and now() - self._read_at > self._reread:
            raise Gone("there is room again for objects that were not kept")  # only reading everything finds them
        return StepOutcome.ENDED

    def _begin_reading(self) -> None:
        self._read = []
        self._read_unreadable = []
        self._next_room = self._empty_room()

    def _empty_room(self) -> Allotment:
        share = 0 if self.resource.namespaced else NODE_SHARE
        return Allotment(round(self.resource.room * scale()), share)

    def _collect(self, type_: str, obj: T) -> None:
        """Keep an object of the collection that is being read; an unchanged object is shared with the copy."""
        where = key(obj)
        version = version_of(obj)
        before = self._cache.objects.get(where)
        is_known = before is not None and self._room.has(where)
        if before is not None and is_known and version_of(before) == version:
            obj = before
        fitted = self._fit(self._next_room, type_, obj)
        if fitted is not None:
            self._read.append(fitted)

    def _fit(self, room: Allotment, type_: str, obj: T) -> T | None:
        """Return what to keep of an object: all of it if it fits, otherwise its outline, or None if its kind has no outline."""
        if self._trim is not None:
            obj = self._trim(obj)
        where = key(obj)
        tenant = owner(obj)
        size = footprint(obj) if type_ != DELETED else 0
        was_aside = type_ != ADDED and not room.has(where)
        if was_aside and where not in self._cache.unreadable and room.take_back(tenant):
            self.quarantine.release((self.resource.id, tenant))
        if type_ == DELETED:
            room.leave(where)
            return obj
        if room.take(where, tenant, size):
            return obj
        problem = room.put_aside(tenant, where[1], size)
        self.quarantine.hold((self.resource.id, tenant), problem)
        outline = self.resource.outline
        return outline(obj) if outline is not None else None

    def _complete(self, version: str) -> None:
        """Replace the copy after the whole collection was read."""
        unreadable_before = set(self._cache.unreadable)
        deltas = self._cache.replace(self._read, self._read_unreadable)
        for broken in self._read_unreadable:
            self._set_aside(broken)
        for where in unreadable_before - set(self._cache.unreadable):
            self.quarantine.release(self._object_id(where))
        aside_before = self._room.aside.keys()
        self._room = self._next_room
        for tenant in aside_before - self._room.aside.keys():
            self.quarantine.release((self.resource.id, tenant))
        self._read_at = self._clock()
        self._begin_reading()
        self.full_list_count += 1
        self._state = self._state.advance(version)
        self._error = ""
        self._synced.set()
        self._deliver(Batch(deltas, version, complete=True))

    def _take(self, event: Change[T] | Bookmark | Unreadable) -> None:
        self._state = self._state.advance(event.resource_version)
        self._error = ""
        match event:
            case Bookmark():
                return
            case Unreadable():
                self._set_aside(event)
                delta = self._cache.skip(event)
            case Change():
                fitted = self._fit(self._room, event.type, event.object)
                change = event
                if fitted is None:  # the copy treats the object as deleted
                    change = Change(DELETED, event.object, event.resource_version)
                elif fitted is not event.object:
                    change = Change(event.type, fitted, event.resource_version)
                delta = self._cache.change(change)
            case _:
                assert_never(event)
        if delta is not None:
            self._deliver(Batch((delta,), event.resource_version))

    def _set_aside(self, broken: Unreadable) -> None:
        object_id = self._object_id((broken.namespace, broken.name))
        if broken.deleted:
            self.quarantine.release(object_id)
        else:
            self.quarantine.hold(object_id, broken.problem)

    def _deliver(self, batch: Batch[T]) -> None:
        """Call every listener; quarantine the objects on which one fails, and release the others."""
        if self._accepted:
            # Listeners get as `old` of a quarantined object the last form that they all accepted.
            deltas: list[Delta[T]] = []
            for delta in batch.deltas:
                if delta.key not in self._accepted:
                    deltas.append(delta)
                    continue
                before = self._accepted[delta.key]
                old = before if delta.new is not None or before is not None else delta.old
                deltas.append(Delta(delta.key, old, delta.new))
            batch = msgspec.structs.replace(batch, deltas=tuple(deltas))
        failures: dict[Key, tuple[Delta[T], Exception]] = {}
        for listener in self._listeners:
            failures |= self._call(listener, batch)
        if self.quarantine.objects:
            unreadable = self._cache.unreadable
            for delta in batch.deltas:
                where = delta.key
                if where not in failures and where not in unreadable:
                    self.quarantine.release(self._object_id(where))
                    self._accepted.pop(where, None)
        for where, (delta, error) in failures.items():
            if delta.new is None:
                self.quarantine.release(self._object_id(where))
                self._accepted.pop(where, None)
            else:
                self._accepted.setdefault(where, delta.old)
                self.quarantine.hold(self._object_id(where), error)

    def _call(self, listener: Callable[[Batch[T]], None], batch: Batch[T]) -> dict[Key, tuple[Delta[T], Exception]]:
        """Call one listener and, if it fails, again for each object; return the objects on which it fails."""
        failures: dict[Key, tuple[Delta[T], Exception]] = {}
        try:
            listener(batch)
        except PASSED:
            raise
        except Exception:
            if not batch.deltas:
                raise  # there is no object to quarantine
            if batch.complete:
                listener(Batch((), batch.version, complete=True))
            for delta in batch.deltas:
                try:
                    listener(Batch((delta,), batch.version))
                except PASSED:
                    raise
                except Exception as error:  # noqa: BLE001  the other objects must still be delivered
                    failures[delta.key] = delta, error
        return failures

    def _object_id(self, where: Key) -> tuple[str, str, str]:
        return self.resource.id, *where
