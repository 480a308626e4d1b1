"""What can be known of pods without following them, which would cost a cluster's API server more than all else that we do there.

Two questions, each asked when it matters. Which pods wait for a template: those have no node yet, so that few are listed. Which
templates the living pods of a namespace use: before one is swept.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cluster import resources
from cluster.errors import Gone
from cluster.protocol import pages
from dra.footprint import footprint
from runtime.informers import Allotment
from webhook import names
from webhook.claims import template_lifecycle

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.protocol import Cluster
    from dra.objects import Pod
    from webhook.claims import TemplateKey as Key

# Pods that are over use nothing, and a cluster may keep thousands of them.
LIVING = "status.phase!=Succeeded,status.phase!=Failed"
WITHOUT_NODE = f"spec.nodeName=,{LIVING}"
EVERYWHERE = ""
# What the pods that wait, and that are not followed, may take of the memory.
WAITING_BYTES = 32 << 20
# A list that is so long that its token gets too old on the way is begun anew.
TRIES = 3


class PodSurvey:
    """Lists pods, and remembers which templates were used where when it last looked."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._used: dict[str, frozenset[Key]] = {}
        self._looked: dict[str, float] = {}

    async def waiting(self, namespace: str, waits: Callable[[Pod], bool]) -> dict[Key, Pod]:
        """Find the pods of a namespace, or EVERYWHERE, that have no node, prove something, and wait, as `waits` says."""
        found: dict[Key, Pod] = {}
        room = Allotment(WAITING_BYTES)

        def take(pod: Pod) -> None:
            metadata = pod.metadata
            if names.TEMPLATES not in metadata.annotations or not waits(pod):
                return
            key = metadata.namespace, metadata.name
            size = footprint(pod)
            # A tenant whose pods there is no room for waits longer, and no other does.
            if room.take(key, metadata.namespace, size):
                found[key] = pod

        await self.list_unplaced(namespace, take)
        return found

    async def list_unplaced(self, namespace: str, take: Callable[[Pod], None]) -> None:
        """Show the pods of a namespace, or EVERYWHERE, that have no node."""
        await self._list(namespace, WITHOUT_NODE, take)

    async def list_templates(self, namespace: str) -> None:
        """See which templates the pods of a namespace use."""
        begun = asyncio.get_running_loop().time()
        used: set[Key] = set()
        await self._list(namespace, LIVING, lambda pod: used.update(template_lifecycle.templates_of(pod)))
        self._used[namespace] = frozenset(used)
        self._looked[namespace] = begun

    def in_use(self) -> frozenset[Key]:
        """Name the templates that were used where we looked."""
        return frozenset().union(*self._used.values())

    def age(self, namespace: str) -> float:
        """Seconds since we looked at a namespace."""
        last = self._looked.get(namespace, float("-inf"))
        return asyncio.get_running_loop().time() - last

    def forget(self, namespaces: frozenset[str]) -> None:
        """Forget all namespaces but these."""
        for namespace in self._looked.keys() - namespaces:
            del self._looked[namespace], self._used[namespace]

    async def _list(self, namespace: str, fields: str, take: Callable[[Pod], None]) -> None:
        """Show pods to a function, page by page; one that cannot be read is passed over."""
        for _ in range(TRIES - 1):
            try:
                await self._pages(namespace, fields, take)
            except Gone:
                continue
            return
        await self._pages(namespace, fields, take)

    async def _pages(self, namespace: str, fields: str, take: Callable[[Pod], None]) -> None:
        where = None if namespace == EVERYWHERE else namespace
        async for page in pages(self._cluster, resources.PODS, where, fields=fields):
            for pod in page.items:
                take(pod)
