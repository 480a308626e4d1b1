"""Looks at one node: asks the kubelet, reads files, follows the node's pods and slices, and reads the claims that all of these name."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from cluster import ApiError
from cluster.errors import Forbidden, NotFound
from cluster.resources import PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from dra.objects import claim_names
from node.audit import Hardware, NodeSnapshot, in_both, plain, with_names
from node.service.auditing.sources import KubeletAway, NodeFiles, ask_kubelet, read_files
from runtime.informers import ClusterView

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from cluster import Cluster
    from cluster.protocol import Bookmark, Change, Page, Reader, Unreadable
    from cluster.resources import Resource
    from dra.objects import Pod, ResourceClaim, ResourceSlice
    from node.service.auditing.allocator_client import AllocatorClient
    from node.service.settings import NodePaths
    from runtime.informers import Batch

    Claims = dict[tuple[str, str], ResourceClaim | None]

T = TypeVar("T")
PATIENCE = 10.0  # with files
MOST_CLAIMS = 2000  # that are read in one look
AT_ONCE = 8


class Watcher(ClusterView):
    """Reads the state of one node. `changed` is set when pods or slices changed."""

    def __init__(
        self,
        cluster: Cluster,
        paths: NodePaths,
        socket: str,
        allocator: AllocatorClient | None = None,
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
        self._pods.listen(lambda _: self.changed.set())
        self._hardware: Hardware | None = None

        def hear_slices(batch: Batch[ResourceSlice]) -> None:
            del batch
            self._hardware = None
            self.changed.set()

        self._slices.listen(hear_slices)
        self._patience = PATIENCE
        self._reading: asyncio.Future[NodeFiles] | None = None

    @property
    def hardware(self) -> Hardware:
        if self._hardware is None:
            self._hardware = Hardware(self._slices.objects.values())
        return self._hardware

    @property
    def pods(self) -> dict[tuple[str, str], Pod]:
        return dict(self._pods.objects)

    async def run(self) -> None:
        await self.follow((self._pods, self._slices))

    async def glance(self) -> NodeSnapshot:
        unread: dict[str, str] = {}
        try:
            word = await ask_kubelet(self._socket)
        except KubeletAway as away:
            unread["kubelet"] = str(away)
            return NodeSnapshot(self._paths.node, unread=unread)
        return NodeSnapshot(self._paths.node, word.holdings, word.offered)

    async def look(self, glance: NodeSnapshot) -> NodeSnapshot:
        """Read all the rest: reservations, files, pods and slices, claims, and reservations again.

        The allocator is asked before and after. A reservation that is in both answers was there when the holders were read, so a device
        that was given back in between is not reported as held twice. Claims come last, so that those that change meanwhile are found as
        they are now.
        """
        allocator = self._allocator
        before = await allocator.ask() if allocator is not None else None
        if before is not None:
            glance = await self.glance()
        # A folder that never answers (a file system whose server is gone) is asked once, and not again.
        late = self._reading
        files = NodeFiles(unread={"files": f"a folder in {self._paths.kubelet} or {self._paths.cdi} does not answer"})
        if late is None or late.done():  # what came too late is older than what was asked since
            self._reading = asyncio.ensure_future(asyncio.to_thread(read_files, self._paths))
            done, _ = await asyncio.wait({self._reading}, timeout=self._patience)
            files = done.pop().result() if done else files
        seen = replace(
            glance,
            prepared=files.prepared,
            files=files.names,
            unknown=files.unknown,
            pods=tuple(self._pods.objects.values()) if self._pods.health.synced else None,
            slices=tuple(self._slices.objects.values()),
        )
        # The claims of the node's pods and of the kubelet's answer first, then those that files name, which crowd none of them out.
        sure = {(one.namespace, one.claim) for one in seen.held}
        for pod in seen.pods or ():
            namespace = pod.metadata.namespace
            sure.update((namespace, name) for name in claim_names(pod))
        claims, problems = await read_claims(self._cluster, [*sorted(sure), *sorted(seen.claim_names - sure)])
        healths = [one.health for one in (self._pods, self._slices)]
        unread = glance.unread | files.unread | problems
        unread |= {one.resource: one.error or "not read yet" for one in healths if not one.synced}
        crowded = self.hardware.crowded
        if crowded:
            example = plain("/".join(min(crowded)))
            many = f"{len(crowded)} identities or counters are shared by very many devices, such as {example}"
            unread["devices"] = f"{many}: not all are compared"
        seen = replace(seen, prepared=with_names(seen.prepared, claims), claims=claims, unread=unread)
        if allocator is None:
            return seen
        after = await allocator.ask() if before is not None else None
        if before is None or after is None:
            return replace(seen, unread=unread | {"allocator": allocator.problem})
        return replace(seen, reservations=in_both(before, after))


async def read_claims(cluster: Cluster, names: Sequence[tuple[str, str]]) -> tuple[Claims, dict[str, str]]:
    """Read claims by name, for which an agent needs no right to list them: a few at once, of very many the first. None is one that is gone."""
    claims: Claims = {}
    unread: dict[str, str] = {}
    if len(names) > MOST_CLAIMS:
        unread["claims"] = f"{len(names)} are named here, and {MOST_CLAIMS} are read"
    turn = asyncio.Semaphore(AT_ONCE)

    async def read(namespace: str, name: str) -> None:
        async with turn:
            try:
                claim = await cluster.get(RESOURCE_CLAIMS, name, namespace)
                claims[namespace, name] = claim
            except NotFound:
                claims[namespace, name] = None
            except ApiError as error:
                unread["claims"] = str(error)

    await asyncio.gather(*(read(namespace, name) for namespace, name in names[:MOST_CLAIMS]))
    return claims, unread


class AsNode:
    """Reads pods as the node where Kubernetes lets an agent do that (from 1.36 on, KEP-5284), and elsewhere as the agent.

    RBAC cannot limit a list to one node's pods; the node authorizer does, and then the agent's own token needs no right to list pods.
    """

    def __init__(self, node: Reader, agent: Reader) -> None:
        self._node = node
        self._agent = agent

    async def list(self, resource: Resource[T], namespace: str | None = None, **query: Any) -> Page[T]:
        try:
            return await self._node.list(resource, namespace, **query)
        except Forbidden:
            return await self._agent.list(resource, namespace, **query)

    @asynccontextmanager
    async def watch(
        self, resource: Resource[T], namespace: str | None = None, **query: Any
    ) -> AsyncIterator[AsyncIterator[Change[T] | Bookmark | Unreadable]]:
        async with AsyncExitStack() as stack:
            try:
                events = await stack.enter_async_context(self._node.watch(resource, namespace, **query))
            except Forbidden:
                events = await stack.enter_async_context(self._agent.watch(resource, namespace, **query))
            yield events
