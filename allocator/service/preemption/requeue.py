"""Requeues pods of a stock scheduler. It learns of claims when the bridge does, perhaps before, and of slices, taint rules and quotas not at all.

A scheduler that asks between its news and ours is refused by old news, and no event would follow: the pod would wait until the
scheduler's queue is flushed, five minutes later. So a pod that was woken, and has not been asked about again for a second (`WaitingPods`
has both), is requeued: an annotation on one of its claims is an event, and a stock scheduler tries all pods that an extender has refused
at any event. One claim is enough for all of them.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from allocator.service.app import HttpError
from cluster.errors import ApiError, BadRequest, Conflict, Invalid, NotFound
from cluster.patch import Merge
from cluster.resources import RESOURCE_CLAIMS
from dra.objects import claim_names
from runtime.controllers import now_of_the_wall
from runtime.informers import Backoff

if TYPE_CHECKING:
    from allocator.service.knowledge import Knowledge, Lead
    from allocator.service.metrics import Metrics
    from allocator.service.pending_pods import PendingPods
    from allocator.service.requeue_events import RequeueEvents
    from cluster.protocol import Cluster

logger = logging.getLogger("drawbridge.allocator")
ANNOTATION = "drawbridge.dev/tried-again"
PATIENCE = 1.0  # seconds in which a scheduler that has heard of it comes by itself
POLL = 600.0
REFUSALS = 8  # claims that the API server would not have changed, one after the other, before there is a rest


class ExtenderRequeue:
    """Requeues the pods of an extender."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        knowledge: Knowledge,
        lead: Lead,
        pods: PendingPods,
        requeue_events: RequeueEvents,
        metrics: Metrics,
        patience: float = PATIENCE,
        backoff: Backoff | None = None,
    ) -> None:
        self._cluster = cluster
        self._knowledge = knowledge
        self._lead = lead
        self._pods = pods
        self._events = requeue_events
        self._metrics = metrics
        self._patience = patience
        self._backoff = backoff or Backoff()
        self._clock = asyncio.get_running_loop().time

    async def run(self) -> None:
        """Requeue pods until cancelled, once in `patience` at most. A fault here must not end the lead."""
        events = self._events
        seq = events.seq
        failures = 0
        while True:
            news = await events.after(seq, POLL)
            noticed_at = self._clock()
            await asyncio.sleep(self._patience + (self._backoff.seconds(failures, 0.5) if failures else 0.0))
            try:
                await self._call(noticed_at)
            except (ApiError, HttpError) as error:
                # Tried again with the same events: for a long time none may follow them. A replica that leads no more ends this loop.
                self._count("Failed")
                logger.warning("a pod could not be requeued", extra={"problem": error.message})
                failures += 1
                continue
            except Exception:
                logger.exception("a bug while requeueing pods; please report it")
            seq = news.seq
            failures = 0

    async def _call(self, noticed_at: float) -> None:
        """Annotate a claim of a pod that was woken by then and not asked about since."""
        refusals = 0
        claims = self._knowledge.stock.claims
        for pod in self._pods.waiting.woken_before(noticed_at):
            for name in claim_names(self._pods.newest(pod)):
                claim = claims.get(f"{pod.metadata.namespace}/{name}")
                if claim is None:
                    continue
                meta = claim.metadata
                patch = Merge({"metadata": {"uid": meta.uid, "annotations": {ANNOTATION: now_of_the_wall()}}})
                self._lead.demand_lead()
                try:
                    await self._cluster.patch(RESOURCE_CLAIMS, meta.name, patch, meta.namespace)
                except (NotFound, Conflict):
                    continue  # it is gone
                except (BadRequest, Invalid) as error:
                    refusals += 1
                    if refusals == REFUSALS:
                        raise
                    logger.warning("a claim cannot be annotated", extra={"claim": meta.key, "problem": error.message})
                    continue
                self._count("Written")
                return

    def _count(self, outcome: str) -> None:
        self._metrics.writes.labels("Requeue", outcome).inc()
