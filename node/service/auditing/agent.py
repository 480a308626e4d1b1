"""The process behind `drawbridge node-agent`. On the node it only reads. In the cluster it writes events, its own node's marks, and, if
enabled, the node condition.
"""

from __future__ import annotations

import asyncio
import logging
import random
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from cluster import ApiError
from cluster.controllers import Recorder
from cluster.resources import NODES
from dra.objects import DeviceTaintRule
from node.audit import (
    COMPONENT,
    FindingAges,
    NodeFinding,
    NodePluginDevice,
    NodeSnapshot,
    PreparedDeviceRecord,
    examine,
    holders,
)
from node.service.auditing.allocator_client import AllocatorClient
from node.service.auditing.event_reporter import Conditioner, EventReporter
from node.service.auditing.marker import Marker
from node.service.auditing.watcher import Watcher
from node.service.metrics import AgentMetrics, container_devices
from serving.process import run_until

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cluster import Cluster
    from cluster.protocol import Reader
    from node.service.settings import AgentSettings

SYNC_TIMEOUT = 20.0  # seconds, for `--once`
RETRY_AFTER = 5.0  # seconds, at least, after the API server rejected a write
logger = logging.getLogger("drawbridge.agent")


class AuditResult(msgspec.Struct, frozen=True):
    """The result of reading all sources once. `marks` is None if the API server has no DeviceTaintRules."""

    snapshot: NodeSnapshot
    findings: tuple[NodeFinding, ...]
    marks: tuple[DeviceTaintRule, ...] | None = ()


class Agent:
    def __init__(self, cluster: Cluster, settings: AgentSettings, as_node: Reader | None = None) -> None:
        """`as_node` reads the node's pods with the node's permissions."""
        self._cluster = cluster
        self._settings = settings
        self._clock = asyncio.get_running_loop().time
        self.metrics = AgentMetrics()
        self._node = settings.paths.node
        address = settings.allocator
        allocator = AllocatorClient(cluster, address, self._node) if address.url else None
        self.watcher = Watcher(cluster, settings.paths, settings.kubelet_socket, allocator, as_node)
        self.marker = Marker(cluster, self._node, settings.marking)
        recorder = Recorder(cluster, COMPONENT, instance=self._node)
        self._reporter = EventReporter(recorder, self._clock)
        self._condition = Conditioner(cluster, self._node, wanted=settings.condition)
        self._ages = FindingAges()
        self._unread: Mapping[str, str] = {"kubelet": "not asked yet"}
        self._write_problem = ""
        self._audited_at = self._retry_at = float("-inf")
        self._kubelet_devices: tuple[tuple[NodePluginDevice, ...], tuple[PreparedDeviceRecord, ...]] = (), ()
        self._last_snapshot = NodeSnapshot(self._node)
        self._named_checkpoints: set[str] = set()
        self.findings: tuple[NodeFinding, ...] = ()
        self._register_metrics()

    async def run(self, stop: asyncio.Event) -> None:
        """Run until `stop` is set. The marks stay, because the plugins' pods still run."""
        await run_until(stop, self.watcher.run, self._run, metrics=self.metrics, at=self._settings.metrics)
        await self._condition.remove()

    async def audit_once(self) -> AuditResult:
        following = asyncio.create_task(self.watcher.run())
        try:
            await self.watcher.wait_for_sync(SYNC_TIMEOUT)
            snapshot = await self.watcher.read_sources(await self.watcher.read_kubelet())
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
        findings = examine(snapshot, self.watcher.hardware)
        return AuditResult(snapshot, findings, await self.marker.read_marks())

    async def round(self) -> None:
        """Read, mark and report once. All sources are read at intervals, and when containers' devices have changed."""
        now = self._clock()
        snapshot = await self.watcher.read_kubelet()
        kubelet_devices = snapshot.allocated_to_pods, snapshot.prepared_by_kubelet
        reads_all = kubelet_devices != self._kubelet_devices or now - self._audited_at >= self._settings.audit_interval
        if reads_all:
            snapshot = await self.watcher.read_sources(snapshot)
            self._audited_at = now
            self._last_snapshot = snapshot
            self._unread = snapshot.unread
            for path in sorted(snapshot.unknown.keys() - self._named_checkpoints):
                extra = {"file": path, "why": snapshot.unknown[path]}
                logger.info("a checkpoint in an unknown format is not read", extra=extra)
            self._named_checkpoints |= snapshot.unknown.keys()
        else:
            self._unread = {**self._unread, "kubelet": snapshot.unread.get("kubelet", "")}
        self._kubelet_devices = kubelet_devices
        if now < self._retry_at:
            return
        self._write_problem = ""
        try:
            await self.marker.keep(snapshot, self.watcher.hardware, again=reads_all)
            if reads_all:
                findings = (*examine(snapshot, self.watcher.hardware), *self.marker.findings)
                self._ages = self._ages.after(findings, now)
                self.findings = tuple(finding for finding in findings if self._ages.is_old(finding, now))
                self.metrics.show_findings(self.findings)
                node = await self._cluster.get(NODES, self._node)
                await self._reporter.report(self.findings, node, self.watcher.pods)
                await self._condition.keep(self.findings, snapshot.unread.get("kubelet", ""))
        except ApiError as error:
            self._write_problem = str(error)
            self._retry_at = now + RETRY_AFTER * (1 + random.random())  # noqa: S311  spreads the retries of many nodes
            logger.warning("the API server rejected the write", extra={"why": str(error)})

    async def _run(self) -> None:
        await self.watcher.wait_for_sync()
        logger.info("ready", extra={"node": self._node})
        while True:
            self.watcher.changed.clear()
            try:
                await self.round()
            except Exception:
                logger.exception("a bug while checking; please report it")
            with suppress(TimeoutError):
                async with asyncio.timeout(self._settings.kubelet_interval):
                    await self.watcher.changed.wait()

    def _register_metrics(self) -> None:
        self.metrics.checks = {
            "cluster": lambda: self.watcher.what_is_unread() or self._write_problem,
            "kubelet": lambda: self._unread.get("kubelet", ""),
        }
        self.metrics.notes = {
            "sources": lambda: "; ".join(
                f"{source}: {why}" for source, why in sorted(self._unread.items()) if why and source != "kubelet"
            ),
            "condition": lambda: self._condition.problem,
            "devices": lambda: "; ".join(f"{finding.object}: {finding.kind}" for finding in self.findings[:8]),
            "objects read": self.watcher.quarantine.note,
        }
        gauge = self.metrics.gauge
        gauge(
            "drawbridge_node_plugin_devices",
            "Devices of device plugins that containers have.",
            lambda: len(self._kubelet_devices[0]),
        )
        gauge(
            "drawbridge_node_marks",
            "Devices that the audit agent tainted, because a device plugin holds them.",
            lambda: self.marker.count,
        )
        gauge(
            "drawbridge_node_reservations",
            "Claims with devices of the node that an allocator has reserved but not written yet.",
            lambda: len(self._last_snapshot.reservations),
        )
        gauge(
            "drawbridge_node_audit_age_seconds",
            "Seconds since the audit agent last read all of its sources on the node.",
            lambda: self._clock() - self._audited_at,
        )
        gauge(
            "drawbridge_node_sources_unread",
            "Sources on the node that could not be read.",
            lambda: sum(map(bool, self._unread.values())),
        )
        self.metrics.registry.register(
            container_devices(self._node, lambda: holders(self._last_snapshot, self.watcher.hardware))
        )
