"""Takes snapshots of a node: calls the kubelet, reads files, watches the node's pods and slices, and reads claims by name."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from cluster import ApiError
from cluster.errors import Forbidden, NotFound
from cluster.informers import ClusterView
from cluster.resources import PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from dra.objects import claim_names
from node.audit import Hardware, NodeSnapshot, in_both, plain, with_names
from node.service.auditing.sources import KubeletAway, NodeFiles, ask_kubelet, read_files

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from cluster import Cluster
    from cluster.informers import Batch
    from cluster.protocol import Bookmark, Change, ListPage, Reader, Unreadable
    from cluster.resources import Resource
    from dra.objects import Pod, ResourceClaim, ResourceSlice
    from node.service.auditing.allocator_client import AllocatorClient
    from node.service.settings import NodePaths

    Claims = dict[tuple[str, str], ResourceClaim | None]

T = TypeVar("T")
PATIENCE = 10.0  # seconds, for reading files
MAX_CLAIMS = 2000  # read for one snapshot
AT_ONCE = 8  # claims read concurrently


class Watcher(ClusterView):
    """Reads the state of one node. `changed` is set when pods or slices change."""

    def __init__(
        self,
        cluster: Cluster,
        paths: NodePaths,
        socket: str,
        allocator: AllocatorClient | None = None,
        as_node: Reader | None = None,
    ) -> None:
        """`as_node` reads the node's pods with the node's permissions."""
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

    async def read_kubelet(self) -> NodeSnapshot:
        """Return a snapshot that has only the kubelet's answer."""
        try:
            answer = await ask_kubelet(self._socket)
        except KubeletAway as away:
            return NodeSnapshot(self._paths.node, unread={"kubelet": str(away)})
        return NodeSnapshot(self._paths.node, answer.holdings, answer.offered)

    async def read_sources(self, kubelet_snapshot: NodeSnapshot) -> NodeSnapshot:
        """Read all other sources in this order: reservations, files, pods and slices, claims, and reservations again.

        Only reservations that the allocator has in both answers count, so that a device that is released in between is not reported as held
        twice. Claims are read after the files, to get their latest state.
        """
        allocator = self._allocator
        before = await allocator.ask() if allocator is not None else None
        if before is not None:
            kubelet_snapshot = await self.read_kubelet()
        # If reading a folder hangs (a network file system), no second thread is started until the first thread returns.
        earlier_reading = self._reading
        files = NodeFiles(unread={"files": f"a folder in {self._paths.kubelet} or {self._paths.cdi} does not answer"})
        if earlier_reading is None or earlier_reading.done():  # a late result is out of date
            self._reading = asyncio.ensure_future(asyncio.to_thread(read_files, self._paths))
            finished, _ = await asyncio.wait({self._reading}, timeout=self._patience)
            files = finished.pop().result() if finished else files
        snapshot = replace(
            kubelet_snapshot,
            prepared=files.prepared,
            files=files.names,
            unknown=files.unknown,
            pods=tuple(self._pods.objects.values()) if self._pods.is_synced else None,
            slices=tuple(self._slices.objects.values()),
        )
        # Claims of pods and of the kubelet are read first, so that MAX_CLAIMS leaves out only claims that files name.
        used_claims = {(record.namespace, record.claim) for record in snapshot.prepared_by_kubelet}
        for pod in snapshot.pods or ():
            namespace = pod.metadata.namespace
            used_claims.update((namespace, name) for name in claim_names(pod))
        claims, problems = await read_claims(
            self._cluster, [*sorted(used_claims), *sorted(snapshot.claim_names - used_claims)]
        )
        unread = kubelet_snapshot.unread | files.unread | problems
        informers = (self._pods, self._slices)
        unread |= {
            informer.resource.id: informer.error or "not read yet" for informer in informers if not informer.is_synced
        }
        crowded = self.hardware.crowded
        if crowded:
            example = plain("/".join(min(crowded)))
            summary = f"too many devices share {len(crowded)} identities or counters, so not all of them are compared"
            unread["devices"] = f"{summary}, such as {example}"
        snapshot = replace(snapshot, prepared=with_names(snapshot.prepared, claims), claims=claims, unread=unread)
        if allocator is None:
            return snapshot
        after = await allocator.ask(snapshot.left_by_pods) if before is not None else None
        if before is None or after is None:
            return replace(snapshot, unread=unread | {"allocator": allocator.problem})
        return replace(snapshot, reservations=in_both(before, after))


async def read_claims(cluster: Cluster, names: Sequence[tuple[str, str]]) -> tuple[Claims, dict[str, str]]:
    """Read claims by name, which needs no permission to list claims. Return None for a deleted claim. At most MAX_CLAIMS are read."""
    claims: Claims = {}
    unread: dict[str, str] = {}
    if len(names) > MAX_CLAIMS:
        unread["claims"] = f"{len(names)} claims are named on this node, and only {MAX_CLAIMS} are read"
    limit = asyncio.Semaphore(AT_ONCE)

    async def read(namespace: str, name: str) -> None:
        async with limit:
            try:
                claim = await cluster.get(RESOURCE_CLAIMS, name, namespace)
                claims[namespace, name] = claim
            except NotFound:
                claims[namespace, name] = None
            except ApiError as error:
                unread["claims"] = str(error)

    await asyncio.gather(*(read(namespace, name) for namespace, name in names[:MAX_CLAIMS]))
    return claims, unread


class AsNode:
    """Reads pods with the node's permissions if Kubernetes allows it (since 1.36, KEP-5284), and otherwise with the agent's permissions.

    RBAC cannot limit a list to one node's pods, but the node authorizer can. With the node's permissions, the agent itself needs none to list
    pods.
    """

    def __init__(self, node: Reader, agent: Reader) -> None:
        self._node = node
        self._agent = agent

    async def list(self, resource: Resource[T], namespace: str | None = None, **query: Any) -> ListPage[T]:
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
