"""Keeps the marks of a node right, and asks the API server only after a change, or now and then."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

from cluster import ApiError, Merge
from cluster.errors import AlreadyExists, NotFound
from cluster.protocol import pages
from cluster.resources import DEVICE_TAINT_RULES, NODES
from node.audit import MARKED_ON, markable, marks_of, plan, sign_of, unmarkable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cluster import Cluster
    from dra.objects import DeviceTaintRule
    from node.audit import AuditFinding, DeviceId, HandedOut, Hardware, NodeSnapshot

Marking = Literal["held", "offered", "none"]


class Marker:
    def __init__(self, cluster: Cluster, node: str, marking: Marking) -> None:
        self._cluster = cluster
        self._node = node
        self._marking = marking
        self._labels = f"{MARKED_ON}={sign_of(node)}"
        self._done: tuple[tuple[HandedOut, ...], Mapping[DeviceId, frozenset[str]]] | None = None
        self._missed = False  # whether something was other than it was read
        self.findings: tuple[AuditFinding, ...] = ()
        self.count = 0

    async def keep(self, snapshot: NodeSnapshot, hardware: Hardware, *, again: bool) -> None:
        """Put the marks right; with `again` even if nothing has changed. While the kubelet does not answer they stay."""
        if snapshot.kubelet is None:
            return
        given: tuple[HandedOut, ...] = ()
        if self._marking != "none":
            given = (*snapshot.given, *snapshot.offered) if self._marking == "offered" else snapshot.given
        wanted = marks_of(given, hardware)
        if not again and self._done == (given, wanted):
            return
        self._done = None
        self._missed = False
        there = await self.there()
        if there is not None:
            await self._write(markable(self._node, wanted), given, there)
        self.findings = unmarkable(self._node, wanted, served=there is not None)
        self._done = None if self._missed else (given, wanted)

    async def there(self) -> tuple[DeviceTaintRule, ...] | None:
        """Read the marks of this node; None if this API server has none."""
        read = pages(self._cluster, DEVICE_TAINT_RULES, labels=self._labels)
        try:
            return tuple([rule async for page in read for rule in page.items])
        except NotFound:
            return None

    async def _write(
        self,
        wanted: Mapping[DeviceId, frozenset[str]],
        given: tuple[HandedOut, ...],
        there: tuple[DeviceTaintRule, ...],
    ) -> None:
        """Make, renew and remove marks; the first refusal is raised when all were tried."""
        self.count = len(there)
        if not wanted and not there:
            return
        owner = await self._cluster.get(NODES, self._node)
        planned = plan(owner, wanted, given, there, datetime.now(UTC))
        self._missed = planned.frees_names
        refused: list[ApiError] = []
        for body in planned.new:
            try:
                await self._cluster.create(DEVICE_TAINT_RULES.raw, body)
                self.count += 1
            except AlreadyExists:
                self._missed = True  # an agent before us made it: it is looked at in the next round
            except ApiError as error:
                refused.append(error)
        for name, told in planned.renewed:
            try:
                await self._cluster.patch(DEVICE_TAINT_RULES, name, Merge(told))
            except NotFound:
                self._missed = True
                self.count -= 1
            except ApiError as error:
                refused.append(error)
        for rule in planned.gone:
            try:
                await self._cluster.delete(DEVICE_TAINT_RULES, rule.metadata.name, uid=rule.metadata.uid)
                self.count -= 1
            except NotFound:
                self._missed = True
                self.count -= 1
            except ApiError as error:
                refused.append(error)
        if refused:
            raise refused[0]
