"""Looks at one node: asks the kubelet, reads files, follows the node's pods and slices, and reads the claims that all of these name."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cluster.resources import PODS, RESOURCE_SLICES
from dra.objects import claim_names
from node.audit import Sight, Silicon, plain, that_stood, with_names
from node.service.auditing.claims import read_claims
from node.service.auditing.pods import AsNode
from node.service.auditing.sources import KubeletAway, NodeFiles, ask_kubelet, read_files
from runtime.informers import ClusterView

if TYPE_CHECKING:
    from cluster import Cluster
    from cluster.protocol import Reader
    from dra.objects import Pod, ResourceSlice
    from node.service.auditing.asker import Asker
    from node.service.driver import NodePaths
    from runtime.informers import Batch

PATIENCE = 10.0  # with files
ClaimName = tuple[str, str]


class Watcher(ClusterView):
    """The eyes on one node. `changed` is set when pods or slices changed."""

    def __init__(
        self,
        cluster: Cluster,
        paths: NodePaths,
        socket: str,
        allocator: Asker | None = None,
        as_node: Reader | None = None,
    ) -> None:
        """`as_node` reads the node's pods with the rights of the node."""
        super().__init__(cluster)
        self._paths = paths
        self._socket = socket
        self._allocator = allocator
        self.changed = asyncio.Event()
        fields = f"spec.nodeName={paths.node}"
        pods = cluster if as_node is None else AsNode(as_node, cluster)
        self._pods = self.informer(PODS, fields=fields, reader=pods)
        self._slices = self.informer(RESOURCE_SLICES, fields=fields)
        self._pods.listen(self._hear_pods)
        self._slices.listen(self._hear_slices)
        self._silicon: Silicon | None = None
        self._patience = PATIENCE
        self._reading: asyncio.Future[NodeFiles] | None = None

    @property
    def silicon(self) -> Silicon:
        """What the devices of the node are made of."""
        if self._silicon is None:
            self._silicon = Silicon(self._slices.objects.values())
        return self._silicon

    @property
    def pods(self) -> dict[ClaimName, Pod]:
        """The pods of the node."""
        return dict(self._pods.objects)

    async def run(self) -> None:
        """Follow until cancelled."""
        await self.follow((self._pods, self._slices))

    async def glance(self) -> Sight:
        """Ask the kubelet alone: what a round of marks needs."""
        unread: dict[str, str] = {}
        try:
            word = await ask_kubelet(self._socket)
        except KubeletAway as away:
            unread["kubelet"] = str(away)
            return Sight(self._paths.node, unread=unread)
        return Sight(self._paths.node, word.holdings, word.offered)

    async def look(self, glance: Sight) -> Sight:
        """Look at all the rest: promises, files, pods and slices, claims, and promises again.

        An allocator is asked before and after. What it promised all the while was promised when the holders were asked, so a device that
        somebody gave back in between is not taken for one that two have.
        """
        asker = self._allocator
        before = await asker.ask() if asker is not None else None
        if before is not None:
            glance = await self.glance()
        seen = await self._look(glance)
        if asker is None:
            return seen
        after = await asker.ask() if before is not None else None
        if before is None or after is None:
            return replace(seen, unread=seen.unread | {"allocator": asker.problem})
        return replace(seen, promises=that_stood(before, after))

    async def _look(self, glance: Sight) -> Sight:
        """Look at what the cluster and the node say. Claims come last: one that is written meanwhile is found as it has become."""
        files = await self._files()
        seen = replace(
            glance,
            prepared=files.prepared,
            files=files.names,
            unknown=files.unknown,
            pods=tuple(self._pods.objects.values()) if self._pods.health.synced else None,
            slices=tuple(self._slices.objects.values()),
        )
        named = _claims_named(seen)
        read = await read_claims(self._cluster, named)
        unread = glance.unread | files.unread | self._unread_kinds() | self._crowded() | read.unread
        prepared = with_names(seen.prepared, read.claims)
        return replace(seen, prepared=prepared, claims=read.claims, unread=unread)

    async def _files(self) -> NodeFiles:
        """Read files, for so long; a folder that never answers (a file system whose server is gone) is asked once, and not again."""
        late = self._reading
        if late is None or late.done():  # what came too late is older than what was asked since
            self._reading = asyncio.ensure_future(asyncio.to_thread(read_files, self._paths))
            done, _ = await asyncio.wait({self._reading}, timeout=self._patience)
            if done:
                return done.pop().result()
        folders = f"a folder in {self._paths.kubelet} or {self._paths.cdi} does not answer"
        return NodeFiles(unread={"files": folders})

    def _crowded(self) -> dict[str, str]:
        crowded = self.silicon.crowded
        if not crowded:
            return {}
        example = plain("/".join(min(crowded)))
        told = f"{len(crowded)} signs or counters are those of very many, as {example}: not all are looked at"
        return {"devices": told}

    def _unread_kinds(self) -> dict[str, str]:
        healths = [one.health for one in (self._pods, self._slices)]
        return {one.resource: one.error or "not read yet" for one in healths if not one.synced}

    def _hear_pods(self, batch: Batch[Pod]) -> None:
        del batch
        self.changed.set()

    def _hear_slices(self, batch: Batch[ResourceSlice]) -> None:
        del batch
        self._silicon = None
        self.changed.set()


def _claims_named(seen: Sight) -> list[ClaimName]:
    """Name the claims of the node's pods and of the kubelet's word, and then those that files name, which crowd none of them out."""
    sure = {(one.namespace, one.claim) for one in seen.held}
    for pod in seen.pods or ():
        namespace = pod.metadata.namespace
        sure.update((namespace, name) for name in claim_names(pod))
    said = seen.claim_names - sure
    return [*sorted(sure), *sorted(said)]
