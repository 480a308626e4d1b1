"""The process behind `drawbridge allocator --read-only`: it runs beside any scheduler and writes no claim.

The process has no ledger and no Lease, and its role allows it to write only events. One replica is enough; a second replica would write the
same events.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from allocator.decisions import Decider
from allocator.reports import Drift, drift
from allocator.service.app import AllocatorApp
from allocator.service.knowledge import Knowledge
from allocator.service.metrics import Metrics
from allocator.service.ports import Listening, Ports
from allocator.service.queries import Queries, api_routes
from allocator.service.quota.quotas import Quotas
from allocator.service.read_only.explanations import CHECK_SECONDS, GRACE, Explanations
from cluster.controllers import Recorder
from serving.process import run_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from allocator.decisions import PlacementRules
    from allocator.service.queries import Simulate
    from allocator.service.settings import AllocatorSettings
    from cluster.protocol import Cluster
    from dra.objects import Pod
    from dra.server import DeclaredServer

logger = logging.getLogger("drawbridge.allocator")
COMPONENT = "drawbridge-read-only"
REASON = "Devices"
DRIFT_SECONDS = 30.0


class ReadOnlyAllocator:
    """Runs one read-only allocator process."""

    def __init__(
        self,
        cluster: Cluster,
        settings: AllocatorSettings,
        *,
        grace: float = GRACE,
        again: float = CHECK_SECONDS,
    ) -> None:
        """A pod gets no event in its first `grace` seconds, and is checked again after `again` seconds."""
        self._settings = settings
        self._clock = asyncio.get_running_loop().time
        recorder = Recorder(cluster, COMPONENT, instance=settings.identity)

        async def keep(pod: Pod, sentence: str) -> bool:
            return await recorder.record(pod, REASON, sentence, warning=True, replaces=True)

        self.explanations = Explanations(Decider(), clock=self._clock, keep=keep, grace=grace, again=again)
        # Only pods need a callback: changed claims and devices change the stock, and quotas are read for each call.
        self.knowledge = knowledge = Knowledge(cluster)
        knowledge.on_pod = self.explanations.see
        quotas = Quotas(cluster, knowledge)
        self._drift_at = 0.0
        self._seen = Drift()
        self.drift = Drift()
        self._queries = Queries(knowledge, drift=lambda: self.drift, quotas=lambda: quotas.report(knowledge.stock))
        self.metrics = Metrics()
        self._ports = Ports(settings, self.metrics)
        self.metrics.follow(knowledge, lambda: self.drift)

    async def run(self, stop: asyncio.Event, listening: Callable[[Listening], None]) -> None:
        """Serve until `stop` is set. `listening` is called with the open ports once the caches are synced."""
        works = self._ports.follow, self.knowledge.run, partial(self._run_checks, listening)
        try:
            await run_until(stop, *works, metrics=self.metrics, at=self._settings.metrics)
        finally:
            await self._ports.end()

    def configure(self, _rules: PlacementRules, declared: DeclaredServer, simulate: Simulate | None = None) -> None:
        """Use the administrator's declaration, as `AllocatorServer` does. Ignore the placement rules, because another scheduler places the pods."""
        self._queries.simulate_pods = simulate
        self.knowledge.declare(declared)

    async def _run_checks(self, listening: Callable[[Listening], None]) -> None:
        settings = self._settings
        api = AllocatorApp(api_routes(self._queries), token_file=settings.token_file, names=settings.client_names)
        opened = Listening(api=self._ports.open(settings.api, api, settings.tls), metrics=self.metrics.address)
        await self.knowledge.wait_for_sync()
        listening(opened)
        while True:
            await asyncio.sleep(self._settings.tick)
            try:
                await self.explanations.explain_waiting(self.knowledge.stock)
                now = self._clock()
                if now >= self._drift_at:
                    self._drift_at = now + DRIFT_SECONDS
                    pods = self.knowledge.pods.objects.values()
                    living = {pod.metadata.uid for pod in pods if not pod.has_ended}
                    inconsistencies = drift(self.knowledge.stock, living, pods)
                    self.drift = self._seen.confirmed_by(inconsistencies)
                    self._seen = inconsistencies
            except Exception:
                logger.exception("a bug while checking; please report it")
