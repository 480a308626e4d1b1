"""Which templates the living pods use, asked now and then: to follow every pod of a cluster would cost its API server more than all
else that we do there.

Only pods for which a template has still to be made are followed; the gate labels them (`webhook.names.WAITS_LABEL`). What uses a
template that exists matters once in a grace period, and before the template is swept: then the pods of its namespace are listed.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cluster import resources
from cluster.errors import Gone
from webhook.claims import upkeep

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.informers import Quarantine
    from cluster.protocol import Cluster, Page
    from dra.objects import Pod
    from webhook.claims import Key

# Pods that are over use nothing, and a cluster may keep thousands of them.
LIVING = "status.phase!=Succeeded,status.phase!=Failed"
EVERYWHERE = ""
# A list that is so long that its token gets too old on the way is begun anew.
TRIES = 3


class PodSurvey:
    """What was seen when the pods of a namespace, or of all, were last looked at."""

    def __init__(self, cluster: Cluster, quarantine: Quarantine) -> None:
        self._cluster = cluster
        self._quarantine = quarantine
        self._used: dict[str, set[Key]] = {}
        self._looked: dict[str, float] = {}
        self._everywhere = float("-inf")
        # Pods that could not be read, by namespace.
        self._broken: dict[str, set[tuple[str, str, str]]] = {}

    @property
    def complete(self) -> bool:
        """Whether all namespaces have been looked at once."""
        return self._everywhere > float("-inf")

    def in_use(self) -> frozenset[Key]:
        """Every template that a pod was seen to use."""
        return frozenset().union(*self._used.values())

    def age(self, namespace: str) -> float:
        """Seconds since a namespace was looked at."""
        last = max(self._looked.get(namespace, self._everywhere), self._everywhere)
        return asyncio.get_running_loop().time() - last

    async def look(self, namespace: str, wanted: Callable[[Pod], bool]) -> dict[Key, Pod]:
        """List the pods of a namespace, or EVERYWHERE; give back those that use a template and are wanted."""
        for _ in range(TRIES - 1):
            try:
                return await self._look(namespace, wanted)
            except Gone:
                continue
        return await self._look(namespace, wanted)

    async def _look(self, namespace: str, wanted: Callable[[Pod], bool]) -> dict[Key, Pod]:
        begun = asyncio.get_running_loop().time()
        used: dict[str, set[Key]] = {}
        broken: dict[str, set[tuple[str, str, str]]] = {}
        found: dict[Key, Pod] = {}
        more = ""
        while True:
            page = await self._cluster.list(resources.PODS, namespace or None, fields=LIVING, more=more)
            self._set_aside(page, broken)
            for pod in page.items:
                where = pod.metadata.namespace, pod.metadata.name
                with self._quarantine.guard(resources.PODS.id, *where, version=pod.metadata.resource_version):
                    keys = upkeep.used(pod)
                    if keys:
                        used.setdefault(where[0], set()).update(keys)
                        if wanted(pod):
                            found[where] = pod
            more = page.more
            if not more:
                break
        self._take(namespace, used, broken, begun)
        return found

    def _set_aside(self, page: Page[Pod], broken: dict[str, set[tuple[str, str, str]]]) -> None:
        for one in page.unreadable:
            what = resources.PODS.id, one.namespace, one.name
            self._quarantine.hold(what, one.problem, one.resource_version)
            broken.setdefault(one.namespace, set()).add(what)

    def _take(
        self,
        namespace: str,
        used: dict[str, set[Key]],
        broken: dict[str, set[tuple[str, str, str]]],
        begun: float,
    ) -> None:
        if namespace == EVERYWHERE:
            gone = set().union(*self._broken.values()) - set().union(*broken.values())
            self._used, self._broken, self._everywhere = used, broken, begun
            self._looked.clear()
        else:
            gone = self._broken.pop(namespace, set()) - broken.get(namespace, set())
            self._used.pop(namespace, None)
            self._used |= used
            self._broken |= broken
            self._looked[namespace] = begun
        for what in gone:
            self._quarantine.release(what)
