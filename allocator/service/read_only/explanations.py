"""Explains pods that wait for another scheduler: one event a pod, kept up to date, says what keeps it from devices and what would help.

A pod is looked at when it came, and again when the stock has changed, but not twice in ten seconds; a round looks for a fifth of a
second at most, and writes sixteen events at most. A pod that fits as far as devices go, or is undecided, gets no event.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from allocator.decisions import Outlook, advice, find_claims, node_obstacle, redact
from allocator.pods import waits
from dra.objects import Pod, asks_for_devices
from dra.stock import Stock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from allocator.decisions import Decider

GRACE = 2.0  # its scheduler's own time: a pod that is placed at once is told nothing
AGAIN = 10.0  # between two looks at one pod
REPEAT = 1200.0  # an API server forgets events after an hour
LOOKING = 0.2  # seconds of a round
MOST = 16  # events of a round
_WORTH_SAYING = (Outlook.FULL, Outlook.NEVER, Outlook.WAITING)


class _Watched(msgspec.Struct):
    """A pod that waits, when it is looked at next, and the last event about it."""

    pod: Pod
    due: float
    judged: Stock | None = None
    sentence: str = ""
    written_at: float = 0.0


class Explanations:
    """Follows the pods that wait."""

    def __init__(
        self,
        decider: Decider,
        *,
        clock: Callable[[], float],
        keep: Callable[[Pod, str], Awaitable[bool]],
        grace: float = GRACE,
        again: float = AGAIN,
    ) -> None:
        """`keep` says something about a pod in place of what was said before, and answers whether it was written."""
        self._decider = decider
        self._clock = clock
        self._keep = keep
        self._grace = grace
        self._again = again
        self._waiting: OrderedDict[str, _Watched] = OrderedDict()  # by uid; the pod that was looked at last is last

    def see(self, old: Pod | None, new: Pod | None) -> None:
        """Take over what a pod was and is."""
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            self._waiting.pop(old.metadata.uid, None)
        if new is None:
            return
        uid = new.metadata.uid
        if not (asks_for_devices(new) and waits(new)):
            self._waiting.pop(uid, None)
            return
        known = self._waiting.get(uid)
        if known is None:
            self._waiting[uid] = _Watched(new, self._clock() + self._grace)
            return
        if known.pod.status.resource_claim_statuses != new.status.resource_claim_statuses:
            known.judged = None
        known.pod = new

    async def explain_waiting(self, stock: Stock) -> None:
        """Go round once: look at the pods whose turn it is, and say what is new."""
        begun = self._clock()
        written = 0
        for uid, one in tuple(self._waiting.items()):
            now = self._clock()
            if now - begun > LOOKING or written >= MOST:
                return
            if now < one.due or (one.judged is stock and now - one.written_at < REPEAT):
                continue
            sentence = explain(self._decider, one.pod, stock)
            one.due = now + self._again
            one.judged = stock
            self._waiting.move_to_end(uid)
            is_news = sentence != one.sentence or now - one.written_at >= REPEAT
            if sentence and is_news:
                written += 1
                if await self._keep(one.pod, sentence):
                    one.sentence = sentence
                    one.written_at = self._clock()
                else:
                    one.judged = None


def explain(decider: Decider, pod: Pod, stock: Stock) -> str:
    """Say what keeps a pod from devices, and what would help; "" if nothing does, or it is unknown."""
    asking = pod
    pod_claims = find_claims(pod, stock)
    if pod_claims.unmade is not None and all(node_obstacle(pod_claims, node) for node in stock.nodes.values()):
        # Device plugins hand the names out on every node: no reason is given for those.
        asking = replace(pod, spec=replace(pod.spec, containers=(), init_containers=()))
    found = decider.outlook(asking, stock)
    if found.outlook not in _WORTH_SAYING:
        return ""
    parts = [found.message]
    if found.outlook is Outlook.NEVER:
        parts.append("no node could serve it even if nothing were in use")
    if help_ := advice(asking, stock, found.hindrances):
        parts.append(help_)
    return redact("; ".join(parts), stock, pod.metadata.namespace or "default")
