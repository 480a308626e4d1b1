"""The process behind `drawbridge allocator`: a bridge, the ports it is asked on, the lease, and an end in good order."""

from __future__ import annotations

import asyncio
import logging
import secrets
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from allocator.reports import Drift
from allocator.service.auditing.promised import AUDIENCE, Promised
from allocator.service.bridge import Bridge
from allocator.service.fairness.evictions import Evictions
from allocator.service.fairness.intake import Intake
from allocator.service.fairness.nudges import Nudges
from allocator.service.fairness.pressing import Pressing
from allocator.service.fairness.reviews import PLACE, Reviews
from allocator.service.metrics import Metrics
from allocator.service.ports import Listening, Ports
from allocator.service.queries import Queries, api_routes
from allocator.service.rounds import Rounds
from allocator.service.schedulers.extender import Extender, extender_routes
from allocator.service.schedulers.plugin import Plugin, plugin_routes
from cluster.controllers import Election, new_recorder, now_of_the_wall
from cluster.serving import Accounts

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from allocator.decisions import PlacementRules
    from allocator.service.fairness.reviews import Reviewing
    from allocator.service.queries import Translate
    from allocator.service.settings import Settings
    from cluster.protocol import Cluster
    from dra.objects import Pod
    from dra.server import Declared

logger = logging.getLogger("drawbridge.allocator")


class Service:
    """What one process does: a bridge, its ports and its lease."""

    def __init__(
        self,
        cluster: Cluster,
        settings: Settings,
        translate: Translate | None = None,
        reviewing: Reviewing | None = None,
    ) -> None:
        """With `reviewing`, which says how reviews are read, quotas are asked about at the door."""
        self._settings = settings
        self.metrics = Metrics()
        self.ports = Ports(settings, self.metrics)
        clock = asyncio.get_running_loop().time
        self._recorder = new_recorder(cluster, "drawbridge-allocator", settings.identity)
        self.election = Election(
            cluster,
            namespace=settings.namespace,
            name=settings.lease,
            identity=settings.identity,
            terms=settings.terms,
        )
        self.bridge = Bridge(
            cluster,
            schedulers=settings.schedulers,
            rules=settings.rules,
            new_token=lambda: secrets.token_hex(12),
            say=self._record,
            sure=self.election.is_sure,
            count_write=self.metrics.count_write,
            count_outlook=self.metrics.count_outlook,
        )
        self.evictions = Evictions(
            cluster,
            self.bridge,
            now_of_the_wall,
            count_room=self.metrics.count_room,
            count_eviction=self.metrics.count_eviction,
        )
        self._plugin = Plugin(self.bridge, self.evictions, settings.identity, expires=self.bridge.ledger.terms.assumed)
        self.pressing = Pressing(self.bridge, self.evictions, settings.preempting)
        self._nudges = Nudges(cluster, self.bridge, now_of_the_wall, count=self.metrics.count_write)
        self._extender = Extender(self.bridge, cluster, self.pressing, self._nudges, count_bind=self.metrics.count_bind)
        self.rounds = Rounds(self.bridge, clock=clock, sweep_seconds=settings.sweep)
        self._queries = Queries(
            self.bridge.knowledge,
            translate,
            drift=self._drift,
            quotas=lambda: self.bridge.quotas.report(self.bridge.knowledge.stock),
            is_written=self.bridge.is_written,
            foresee=self.evictions.foresee,
            quota_lines=self.bridge.quotas.lines,
        )
        accounts = Accounts(cluster, AUDIENCE, clock)
        self._promised = Promised(self.bridge, accounts, settings.agent, self.election.is_sure)
        self._intake: Intake | None = None
        self._reviews: Reviews | None = None
        if settings.quota is not None and reviewing is not None:
            self._intake = Intake(cluster, self.bridge, reviewing.wants_of_pod, count=self.metrics.count_review)
            self._reviews = Reviews(self._intake, self.election, reviewing, settings.quota_trust)
        self._gauges()

    async def run(self, stop: asyncio.Event, listening: Callable[[Listening], None]) -> None:
        """Serve until told to stop. `listening` learns the ports when the cluster was read."""
        async with self._ports() as ports, asyncio.TaskGroup() as group:
            works = (
                self.ports.follow(),
                self.bridge.run(),
                self._stand(),
                self._announce(ports, listening),
            )
            tasks = [group.create_task(work) for work in works]
            if self._intake is not None:
                tasks.append(group.create_task(self._intake.run()))
            await stop.wait()
            logger.info("stopping")
            for task in tasks:
                task.cancel()

    def place_by(self, rules: PlacementRules) -> None:
        """Place by other rules from now on."""
        self.bridge.place_by(rules)

    def declare(self, declared: Declared) -> None:
        """Go by what an administrator says of the server, where it tells nothing itself."""
        self.bridge.knowledge.declare(declared)

    async def _announce(self, ports: Listening, listening: Callable[[Listening], None]) -> None:
        await self.bridge.knowledge.wait_for_sync()
        listening(ports)

    async def _stand(self) -> None:
        await self.bridge.knowledge.wait_for_sync()
        await self.election.run(self._lead)

    async def _lead(self) -> None:
        async with self.bridge.leading(), asyncio.TaskGroup() as group:
            group.create_task(self._keep_statuses())
            group.create_task(self.pressing.run())
            group.create_task(self._nudges.run())
            self.rounds.begin()
            while True:
                await asyncio.sleep(self._settings.tick)
                self.bridge.tick()
                self.rounds.go()

    async def _keep_statuses(self) -> None:
        """Keep what quotas say is used, and what rules come to. A fault here must not end the lead."""
        while True:
            await asyncio.sleep(self._settings.tick)
            for one in (self.bridge.quotas, self.bridge.compatibilities):
                try:
                    await one.keep(self.bridge.knowledge.stock)
                except Exception:
                    logger.exception("a bug while keeping the status of our kinds; please report it")

    def _drift(self) -> Drift:
        return Drift(self.rounds.overlapping, self.rounds.left_behind, self.bridge.leads)

    async def _record(self, pod: Pod, sentence: str) -> None:
        await self._recorder.record(pod, "Devices", sentence, warning=True)

    @asynccontextmanager
    async def _ports(self) -> AsyncIterator[Listening]:
        settings = self._settings
        plugin = plugin_routes(self._plugin)
        extender = extender_routes(self._extender)
        api = api_routes(self._queries)
        ports = self.ports
        try:
            quota = ports.open_quota({("POST", "/quota"): self._reviews.answer}) if self._reviews else None
            if quota is not None:
                self.election.notes[PLACE] = settings.quota_place or str(quota)
            yield Listening(
                quota=quota,
                promises=ports.open_promises({("GET", "/promises"): self._promised.answer}),
                plugin=ports.open(settings.plugin, plugin),
                extender=ports.open(settings.extender, extender, asks_token=False),
                api=ports.open(settings.api, api),
                metrics=ports.open_metrics(),
            )
        finally:
            await ports.end()
            if self._reviews is not None:
                await self._reviews.close()

    def _readiness(self) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """What keeps this process from its work, and what is only worth knowing. Who does not lead is ready to."""
        bridge = self.bridge
        denied = [f"{what}: {problem}" for what, problem in bridge.commits.denied.items()]
        problems = {
            "cluster": bridge.knowledge.what_is_unread(),
            "rights": "; ".join(denied),
            "certificate": self.ports.what_is_wrong(),
        }
        notes = {
            "lease": "" if bridge.leads else "another replica leads",
            "files of TLS": self.ports.note(),
            "server": bridge.knowledge.server.doubts(),
        }
        if aside := str(bridge.knowledge.quarantine):
            notes["objects read"] = f"set aside: {aside}"
        if overlapping := self.rounds.overlapping:
            named = ", ".join(overlapping[:8])
            notes["devices"] = f"held more than once: {named}"
        return problems, notes

    def _gauges(self) -> None:
        self.metrics.readiness = self._readiness
        gauge = self.metrics.gauge
        knowledge = self.bridge.knowledge
        gauge("drawbridge_allocator_leader", "1 on the replica that decides.", lambda: float(self.bridge.leads))
        gauge("drawbridge_allocator_stock_age_seconds", "Seconds since what we know was last current.", knowledge.age)
        gauge(
            "drawbridge_allocator_quarantined_objects",
            "Stored objects that could not be digested and are set aside until they change.",
            lambda: float(len(knowledge.quarantine.held)),
        )
        gauge(
            "drawbridge_overlapping_claims",
            "Claims that hold what another holds too.",
            lambda: float(len(self.rounds.overlapping)),
        )
        gauge(
            "drawbridge_left_behind",
            "Reservations and allocations that the last two sweeps found without anybody who needs them.",
            lambda: float(len(self.rounds.left_behind)),
        )
        gauge(
            "drawbridge_reservations",
            "Pods that devices are held for.",
            lambda: float(len(self.bridge.ledger.reservations)),
        )
