"""The table of waiting pods. The reason in a pod's row decides which changes requeue the pod: they add a `RequeueEvent` for it.

A pod enters the table when an answer makes it wait, and leaves the table when it has a node, is gone, or gets another answer. A change
requeues the pod at once; `PendingPods.tick` requeues pods for which no change was noticed.

If another plugin gates a pod, as DefaultPreemption does while it evicts, the scheduler drops the pod's requeue event. So a requeued pod
stays in the table, and the event is repeated every `CHECK_SECONDS` until the scheduler tries the pod again.

When a device becomes free, only as many pods as fit are requeued. Pods with equal requests are checked together.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from enum import StrEnum
from itertools import islice, takewhile
from typing import TYPE_CHECKING

import msgspec

from allocator.preemption import priority
from dra.objects import Pod

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from allocator.service.requeue_events import RequeueEvents

logger = logging.getLogger("drawbridge.allocator")
CHECK_SECONDS = 10.0  # seconds between two checks of a pod, or two requeue events for it
MAX_CHECKED = 1024  # pods checked in one tick
UNSEEN = 600.0  # seconds until a pod counts as gone if no watch has shown it


class WaitReason(StrEnum):
    """What a pod waits for."""

    ROOM = "room"  # a free device, or a change of devices, nodes, quotas or placement rules
    DEVICES = "devices"  # a change of devices, classes or nodes: no freed device helps
    OBJECTS = "objects"  # a missing claim or other object
    TURN = "turn"  # the next turn of its namespace (`NamespaceTurns`)
    SCHEDULER = "scheduler"  # its scheduler, which has not tried the pod since the requeue event


class WaitingPod(msgspec.Struct, frozen=True):
    pod: Pod
    since: float
    checked_at: float
    # ROOM: equal for pods with equal requests; empty if the pod has to be checked on its own. OBJECTS: the object that it lacks. SCHEDULER:
    # as before the first requeue event; empty if the event was repeated, because the pod then may never be tried.
    shape: bytes = b""


class WaitingPods:
    def __init__(self, events: RequeueEvents, clock: Callable[[], float]) -> None:
        self._events = events
        self._clock = clock
        # For each reason, the rows by uid of the pod, least recently checked first.
        self._rows: dict[WaitReason, dict[str, WaitingPod]] = {reason: {} for reason in WaitReason}
        self._freed = False
        self._untried: set[str] = set()  # uids of the pods to requeue if other pods do not take the free devices
        self._tried = False  # whether a requeued pod was tried, or is gone, since the last check
        self.is_checking = False

    def put(self, pod: Pod, reason: WaitReason, shape: bytes = b"") -> None:
        """Set the reason why a pod waits."""
        now = self._clock()
        is_repeated = self.waits_for(WaitReason.SCHEDULER, pod.metadata.uid)
        earlier = self.pop(pod.metadata.uid)
        since = now if earlier is None else earlier.since
        if earlier is not None and reason is WaitReason.SCHEDULER and not is_repeated:
            shape = earlier.shape
        self._rows[reason][pod.metadata.uid] = WaitingPod(pod, since, now, shape)

    def pop(self, uid: str) -> WaitingPod | None:
        """Remove a pod and return its row."""
        self._tried = self._tried or uid in self._rows[WaitReason.SCHEDULER]
        popped = [row for rows in self._rows.values() if (row := rows.pop(uid, None)) is not None]
        return popped[0] if popped else None

    def note_attempt(self, uid: str) -> None:
        """Remove a pod that its scheduler tries again. A pod that waits for room stays, because it may still wait although a node fits."""
        if not self.waits_for(WaitReason.ROOM, uid):
            self.pop(uid)

    def waits_for(self, reason: WaitReason, uid: str) -> bool:
        """Return whether a pod waits for this reason."""
        return uid in self._rows[reason]

    def lack_of(self, uid: str) -> bytes:
        """Return the object that a pod lacks, as recorded when it began to wait for it."""
        row = self._rows[WaitReason.OBJECTS].get(uid)
        return row.shape if row is not None else b""

    def pods_waiting_for(self, *reasons: WaitReason) -> list[Pod]:
        """Return the pods that wait for one of these reasons."""
        return [row.pod for reason in reasons for row in self._rows[reason].values()]

    def requeue(self, pods: Iterable[Pod]) -> None:
        """Add a requeue event for these pods."""
        requeued = tuple(pods)
        self._events.add(pod.metadata.key for pod in requeued)
        for pod in requeued:
            self.put(pod, WaitReason.SCHEDULER)

    def due(self, reason: WaitReason, is_seen: Callable[[str], bool]) -> list[Pod]:
        """Return up to `MAX_CHECKED` pods with this reason whose last check was at least `CHECK_SECONDS` ago.

        Pods that count as gone are removed.
        """
        now = self._clock()
        rows = takewhile(lambda row: now - row.checked_at >= CHECK_SECONDS, self._rows[reason].values())
        due_pods: list[Pod] = []
        for row in tuple(islice(rows, MAX_CHECKED)):
            if now - row.since > UNSEEN and not is_seen(row.pod.metadata.uid):
                self.pop(row.pod.metadata.uid)
            else:
                due_pods.append(row.pod)
        return due_pods

    def note_freed(self) -> None:
        """Record that a device became free, or may have become free during a decision. A running `requeue_fitting` then checks again."""
        self._freed = True

    async def requeue_fitting(self, count_fitting: Callable[[Sequence[Pod]], int]) -> None:
        """After a device became free, requeue as many pods as fit, those with the highest priority first.

        `count_fitting` returns how many of several pods with equal requests fit. If the requeued pods do not take the devices, a later call
        requeues the next pods, so that each pod which waited when the device became free is requeued once.
        """
        if self.is_checking:
            return
        self.is_checking = True
        rows = self._rows[WaitReason.ROOM]
        try:
            while self._freed or (self._untried and self._tried):
                if self._freed:
                    self._untried = set(rows)
                self._freed = self._tried = False
                self._untried &= rows.keys()
                groups: defaultdict[bytes | str, list[Pod]] = defaultdict(list)
                for uid, row in rows.items():
                    if uid in self._untried:
                        groups[row.shape or uid].append(row.pod)
                for shape, group in groups.items():
                    await asyncio.sleep(0)
                    pods = sorted([pod for pod in group if pod.metadata.uid in rows], key=lambda pod: -priority(pod))
                    requeued = [row.pod for row in self._rows[WaitReason.SCHEDULER].values() if row.shape == shape]
                    try:
                        number = count_fitting([*requeued, *pods]) if pods else 0
                    except Exception:
                        pod = pods[0].metadata.key
                        logger.exception("a bug while checking for free devices; please report it", extra={"pod": pod})
                        number = len(requeued) + len(pods)
                    if not number:
                        self._untried.difference_update([pod.metadata.uid for pod in pods])
                    self.requeue(pods[: max(0, number - len(requeued))])
        finally:
            self.is_checking = False
