"""Another try for pods of a stock scheduler. It hears of claims as we do, perhaps before us, and of slices, taint rules and quotas not at all.

Asked between its news and ours we refuse from what we know, and no event would follow: the pod would wait until the scheduler's queue
is flushed, five minutes later. So who was refused, is worth another try by what we have learned since, and has not been asked about again
for a second, is called back: an annotation on a claim of the pod's is an event, and a stock scheduler tries all that an extender has
refused at any. One claim is enough for all of them. A process that dies in between leaves nothing: the next leader calls everybody.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from typing import TYPE_CHECKING

import msgspec

from allocator.service.replies import Refusal
from cluster.errors import ApiError, Conflict, NotFound
from cluster.informers import Backoff
from cluster.patch import Merge
from cluster.resources import RESOURCE_CLAIMS
from dra.objects import Pod, claim_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from allocator.service.bridge import Bridge
    from allocator.service.wakes import News
    from cluster.protocol import Cluster
    from dra.objects import ResourceClaim

logger = logging.getLogger("drawbridge.allocator")
ANNOTATION = "drawbridge.dev/tried-again"
REMEMBERED = 4096  # pods that were refused
PATIENCE = 1.0  # seconds in which a scheduler that has heard of it comes by itself
POLL = 600.0


class _Refused(msgspec.Struct, frozen=True):
    pod: Pod
    at: float


class Nudges:
    """Calls the pods of an extender back."""

    def __init__(
        self,
        cluster: Cluster,
        bridge: Bridge,
        now: Callable[[], str],
        *,
        count: Callable[[str, str], None],
        patience: float = PATIENCE,
        backoff: Backoff | None = None,
    ) -> None:
        """`now` is the time of the wall, as objects have it; `count` is told of each write and its outcome."""
        self._cluster = cluster
        self._bridge = bridge
        self._now = now
        self._count = count
        self._patience = patience
        self._backoff = backoff or Backoff()
        self._clock = asyncio.get_running_loop().time
        self._refused: OrderedDict[str, _Refused] = OrderedDict()  # by namespace/name

    def note(self, pod: Pod) -> None:
        """Take note of a pod that its scheduler sets aside now."""
        key = pod.metadata.key
        self._refused[key] = _Refused(pod, self._clock())
        self._refused.move_to_end(key)
        while len(self._refused) > REMEMBERED:
            self._refused.popitem(last=False)

    def forget(self, pod: Pod) -> None:
        """Call a pod no more: it has been offered nodes."""
        self._refused.pop(pod.metadata.key, None)

    async def run(self) -> None:
        """Call pods back until cancelled, once in `patience` at most. A fault here must not end the lead."""
        wakes = self._bridge.wakes
        seq = wakes.seq
        failures = 0
        while True:
            news = await wakes.after(seq, POLL)
            heard = self._clock()
            await asyncio.sleep(self._patience + self._rest(failures))
            if await self._try(news, heard):
                seq = news.seq
                failures = 0
            else:
                failures += 1

    def _rest(self, failures: int) -> float:
        return self._backoff.seconds(failures, 0.5) if failures else 0.0

    async def _try(self, news: News, heard: float) -> bool:
        """Call; say whether that is over. News that a server would not have now are called again: none may follow them for long."""
        try:
            await self._call(news, heard)
        except Refusal:
            return True  # we lead no more, and the next leader calls everybody
        except ApiError as error:
            self._count("Nudge", "Failed")
            logger.warning("a pod could not be called back", extra={"problem": error.message})
            return False
        except Exception:
            logger.exception("a bug while calling pods back; please report it")
        return True

    async def _call(self, news: News, heard: float) -> None:
        """Call those that the news name and nobody has asked about since they came."""
        for claim in self._claims(news, heard):
            meta = claim.metadata
            said = Merge({"metadata": {"uid": meta.uid, "annotations": {ANNOTATION: self._now()}}})
            self._bridge.demand_lead()
            try:
                await self._cluster.patch(RESOURCE_CLAIMS, meta.name, said, meta.namespace)
            except (NotFound, Conflict):
                continue  # it is gone
            self._count("Nudge", "Written")
            return

    def _claims(self, news: News, heard: float) -> Iterator[ResourceClaim]:
        """Walk through the claims of the pods that wait."""
        named = tuple(self._refused) if news.all else news.pods
        claims = self._bridge.knowledge.stock.claims
        for key in named:
            refused = self._refused.get(key)
            if refused is None or refused.at > heard:
                continue
            if not self._bridge.waits(refused.pod.metadata.uid):
                del self._refused[key]
                continue
            pod = self._bridge.newest(refused.pod)
            for name in claim_names(pod):
                claim = claims.get(f"{pod.metadata.namespace}/{name}")
                if claim is not None:
                    yield claim
