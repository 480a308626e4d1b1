"""Lists pods when they matter. A watch of all pods would cost the API server more than everything else that drawbridge does.

Two lists are needed: the pending pods that wait for a template, which are few; and, before a template is deleted, the templates that the
pods of its namespace use.
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

# Pods that have ended use no template, and a cluster may keep thousands of them.
LIVING = "status.phase!=Succeeded,status.phase!=Failed"
WITHOUT_NODE = f"spec.nodeName=,{LIVING}"
EVERYWHERE = ""
# Memory for the waiting pods.
WAITING_BYTES = 32 << 20
# Attempts at a list, which fails if its continue token expires on the way.
TRIES = 3


class PodSurvey:
    """Lists pods, and remembers the templates that were used in each namespace when it was last listed."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._used: dict[str, frozenset[Key]] = {}
        self._listed_at: dict[str, float] = {}

    async def waiting(self, namespace: str, is_waiting: Callable[[Pod], bool]) -> dict[Key, Pod]:
        """Return the pods of a namespace, or EVERYWHERE, that have no node and signed templates, and for which `is_waiting` returns True."""
        waiting: dict[Key, Pod] = {}
        room = Allotment(WAITING_BYTES)

        def take(pod: Pod) -> None:
            metadata = pod.metadata
            if names.TEMPLATES not in metadata.annotations or not is_waiting(pod):
                return
            key = metadata.namespace, metadata.name
            size = footprint(pod)
            # If there is no room for more pods of a tenant, only this tenant's pods wait longer.
            if room.take(key, metadata.namespace, size):
                waiting[key] = pod

        await self.list_pending(namespace, take)
        return waiting

    async def list_pending(self, namespace: str, take: Callable[[Pod], None]) -> None:
        """Pass each pod of a namespace, or EVERYWHERE, that has no node to `take`."""
        await self._list(namespace, WITHOUT_NODE, take)

    async def list_used_templates(self, namespace: str) -> None:
        """List the templates that the pods of a namespace use; `in_use` includes them from then on."""
        started = asyncio.get_running_loop().time()
        used: set[Key] = set()
        await self._list(namespace, LIVING, lambda pod: used.update(template_lifecycle.templates_of(pod)))
        self._used[namespace] = frozenset(used)
        self._listed_at[namespace] = started

    def in_use(self) -> frozenset[Key]:
        """Return the templates in use in the namespaces that were listed."""
        return frozenset().union(*self._used.values())

    def age(self, namespace: str) -> float:
        """Return the seconds since a namespace was listed; infinity if it was not."""
        listed_at = self._listed_at.get(namespace, float("-inf"))
        return asyncio.get_running_loop().time() - listed_at

    def forget(self, namespaces: frozenset[str]) -> None:
        """Forget all namespaces but these."""
        for namespace in self._listed_at.keys() - namespaces:
            del self._listed_at[namespace], self._used[namespace]

    async def _list(self, namespace: str, fields: str, take: Callable[[Pod], None]) -> None:
        """Pass pods to `take`, page by page; pods that cannot be decoded are skipped."""
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
