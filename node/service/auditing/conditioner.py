"""Keeps the condition of a node, where that is asked for. It goes with the agent: without an agent it would not be renewed."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from cluster import ApiError, Apply
from cluster.resources import NODES
from node.audit import COMPONENT, condition_of, worn_by
from runtime.controllers import now_of_the_wall

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cluster import Cluster
    from node.audit import Finding

ENDING = 5.0  # for taking it away
logger = logging.getLogger("drawbridge.agent")


class Conditioner:
    """Writes one condition of one node. `problem` says why it could not be written last; it keeps the agent from nothing else."""

    def __init__(self, cluster: Cluster, node: str, *, wanted: bool) -> None:
        self._cluster = cluster
        self._node = node
        self._wanted = wanted
        self.problem = ""

    async def keep(self, findings: Iterable[Finding], unread: str) -> None:
        """Put it right, if it is not as it should be."""
        if not self._wanted:
            return
        try:
            node = await self._cluster.get(NODES.raw, self._node)
            before = worn_by(node)
            condition = condition_of(findings, unread, before, now_of_the_wall())
            if before is None or any(before.get(name) != value for name, value in condition.items()):
                await self._apply([condition])
            self.problem = ""
        except ApiError as error:
            if not self.problem:
                logger.warning("the node's condition is not written", extra={"why": str(error)})
            self.problem = str(error)

    async def remove(self) -> None:
        """Take it away, as far as that can be done at once."""
        if not self._wanted:
            return
        try:
            async with asyncio.timeout(ENDING):
                await self._apply([])
        except (ApiError, TimeoutError) as error:
            logger.warning("the node's condition is left behind", extra={"why": str(error)})

    async def _apply(self, conditions: list[dict[str, Any]]) -> None:
        status: dict[str, Any] = {"conditions": conditions} if conditions else {}
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self._node}, "status": status}
        apply = Apply(body, COMPONENT, force=True)
        await self._cluster.patch(NODES, self._node, apply, subresource="status")
