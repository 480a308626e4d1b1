"""Explains waiting pods of another scheduler. Each pod has one event, which is kept up to date and names the reason.

A pod is checked when it is created and again when the stock changes, but at most once in ten seconds. A round of checks takes at most a
fifth of a second and writes at most sixteen events. A pod that would get devices on some node, or that is undecided, gets no event.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from allocator.decisions import Outlook, find_claims, node_obstacle, redact
from allocator.pods import waits
from dra.objects import Pod, asks_for_devices
from dra.stock import Stock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from allocator.decisions import Decider

GRACE = 2.0  # a pod that its scheduler places within these seconds gets no event
CHECK_SECONDS = 10.0  # seconds between two checks of one pod
REPEAT = 1200.0  # seconds until an unchanged event is written again; an API server deletes events after an hour
LOOKING = 0.2  # seconds per round
MAX_EVENTS = 16  # events per round
_WORTH_SAYING = (Outlook.FULL, Outlook.NEVER, Outlook.WAITING)


class _Watched(msgspec.Struct):
    """A waiting pod, the time of its next check, and the last event about it."""

    pod: Pod
    due: float
    judged: Stock | None = None
    sentence: str = ""
    written_at: float = 0.0


class Explanations:
    """Checks the waiting pods and writes their events."""

    def __init__(
        self,
        decider: Decider,
        *,
        clock: Callable[[], float],
        keep: Callable[[Pod, str], Awaitable[bool]],
        grace: float = GRACE,
        again: float = CHECK_SECONDS,
    ) -> None:
        """`keep` writes a new sentence into the event of a pod, and returns whether the write succeeded."""
        self._decider = decider
        self._clock = clock
        self._keep = keep
        self._grace = grace
        self._again = again
        self._waiting: OrderedDict[str, _Watched] = OrderedDict()  # by uid, in the order of the last check

    def see(self, old: Pod | None, new: Pod | None) -> None:
        """Handle a change of a pod."""
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            self._waiting.pop(old.metadata.uid, None)
        if new is None:
            return
        uid = new.metadata.uid
        if not (asks_for_devices(new) and waits(new)):
            self._waiting.pop(uid, None)
            return
        watched = self._waiting.get(uid)
        if watched is None:
            self._waiting[uid] = _Watched(new, self._clock() + self._grace)
            return
        if watched.pod.status.resource_claim_statuses != new.status.resource_claim_statuses:
            watched.judged = None
        watched.pod = new

    async def explain_waiting(self, stock: Stock) -> None:
        """Check the pods that are due, and write the events whose text has changed."""
        begun = self._clock()
        written = 0
        for uid, watched in tuple(self._waiting.items()):
            now = self._clock()
            if now - begun > LOOKING or written >= MAX_EVENTS:
                return
            if now < watched.due or (watched.judged is stock and now - watched.written_at < REPEAT):
                continue
            sentence = explain(self._decider, watched.pod, stock)
            watched.due = now + self._again
            watched.judged = stock
            self._waiting.move_to_end(uid)
            is_news = sentence != watched.sentence or now - watched.written_at >= REPEAT
            if sentence and is_news:
                written += 1
                if await self._keep(watched.pod, sentence):
                    watched.sentence = sentence
                    watched.written_at = self._clock()
                else:
                    watched.judged = None


def explain(decider: Decider, pod: Pod, stock: Stock) -> str:
    """Return why a pod gets no devices and what would help; "" if the pod fits or the answer is unknown."""
    explained_pod = pod
    pod_claims = find_claims(pod, stock)
    if pod_claims.uncreated is not None and all(node_obstacle(pod_claims, node) for node in stock.nodes.values()):
        # On every node a device plugin serves the extended resources, so the explanation leaves them out.
        explained_pod = replace(pod, spec=replace(pod.spec, containers=(), init_containers=()))
    fleet_outlook = decider.outlook(explained_pod, stock)
    if fleet_outlook.outlook not in _WORTH_SAYING:
        return ""
    return redact(str(fleet_outlook.reason), stock, pod.metadata.namespace or "default")
