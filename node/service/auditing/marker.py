"""Keeps a node's marks up to date. It calls the API server only after a change, or when the agent reads all sources."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from cluster import ApiError, Merge
from cluster.errors import AlreadyExists, NotFound
from cluster.protocol import pages
from cluster.resources import DEVICE_TAINT_RULES, NODES
from node.audit import MARKED_ON, hash_of, markable, marks_of, plan, unmarkable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from cluster import Cluster
    from dra.objects import DeviceTaintRule
    from node.audit import DeviceId, Hardware, NodeFinding, NodePluginDevice, NodeSnapshot
    from node.service.settings import Marking


class Marker:
    def __init__(self, cluster: Cluster, node: str, marking: Marking) -> None:
        self._cluster = cluster
        self._node = node
        self._marking = marking
        self._labels = f"{MARKED_ON}={hash_of(node)}"
        self._done: tuple[tuple[NodePluginDevice, ...], Mapping[DeviceId, frozenset[str]]] | None = None
        self._missed = False  # whether the last round left work for the next one
        self.findings: tuple[NodeFinding, ...] = ()
        self.count = 0

    async def keep(self, snapshot: NodeSnapshot, hardware: Hardware, *, again: bool) -> None:
        """Update the marks if devices have changed, or with `again` in any case. While the kubelet does not answer, the marks stay."""
        if snapshot.kubelet is None:
            return
        plugin_devices: tuple[NodePluginDevice, ...] = ()
        if self._marking != "none":
            plugin_devices = (
                (*snapshot.allocated_to_pods, *snapshot.offered)
                if self._marking == "offered"
                else snapshot.allocated_to_pods
            )
        marks = marks_of(plugin_devices, hardware)
        if not again and self._done == (plugin_devices, marks):
            return
        self._done = None
        self._missed = False
        existing = await self.read_marks()
        if existing is not None:
            await self._write(markable(self._node, marks), plugin_devices, existing)
        self.findings = unmarkable(self._node, marks, served=existing is not None)
        self._done = None if self._missed else (plugin_devices, marks)

    async def read_marks(self) -> tuple[DeviceTaintRule, ...] | None:
        """Return the marks of this node; None if the API server has no DeviceTaintRules."""
        read = pages(self._cluster, DEVICE_TAINT_RULES, labels=self._labels)
        try:
            return tuple([rule async for page in read for rule in page.items])
        except NotFound:
            return None

    async def _write(
        self,
        marks: Mapping[DeviceId, frozenset[str]],
        plugin_devices: tuple[NodePluginDevice, ...],
        existing: tuple[DeviceTaintRule, ...],
    ) -> None:
        """Create, renew and delete marks. Tries all writes, and then raises the first error."""
        self.count = len(existing)
        if not marks and not existing:
            return
        owner = await self._cluster.get(NODES, self._node)
        planned = plan(owner, marks, plugin_devices, existing, datetime.now(UTC))
        self._missed = planned.frees_names
        errors: list[ApiError] = []
        rules, cluster = DEVICE_TAINT_RULES, self._cluster
        # Each write has the error by which another agent was faster, and the change of `count` after success and after that error.
        writes: list[tuple[Callable[[], Awaitable[object]], type[ApiError], int, int]] = [
            *((partial(cluster.create, rules.raw, body), AlreadyExists, 1, 0) for body in planned.new),
            *(
                (partial(cluster.patch, rules, name, Merge(annotations)), NotFound, 0, -1)
                for name, annotations in planned.renewed
            ),
        ]
        for rule in planned.deleted:
            meta = rule.metadata
            writes.append((partial(cluster.delete, rules, meta.name, uid=meta.uid), NotFound, -1, -1))
        for write, error_of_other_agent, change_after_success, change_after_other_agent in writes:
            try:
                await write()
                self.count += change_after_success
            except error_of_other_agent:
                self._missed = True  # the next round reads the marks again
                self.count += change_after_other_agent
            except ApiError as error:
                errors.append(error)
        if errors:
            raise errors[0]
