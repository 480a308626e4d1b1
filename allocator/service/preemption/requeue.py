"""Requeue pods of a stock scheduler when devices have become free for them.

A stock scheduler watches claims, but not slices, taint rules or quotas. And if the scheduler sees a change before the allocator does, the
allocator answers the filter call from the old state, and no further event follows. In both cases the pod would wait until the scheduler
flushes its queue after five minutes. So if a pod was requeued (`WaitingPods`) and the scheduler has not tried it again within a second, the
allocator annotates one of the pod's claims. The annotation is an event for the scheduler, and at any event it retries all pods that an
extender has refused. So one annotation is enough for all these pods.
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
from runtime.controllers import api_timestamp
from runtime.informers import Backoff

if TYPE_CHECKING:
    from allocator.service.knowledge import Knowledge, Lead
    from allocator.service.metrics import Metrics
    from allocator.service.pending_pods import PendingPods
    from allocator.service.requeue_events import RequeueEvents
    from cluster.protocol import Cluster

logger = logging.getLogger("drawbridge.allocator")
ANNOTATION = "drawbridge.dev/tried-again"
PATIENCE = 1.0  # seconds in which a scheduler that has seen the change retries by itself
POLL = 600.0
REFUSALS = 8  # the backoff begins after the API server has rejected the annotation of this many claims


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
        """Requeue pods until cancelled, at most once in `patience` seconds. An exception is logged and does not end the leadership."""
        events = self._events
        seq = events.seq
        failures = 0
        while True:
            news = await events.after(seq, POLL)
            noticed_at = self._clock()
            await asyncio.sleep(self._patience + (self._backoff.seconds(failures, 0.5) if failures else 0.0))
            try:
                await self._annotate_claim(noticed_at)
            except (ApiError, HttpError) as error:
                # Retry with the same events, because it may take long until another event follows. The end of the leadership ends the loop.
                self._count("Failed")
                logger.warning("a pod could not be requeued", extra={"problem": error.message})
                failures += 1
                continue
            except Exception:
                logger.exception("a bug while requeueing pods; please report it")
            seq = news.seq
            failures = 0

    async def _annotate_claim(self, noticed_at: float) -> None:
        """Annotate a claim of a pod that was requeued before `noticed_at` and that its scheduler has not tried since then."""
        refusals = 0
        claims = self._knowledge.stock.claims
        for pod in self._pods.waiting.requeued_before(noticed_at):
            for name in claim_names(self._pods.newest(pod)):
                claim = claims.get(f"{pod.metadata.namespace}/{name}")
                if claim is None:
                    continue
                meta = claim.metadata
                patch = Merge({"metadata": {"uid": meta.uid, "annotations": {ANNOTATION: api_timestamp()}}})
                self._lead.require_lead()
                try:
                    await self._cluster.patch(RESOURCE_CLAIMS, meta.name, patch, meta.namespace)
                except (NotFound, Conflict):
                    continue  # the claim is gone
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
