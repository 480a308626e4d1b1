"""The process behind `drawbridge node-agent`. On the node it only reads; in the cluster it writes events, and marks of its own node."""

from __future__ import annotations

import asyncio
import logging
import random
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec
from prometheus_client import Gauge

from cluster import ApiError
from cluster.resources import NODES
from dra.objects import DeviceTaintRule
from node.audit import COMPONENT, Finding, HandedOut, Kind, Patience, PreparedThere, Sight, examine, holders
from node.service.auditing.asker import AllocatorPlace, Asker
from node.service.auditing.conditioner import Conditioner
from node.service.auditing.devices import Devices
from node.service.auditing.event_reporter import EventReporter
from node.service.auditing.marker import Marker, Marking
from node.service.auditing.sources import SOCKET
from node.service.auditing.watcher import Watcher
from node.service.driver import NodePaths
from runtime.controllers import new_recorder
from runtime.http import Address
from runtime.metrics import MetricsPort
from runtime.process import run_until

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cluster import Cluster
    from cluster.protocol import Reader

READING = 20.0  # for the cluster, of one look
AGAIN = 5.0  # at least, after the API server refused something
logger = logging.getLogger("drawbridge.agent")


class AgentSettings(msgspec.Struct, frozen=True):
    """How one agent works. It asks the kubelet every `glance` seconds, and looks at everything every `look`."""

    paths: NodePaths
    socket: str = ""
    marking: Marking = "held"
    condition: bool = False
    allocator: AllocatorPlace | None = None
    metrics: Address | None = None
    glance: float = 2.0
    look: float = 30.0

    @property
    def kubelet_socket(self) -> str:
        return self.socket or f"{self.paths.kubelet}/{SOCKET}"


class OneLook(msgspec.Struct, frozen=True):
    """What one look has seen, and what does not fit. `marks` is None where the API server has none."""

    sight: Sight
    findings: tuple[Finding, ...]
    marks: tuple[DeviceTaintRule, ...] | None = ()


class Agent:
    """One node's."""

    def __init__(self, cluster: Cluster, settings: AgentSettings, as_node: Reader | None = None) -> None:
        """`as_node` reads the node's pods with the rights of the node."""
        self._cluster = cluster
        self._settings = settings
        self._clock = asyncio.get_running_loop().time
        self._node = settings.paths.node
        asker = _asker(cluster, settings)
        self.watcher = Watcher(cluster, settings.paths, settings.kubelet_socket, asker, as_node)
        self.marker = Marker(cluster, self._node, settings.marking)
        recorder = new_recorder(cluster, COMPONENT, self._node)
        self._teller = EventReporter(recorder, self._clock)
        self._condition = Conditioner(cluster, self._node, wanted=settings.condition)
        self._patience = Patience()
        self._unread: Mapping[str, str] = {"kubelet": "not asked yet"}
        self._trouble = ""
        self._looked_at = self._again_at = float("-inf")
        self._heard: tuple[tuple[HandedOut, ...], tuple[PreparedThere, ...]] = (), ()
        self._seen = Sight(self._node)
        self._named: set[str] = set()
        self.findings: tuple[Finding, ...] = ()
        self.metrics = MetricsPort()
        self._show()

    async def run(self, stop: asyncio.Event) -> None:
        """Look until told to stop. Marks stay: the next agent finds the plugin's pods where they are."""
        async with self.metrics.shown(self._settings.metrics):
            await run_until(stop, self.watcher.run(), self._go())
        await self._condition.remove()

    async def look_once(self) -> OneLook:
        """Look at everything once, and write nothing."""
        following = asyncio.create_task(self.watcher.run())
        try:
            await self.watcher.wait_for_sync(READING)
            sight = await self.watcher.look(await self.watcher.glance())
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
        found = examine(sight, self.watcher.silicon)
        return OneLook(sight, found, await self.marker.there())

    async def round(self) -> None:
        """Look, mark and tell once; at everything if it is time, or if containers have other devices now."""
        now = self._clock()
        sight = await self.watcher.glance()
        heard = sight.given, sight.held
        whole = heard != self._heard or now - self._looked_at >= self._settings.look
        if whole:
            sight = await self.watcher.look(sight)
            self._looked_at = now
            self._seen = sight
            self._unread = sight.unread
            self._name_unknown(sight.unknown)
        else:
            self._unread = {**self._unread, "kubelet": sight.unread.get("kubelet", "")}
        self._heard = heard
        if now < self._again_at:
            return
        self._trouble = ""
        try:
            await self.marker.keep(sight, self.watcher.silicon, again=whole)
            if whole:
                await self._report(sight, now)
        except ApiError as error:
            self._trouble = str(error)
            self._again_at = now + AGAIN * (1 + random.random())  # noqa: S311  so that nodes do not ask all at once
            logger.warning("the API server rejected the write", extra={"why": str(error)})

    def _name_unknown(self, unknown: Mapping[str, str]) -> None:
        """Name once what is in no form that is known: it is nobody's mistake."""
        for path in sorted(unknown.keys() - self._named):
            logger.info("a checkpoint in no form that is known is not read", extra={"file": path, "why": unknown[path]})
        self._named |= unknown.keys()

    async def _report(self, sight: Sight, now: float) -> None:
        found = (*examine(sight, self.watcher.silicon), *self.marker.findings)
        self._patience = self._patience.after(found, now)
        self.findings = tuple(one for one in found if self._patience.is_old(one, now))
        node = await self._cluster.get(NODES, self._node)
        await self._teller.tell(self.findings, node, self.watcher.pods)
        await self._condition.keep(self.findings, sight.unread.get("kubelet", ""))

    async def _go(self) -> None:
        await self.watcher.wait_for_sync()
        logger.info("ready", extra={"node": self._node})
        while True:
            self.watcher.changed.clear()
            try:
                await self.round()
            except Exception:
                logger.exception("a bug while looking; please report it")
            with suppress(TimeoutError):
                async with asyncio.timeout(self._settings.glance):
                    await self.watcher.changed.wait()

    def _readiness(self) -> tuple[Mapping[str, str], Mapping[str, str]]:
        unread = {name: why for name, why in self._unread.items() if why}
        problems = {
            "cluster": self.watcher.what_is_unread() or self._trouble,
            "kubelet": unread.pop("kubelet", ""),
        }
        away = [f"{name}: {why}" for name, why in sorted(unread.items())]
        found = [f"{one.object}: {one.what}" for one in self.findings[:8]]
        notes = {
            "sources": "; ".join(away),
            "condition": self._condition.problem,
            "devices": "; ".join(found),
            "objects read": str(self.watcher.quarantine),
        }
        return problems, notes

    def _show(self) -> None:
        self.metrics.readiness = self._readiness
        gauge = self.metrics.gauge
        gauge(
            "drawbridge_node_plugin_devices",
            "Devices that containers have of device plugins.",
            lambda: len(self._heard[0]),
        )
        gauge("drawbridge_node_marks", "Devices marked because a plugin holds them.", lambda: self.marker.count)
        gauge(
            "drawbridge_node_promises",
            "Claims with devices of the node that an allocator has reserved and not written yet.",
            lambda: len(self._seen.promises),
        )
        gauge(
            "drawbridge_node_look_age_seconds",
            "Seconds since the node was looked at as a whole.",
            lambda: self._clock() - self._looked_at,
        )
        gauge(
            "drawbridge_node_sources_unread",
            "Sources on the node that could not be read.",
            lambda: sum(map(bool, self._unread.values())),
        )
        found = Gauge("drawbridge_node_findings", "What does not fit.", ("what",), registry=self.metrics.registry)
        for kind in Kind:
            found.labels(kind.value).set_function(self._counter(kind))
        devices = Devices(self._node, lambda: holders(self._seen, self.watcher.silicon))
        self.metrics.registry.register(devices)

    def _counter(self, kind: Kind) -> Callable[[], float]:
        return lambda: sum(one.what is kind for one in self.findings)


def _asker(cluster: Cluster, settings: AgentSettings) -> Asker | None:
    place = settings.allocator
    return Asker(cluster, place, settings.paths.node) if place is not None else None
