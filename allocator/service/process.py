"""The process behind `drawbridge allocator`: creates the parts, connects them, and passes changes from informers to them.

           ┌─ outlook ──▶ Basis ──▶ QuestionRunner ──▶ questions.find_serving_nodes ──▶ FleetOutlook
Allocator ─┤  reserve ──▶ Assume ──┐
           │  commit ───▶ Commit ──┼──▶ LiveLedger.apply ──▶ Commits.perform ──▶ outcome ──▶ LiveLedger.apply ...
           └─ release ──▶ Unreserve┤        └──▶ Ready or Dropped ──▶ the answer to the commit
informers ──▶ ClaimSeen, PodSeen ──┘

`schedulers/plugin.py` calls the allocator for HTTP requests.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from functools import partial
from typing import TYPE_CHECKING

from allocator.reports import Drift
from allocator.reservations import events
from allocator.service.allocator import Allocator
from allocator.service.app import AllocatorApp, routes
from allocator.service.bound_pods import BoundPods
from allocator.service.extended_claims import ExtendedClaims
from allocator.service.knowledge import Knowledge, Lead
from allocator.service.live_ledger import LiveLedger
from allocator.service.metrics import Metrics
from allocator.service.node_reservations import AGENT_LIMITS, AUDIENCE, NodeReservations
from allocator.service.part import Shared
from allocator.service.pending_pods import PendingPods
from allocator.service.periodic_checks import PeriodicChecks
from allocator.service.ports import Listening, Ports
from allocator.service.preemption.evictions import Evictions
from allocator.service.prepared_claims import PreparedClaims
from allocator.service.queries import Queries, api_routes
from allocator.service.question_runner import SWITCH_SECONDS, QuestionRunner
from allocator.service.quota.compatibilities import Compatibilities
from allocator.service.quota.quotas import Quotas
from allocator.service.requeue_events import RequeueEvents
from allocator.service.schedulers.plugin import PLUGIN_ENDPOINTS, Plugin
from cluster.controllers import Election, Recorder
from serving.authentication import TokenReviews
from serving.process import run_until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from allocator.decisions import PlacementRules
    from allocator.service.queries import Simulate
    from allocator.service.settings import AllocatorSettings
    from cluster.protocol import Cluster
    from dra.objects import Pod
    from dra.server import DeclaredServer
    from serving.process import Work

logger = logging.getLogger("drawbridge.allocator")


class AllocatorServer:
    """Runs one allocator process."""

    def __init__(self, cluster: Cluster, settings: AllocatorSettings) -> None:
        self._settings = settings
        self.metrics = metrics = Metrics()
        self.ports = Ports(settings, metrics)
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
        self.knowledge = knowledge = Knowledge(cluster, decides=True)
        self.requeue_events = RequeueEvents()
        self.lead = lead = Lead(knowledge, self.election)
        self.pods = pods = PendingPods(knowledge, self.requeue_events, settings)
        self.runner = runner = QuestionRunner(pods.turns)
        self.quotas = quotas = Quotas(cluster, knowledge)
        self.compatibilities = Compatibilities(cluster, knowledge.compatibilities)
        shared = Shared(cluster, knowledge, lead, pods, quotas, runner, metrics)
        self.ledger = ledger = LiveLedger(shared, recorder)
        self.prepared = PreparedClaims(shared, ledger, self.election)
        ledger.prepared_on = self.prepared.excluded_nodes
        self.election.may_write_late = ledger.commits.may_write_late
        self.extended = ExtendedClaims(shared, ledger.record_event)
        self.allocator = Allocator(shared, ledger, self.extended.make, settings.binding)
        self.evictions = Evictions(shared, ledger)
        self.bound_pods = BoundPods(shared, self.allocator, ledger)
        ledger.on_freed = self.allocator.requeue_fitting
        knowledge.on_claim = ledger.see_claim
        knowledge.on_claims_listed = ledger.reread_unlisted
        knowledge.on_pod = self._see_pod
        knowledge.on_namespace = pods.objects_changed
        knowledge.on_devices = pods.devices_changed
        knowledge.on_quota = pods.room_changed
        self._plugin = Plugin(
            allocator=self.allocator,
            evictions=self.evictions,
            requeue_events=self.requeue_events,
            knowledge=knowledge,
            lead=lead,
            identity=settings.identity,
            expires=ledger.state.terms.assumed,
        )
        self.periodic_checks = checks = PeriodicChecks(knowledge, ledger, settings.sweep)

        def drift() -> Drift:
            without_devices = tuple(sorted(self.bound_pods.without_devices))
            return Drift(checks.overlapping, checks.left_behind, without_devices, lead.leads)

        metrics.follow(knowledge, drift, lambda: lead.leads)
        self._queries = Queries(
            knowledge,
            drift=drift,
            quotas=lambda: quotas.report(knowledge.stock, tuple(ledger.unwritten())),
            is_written=lambda claim: claim.metadata.uid not in ledger.state.ahead,
        )
        accounts = TokenReviews(cluster, AUDIENCE, clock)
        self._node_reservations = NodeReservations(ledger.state, self.prepared, lead, accounts, settings.agent)
        self._add_metrics()

    async def run(self, stop: asyncio.Event, listening: Callable[[Listening], None]) -> None:
        """Serve until `stop` is set. `listening` is called with the open ports once the caches are synced."""
        sys.setswitchinterval(SWITCH_SECONDS)
        works: list[Work] = [self.ports.follow, self._follow_cluster, partial(self._begin, listening)]
        try:
            await run_until(stop, *works, metrics=self.metrics, at=self._settings.metrics)
        finally:
            await self.ports.end()

    async def _follow_cluster(self) -> None:
        try:
            await self.knowledge.run()
        finally:
            self.runner.close()
            await self.extended.close()
            await self.ledger.close()

    def configure(self, rules: PlacementRules, declared: DeclaredServer, simulate: Simulate | None = None) -> None:
        """Use these placement rules. Use the administrator's declaration for everything that the API server does not report."""
        self.pods.place_by(rules)
        self._queries.simulate_pods = simulate
        self.knowledge.declare(declared)

    async def _begin(self, listening: Callable[[Listening], None]) -> None:
        settings, ports, names = self._settings, self.ports, self._settings.client_names
        plugin = AllocatorApp(routes(PLUGIN_ENDPOINTS, self._plugin), token_file=settings.token_file, names=names)
        api = AllocatorApp(api_routes(self._queries), token_file=settings.token_file, names=names)
        # `names` does not apply to the calls of agents, which authenticate each call with a token.
        reservations = AllocatorApp({("GET", "/reservations"): self._node_reservations.answer}, limits=AGENT_LIMITS)
        opened = Listening(
            plugin=ports.open(settings.plugin, plugin, settings.tls),
            api=ports.open(settings.api, api, settings.tls),
            metrics=self.metrics.address,
            reservations=ports.open(settings.reservations, reservations, settings.reservations_tls),
        )
        await self.knowledge.wait_for_sync()
        listening(opened)
        await self.election.run(self._lead)

    def tick(self) -> None:
        """Expire reservations and requeue waiting pods. An exception in the requeueing is logged and does not end the leadership."""
        self.ledger.apply(events.Tick())
        self.ledger.check_watch()
        try:
            self.pods.tick(self.extended.is_making)
            self.allocator.requeue_fitting()
        except Exception:
            logger.exception("a bug while looking after waiting pods; please report it")

    def _see_pod(self, old: Pod | None, new: Pod | None) -> None:
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            self.prepared.see_end(old)
        for event in self.pods.see(old, new):
            self.ledger.apply(event)
        self.bound_pods.see(old, new)

    async def _lead(self) -> None:
        """Decide and write until cancelled. First read every claim, so that no device of an earlier leader is allocated again."""
        await self.ledger.catch_up()
        self.prepared.recall()
        self.lead.leads = True
        self.ledger.apply(events.BecameLeader())
        self.requeue_events.add(all_pods=True)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._update_statuses())
                self.periodic_checks.begin()
                while True:
                    await asyncio.sleep(self._settings.tick)
                    self.tick()
                    self.periodic_checks.check_once()
        finally:
            self.lead.leads = False
            self.ledger.apply(events.BecameFollower())
            self.requeue_events.add(all_pods=True)

    async def _update_statuses(self) -> None:
        """At each tick, update the status of quotas and compatibility rules, and the node that is kept for a starved pod.

        An exception is logged and does not end the leadership.
        """
        works: dict[str, Callable[[], Awaitable[None]]] = {
            "keeping the status of DeviceQuotas": lambda: self.quotas.keep(
                self.knowledge.stock, self.ledger.unwritten(), self.lead
            ),
            "keeping the status of DeviceCompatibilities": lambda: self.compatibilities.keep(
                self.knowledge.stock, self.lead
            ),
            "recording prepared claims": self.prepared.keep,
            "looking after bound pods": self.bound_pods.serve,
            "finishing evictions": self.evictions.finish,
            "looking for a node to keep": partial(self.evictions.keep_a_node, self.allocator.is_node_useful),
        }
        while True:
            await asyncio.sleep(self._settings.tick)
            for activity, work in works.items():
                try:
                    await work()
                except Exception:
                    logger.exception("a bug while %s; please report it", activity)

    def _add_metrics(self) -> None:
        """Add the checks, notes and metrics that the read-only allocator does not have. A follower is ready, too."""
        ledger, lead, gauge = self.ledger, self.lead, self.metrics.gauge
        self.metrics.checks["rights"] = ledger.commits.missing_rights
        self.metrics.checks["watch"] = lambda: ledger.unseen() if lead.leads else ""
        self.metrics.notes["rights"] = self.knowledge.missing_rights
        self.metrics.notes["lease"] = lambda: "" if lead.leads else "another replica leads"
        gauge("drawbridge_allocator_leader", "1 on the leader, 0 on the other replicas.", lambda: lead.leads)
        gauge(
            "drawbridge_allocator_quarantined_objects",
            "Stored objects that could not be read and are set aside until they change.",
            lambda: len(self.knowledge.quarantine.objects),
        )
        gauge(
            "drawbridge_reservations",
            "Pods for which devices are reserved.",
            lambda: len(ledger.state.reservations),
        )
