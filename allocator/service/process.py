"""The process behind `drawbridge allocator`: the bridge, its ports, the lease, and an orderly shutdown."""

from __future__ import annotations

import asyncio
import logging
import sys
from functools import partial
from typing import TYPE_CHECKING

from allocator.reports import Drift
from allocator.service.app import App, routes
from allocator.service.bridge import Bridge
from allocator.service.metrics import Metrics
from allocator.service.node_reservations import AGENT_LIMITS, AUDIENCE, NodeReservations
from allocator.service.periodic_checks import PeriodicChecks
from allocator.service.ports import Listening, Ports
from allocator.service.preemption.extender_preemption import ExtenderPreemption
from allocator.service.preemption.requeue import ExtenderRequeue
from allocator.service.queries import Queries, api_routes
from allocator.service.question_runner import SWITCH_SECONDS
from allocator.service.quota.admission import QuotaAdmission
from allocator.service.quota.reviews import PLACE, QuotaReviews
from allocator.service.schedulers.extender import EXTENDER_ENDPOINTS, Extender
from allocator.service.schedulers.plugin import PLUGIN_ENDPOINTS, Plugin
from runtime.authentication import TokenReviews
from runtime.controllers import Election, Recorder
from runtime.process import run_until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from allocator.decisions import PlacementRules
    from allocator.service.quota.reviews import Reviewing
    from allocator.service.settings import Settings
    from cluster.protocol import Cluster
    from dra.server import Declared
    from runtime.process import Work

logger = logging.getLogger("drawbridge.allocator")


class Service:
    """Runs one allocator process."""

    def __init__(
        self,
        cluster: Cluster,
        settings: Settings,
        reviewing: Reviewing | None = None,
    ) -> None:
        """With `reviewing` and the `quota` setting, quotas are checked when pods and claims are created."""
        self._settings = settings
        self.metrics = Metrics()
        self.ports = Ports(settings, self.metrics)
        clock = asyncio.get_running_loop().time
        self.election = Election(
            cluster,
            namespace=settings.namespace,
            name=settings.lease,
            identity=settings.identity,
            term=settings.term,
            ends_on_restore=True,
        )
        recorder = Recorder(cluster, "drawbridge-allocator", instance=settings.identity)
        metrics = self.metrics
        self.bridge = bridge = Bridge(cluster, settings, self.election, recorder, metrics)
        self.election.may_write_late = bridge.ledger.commits.may_write_late
        knowledge, lead, pods, ledger = bridge.knowledge, bridge.lead, bridge.pods, bridge.ledger
        self._plugin = Plugin(
            allocator=bridge.allocator,
            evictions=bridge.evictions,
            supposition=bridge.supposition,
            requeue_events=bridge.requeue_events,
            knowledge=knowledge,
            lead=lead,
            identity=settings.identity,
            expires=ledger.state.terms.assumed,
        )
        self.extender_preemption = ExtenderPreemption(pods, bridge.evictions, ledger.record_event, settings.preempting)
        self._requeue = ExtenderRequeue(
            cluster=cluster,
            knowledge=knowledge,
            lead=lead,
            pods=pods,
            requeue_events=bridge.requeue_events,
            metrics=metrics,
        )
        self._extender = Extender(
            cluster=cluster,
            allocator=bridge.allocator,
            pods=pods,
            preemption=self.extender_preemption,
            metrics=metrics,
        )
        self.periodic_checks = checks = PeriodicChecks(knowledge, ledger, settings.sweep)

        def drift() -> Drift:
            return Drift(checks.overlapping, checks.left_behind, lead.leads)

        metrics.follow(knowledge, drift, lambda: lead.leads)
        self._queries = Queries(
            knowledge,
            drift=drift,
            quotas=lambda: bridge.quotas.report(knowledge.stock, ledger.unwritten()),
            is_written=ledger.is_written,
            seconds=settings.answer,
        )
        accounts = TokenReviews(cluster, AUDIENCE, clock)
        self._node_reservations = NodeReservations(ledger.state, lead, accounts, settings.agent, self.election.is_sure)
        self._admission: QuotaAdmission | None = None
        self._reviews: QuotaReviews | None = None
        if settings.quota is not None and reviewing is not None:
            self._admission = QuotaAdmission(
                cluster=cluster,
                knowledge=knowledge,
                lead=lead,
                quotas=bridge.quotas,
                metrics=metrics,
                future_claims_of_pod=reviewing.future_claims_of_pod,
            )
            self._reviews = QuotaReviews(self._admission, self.election, reviewing, settings.quota_trust)
        self._add_metrics()

    async def run(self, stop: asyncio.Event, listening: Callable[[Listening], None]) -> None:
        """Serve until `stop` is set. `listening` is called with the open ports once the caches are synced."""
        sys.setswitchinterval(SWITCH_SECONDS)
        works: list[Work] = [self.ports.follow, self.bridge.run, partial(self._begin, listening)]
        if self._admission is not None:
            works.append(self._admission.run)
        try:
            await run_until(stop, *works, metrics=self.metrics, at=self._settings.metrics)
        finally:
            await self.ports.end()
            self._queries.close()
            if self._reviews is not None:
                await self._reviews.close()

    def place_by(self, rules: PlacementRules) -> None:
        """Use these placement rules from now on."""
        self.bridge.pods.place_by(rules)

    def declare(self, declared: Declared) -> None:
        """Use the administrator's declaration where the API server reports nothing itself."""
        self.bridge.knowledge.declare(declared)

    async def _begin(self, listening: Callable[[Listening], None]) -> None:
        settings, ports, names = self._settings, self.ports, self._settings.client_names
        plugin = App(routes(PLUGIN_ENDPOINTS, self._plugin), token_file=settings.token_file, names=names)
        extender = App(routes(EXTENDER_ENDPOINTS, self._extender), names=names)
        api = App(api_routes(self._queries), token_file=settings.token_file, names=names)
        # `names` does not apply to API servers and agents: agents authenticate each call with a token.
        reservations = App({("GET", "/reservations"): self._node_reservations.answer}, limits=AGENT_LIMITS)
        quota = None
        if self._reviews is not None:
            quota = ports.open(settings.quota, App({("POST", "/quota"): self._reviews.answer}), settings.quota_tls)
            self.election.notes[PLACE] = settings.quota_place or str(quota)
        opened = Listening(
            plugin=ports.open(settings.plugin, plugin, settings.tls),
            extender=ports.open(settings.extender, extender, settings.tls),
            api=ports.open(settings.api, api, settings.tls),
            metrics=self.metrics.address,
            quota=quota,
            reservations=ports.open(settings.reservations, reservations, settings.reservations_tls),
        )
        await self.bridge.knowledge.wait_for_sync()
        listening(opened)
        await self.election.run(self._lead)

    async def _lead(self) -> None:
        async with self.bridge.leading(), asyncio.TaskGroup() as group:
            group.create_task(self._update_statuses())
            group.create_task(self.extender_preemption.run())
            if self._settings.extender is not None:  # the plugin reads these events itself
                group.create_task(self._requeue.run())
            self.periodic_checks.begin()
            while True:
                await asyncio.sleep(self._settings.tick)
                self.bridge.tick()
                self.periodic_checks.check_once()

    async def _update_statuses(self) -> None:
        """Update the status of quotas and compatibility rules, and the node kept for a starved pod, at each tick.

        An exception must not end the leadership, so it is logged.
        """
        bridge = self.bridge
        works: dict[str, Callable[[], Awaitable[None]]] = {
            "keeping the status of DeviceQuotas": lambda: bridge.quotas.keep(
                bridge.knowledge.stock, bridge.ledger.unwritten(), bridge.lead
            ),
            "keeping the status of DeviceCompatibilities": lambda: bridge.compatibilities.keep(
                bridge.knowledge.stock, bridge.lead
            ),
            "looking for a node to keep": partial(bridge.evictions.keep_a_node, bridge.allocator.is_node_useful),
        }
        while True:
            await asyncio.sleep(self._settings.tick)
            for activity, work in works.items():
                try:
                    await work()
                except Exception:
                    logger.exception("a bug while %s; please report it", activity)

    def _add_metrics(self) -> None:
        """Add the checks, notes and metrics that only a replica with a lease has. A follower is ready, too."""
        bridge, gauge = self.bridge, self.metrics.gauge
        self.metrics.checks["rights"] = bridge.ledger.commits.missing_rights
        self.metrics.checks["watch"] = lambda: bridge.ledger.unseen() if bridge.lead.leads else ""
        self.metrics.notes["lease"] = lambda: "" if bridge.lead.leads else "another replica leads"
        gauge("drawbridge_allocator_leader", "1 on the replica that decides.", lambda: bridge.lead.leads)
        gauge(
            "drawbridge_allocator_quarantined_objects",
            "Stored objects that could not be read and are set aside until they change.",
            lambda: len(bridge.knowledge.quarantine.objects),
        )
        gauge(
            "drawbridge_reservations",
            "Pods for which devices are reserved.",
            lambda: len(bridge.ledger.state.reservations),
        )
