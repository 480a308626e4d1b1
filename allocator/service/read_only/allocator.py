"""The process behind `drawbridge allocator --read-only`: beside any scheduler, it says what it sees and writes into no claim.

It has no ledger, holds no lease, and could not write if it wanted to: its role has events to create and nothing else. So one replica
is enough; a second one would say the same once more, in the same events.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from allocator.decisions import Decider
from allocator.reports import Drift, drift
from allocator.service.knowledge import Knowledge
from allocator.service.metrics import Metrics
from allocator.service.ports import Listening, Ports
from allocator.service.queries import Queries, api_routes
from allocator.service.quota.quotas import Quotas
from allocator.service.read_only.explanations import AGAIN, GRACE, Explanations
from allocator.service.read_only.shares import Shares
from runtime.controllers import new_recorder
from runtime.process import run_until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from allocator.decisions import PlacementRules
    from allocator.service.queries import Translate
    from allocator.service.settings import Settings
    from cluster.protocol import Cluster
    from dra.objects import Pod, ResourceClaim
    from dra.server import Declared

logger = logging.getLogger("drawbridge.allocator")
COMPONENT = "drawbridge-onlooker"
REASON = "Devices"
DRIFT_SECONDS = 30.0


class ReadOnlyAllocator:
    """One process's worth."""

    def __init__(
        self,
        cluster: Cluster,
        settings: Settings,
        translate: Translate | None = None,
        *,
        grace: float = GRACE,
        again: float = AGAIN,
    ) -> None:
        """A pod is told nothing for `grace` seconds, and looked at again after `again`."""
        self._settings = settings
        self._clock = asyncio.get_running_loop().time
        self._recorder = new_recorder(cluster, COMPONENT, settings.identity)
        self.explanations = Explanations(Decider(), clock=self._clock, keep=self._keep, grace=grace, again=again)
        self.knowledge = Knowledge(
            cluster,
            on_claim=self._ignore_claim,
            on_pod=self.explanations.see,
            on_devices=self._ignore,
            on_quota=self._ignore,
        )
        self._quotas = Quotas(cluster, self.knowledge)
        self._drift_at = 0.0
        self._seen = Drift()
        self.drift = Drift()
        self._queries = Queries(self.knowledge, translate, drift=lambda: self.drift, quotas=self._report_quotas)
        self.metrics = Metrics()
        self._doors = Ports(settings, self.metrics)
        self._show()

    async def run(self, stop: asyncio.Event, listening: Callable[[Listening], None]) -> None:
        """Serve until told to stop. `listening` learns the ports when the cluster was read."""
        async with self._ports() as ports:
            await run_until(stop, self._doors.follow(), self.knowledge.run(), self._look(ports, listening))

    def place_by(self, rules: PlacementRules) -> None:
        """Take no notice: others place."""

    def declare(self, declared: Declared) -> None:
        """Go by what an administrator says of the server, where it tells nothing itself."""
        self.knowledge.declare(declared)

    async def _look(self, ports: Listening, listening: Callable[[Listening], None]) -> None:
        await self.knowledge.wait_for_sync()
        listening(ports)
        while True:
            await asyncio.sleep(self._settings.tick)
            try:
                await self.explanations.go(self.knowledge.stock)
                self._look_for_drift()
            except Exception:
                logger.exception("a bug while looking; please report it")

    def _look_for_drift(self) -> None:
        now = self._clock()
        if now < self._drift_at:
            return
        self._drift_at = now + DRIFT_SECONDS
        pods = self.knowledge.pods.objects.values()
        living = {pod.metadata.uid for pod in pods if not pod.has_ended}
        found = drift(self.knowledge.stock, living)
        self.drift = self._seen.confirmed_by(found)
        self._seen = found

    def _report_quotas(self) -> list[dict[str, Any]]:
        return self._quotas.report(self.knowledge.stock)

    async def _keep(self, pod: Pod, sentence: str) -> bool:
        return await self._recorder.keep(pod, REASON, sentence, warning=True)

    def _ignore_claim(self, old: ResourceClaim | None, new: ResourceClaim | None) -> None:
        """A claim that changed has changed the stock, and that is looked at."""

    def _ignore(self) -> None:
        """So have devices, and quotas are looked up when somebody asks."""

    @asynccontextmanager
    async def _ports(self) -> AsyncIterator[Listening]:
        ports = self._doors
        api = api_routes(self._queries)
        try:
            yield Listening(
                plugin=None,
                extender=None,
                api=ports.open(self._settings.api, api),
                metrics=ports.open_metrics(),
            )
        finally:
            await ports.end()

    def _readiness(self) -> tuple[Mapping[str, str], Mapping[str, str]]:
        notes = {"files of TLS": self._doors.note(), "server": self.knowledge.server.doubts()}
        if aside := str(self.knowledge.quarantine):
            notes["objects read"] = f"set aside: {aside}"
        if overlapping := self.drift.overlapping:
            notes["devices"] = f"held more than once: {', '.join(overlapping[:8])}"
        problems = {
            "cluster": self.knowledge.what_is_unread(),
            "certificate": self._doors.what_is_wrong(),
        }
        return problems, notes

    def _show(self) -> None:
        self.metrics.readiness = self._readiness
        self.metrics.registry.register(Shares(lambda: self.knowledge.stock, self.knowledge.pods.objects.values))
        gauge = self.metrics.gauge
        gauge(
            "drawbridge_allocator_stock_age_seconds", "Seconds since what we know was last current.", self.knowledge.age
        )
        gauge(
            "drawbridge_waiting_pods",
            "Pods with claims that wait for a node.",
            lambda: float(self.explanations.waiting),
        )
        gauge(
            "drawbridge_overlapping_claims",
            "Claims that hold what another holds too.",
            lambda: float(len(self.drift.overlapping)),
        )
        gauge(
            "drawbridge_left_behind",
            "Reservations of pods that are gone, and devices of claims that are gone.",
            lambda: float(len(self.drift.left_behind)),
        )
