"""The bridge creates the parts of the allocator, connects them, and passes changes from informers to them.

           ┌─ outlook ──▶ Basis ──▶ QuestionRunner ──▶ questions.judge ──▶ Outlooks
Allocator ─┤  reserve ──▶ Assume ──┐
           │  commit ───▶ Commit ──┼──▶ LiveLedger.apply ──▶ Commits.perform ──▶ outcome ──▶ LiveLedger.apply ...
           └─ release ──▶ Unreserve┤        └──▶ Ready or Dropped ──▶ the answer to the commit
informers ──▶ ClaimSeen, PodSeen ──┘

`schedulers/plugin.py` and `schedulers/extender.py` call the allocator for HTTP requests; `process.py` starts the bridge.
No part gets the whole bridge: each gets the parts that it uses.
"""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from allocator.reservations import events
from allocator.service.allocator import Allocator
from allocator.service.extended_claims import ExtendedClaims
from allocator.service.knowledge import Knowledge, Lead
from allocator.service.live_ledger import LiveLedger
from allocator.service.pending_pods import PendingPods
from allocator.service.preemption.evictions import Evictions
from allocator.service.preemption.supposition import Supposition
from allocator.service.question_runner import QuestionRunner
from allocator.service.quota.compatibilities import Compatibilities
from allocator.service.quota.quotas import Quotas
from allocator.service.requeue_events import RequeueEvents

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from allocator.service.metrics import Metrics
    from allocator.service.settings import Settings
    from cluster.protocol import Cluster
    from dra.objects import Pod
    from runtime.controllers import Election, Recorder

logger = logging.getLogger("drawbridge.allocator")


class Bridge:
    """Owns the parts. Callers use these directly."""

    def __init__(
        self, cluster: Cluster, settings: Settings, election: Election, recorder: Recorder, metrics: Metrics
    ) -> None:
        self.knowledge = knowledge = Knowledge(cluster, decides=True)
        self.requeue_events = RequeueEvents()
        self.lead = lead = Lead(knowledge, election)
        self.pods = pods = PendingPods(knowledge, self.requeue_events, settings)
        self.runner = runner = QuestionRunner(pods.turns)
        self.ledger = ledger = LiveLedger(
            cluster=cluster, knowledge=knowledge, lead=lead, pods=pods, recorder=recorder, metrics=metrics
        )
        self.quotas = quotas = Quotas(cluster, knowledge)
        self.compatibilities = Compatibilities(cluster, knowledge.compatibilities)
        self.extended = ExtendedClaims(
            cluster=cluster,
            knowledge=knowledge,
            lead=lead,
            pods=pods,
            record_event=ledger.record_event,
            metrics=metrics,
        )
        self.allocator = Allocator(
            knowledge=knowledge,
            lead=lead,
            pods=pods,
            ledger=ledger,
            quotas=quotas,
            runner=runner,
            metrics=metrics,
            make_claim=self.extended.make,
            binding_seconds=settings.binding,
        )
        self.evictions = Evictions(
            cluster=cluster,
            knowledge=knowledge,
            lead=lead,
            pods=pods,
            ledger=ledger,
            quotas=quotas,
            runner=runner,
            metrics=metrics,
        )
        self.supposition = Supposition(knowledge, lead, pods, self.evictions, runner)

        ledger.on_freed = self.allocator.look_for_fitting
        knowledge.on_claim = ledger.see_claim
        knowledge.on_pod = self._see_pod
        knowledge.on_namespace = pods.objects_changed
        knowledge.on_devices = pods.devices_changed
        knowledge.on_quota = pods.room_changed

    async def run(self) -> None:
        """Follow the cluster until cancelled."""
        try:
            await self.knowledge.run()
        finally:
            self.runner.close()
            await self.extended.close()
            await self.ledger.close()

    @asynccontextmanager
    async def leading(self) -> AsyncIterator[None]:
        """Decide and write while the context is open. First read every claim, so that no device of an earlier leader is allocated again."""
        await self.knowledge.wait_for_sync()
        await self.ledger.catch_up()
        self.lead.leads = True
        self.ledger.apply(events.BecameLeader())
        self.requeue_events.add(all_pods=True)
        try:
            yield
        finally:
            self.lead.leads = False
            self.ledger.apply(events.BecameFollower())
            self.requeue_events.add(all_pods=True)

    def tick(self) -> None:
        """Expire reservations and requeue waiting pods. An exception in the requeueing must not end the leadership, so it is logged."""
        self.ledger.apply(events.Tick())
        self.ledger.check_watch()
        try:
            self.pods.tick(self.extended.is_making)
            self.allocator.look_for_fitting()
        except Exception:
            logger.exception("a bug while looking after waiting pods; please report it")

    def _see_pod(self, old: Pod | None, new: Pod | None) -> None:
        for event in self.pods.see(old, new):
            self.ledger.apply(event)
