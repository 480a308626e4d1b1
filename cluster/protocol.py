"""The protocol of a cluster, for all code above this package.

The protocol has two implementations: `cluster.kubernetes.client.Kubernetes` (a real API server) and `cluster.embedded.embedded.Embedded`
(in memory). One conformance suite tests both for the same behaviour. The protocol is small on purpose. In particular it has no PUT,
because an object decoded here has lost the fields that we do not know (docs/architecture.md, "Patches, not objects").
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import msgspec

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager

    from cluster.patch import Patch
    from cluster.resources import Raw, Resource
    from cluster.server import ServerInfo

T = TypeVar("T")
ADDED, MODIFIED, DELETED = "ADDED", "MODIFIED", "DELETED"


class Unreadable(msgspec.Struct, frozen=True):
    """An object that cannot be decoded as its type. It must not hide other objects."""

    namespace: str
    name: str
    resource_version: str
    problem: str
    deleted: bool = False


class Change(msgspec.Struct, Generic[T], frozen=True):
    """One event of a watch: `type` is ADDED, MODIFIED or DELETED."""

    type: str
    object: T
    resource_version: str


class Bookmark(msgspec.Struct, frozen=True):
    """Nothing changed up to this version; `initial_end` marks the end of a streamed list."""

    resource_version: str
    initial_end: bool = False


class ListPage(msgspec.Struct, Generic[T], frozen=True):
    """One page of a list. `more` is the token of the next page, empty on the last page."""

    items: tuple[T, ...]
    resource_version: str
    more: str = ""
    unreadable: tuple[Unreadable, ...] = ()


class Reader(Protocol):
    """Reads collections of a Kubernetes API. Every call may raise `cluster.errors.ApiError`."""

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
        """Read one page of a collection; without a namespace, of all namespaces."""
        ...

    def watch(
        self,
        resource: Resource[T],
        namespace: str | None = None,
        *,
        resource_version: str = "",
        labels: str = "",
        fields: str = "",
        initial: bool = False,
        timeout: float = 300.0,
    ) -> AbstractAsyncContextManager[AsyncIterator[Change[T] | Bookmark | Unreadable]]:
        """Watch a collection from a version on; with `initial`, stream its present content first.

        Ends after about `timeout` seconds. Raises Gone if the version is too old.
        """
        ...


class Cluster(Reader, Protocol):
    """A Kubernetes API, real or embedded."""

    async def get(self, resource: Resource[T], name: str, namespace: str | None = None) -> T:
        """Read one object."""
        ...

    async def create(
        self, resource: Resource[T], obj: T | Raw, namespace: str | None = None, *, dry_run: bool = False
    ) -> T:
        """Create an object and return it as stored."""
        ...

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
        """Change an object and return it as stored. With a resourceVersion in the patch, raises Conflict after a concurrent write."""
        ...

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
        """Delete an object, if it still has this uid and version, and then its dependents. Finalizers may keep it for a while."""
        ...

    async def bind(self, name: str, namespace: str, node: str, *, uid: str = "", dry_run: bool = False) -> None:
        """Assign a pod to a node. Raises Conflict if it has a node already, or another uid."""
        ...

    async def server(self, *, probe: bool = True) -> ServerInfo:
        """Detect the server's version and, if `probe`, its feature gates."""
        ...

    async def close(self) -> None:
        """Close connections and files."""
        ...


async def pages(
    reader: Reader,
    resource: Resource[T],
    namespace: str | None = None,
    *,
    labels: str = "",
    fields: str = "",
    limit: int = 500,
) -> AsyncIterator[ListPage[T]]:
    """Read a whole collection, page by page."""
    more = ""
    while True:
        page = await reader.list(resource, namespace=namespace, labels=labels, fields=fields, limit=limit, more=more)
        yield page
        more = page.more
        if not more:
            return
