"""Preemption for the pods of a stock scheduler, which does not call its extender's preempt verb for devices.

With each question the scheduler says which nodes everything but devices accepts, so pods that fit none of them are known here. As the
administrator chose, an event names the pods that would have to go, or these are evicted. One pod at a time, the most important first,
at most half of the time; nothing is remembered that the next question would not say again.
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

    from allocator.decisions import Outlooks
    from allocator.service.pending_pods import PendingPods
    from allocator.service.preemption.evictions import Evictions

logger = logging.getLogger("drawbridge.allocator")
MOST = 1024  # pods that wait for a look
AGAIN = 5.0  # seconds between two looks at one pod
REPEAT = 600.0  # seconds after which a pod is told the same again
_ROOM_MAY_HELP = (Outlook.FULL, Outlook.FITS)


class _Pressed(msgspec.Struct, frozen=True):
    """A pod, and the nodes that everything but devices accepts."""

    pod: Pod
    nodes: tuple[str, ...]


class ExtenderPreemption:
    """Evicts for the pods of an extender, or names the pods that would have to be evicted."""

    def __init__(
        self,
        pods: PendingPods,
        evictions: Evictions,
        record_event: Callable[[Pod, str], Awaitable[None]],
        preempting: Preempting,
        *,
        again: float = AGAIN,
    ) -> None:
        self._pods = pods
        self._record_event = record_event
        self._evictions = evictions
        self._preempting = preempting
        self._again = again
        self._clock = asyncio.get_running_loop().time
        self._pressed: dict[str, _Pressed] = {}  # by uid
        self._looked: dict[str, float] = {}
        self._reported: dict[str, tuple[str, float]] = {}
        self._come = asyncio.Event()
        self.looks = 0

    def note(self, pod: Pod, nodes: tuple[str, ...], found: Outlooks) -> None:
        """Take note of a pod that fits none of the nodes that its scheduler would have it on."""
        pod = self._pods.newest(pod)
        uid = pod.metadata.uid
        may = self._preempting is not Preempting.OFF and may_preempt(pod)
        helps = found.outlook in _ROOM_MAY_HELP
        if not (may and helps) or len(self._pressed) >= MOST:
            return
        looked_at = self._looked.get(uid, -inf)
        if self._clock() < looked_at + self._again:
            return
        self._pressed[uid] = _Pressed(pod, nodes)
        self._come.set()

    async def run(self) -> None:
        """Look at one after another until cancelled. A fault here must not end the lead."""
        while True:
            await self._come.wait()
            if not self._pressed:
                self._come.clear()
                continue
            begun = self._clock()
            # The most important pod is first, and of equals the oldest.
            pods = (one.pod for one in self._pressed.values())
            order = [(-priority(pod), pod.metadata.creation_timestamp, pod.metadata.uid) for pod in pods]
            one = self._pressed[min(order)[-1]]
            try:
                await self._look(one)
            except HttpError as refusal:
                logger.info("no pod is evicted", extra={"pod": one.pod.metadata.key, "problem": refusal.message})
                self._pressed.setdefault(one.pod.metadata.uid, one)
                await asyncio.sleep(self._again)
            except Exception:
                logger.exception("a bug during preemption; please report it")
            self.looks += 1
            await asyncio.sleep(self._clock() - begun)

    async def _look(self, one: _Pressed) -> None:
        uid = one.pod.metadata.uid
        del self._pressed[uid]
        for times in (self._looked, self._reported):
            finished = [other for other in times if not self._pods.waits(other)]
            for other in finished:
                del times[other]
        self._looked[uid] = self._clock()
        if not self._pods.waits(uid):
            return
        if self._preempting is Preempting.EVICT:
            await self._evictions.make_room(one.pod, one.nodes)
            return
        sentence = await self._evictions.advise(one.pod, one.nodes)
        reported, at = self._reported.get(uid, ("", 0.0))
        if sentence and (sentence != reported or self._clock() - at >= REPEAT):
            self._reported[uid] = sentence, self._clock()
            await self._record_event(one.pod, sentence)
