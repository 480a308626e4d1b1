"""Lists pods on demand. A watch of all pods would cost the API server more than everything else that drawbridge does.

One list is of the pending pods, which are few. The other is of all pods in a namespace: it shows whether a template is still used, before the
template is deleted.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cluster import resources
from cluster.errors import Gone
from cluster.informers import Allotment
from cluster.protocol import pages
from dra.footprint import footprint
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
# Attempts at a list, which fails if its continue token expires on the way.
TRIES = 3


class PodSurvey:
    """Lists pods, and remembers the templates that were used in each namespace when it was last listed."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._used: dict[str, frozenset[Key]] = {}
        self._listed_at: dict[str, float] = {}

    async def pending(self, namespace: str, is_wanted: Callable[[Pod], bool], most_bytes: int) -> dict[Key, Pod]:
        """Return the pods without a node for which `is_wanted` is true, in a namespace or EVERYWHERE, as far as there is memory for them."""
        pending: dict[Key, Pod] = {}
        room = Allotment(most_bytes)

        def take(pod: Pod) -> None:
            key = pod.metadata.namespace, pod.metadata.name
            # If there is no room for more pods of a tenant, only this tenant's pods wait longer.
            if is_wanted(pod) and room.take(key, key[0], footprint(pod)):
                pending[key] = pod

        await self._list(namespace, WITHOUT_NODE, take)
        return pending

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
        """Return the seconds since the pods of a namespace were listed; infinity if they were not."""
        listed_at = self._listed_at.get(namespace, float("-inf"))
        return asyncio.get_running_loop().time() - listed_at

    def forget(self, namespaces: frozenset[str]) -> None:
        """Forget all namespaces but these."""
        for namespace in self._listed_at.keys() - namespaces:
            del self._listed_at[namespace], self._used[namespace]

    async def _list(self, namespace: str, fields: str, take: Callable[[Pod], None]) -> None:
        """Pass pods to `take`, page by page; pods that cannot be decoded are skipped."""
        where = None if namespace == EVERYWHERE else namespace
        for tries_left in reversed(range(TRIES)):
            try:
                async for page in pages(self._cluster, resources.PODS, where, fields=fields):
                    for pod in page.items:
                        take(pod)
            except Gone:
                if not tries_left:
                    raise
            else:
                return
