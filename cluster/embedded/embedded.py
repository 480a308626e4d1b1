"""A cluster in this process: the `Cluster` protocol over an in-memory store, for the offline commands, `standalone`, the
demo and the tests.

It behaves like an API server (`cluster.embedded.apiserver`) and keeps a window of history, so that watches can resume. It lacks
authorization, admission webhooks, and all controllers except the garbage collector, the namespace controller and, on request,
the claim controller (`cluster.controllers.claim_controller`).
"""

from __future__ import annotations

import asyncio
import random
import uuid
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

import msgspec

from cluster import resources
from cluster.embedded.apiserver import ApiServer
from cluster.embedded.label_selectors import ReaderView, selector
from cluster.embedded.registry import Identity
from cluster.embedded.store import WINDOW, Store
from cluster.errors import BadRequest, ClusterError, Gone, Unavailable, map_exceptions
from cluster.protocol import ADDED, Bookmark, ListPage, Unreadable
from cluster.server import ServerInfo
from dra.server import CURRENT, GATES, RELEASE
from dra.wire import WireError, decode

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence

    from cluster.embedded.store import StoredObject
    from cluster.patch import Patch
    from cluster.protocol import Change
    from cluster.resources import Key, Raw, Resource

T = TypeVar("T")
# The embedded store is the newest Kubernetes that this code knows, with every feature gate on.
VERSION, MINOR = f"v{RELEASE}", CURRENT
_BATCH = 500
TURN = 0.001
_NAMESPACES = ("default", "kube-system")
_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"


class _Continue(msgspec.Struct, frozen=True):
    """A continue token: the last key, and the version of the first page."""

    version: int
    after: tuple[str, str]


# Real time, real uids, random suffixes as the API server makes them.
_REAL = Identity(
    now=lambda: datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    uid=lambda: str(uuid.uuid4()),
    suffix=lambda: "".join(random.choices(_SUFFIX_LETTERS, k=5)),  # noqa: S311  a name, not a secret
)
_TOO_DEEP: Mapping[type[Exception], Callable[[Exception], ClusterError]] = {
    RecursionError: lambda _: BadRequest("the object is nested too deeply")
}


class Embedded:
    """The behaviour of an API server in memory. One event loop, no threads.

    Writes are validated as by a server. Loaded objects are not validated.
    """

    def __init__(self, *, window: int = WINDOW) -> None:
        self._changed = asyncio.Event()
        self._store = Store(self._wake, window=window)
        self._api = ApiServer(self._store, _REAL)
        self._turned = 0.0
        self.load({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in _NAMESPACES)

    @classmethod
    def holding(cls, objects: Iterable[Raw]) -> Embedded:
        """Return a store with these objects and their status, as `load` adds them."""
        cluster = cls()
        cluster.load(objects)
        return cluster

    def load(self, objects: Iterable[Raw]) -> None:
        """Add the objects of a snapshot (`ApiServer.load`). A missing namespace becomes `default`; namespaces are created as needed."""
        for obj in objects:
            with map_exceptions(_TOO_DEEP):
                self._api.load(obj)

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
        """List a page of the present state; raise Gone for an outdated continue token."""
        await self._turn()
        del resource_version  # the present state is at least as new as any version that was ever handed out
        self._api.check(resource)
        view = ReaderView(resource, namespace, selector(resource.id, labels, fields))
        start = _Continue(self._store.version, ("", ""))
        if more:
            try:
                start = msgspec.json.decode(bytes.fromhex(more), type=_Continue)
            except ValueError as error:
                raise BadRequest("continue key is not valid: it is not one that was handed out here") from error
            self._store.since(resource.id, start.version, 1)
        behind = (
            record
            for record in self._store.records(resource.id, namespace, start.after if more else None)
            if view.has(record)
        )
        records = [*islice(behind, limit or None)]
        rest = next(behind, None) is not None
        token = msgspec.json.encode(_Continue(start.version, _key(records[-1]))).hex() if rest else ""
        read = [view.read(record) for record in records]
        items = (item for item in read if not isinstance(item, Unreadable))
        reduced = items if resource.reduce is None else filter(None, map(resource.reduce, items))
        return ListPage(
            items=tuple(reduced),
            resource_version=str(start.version),
            more=token,
            unreadable=tuple(item for item in read if isinstance(item, Unreadable)),
        )

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
        """Watch from a version on; a reader that falls behind the window of history gets Gone."""
        await self._turn()
        self._api.check(resource)
        view = ReaderView(resource, namespace, selector(resource.id, labels, fields))
        if not (resource_version or "0").isdigit():
            raise BadRequest(f"invalid resource version {resource_version!r}")
        version = int(resource_version or "0")  # without a version, the watch begins with the present objects
        present: Sequence[StoredObject] = []
        if initial or version == 0:
            present = [record for record in self._store.records(resource.id, namespace) if view.has(record)]
            version = self._store.version
        elif version > self._store.version:
            raise Gone(f"too new resource version: {version} ({self._store.version})")
        else:
            self._store.since(resource.id, version, 1)
        events = self._events(view, version, present, initial=initial, seconds=timeout)
        try:
            yield events
        finally:
            await events.aclose()

    async def get(self, resource: Resource[T], name: str, namespace: str | None = None) -> T:
        await self._turn()
        record = self._api.get(resource, name, namespace)
        with map_exceptions(
            {WireError: lambda error: Unavailable(f"the stored object is not a {resource.kind}: {error}")}
        ):
            return record.read(resource.type)

    async def create(
        self,
        resource: Resource[T],
        obj: T | Raw,
        namespace: str | None = None,
        *,
        dry_run: bool = False,
    ) -> T:
        await self._turn()
        with map_exceptions(_TOO_DEEP):
            try:
                # A copy through JSON, so that a value that is not JSON fails here and not in storage.
                plain: Raw = msgspec.json.decode(msgspec.json.encode(resource.plain(obj)))
            except (TypeError, ValueError) as error:
                raise BadRequest(f"the object cannot be written as JSON: {error}") from error
            data = self._api.create(resource, plain, namespace, dry_run=dry_run)
        return decode(data, resource.type)

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
        await self._turn()
        with map_exceptions(_TOO_DEEP):
            data = self._api.patch(resource, name, patch, namespace, subresource, dry_run=dry_run)
        return decode(data, resource.type)

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
        """Delete an object. Without a kubelet, a pod is gone at once, whatever its grace period."""
        del grace
        await self._turn()
        with map_exceptions(_TOO_DEEP):
            self._api.delete(resource, name, namespace, uid=uid, resource_version=resource_version, dry_run=dry_run)

    async def bind(self, name: str, namespace: str, node: str, *, uid: str = "", dry_run: bool = False) -> None:
        await self._turn()
        with map_exceptions(_TOO_DEEP):
            self._api.bind(name, namespace, node, uid=uid, dry_run=dry_run)

    async def server(self, *, probe: bool = True) -> ServerInfo:
        del probe
        served = frozenset(resource.api_version for resource in resources.ALL)
        return ServerInfo(VERSION, MINOR, served, dict.fromkeys(GATES, True))

    async def close(self) -> None:
        """Do nothing: a store in memory has nothing to close."""

    async def _turn(self) -> None:
        """Let other tasks of the event loop run at least every TURN seconds, because no call here waits for anything."""
        now = asyncio.get_running_loop().time()
        if now - self._turned > TURN:
            await asyncio.sleep(0)
            self._turned = asyncio.get_running_loop().time()

    def _wake(self) -> None:
        """Wake the watchers, which run afterwards because no write awaits."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def _events(
        self, view: ReaderView[T], version: int, present: Sequence[StoredObject], *, initial: bool, seconds: float
    ) -> AsyncGenerator[Change[T] | Bookmark | Unreadable, None]:
        for record in present:
            yield view.event(ADDED, record, record.version)
        if initial:
            yield Bookmark(str(version), initial_end=True)
        end = asyncio.get_running_loop().time() + seconds
        while True:
            # Take this event before reading the changes, so that a write in between is not missed.
            changed = self._changed
            for entry in self._store.since(view.resource.id, version, _BATCH):
                version = entry.version
                change = view.change(entry)
                if change is not None:
                    yield change
            await asyncio.sleep(0)  # a long backlog must not block other tasks
            if not self._store.since(view.resource.id, version, 1):
                version = max(version, self._store.version)
                try:
                    async with asyncio.timeout_at(end):
                        await changed.wait()
                except TimeoutError:
                    yield Bookmark(str(version))
                    return


def _key(record: StoredObject) -> Key:
    return record.meta.namespace, record.meta.name
