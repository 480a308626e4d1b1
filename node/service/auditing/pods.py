"""The pods of one node, read as the node itself where Kubernetes lets an agent do that (from 1.36 on), and as the agent elsewhere.

RBAC cannot limit a list to one node's pods, and the authorizer of nodes does: the agent's own token needs no right to list pods then.
Upstream: KEP-5284, constrained impersonation.
"""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from cluster.errors import Forbidden

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from cluster.protocol import Bookmark, Change, Page, Reader, Unreadable
    from cluster.resources import Resource

T = TypeVar("T")


class AsNode:
    """Reads as the node, and where that is forbidden as the agent."""

    def __init__(self, node: Reader, agent: Reader) -> None:
        self._node = node
        self._agent = agent

    async def list(self, resource: Resource[T], namespace: str | None = None, **query: Any) -> Page[T]:
        """Read one page of a collection."""
        try:
            return await self._node.list(resource, namespace, **query)
        except Forbidden:
            return await self._agent.list(resource, namespace, **query)

    @asynccontextmanager
    async def watch(
        self, resource: Resource[T], namespace: str | None = None, **query: Any
    ) -> AsyncIterator[AsyncIterator[Change[T] | Bookmark | Unreadable]]:
        """Follow a collection."""
        async with AsyncExitStack() as stack:
            try:
                events = await stack.enter_async_context(self._node.watch(resource, namespace, **query))
            except Forbidden:
                events = await stack.enter_async_context(self._agent.watch(resource, namespace, **query))
            yield events
