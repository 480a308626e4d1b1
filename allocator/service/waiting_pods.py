"""The table of pods that wait, each with its reason, and so with what wakes it: then its scheduler is told to try it again.

A pod is in the table from the answer that kept it waiting until it has a node, is gone, or gets another answer. Events wake it at once.
`PendingPods.tick` looks after what no event can promise.

A scheduler drops the event of a pod that another of its plugins holds back just then, as DefaultPreemption does while
it evicts. So a pod that was woken waits for its scheduler, and is named again every `AGAIN` seconds until that asks.

When a device comes free, only pods that may fit now are woken: of those that ask for the same, one is looked at for all.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from enum import StrEnum
from itertools import islice, takewhile
from typing import TYPE_CHECKING

import msgspec

from dra.objects import Pod

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from allocator.service.requeue_events import RequeueEvents

logger = logging.getLogger("drawbridge.allocator")
AGAIN = 10.0  # seconds after which a pod is looked at again, or named again
MOST = 1024  # pods that are looked at in one tick
UNSEEN = 600.0  # seconds after which a pod that no watch has shown is taken for gone


class WaitReason(StrEnum):
    """What a pod waits for, and what wakes it."""

    ROOM = "room"  # a device that comes free, or other devices, nodes, quotas or rules
    DEVICES = "devices"  # other devices or nodes: it would fit none even if nothing were in use
    OBJECTS = "objects"  # a change after which it lacks no claim or other object
    TURN = "turn"  # the turn of its namespace
    SCHEDULER = "scheduler"  # it was woken, and its scheduler has not asked since


class WaitingPod(msgspec.Struct, frozen=True):
    """A row of the table."""

    pod: Pod
    since: float
    looked_at: float
    shape: bytes = b""  # what it asks for; empty for a pod that is unlike all others


class WaitingPods:
    """The table."""

    def __init__(self, events: RequeueEvents, clock: Callable[[], float]) -> None:
        self._events = events
        self._clock = clock
        self._rows: dict[WaitReason, dict[str, WaitingPod]] = {
            reason: {} for reason in WaitReason
        }  # by uid, longest first
        self._freed = False
        self.looking = False

    def put(self, pod: Pod, reason: WaitReason, shape: bytes = b"") -> None:
        """Have a pod wait for this, and for nothing else."""
        now = self._clock()
        earlier = self.pop(pod.metadata.uid)
        since = now if earlier is None else earlier.since
        self._rows[reason][pod.metadata.uid] = WaitingPod(pod, since, now, shape)

    def pop(self, uid: str) -> WaitingPod | None:
        """Remove a pod: it is gone, or has a node or devices."""
        found = [row for rows in self._rows.values() if (row := rows.pop(uid, None)) is not None]
        return found[0] if found else None

    def confirm(self, uid: str) -> None:
        """Note that the scheduler asks about a pod. A pod that waits for room may do so although it fits somewhere."""
        if not self.waits_for(WaitReason.ROOM, uid):
            self.pop(uid)

    def waits_for(self, reason: WaitReason, uid: str) -> bool:
        """Say whether a pod waits for this."""
        return uid in self._rows[reason]

    def waiting_for(self, *reasons: WaitReason) -> list[Pod]:
        """List the pods that wait for one of these."""
        return [row.pod for reason in reasons for row in self._rows[reason].values()]

    def wake(self, pods: Iterable[Pod]) -> None:
        """Have the schedulers of pods try them again."""
        woken = tuple(pods)
        self._events.add(pod.metadata.key for pod in woken)
        for pod in woken:
            self.put(pod, WaitReason.SCHEDULER)

    def woken_before(self, time: float) -> list[Pod]:
        """List the pods that were woken by this time, and that no scheduler has asked about since."""
        return [row.pod for row in self._rows[WaitReason.SCHEDULER].values() if row.looked_at <= time]

    def due(self, reason: WaitReason, is_seen: Callable[[str], bool]) -> list[Pod]:
        """List some pods that have waited for this since their last look, and remove those that can no longer exist."""
        now = self._clock()
        rows = takewhile(lambda row: now - row.looked_at >= AGAIN, self._rows[reason].values())
        found: list[Pod] = []
        for row in tuple(islice(rows, MOST)):
            if now - row.since > UNSEEN and not is_seen(row.pod.metadata.uid):
                self.pop(row.pod.metadata.uid)
            else:
                found.append(row.pod)
        return found

    def note_freed(self) -> None:
        """Note that a device came free, or may have while a pod was decided on. A look that is under way sees it."""
        self._freed = True

    def needs_look(self) -> bool:
        """Say whether `wake_fitting` has to be called."""
        self._freed = self._freed and bool(self._rows[WaitReason.ROOM])
        return self._freed and not self.looking

    async def wake_fitting(self, may_fit: Callable[[Pod], bool]) -> None:
        """Wake the pods that may fit by now. `may_fit` is called once for all pods that ask for the same."""
        rows = self._rows[WaitReason.ROOM]
        try:
            while self._freed:
                self._freed = False
                groups: defaultdict[bytes | str, list[str]] = defaultdict(list)
                for uid, row in rows.items():
                    groups[row.shape or uid].append(uid)
                for uids in groups.values():
                    pods = [rows[uid].pod for uid in uids if uid in rows]
                    try:
                        fits = bool(pods) and may_fit(pods[0])
                    except Exception:
                        pod = pods[0].metadata.key
                        logger.exception("a bug while checking for free devices; please report it", extra={"pod": pod})
                        fits = True
                    if fits:
                        self.wake(pods)
                    await asyncio.sleep(0)
        finally:
            self.looking = False
