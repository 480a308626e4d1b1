"""The `Cluster` protocol over a real API server: paths, queries, content types and responses.

`cluster.kubernetes.connection` has connections and credentials, `cluster.kubernetes.answers` decodes responses. Import this module only by
name, because it loads the official client and aiohttp.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar, assert_never
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from cluster.errors import ApiError, BadRequest, Conflict, Invalid, Unavailable
from cluster.kubernetes import answers as reading
from cluster.kubernetes import protobuf
from cluster.kubernetes.answers import Lines, Stream
from cluster.kubernetes.connection import LARGEST_ANSWER, Call, Connection, TooLarge, default, impersonating
from cluster.patch import Apply, Merge, Operations
from cluster.resources import PODS, RESOURCE_CLAIMS
from cluster.server import METRICS, ServerInfo, parse_gate
from dra.wire import WireError, decode

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from cluster.kubernetes.connection import Query
    from cluster.patch import Patch
    from cluster.protocol import Bookmark, Change, ListPage, Unreadable
    from cluster.resources import Raw, Resource

T = TypeVar("T")
# A server sends a bookmark about once a minute, so a watch without a byte for this time has lost its peer.
IDLE_SECONDS = 150.0
PATCH_ATTEMPTS = 5  # as many as the API server makes for a patch without a resourceVersion
_DRA = "resource.k8s.io/v1"
# The metrics of a server with thousands of nodes have some 10 MiB.
METRICS_SECONDS = 20.0
LARGEST_METRICS = 128 << 20
# More than a page of ordinary objects. A single object may be larger, and is still read.
LARGEST_PAGE = 8 << 20
_ROOMY = LARGEST_PAGE // 8
_ALL = 400  # the objects that a page without a limit is assumed to have


class _VersionAnswer(msgspec.Struct, frozen=True, rename="camel"):
    # Required, because otherwise any JSON would be read as a server without a version.
    git_version: str
    minor: str = ""
    # The minor version of --emulated-version.
    emulation_minor: str = ""


class _GroupVersion(msgspec.Struct, frozen=True, rename="camel"):
    group_version: str = ""


class _ApiGroup(msgspec.Struct, frozen=True):
    versions: tuple[_GroupVersion, ...] = ()


class _Groups(msgspec.Struct, frozen=True):
    groups: tuple[_ApiGroup, ...]


class PageSizes:
    """The page size of each collection, so that the size of a response is bounded.

    A server limits the number of objects, not bytes: five hundred objects of 1.5 MiB have 750 MiB. So a page that is too large is
    abandoned and requested again with a quarter of the objects. The page size that fits is kept for each collection, and doubled while pages
    are small.
    """

    def __init__(self) -> None:
        self._most: dict[str, int] = {}

    def limit(self, collection: str, wanted: int) -> int:
        """Return the number of objects to request, at most `wanted`; 0 means all."""
        largest = self._most.get(collection, 0)
        return min(wanted or largest, largest or wanted)

    def shrink(self, collection: str, page_size: int) -> None:
        self._most[collection] = max(1, (page_size or _ALL) // 4)

    def learn(self, collection: str, size: int) -> None:
        if collection in self._most and size < _ROOMY:
            self._most[collection] *= 2


class Kubernetes:
    """A real cluster. Connects on first use; one instance serves a whole process."""

    def __init__(self, connection: Connection, *, idle: float = IDLE_SECONDS) -> None:
        self._connection = connection
        self._idle = idle
        self._pages = PageSizes()

    @classmethod
    def connect(cls, *, kubeconfig: str = "", context: str = "", user: str = "") -> Kubernetes:
        """Connect to kubectl's cluster, or to the cluster that this pod runs in; with `user`, impersonate that user."""
        load = default(kubeconfig, context)
        return cls(Connection(impersonating(load, user) if user else load))

    async def list(
        self,
        resource: Resource[T],
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        limit: int = 500,
        more: str = "",
        resource_version: str = "",
    ) -> ListPage[T]:
        while True:
            page_size = self._pages.limit(resource.id, limit)
            query = _query(
                limit=str(page_size) if page_size else "",
                labelSelector=labels,
                fieldSelector=fields,
                resourceVersion="" if more else resource_version,
                **{"continue": more},
            )
            request = Call("GET", _path(resource, namespace), query)
            try:
                data = await self._connection.call(request, most=LARGEST_ANSWER if page_size == 1 else LARGEST_PAGE)
            except TooLarge:
                if page_size == 1:
                    raise
                self._pages.shrink(resource.id, page_size)
            else:
                self._pages.learn(resource.id, len(data))
                return reading.page(data, resource)

    @asynccontextmanager
    async def watch(
        self,
        resource: Resource[T],
        namespace: str | None = None,
        *,
        resource_version: str = "",
        labels: str = "",
        fields: str = "",
        initial: bool = False,
        timeout: float = 300.0,  # noqa: ASYNC109  the server's own end of a watch, not a deadline on a call
    ) -> AsyncIterator[AsyncIterator[Change[T] | Bookmark | Unreadable]]:
        query = _query(
            watch="1",
            allowWatchBookmarks="true",
            timeoutSeconds=str(max(1, round(timeout))),
            resourceVersion=resource_version,
            labelSelector=labels,
            fieldSelector=fields,
            sendInitialEvents="true" if initial else "",
            resourceVersionMatch="NotOlderThan" if initial else "",
        )
        request = Call("GET", _path(resource, namespace), query, accept_encoding="identity")
        async with self._connection.stream(request, idle=self._idle) as chunks:
            events = _events(chunks, resource)
            try:
                yield events
            finally:
                await events.aclose()

    async def get(self, resource: Resource[T], name: str, namespace: str | None = None) -> T:
        return reading.decode_object(await self._call("GET", _path(resource, namespace, name)), resource)

    async def create(
        self, resource: Resource[T], obj: T | Raw, namespace: str | None = None, *, dry_run: bool = False
    ) -> T:
        body = resource.plain(obj)
        where = namespace or body.get("metadata", {}).get("namespace") if resource.namespaced else None
        data = await self._call("POST", _path(resource, where), _dry(dry_run), body)
        return reading.decode_object(data, resource)

    async def patch(
        self,
        resource: Resource[T],
        name: str,
        patch: Patch,
        namespace: str | None = None,
        *,
        subresource: str = "",
        dry_run: bool = False,
    ) -> T:
        query = _dry(dry_run)
        path = _path(resource, namespace, name, subresource)
        match patch:
            case Merge():
                request = Call("PATCH", path, query, patch.body, "application/merge-patch+json")
            case Operations():
                request = Call("PATCH", path, query, [*patch.operations], "application/json-patch+json")
            case Apply():
                query += _query(fieldManager=patch.manager, force="true")
                # The body of an apply must repeat apiVersion, kind and name.
                body = resource.plain(patch.body) | {"metadata": {"name": name} | (patch.body.get("metadata") or {})}
                request = Call("PATCH", path, query, body, "application/apply-patch+yaml")
            case _:
                assert_never(patch)
        try:
            data = await self._connection.call(request)
        except Invalid as error:
            if resource.id != RESOURCE_CLAIMS.id or not protobuf.is_for(error):
                raise
            claim_path = _path(resource, namespace, name)
            data = await self._patch_bytes(claim_path, Call("PUT", path, _dry(dry_run)), patch, error)
        return reading.decode_object(data, resource)

    async def _patch_bytes(self, claim_path: str, put: Call, patch: Patch, refusal: Invalid) -> bytes:
        """Patch a claim without changing any other byte of it; raise `refusal` if that is impossible."""
        attempt = 1
        while True:
            stored = await self._connection.call(Call("GET", claim_path, accept=protobuf.CONTENT_TYPE))
            try:
                # In a thread: an object may have some ten thousand annotations.
                body = await asyncio.to_thread(protobuf.patched, stored, patch)
            except protobuf.Unsuitable:
                raise refusal from None
            try:
                return await self._connection.call(replace(put, body=body, content_type=protobuf.CONTENT_TYPE))
            except Conflict:
                # Another client wrote in between. The next attempt checks whether the patch still applies.
                if attempt == PATCH_ATTEMPTS:
                    raise
            attempt += 1

    async def delete(
        self,
        resource: Resource[T],
        name: str,
        namespace: str | None = None,
        *,
        uid: str = "",
        resource_version: str = "",
        grace: int | None = None,
        dry_run: bool = False,
    ) -> None:
        # By default, the API server does not delete the pods of a Job with the Job.
        body: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        preconditions = {"uid": uid} if uid else {}
        preconditions |= {"resourceVersion": resource_version} if resource_version else {}
        body |= {"preconditions": preconditions} if preconditions else {}
        body |= {"gracePeriodSeconds": grace} if grace is not None else {}
        body |= {"dryRun": ["All"]} if dry_run else {}
        await self._call("DELETE", _path(resource, namespace, name), body=body)

    async def bind(self, name: str, namespace: str, node: str, *, uid: str = "", dry_run: bool = False) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace} | ({"uid": uid} if uid else {}),
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        await self._call("POST", _path(PODS, namespace, name, "binding"), _dry(dry_run), body)

    async def server(self, *, probe: bool = True) -> ServerInfo:
        """Detect the server's version, API groups and feature gates."""
        version = await self._describe("/version", _VersionAnswer)
        api_groups = await self._describe("/apis", _Groups)
        versions = {"v1"}
        for group in api_groups.groups:
            versions.update(version.group_version for version in group.versions)
        gates: dict[str, bool] = {}
        if probe and _DRA in versions:
            gates = await self._gates_from_metrics()
        digits = "".join(filter(str.isdecimal, version.emulation_minor or version.minor))
        return ServerInfo(version.git_version, int(digits[:9] or 0), frozenset(versions), gates)

    async def _describe(self, path: str, type_: type[T]) -> T:
        """Read a response that describes the server, as a type."""
        answer = await self._call("GET", path)
        try:
            return decode(answer, type_)
        except WireError as error:
            raise Unavailable(f"the answer to {path} is not of an API server: {error}") from error

    async def _gates_from_metrics(self) -> dict[str, bool]:
        """Read the server's feature gates from its metrics; empty if the metrics cannot be read."""
        gates: dict[str, bool] = {}
        lines = Lines()
        remaining = LARGEST_METRICS
        request = Call("GET", METRICS, [], None)
        try:
            async with (
                asyncio.timeout(METRICS_SECONDS),
                self._connection.stream(request, idle=METRICS_SECONDS) as chunks,
            ):
                async for chunk in chunks:
                    gates.update(filter(None, map(parse_gate, lines.feed(chunk))))
                    remaining -= len(chunk)
                    if remaining < 0:
                        break
        except (ApiError, TimeoutError):
            return {}
        return gates

    async def read(self, path: str, *, seconds: float) -> bytes:
        """Read a response that is not an object, for example that of a pod behind the API server's proxy."""
        return await self._connection.call(Call("GET", path, accept="*/*"), seconds=seconds)

    @property
    def certificate(self) -> str:
        """The file of the client certificate last used; "" if there is none."""
        return self._connection.certificate

    @property
    def date(self) -> str:
        """The Date of the server's last response."""
        return self._connection.date

    async def close(self) -> None:
        await self._connection.close()

    async def _call(self, method: str, path: str, query: Query | None = None, body: Any = None) -> bytes:
        return await self._connection.call(Call(method, path, query or [], body))


async def _events(
    chunks: AsyncIterator[bytes], resource: Resource[T]
) -> AsyncGenerator[Change[T] | Bookmark | Unreadable, None]:
    stream = Stream(resource)
    async for chunk in chunks:
        for event in stream.feed(chunk):
            yield event
        if stream.failure is not None:
            raise stream.failure
    stream.end()
    if stream.failure is not None:
        raise stream.failure


def _path(resource: Resource[T], namespace: str | None, name: str = "", subresource: str = "") -> str:
    """A path with its names quoted. Names that consist only of dots would be resolved as path segments."""
    for part in (namespace, name):
        if part in (".", ".."):
            raise BadRequest(f"{part!r} is not a name")
    where = quote(namespace, safe="") if namespace is not None else None
    return resource.path(where, quote(name, safe=""), subresource)


def _query(**parameters: str) -> Query:
    return [(name, value) for name, value in parameters.items() if value]


def _dry(dry_run: bool) -> Query:
    return [("dryRun", "All")] if dry_run else []
