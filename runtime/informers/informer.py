"""An informer: a copy of a collection that follows the cluster, and tells those who asked what changed.

The decisions are `runtime.informers.reflection`'s (what to ask next) and `runtime.informers.cache`'s (what an answer means); here they meet
a clock and a cluster. Listeners are plain functions called in line with one `Batch` at a time, so each sees the copy
exactly as the batch left it, and no queue can grow. A listener that has slow work marks it and returns
(`runtime.controllers.workqueue`).

A listener that fails on a batch is told once more, object by object, and only what fails then is set aside
(`runtime.informers.quarantine`): so it has to bear hearing the same twice.

The copy is as good as the last word from the server. Watches are short, because a server says how far it is shortly
before it ends one; a watch that says nothing for longer is dead, whatever its connection looks like, and another is
opened. `confirmed_at` is when the copy was last known to be current.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from typing import TYPE_CHECKING, Generic, TypeVar, assert_never

import msgspec

from cluster.errors import ApiError, Unavailable
from cluster.protocol import ADDED, DELETED, Bookmark, Change, Unreadable
from cluster.resources import key, owner, version_of
from dra.footprint import footprint
from runtime.informers.allotment import NODE_SHARE, Allotment, scale
from runtime.informers.backoff import Backoff
from runtime.informers.cache import Cache, Delta
from runtime.informers.quarantine import PASSED, Quarantine
from runtime.informers.reflection import SHORT_WATCH, Outcome, Phase, ReflectionState, outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cluster.protocol import Reader
    from cluster.resources import Key, Resource

T = TypeVar("T")
# A server sends a bookmark two seconds before the end that was asked for, and in between once a minute at most.
WATCH_SECONDS = 20.0
SILENCE_SECONDS = 30.0
_NEVER = float("-inf")
# How long after a collection was read it may be read again for no other reason than that there is room for more of it.
REREAD_SECONDS = 300.0
# In a storm of events other work on the loop gets a turn this often: a webhook answers beside its informers.
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
    confirmed_at: float  # by the informer's clock; -inf before the first reading


class Informer(Generic[T]):
    """Follows one collection of one cluster."""

    def __init__(
        self,
        cluster: Reader,
        resource: Resource[T],
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        page: int = 0,
        stream: bool = True,
        backoff: Backoff | None = None,
        watch_seconds: float = WATCH_SECONDS,
        silence: float = SILENCE_SECONDS,
        reread: float = REREAD_SECONDS,
        quarantine: Quarantine | None = None,
        trim: Callable[[T], T] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock` counts seconds and never goes back. A quarantine may be shared by the informers of a process.

        `trim` leaves away what is not asked of an object, before it is kept.
        """
        self._cluster = cluster
        self.resource = resource
        self._namespace = namespace
        self._labels = labels
        self._fields = fields
        self._page = page or resource.page
        self._backoff = backoff or Backoff()
        self._watch_seconds = watch_seconds
        self._silence = silence
        self._reread = reread
        self._clock = clock
        self._trim = trim
        self.quarantine = Quarantine() if quarantine is None else quarantine
        self._state = ReflectionState(phase=Phase.STREAM if stream else Phase.LIST, streams=stream)
        self._cache: Cache[T] = Cache()
        self._listeners: list[Callable[[Batch[T]], None]] = []
        self._synced = asyncio.Event()
        # What the copy may take of the memory, and what a copy may that is being read.
        self._room = self._empty_room()
        self._next_room = self._empty_room()
        self._read_at = _NEVER
        self._read: list[T] = []
        self._broken: list[Unreadable] = []
        self._events = 0
        self._reads = 0
        self._error = ""
        self._told = ""
        self._confirmed = _NEVER
        # Of objects that are set aside: the last form that every listener took.
        self._accepted: dict[Key, T | None] = {}

    @property
    def objects(self) -> Mapping[Key, T]:
        """The copy: objects by namespace and name. A live view, consistent whenever our code runs."""
        return self._cache.objects

    @property
    def unreadable(self) -> Mapping[Key, Unreadable]:
        """Objects that do not have the type they should; the copy keeps their last readable form, if any."""
        return self._cache.unreadable

    @property
    def incomplete(self) -> bool:
        """Whether objects are set aside: what the copy lacks may well be there, and what it has may be an old form."""
        return bool(self._cache.unreadable or self._accepted or self._room.aside)

    @property
    def set_aside(self) -> frozenset[Key]:
        """The objects, by namespace and name, that are set aside; without a name, some of a namespace."""
        if not self.incomplete:
            return frozenset()
        crowded = [(name, "") if self.resource.namespaced else ("", name) for name in self._room.aside]
        return frozenset((*self._cache.unreadable, *self._accepted, *crowded))

    @property
    def health(self) -> Health:
        """How current the copy is, and what went wrong lately."""
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
            confirmed_at=self._confirmed,
        )

    @property
    def confirmed_at(self) -> float:
        """When the copy was last known to be current, by the informer's clock; -inf before the first reading."""
        return self._confirmed

    def listen(self, listener: Callable[[Batch[T]], None]) -> None:
        """Call a function with every batch; one that comes late gets the present copy as its first."""
        self._listeners.append(listener)
        if not self._synced.is_set():
            return
        objects = self._cache.objects.items()
        present = [Delta(where, None, one) for where, one in objects]
        version = self._state.version
        batch = Batch(tuple(present), version, complete=True)
        heard = self._hear(listener, batch)
        self._settle(heard)

    async def wait_for_sync(self, seconds: float) -> bool:
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
                result = await (self._list() if self._state.phase is Phase.LIST else self._watch())
            except ApiError as error:
                self._error = error.message
                await self._move(outcome(error), error)
            else:
                self._error = "the server ended the watch before it said anything"
                await self._move(result)

    async def _move(self, result: Outcome, error: ApiError | None = None) -> None:
        state = self._state.after(result)
        self._state = state
        if not state.more:
            self._begin_reading()
        if not state.failures:
            self._told = ""
            return
        fraction = random.random()  # noqa: S311  jitter, no secret
        seconds = self._backoff.seconds(state.failures, fraction, error)
        # Once, for an older server lacks a kind for good.
        level = logging.WARNING if self._error != self._told else logging.DEBUG
        logger.log(level, "%s: %s; trying again in %.1f s", self.resource.id, self._error, seconds)
        self._told = self._error
        await asyncio.sleep(seconds)

    async def _list(self) -> Outcome:
        """Read page after page. What was read stays for the next try, unless its token turns out to be too old."""
        begun = self._clock()
        while True:
            page = await self._cluster.list(
                self.resource,
                self._namespace,
                labels=self._labels,
                fields=self._fields,
                limit=self._page,
                more=self._state.more,
            )
            for item in page.items:
                self._collect(ADDED, item)
            self._broken.extend(page.unreadable)
            if not page.more:
                self._complete(page.resource_version)
                # Pages are of one version, that of the first.
                self._confirmed = max(self._confirmed, begun)
                return Outcome.COMPLETE
            self._state = self._state.turn_page(page.more)

    async def _watch(self) -> Outcome:
        """Follow one watch to its end. One that streams the collection first becomes an ordinary one by that."""
        now = asyncio.get_running_loop().time
        begun, before = now(), self._events
        seconds = self._watch_seconds * (1 + random.random() / 4)  # noqa: S311  so that watches do not all end at once
        patience = asyncio.timeout(self._silence)
        try:
            async with (
                patience,
                self._cluster.watch(
                    self.resource,
                    self._namespace,
                    labels=self._labels,
                    fields=self._fields,
                    resource_version=self._state.version,
                    initial=self._state.phase is Phase.STREAM,
                    timeout=seconds,
                ) as events,
            ):
                turn = now()
                patience.reschedule(turn + self._silence)
                async for event in events:
                    if (moment := now()) - turn > TURN:
                        await asyncio.sleep(0)
                        turn = moment
                        patience.reschedule(moment + self._silence)
                    self._events += 1
                    if self._state.phase is Phase.WATCH:
                        self._take(event)
                    else:  # a streamed list
                        match event:
                            case Unreadable():
                                self._broken.append(event)
                            case Change():
                                self._collect(event.type, event.object)
                            case Bookmark() if event.initial_end:
                                self._complete(event.resource_version)
                                self._state = self._state.after(Outcome.COMPLETE)
                            case _:
                                pass
                    self._confirmed = self._clock() if self._state.phase is Phase.WATCH else self._confirmed
        except TimeoutError:
            if not patience.expired():
                raise
            raise Unavailable(f"the watch said nothing for {self._silence:g} s") from None
        if self._events == before and now() - begun < SHORT_WATCH:
            return Outcome.FAILED
        if self._state.phase is Phase.WATCH:
            self._confirmed = self._clock()  # ended in good order: there was nothing more to say
            if self._room.is_freed and self._clock() - self._read_at > self._reread:
                return Outcome.GONE  # what was set aside is to be found by reading everything
        return Outcome.ENDED

    def _begin_reading(self) -> None:
        self._read = []
        self._broken = []
        self._next_room = self._empty_room()

    def _empty_room(self) -> Allotment:
        share = 0 if self.resource.namespaced else NODE_SHARE
        return Allotment(round(self.resource.room * scale()), share)

    def _collect(self, type_: str, obj: T) -> None:
        """Keep an object of a collection that is being read. What the copy has already is not kept twice."""
        where = key(obj)
        version = version_of(obj)
        before = self._cache.objects.get(where)
        is_known = before is not None and self._room.has(where)
        if before is not None and is_known and version_of(before) == version:
            obj = before
        kept = self._fit(self._next_room, type_, obj)
        if kept is not None:
            self._read.append(kept)

    def _fit(self, room: Allotment, type_: str, obj: T) -> T | None:
        """Say what of an object is kept: all of it where there is room, its outline if there is none, or nothing."""
        if self._trim is not None:
            obj = self._trim(obj)
        where = key(obj)
        whose = owner(obj)
        size = footprint(obj) if type_ != DELETED else 0
        was_aside = type_ != ADDED and not room.has(where)
        if was_aside and where not in self._cache.unreadable and room.take_back(whose):
            self.quarantine.release((self.resource.id, whose))
        if type_ == DELETED:
            room.leave(where)
            return obj
        if room.take(where, whose, size):
            return obj
        problem = room.put_aside(whose, where[1], size)
        self.quarantine.hold((self.resource.id, whose), problem)
        outline = self.resource.outline
        return outline(obj) if outline is not None else None

    def _complete(self, version: str) -> None:
        """The whole collection was read: it becomes the copy at once."""
        unreadable_before = set(self._cache.unreadable)
        deltas = self._cache.replace(self._read, self._broken)
        for broken in self._broken:
            self._set_aside(broken)
        for where in unreadable_before - set(self._cache.unreadable):
            self.quarantine.release(self._what(where))
        # What was read takes the room of what was there.
        before = self._room.aside.keys()
        self._room = self._next_room
        for whose in before - self._room.aside.keys():
            self.quarantine.release((self.resource.id, whose))
        self._read_at = self._clock()
        self._begin_reading()
        self._reads += 1
        self._state = self._state.advance(version)
        self._synced.set()
        self._tell(Batch(deltas, version, complete=True))

    def _take(self, event: Change[T] | Bookmark | Unreadable) -> None:
        self._state = self._state.advance(event.resource_version)
        match event:
            case Bookmark():
                return
            case Unreadable():
                self._set_aside(event)
                delta = self._cache.skip(event)
            case Change():
                kept = self._fit(self._room, event.type, event.object)
                change = event
                if kept is None:  # to the copy it is gone
                    change = Change(DELETED, event.object, event.resource_version)
                elif kept is not event.object:
                    change = Change(event.type, kept, event.resource_version)
                delta = self._cache.change(change)
            case _:
                assert_never(event)
        if delta is not None:
            self._tell(Batch((delta,), event.resource_version))

    def _set_aside(self, broken: Unreadable) -> None:
        what = self._what((broken.namespace, broken.name))
        if broken.deleted:
            self.quarantine.release(what)
        else:
            self.quarantine.hold(what, broken.problem, broken.resource_version)

    def _tell(self, batch: Batch[T]) -> None:
        """Tell every listener; what one of them could not digest is set aside, all else is taken back."""
        if self._accepted:
            # A form that was set aside was never there: what follows it is told as following the one before.
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
            failures |= self._hear(listener, batch)
        if self.quarantine.held:
            unreadable = self._cache.unreadable
            for delta in batch.deltas:
                where = delta.key
                if where not in failures and where not in unreadable:
                    self.quarantine.release(self._what(where))
                    self._accepted.pop(where, None)
        self._settle(failures)

    def _hear(self, listener: Callable[[Batch[T]], None], batch: Batch[T]) -> dict[Key, tuple[Delta[T], Exception]]:
        """Tell one listener, and if that fails, one object at a time; give back the objects that it fails on."""
        failures: dict[Key, tuple[Delta[T], Exception]] = {}
        try:
            listener(batch)
        except PASSED:
            raise
        except Exception:
            if not batch.deltas:
                raise  # there is no object to blame
            complete = batch.complete
            for delta in batch.deltas:
                try:
                    listener(Batch((delta,), batch.version, complete=complete))
                except PASSED:
                    raise
                except Exception as error:  # noqa: BLE001  whatever an object does to a listener, the others are told
                    failures[delta.key] = delta, error
                complete = False
        return failures

    def _settle(self, failures: Mapping[Key, tuple[Delta[T], Exception]]) -> None:
        """Set aside what listeners failed on."""
        for where, (delta, error) in failures.items():
            what = self._what(where)
            if delta.new is None:
                self.quarantine.release(what)
                self._accepted.pop(where, None)
                continue
            self._accepted.setdefault(where, delta.old)
            version = version_of(delta.new)
            self.quarantine.hold(what, error, version)

    def _what(self, where: Key) -> tuple[str, str, str]:
        return self.resource.id, *where
