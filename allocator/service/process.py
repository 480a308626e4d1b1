"""The process behind `drawbridge allocator`: a bridge, the ports it is asked on, the lease, and an end in good order."""

from __future__ import annotations

import asyncio
import logging
import secrets
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from allocator.decisions import Placement
from allocator.reports import Drift
from allocator.service.app import LIMITS, App
from allocator.service.bridge import Bridge
from allocator.service.extender import Extender
from allocator.service.fairness.evictions import Evictions
from allocator.service.metrics import Metrics
from allocator.service.plugin import Plugin
from allocator.service.queries import Queries
from allocator.service.rounds import SWEEP_SECONDS, Rounds
from cluster.controllers import Election, Recorder, Terms
from cluster.serving import Address, Credentials, Door, Limits

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from allocator.service.queries import Translate
    from cluster.protocol import Cluster
    from dra.objects import Pod

logger = logging.getLogger("drawbridge.allocator")
LEASE = "drawbridge-allocator"
METRICS_LIMITS = Limits(body=0, connections=32, peer=16)
TICK_SECONDS = 1.0
REST_SECONDS = 60.0  # an API server answers a write within a minute, or drops it
_GRACE = 5.0  # for what is in flight at the end: a commit under way is finished by the next leader if need be


class Settings(NamedTuple):
    """What a process does and where. A path is a unix socket."""

    identity: str
    namespace: str
    schedulers: tuple[str, ...] = ("drawbridge",)
    placement: Placement = Placement()
    most_pods: int = 0  # with devices on a node; 0 for any number
    plugin: Address | Path | None = None
    extender: Address | Path | None = None
    api: Address | Path | None = None
    metrics: Address | None = None
    credentials: Credentials = Credentials()
    lease: str = LEASE
    terms: Terms = Terms(rest=REST_SECONDS)
    tick: float = TICK_SECONDS
    sweep: float = SWEEP_SECONDS


class Listening(NamedTuple):
    """Where the ports are, once they are open."""

    plugin: Address | Path | None
    extender: Address | Path | None
    api: Address | Path | None
    metrics: Address | None


class Service:
    """What one process does: a bridge, its ports and its lease."""

    def __init__(self, cluster: Cluster, settings: Settings, translate: Translate | None = None) -> None:
        self._settings = settings
        self.metrics = Metrics()
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
            placement=settings.placement,
            most_pods=settings.most_pods,
            new_token=lambda: secrets.token_hex(12),
            tell=self._tell,
            sure=self.election.is_sure,
            count_write=self.metrics.count_write,
            count_outlook=self.metrics.count_outlook,
        )
        self.evictions = Evictions(cluster, self.bridge)
        self._plugin = Plugin(self.bridge, self.evictions, settings.identity, expires=self.bridge.ledger.terms.assumed)
        self._extender = Extender(self.bridge, cluster)
        self.rounds = Rounds(self.bridge, clock=clock, sweep_seconds=settings.sweep)
        self._queries = Queries(
            self.bridge.knowledge,
            translate,
            drift=self._drift,
            quotas=lambda: self.bridge.quotas.report(self.bridge.knowledge.stock),
            is_written=self.bridge.is_written,
            foresee=self.evictions.foresee,
        )
        self._gauges()

    async def run(self, stop: asyncio.Event, listening: Callable[[Listening], None]) -> None:
        """Serve until told to stop. `listening` learns the ports when the cluster was read."""
        async with self._ports() as ports, asyncio.TaskGroup() as group:
            works = (
                self.bridge.run(),
                self._stand(),
                self._say(ports, listening),
            )
            tasks = [group.create_task(work) for work in works]
            await stop.wait()
            logger.info("stopping")
            for task in tasks:
                task.cancel()

    async def _say(self, ports: Listening, listening: Callable[[Listening], None]) -> None:
        await self.bridge.knowledge.wait_for_sync()
        listening(ports)

    async def _stand(self) -> None:
        await self.bridge.knowledge.wait_for_sync()
        await self.election.run(self._lead)

    async def _lead(self) -> None:
        async with self.bridge.leading(), asyncio.TaskGroup() as group:
            group.create_task(self._keep_quotas())
            self.rounds.begin()
            while True:
                await asyncio.sleep(self._settings.tick)
                self.bridge.tick()
                self.rounds.go()

    async def _keep_quotas(self) -> None:
        """Keep what quotas say is used. A fault here must not end the lead."""
        while True:
            await asyncio.sleep(self._settings.tick)
            try:
                await self.bridge.quotas.keep(self.bridge.knowledge.stock)
            except Exception:
                logger.exception("a bug while counting what quotas limit; please report it")

    def _drift(self) -> Drift:
        return Drift(self.rounds.overlapping, self.rounds.left_behind, self.bridge.leads)

    async def _tell(self, pod: Pod, sentence: str) -> None:
        await self._recorder.record(pod, "Devices", sentence, warning=True)

    @asynccontextmanager
    async def _ports(self) -> AsyncIterator[Listening]:
        settings = self._settings
        closed = self.metrics.count_closure
        plugin = Door(App(plugin_routes(self._plugin), settings.credentials), LIMITS, closed)
        extender = Door(App(extender_routes(self._extender)), LIMITS, closed)
        api = Door(App(api_routes(self._queries), settings.credentials), LIMITS, closed)
        metrics = Door(self.metrics, METRICS_LIMITS, closed)
        listening = Listening(
            plugin=open_door(plugin, settings.plugin),
            extender=open_door(extender, settings.extender),
            api=open_door(api, settings.api),
            metrics=open_port(metrics, settings.metrics),
        )
        try:
            yield listening
        finally:
            doors = (plugin, extender, api, metrics)
            await asyncio.gather(*(door.end(_GRACE) for door in doors))

    def _readiness(self) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """What keeps this process from its work, and what is only worth knowing. Who does not lead is ready to."""
        bridge = self.bridge
        denied = [f"{what}: {problem}" for what, problem in bridge.commits.denied.items()]
        problems = {
            "cluster": bridge.knowledge.what_is_unread(),
            "rights": "; ".join(denied),
        }
        notes = {"lease": "" if bridge.leads else "another replica leads"}
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


def new_recorder(cluster: Cluster, component: str, identity: str) -> Recorder:
    """Write events in the name of a component."""
    return Recorder(
        cluster,
        component,
        instance=identity,
        now=lambda: datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        clock=asyncio.get_running_loop().time,
        suffix=lambda: secrets.token_hex(8),
    )


def open_door(door: Door, where: Address | Path | None) -> Address | Path | None:
    """Open a door, and say where it is."""
    if isinstance(where, Path):
        door.open_socket(where)
        return where
    return open_port(door, where)


def open_port(door: Door, where: Address | None) -> Address | None:
    """Open a door that is no unix socket, and say where it is."""
    if where is None:
        return None
    port = door.open(where.host, where.port)
    return where._replace(port=port)


def plugin_routes(plugin: Plugin) -> Mapping[tuple[str, str], Any]:
    """Which call of the plugin is answered by what."""
    return {
        ("GET", "/plugin/v1/state"): plugin.state,
        ("POST", "/plugin/v1/prefilter"): plugin.prefilter,
        ("POST", "/plugin/v1/filter"): plugin.filter,
        ("POST", "/plugin/v1/reserve"): plugin.reserve,
        ("POST", "/plugin/v1/unreserve"): plugin.unreserve,
        ("POST", "/plugin/v1/commit"): plugin.commit,
        ("POST", "/plugin/v1/postfilter"): plugin.postfilter,
        ("GET", "/plugin/v1/wake"): plugin.wake,
    }


def extender_routes(extender: Extender) -> Mapping[tuple[str, str], Any]:
    """Which call of a stock scheduler is answered by what."""
    return {
        ("POST", "/extender/filter"): extender.filter,
        ("POST", "/extender/prioritize"): extender.prioritize,
        ("POST", "/extender/preempt"): extender.preempt,
        ("POST", "/extender/bind"): extender.bind,
    }


def api_routes(queries: Queries) -> Mapping[tuple[str, str], Any]:
    """Which question of people and other systems is answered by what."""
    return {
        ("POST", "/api/v1/simulate-schedule"): queries.simulate,
        ("POST", "/api/simulate-schedule"): queries.simulate,
        ("GET", "/api/v1/claims"): queries.claims,
        ("GET", "/api/v1/fleet"): queries.fleet,
        ("GET", "/api/v1/quota"): queries.quota,
        ("GET", "/api/v1/nodes"): queries.nodes,
        ("GET", "/api/v1/allocations"): queries.allocations,
        ("POST", "/api/v1/resize"): queries.resize,
        ("GET", "/api/v1/drift"): queries.drift,
    }
