"""Which pods a scheduler should try again: numbered events, read by long polls. No event is lost between two polls.

A caller that has missed more events than are remembered, or has a number of an earlier process, is told to try all pods.

When a device comes free, only pods that may fit now are requeued: of those that ask for the same, one is looked at for all.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict, deque
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

logger = logging.getLogger("drawbridge.allocator")
REMEMBERED = 256
AGAIN = 10.0  # seconds after which a pod is requeued again that its scheduler has not asked about


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


class RefusedPods:
    """Pods that found no room, and which of them are worth another try.

    A scheduler drops the event of a pod that another of its plugins holds back just then, as DefaultPreemption does while
    it evicts. So a pod that was requeued is requeued again until its scheduler asks about it.
    """

    def __init__(self, events: RequeueEvents, clock: Callable[[], float]) -> None:
        self._events = events
        self._clock = clock
        self._names: dict[str, str] = {}  # by uid
        self._shapes: dict[str, bytes] = {}  # what they ask for, by uid; empty for a pod that is unlike all others
        self._requeued: dict[str, tuple[str, float]] = {}  # name and time of those not asked about since, by uid
        self._freed = False
        self._looking = False

    def put(self, uid: str, name: str, shape: bytes = b"") -> None:
        """Remember a pod."""
        self._names[uid] = name
        self._shapes[uid] = shape

    def pop(self, uid: str) -> None:
        """Forget a pod."""
        self._names.pop(uid, None)
        self._shapes.pop(uid, None)
        self._requeued.pop(uid, None)

    def confirm(self, uid: str) -> None:
        """Note that the scheduler asks about a pod: it has heard that it was requeued."""
        self._requeued.pop(uid, None)

    def tick(self) -> None:
        """Requeue the pods again that their schedulers have not asked about for a while."""
        now = self._clock()
        late = {uid: name for uid, (name, at) in self._requeued.items() if now - at >= AGAIN}
        self._requeued.update({uid: (name, now) for uid, name in late.items()})
        self._events.add(late.values())

    def requeue_all(self) -> None:
        """Requeue every pod."""
        self._requeue(tuple(self._names))

    def needs_look(self) -> bool:
        """Note that a device came free; say whether `look` has to be called. A look under way sees it by itself."""
        self._freed = True
        if not self._names or self._looking:
            return False
        self._looking = True
        return True

    async def requeue_fitting(self, may_fit: Callable[[str], bool]) -> None:
        """Requeue the pods that may fit by now. `may_fit` is asked once, by uid, for all pods that ask for the same."""
        try:
            while self._freed:
                self._freed = False
                groups: defaultdict[bytes | str, list[str]] = defaultdict(list)
                for uid, shape in self._shapes.items():
                    groups[shape or uid].append(uid)
                for uids in groups.values():
                    first = next((uid for uid in uids if uid in self._names), None)
                    try:
                        fits = first is not None and may_fit(first)
                    except Exception:
                        name = self._names.get(first or "")
                        logger.exception("a bug while checking for free devices; please report it", extra={"pod": name})
                        fits = True
                    if fits:
                        self._requeue(uids)
                    await asyncio.sleep(0)
        finally:
            self._looking = False

    def _requeue(self, uids: Iterable[str]) -> None:
        found = {uid: self._names[uid] for uid in uids if uid in self._names}
        self._events.add(found.values())
        now = self._clock()
        for uid, name in found.items():
            self.pop(uid)
            self._requeued[uid] = name, now
