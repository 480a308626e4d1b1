"""Room for pods that wait for a scheduler which never asks for any: a stock one, whose extender's preempt verb is not called for devices.

It says which nodes everything but devices accepts, with each question; so the pods that fit none of them are known here. By what the
administrator chose they are told who would have to go, or these are evicted. One pod at a time, the most important first, at most half
of the time; nothing is remembered that the next question would not say again.
"""

from __future__ import annotations

import asyncio
import logging
from enum import StrEnum
from math import inf
from typing import TYPE_CHECKING

import msgspec

from allocator.decisions import Outlook
from allocator.preemption import may_preempt, priority
from allocator.service.replies import Refusal
from dra.objects import Pod

if TYPE_CHECKING:
    from allocator.decisions import Outlooks
    from allocator.service.bridge import Bridge
    from allocator.service.fairness.evictions import Evictions

logger = logging.getLogger("drawbridge.allocator")
MOST = 1024  # pods that wait for a look
AGAIN = 5.0  # seconds between two looks at one pod
REPEAT = 600.0  # seconds after which a pod is told the same again
_ROOM_MAY_HELP = (Outlook.FULL, Outlook.FITS)


class Preempting(StrEnum):
    """What becomes of an important pod that waits for devices of others."""

    OFF = "off"
    ADVISE = "advise"  # it is told who would have to go
    EVICT = "evict"


class _Pressed(msgspec.Struct, frozen=True):
    """A pod, and the nodes that everything but devices accepts."""

    pod: Pod
    nodes: tuple[str, ...]


class Pressing:
    """Makes room for the pods of an extender, or says who would have to go."""

    def __init__(self, bridge: Bridge, evictions: Evictions, preempting: Preempting, *, again: float = AGAIN) -> None:
        self._bridge = bridge
        self._evictions = evictions
        self._preempting = preempting
        self._again = again
        self._clock = asyncio.get_running_loop().time
        self._pressed: dict[str, _Pressed] = {}  # by uid
        self._looked: dict[str, float] = {}
        self._told: dict[str, tuple[str, float]] = {}
        self._come = asyncio.Event()
        self.looks = 0

    def note(self, pod: Pod, nodes: tuple[str, ...], found: Outlooks) -> None:
        """Take note of a pod that fits none of the nodes that its scheduler would have it on."""
        pod = self._bridge.newest(pod)
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
            one = min(self._pressed.values(), key=_first)
            try:
                await self._look(one)
            except Refusal as refusal:
                logger.info("no room is made", extra={"pod": one.pod.metadata.key, "problem": refusal.message})
                self._pressed.setdefault(one.pod.metadata.uid, one)
                await asyncio.sleep(self._again)
            except Exception:
                logger.exception("a bug while making room; please report it")
            self.looks += 1
            await asyncio.sleep(self._clock() - begun)

    async def _look(self, one: _Pressed) -> None:
        uid = one.pod.metadata.uid
        del self._pressed[uid]
        self._forget()
        self._looked[uid] = self._clock()
        if not self._bridge.waits(uid):
            return
        if self._preempting is Preempting.EVICT:
            await self._evictions.make_room(one.pod, one.nodes)
            return
        sentence = await self._evictions.advise(one.pod, one.nodes)
        if sentence:
            await self._tell(one.pod, sentence)

    async def _tell(self, pod: Pod, sentence: str) -> None:
        said, at = self._told.get(pod.metadata.uid, ("", 0.0))
        if sentence == said and self._clock() - at < REPEAT:
            return
        self._told[pod.metadata.uid] = sentence, self._clock()
        await self._bridge.speak(pod, sentence)

    def _forget(self) -> None:
        """Remember nothing of pods that wait no more."""
        for kept in (self._looked, self._told):
            gone = [uid for uid in kept if not self._bridge.waits(uid)]
            for uid in gone:
                del kept[uid]


def _first(one: _Pressed) -> tuple[int, str, str]:
    """Sort by importance, and of equals who waits longer."""
    meta = one.pod.metadata
    return -priority(one.pod), meta.creation_timestamp, meta.uid
