"""Preemption for the pods of a stock scheduler, which does not call its extender's preempt verb for devices.

Each filter call names the nodes that all other plugins accept, so this module knows the pods that lack only devices. Depending on
`--extender-preemption`, an event names the victims, or they are evicted. Pods are handled one at a time, the highest priority first. After
each pod there is a pause as long as the pod took. The state may be lost, because the scheduler calls again.
"""

from __future__ import annotations

import asyncio
import logging
from math import inf
from typing import TYPE_CHECKING

import msgspec

from allocator.decisions import Outlook
from allocator.preemption import may_preempt, priority
from allocator.service.app import HttpError
from allocator.service.settings import Preempting
from dra.objects import Pod

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from allocator.decisions import FleetOutlook
    from allocator.service.pending_pods import PendingPods
    from allocator.service.preemption.evictions import Evictions

logger = logging.getLogger("drawbridge.allocator")
MAX_QUEUED = 1024  # pods
RETRY = 5.0  # seconds between a pod's victim searches
REPEAT = 600.0  # seconds after which an unchanged event is written again
_ROOM_MAY_HELP = (Outlook.FULL, Outlook.FITS)


class _QueuedPod(msgspec.Struct, frozen=True):
    """A pod, and the nodes that all plugins of the scheduler accept for it."""

    pod: Pod
    nodes: tuple[str, ...]


class ExtenderPreemption:
    """Evicts victims for the pods of an extender, or names them in an event."""

    def __init__(
        self,
        pods: PendingPods,
        evictions: Evictions,
        record_event: Callable[[Pod, str], Awaitable[None]],
        preempting: Preempting,
        *,
        again: float = RETRY,
    ) -> None:
        self._pods = pods
        self._record_event = record_event
        self._evictions = evictions
        self._preempting = preempting
        self._again = again
        self._clock = asyncio.get_running_loop().time
        self._queued: dict[str, _QueuedPod] = {}  # by uid
        self._tried_at: dict[str, float] = {}
        self._reported: dict[str, tuple[str, float]] = {}
        self._added = asyncio.Event()
        self.scans = 0

    def note(self, pod: Pod, nodes: tuple[str, ...], fleet_outlook: FleetOutlook) -> None:
        """Queue a pod that fits on none of the nodes that the other plugins accept."""
        pod = self._pods.newest(pod)
        uid = pod.metadata.uid
        may_evict = self._preempting is not Preempting.OFF and may_preempt(pod)
        room_may_help = fleet_outlook.outlook in _ROOM_MAY_HELP
        if not (may_evict and room_may_help) or len(self._queued) >= MAX_QUEUED:
            return
        tried_at = self._tried_at.get(uid, -inf)
        if self._clock() < tried_at + self._again:
            return
        self._queued[uid] = _QueuedPod(pod, nodes)
        self._added.set()

    async def run(self) -> None:
        """Handle the queued pods until cancelled. An exception must not end the leadership, so it is logged."""
        while True:
            await self._added.wait()
            if not self._queued:
                self._added.clear()
                continue
            begun = self._clock()
            # The highest priority comes first, and among equal priorities the oldest pod.
            pods = (queued.pod for queued in self._queued.values())
            order = [(-priority(pod), pod.metadata.creation_timestamp, pod.metadata.uid) for pod in pods]
            queued = self._queued[min(order)[-1]]
            try:
                await self._preempt_for(queued)
            except HttpError as refusal:
                logger.info("no pod is evicted", extra={"pod": queued.pod.metadata.key, "problem": refusal.message})
                self._queued.setdefault(queued.pod.metadata.uid, queued)
                await asyncio.sleep(self._again)
            except Exception:
                logger.exception("a bug during preemption; please report it")
            self.scans += 1
            await asyncio.sleep(self._clock() - begun)

    async def _preempt_for(self, queued: _QueuedPod) -> None:
        uid = queued.pod.metadata.uid
        del self._queued[uid]
        for times in (self._tried_at, self._reported):
            finished = [other for other in times if not self._pods.waits(other)]
            for other in finished:
                del times[other]
        self._tried_at[uid] = self._clock()
        if not self._pods.waits(uid):
            return
        if self._preempting is Preempting.EVICT:
            await self._evictions.make_room([(queued.pod, node) for node in queued.nodes])
            return
        sentence = await self._evictions.advise(queued.pod, queued.nodes)
        reported, at = self._reported.get(uid, ("", 0.0))
        if sentence and (sentence != reported or self._clock() - at >= REPEAT):
            self._reported[uid] = sentence, self._clock()
            await self._record_event(queued.pod, sentence)
