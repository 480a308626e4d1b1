"""Keeps the marks of a node as they should be, and asks the API server only when something has changed, or now and then."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from cluster import ApiError, Merge
from cluster.errors import AlreadyExists, NotFound
from cluster.resources import DEVICE_TAINT_RULES, NODES
from node.audit import MARKED_ON, markable, marks_of, plan, sign_of, unmarkable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cluster import Cluster
    from dra.objects import DeviceTaintRule
    from node.audit import DeviceId, Finding, HandedOut, Sight, Silicon

Marking = Literal["held", "offered", "none"]


class Marker:
    """Writes the marks of one node."""

    def __init__(self, cluster: Cluster, node: str, marking: Marking) -> None:
        self._cluster = cluster
        self._node = node
        self._marking = marking
        self._labels = f"{MARKED_ON}={sign_of(node)}"
        self._done: tuple[tuple[HandedOut, ...], Mapping[DeviceId, frozenset[str]]] | None = None
        self._missed = False  # whether something was other than it was read
        self.findings: tuple[Finding, ...] = ()
        self.count = 0

    async def keep(self, sight: Sight, silicon: Silicon, *, again: bool) -> None:
        """Put the marks right; with `again` even if nothing has changed. A kubelet that says nothing changes none."""
        if sight.kubelet is None:
            return
        given = self._given(sight)
        wanted = marks_of(given, silicon)
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
        found: list[DeviceTaintRule] = []
        more = ""
        while True:
            try:
                page = await self._cluster.list(DEVICE_TAINT_RULES, labels=self._labels, more=more)
            except NotFound:
                return None
            found += page.items
            more = page.more
            if not more:
                return tuple(found)

    def _given(self, sight: Sight) -> tuple[HandedOut, ...]:
        match self._marking:
            case "none":
                return ()
            case "offered":
                return (*sight.given, *sight.offered)
            case "held":
                return sight.given

    async def _write(
        self,
        wanted: Mapping[DeviceId, frozenset[str]],
        given: tuple[HandedOut, ...],
        there: tuple[DeviceTaintRule, ...],
    ) -> None:
        self.count = len(there)
        if not wanted and not there:
            return
        owner = await self._cluster.get(NODES, self._node)
        now = datetime.now(UTC)
        planned = plan(owner, wanted, given, there, now)
        self._missed = planned.frees_names
        writes = [
            *(partial(self._make, body) for body in planned.new),
            *(partial(self._renew, name, told) for name, told in planned.renewed),
            *(partial(self._remove, rule) for rule in planned.gone),
        ]
        refused: list[ApiError] = []
        for write in writes:
            try:
                await write()
            except ApiError as error:
                refused.append(error)
        if refused:
            raise refused[0]  # the others are made

    async def _make(self, body: dict[str, object]) -> None:
        try:
            await self._cluster.create(DEVICE_TAINT_RULES.raw, body)
            self.count += 1
        except AlreadyExists:
            self._missed = True  # an agent before us made it: it is looked at in the next round

    async def _renew(self, name: str, told: dict[str, Any]) -> None:
        try:
            await self._cluster.patch(DEVICE_TAINT_RULES, name, Merge(told))
        except NotFound:
            self._missed = True
            self.count -= 1

    async def _remove(self, rule: DeviceTaintRule) -> None:
        metadata = rule.metadata
        try:
            await self._cluster.delete(DEVICE_TAINT_RULES, metadata.name, uid=metadata.uid)
        except NotFound:
            self._missed = True
        self.count -= 1
