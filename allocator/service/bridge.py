"""The bridge: its parts wired together, and the news of informers handed to them. HTTP and processes are elsewhere.

ask ──▶ Questions ──▶ token ──reserve──▶ Assume ─┐
        Reservations            commit ──▶ Commit ├──▶ LiveLedger ──▶ writes ──▶ outcomes ──▶ LiveLedger ...
informers ───────────▶ ClaimSeen, PodSeen, ... ──┘        └──▶ Ready / Dropped ──▶ the answer to the commit
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from allocator.decisions import Decider
from allocator.reservations import Followed, Led, Tick
from allocator.service.knowledge import Knowledge
from allocator.service.lead import Lead
from allocator.service.live_ledger import LiveLedger
from allocator.service.pending_pods import PendingPods
from allocator.service.questions import Questions
from allocator.service.quota.compatibilities import Compatibilities
from allocator.service.quota.quotas import Quotas
from allocator.service.requeue_events import RequeueEvents
from allocator.service.reservations import Reservations

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from allocator.service.metrics import Metrics
    from allocator.service.settings import Settings
    from cluster.protocol import Cluster
    from dra.objects import Pod, ResourceClaim
    from runtime.controllers import Election, Recorder


class Bridge:
    """Owns the parts. A caller uses the part that it needs."""

    def __init__(
        self, cluster: Cluster, settings: Settings, election: Election, recorder: Recorder, metrics: Metrics
    ) -> None:
        self.knowledge = knowledge = Knowledge(
            cluster,
            on_claim=self._on_claim,
            on_pod=self._on_pod,
            on_devices=self._on_devices,
            on_quota=self._on_quota,
            on_namespace=self._on_namespace,
        )
        self.requeue_events = events = RequeueEvents()
        self.decider = decider = Decider()
        self.lead = lead = Lead(knowledge, election)
        self.pods = pods = PendingPods(knowledge, events, settings)
        self.ledger = ledger = LiveLedger(
            cluster, knowledge, lead, pods, decider=decider, events=events, recorder=recorder, metrics=metrics
        )
        self.quotas = quotas = Quotas(cluster, knowledge)
        self.compatibilities = Compatibilities(cluster, knowledge.compatibilities)
        self.questions = questions = Questions(knowledge, lead, pods, ledger, decider=decider, metrics=metrics)
        self.reservations = Reservations(
            knowledge, lead, pods, ledger, questions, quotas=quotas, decider=decider, settings=settings
        )

    async def run(self) -> None:
        """Follow the cluster until cancelled."""
        try:
            await self.knowledge.run()
        finally:
            await self.ledger.close()

    @asynccontextmanager
    async def leading(self) -> AsyncIterator[None]:
        """Lead while inside: what an earlier leader wrote is read before a device is given to any pod."""
        await self.knowledge.wait_for_sync()
        await self.ledger.catch_up()
        self.lead.leads = True
        self.ledger.tell(Led())
        self.requeue_events.add(everybody=True)
        try:
            yield
        finally:
            self.lead.leads = False
            self.ledger.tell(Followed())
            self.requeue_events.add(everybody=True)

    def tick(self) -> None:
        """Let time pass in the ledger, and for nominations."""
        self.ledger.tell(Tick())
        self.pods.nominations.tick()

    def _on_claim(self, old: ResourceClaim | None, new: ResourceClaim | None) -> None:
        self.ledger.see_claim(old, new)

    def _on_pod(self, old: Pod | None, new: Pod | None) -> None:
        for event in self.pods.see(old, new):
            self.ledger.tell(event)

    def _on_devices(self) -> None:
        self.pods.devices_changed()

    def _on_quota(self) -> None:
        self.pods.refused.requeue_all()

    def _on_namespace(self, namespace: str) -> None:
        self.pods.objects_changed(namespace)
