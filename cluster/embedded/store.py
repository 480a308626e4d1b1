"""Objects in memory with versions and a window of history, as etcd and the watch cache are for an API server.

This module has no API rules (`cluster.embedded.registry`) and does no I/O. An object is stored as JSON bytes, so that a reader cannot
change it; it is decoded once for each type, and typed values are shared.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from cluster.errors import Gone
from cluster.protocol import ADDED, DELETED, MODIFIED
from cluster.resources import is_plain
from dra.objects import ObjectMeta
from dra.wire import Wire, decode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cluster.resources import Key, Raw, Resource

T = TypeVar("T")
WINDOW = 10_000
WINDOW_BYTES = 64 * 1024 * 1024


class _StoredMetadata(Wire, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()


class StoredObject:
    __slots__ = ("_read", "data", "meta", "version")

    def __init__(self, version: int, data: bytes) -> None:
        self.version = version
        self.data = data
        self.meta = decode(data, _StoredMetadata).metadata
        self._read: dict[type, Any] = {}

    def plain(self) -> Raw:
        plain: Raw = msgspec.json.decode(self.data)
        return plain

    def settle(self) -> None:
        """Drop the decoded values, because a newer record has replaced this one."""
        self._read.clear()

    def read(self, type_: type[T]) -> T:
        """Decode the object as a type; typed values are frozen and shared, a plain one belongs to the caller."""
        if is_plain(type_):
            return decode(self.data, type_)
        if type_ not in self._read:
            self._read[type_] = decode(self.data, type_)
        value: T = self._read[type_]
        return value


class StoredChange(NamedTuple):
    version: int
    type: str
    key: Key
    record: StoredObject
    previous: StoredObject | None


class _Table:
    __slots__ = ("floor", "history", "keys", "records", "size", "versions")

    def __init__(self) -> None:
        self.records: dict[Key, StoredObject] = {}
        self.keys: list[Key] = []
        self.history: list[StoredChange] = []
        self.versions: list[int] = []
        self.size = 0
        self.floor = 0

    def remember(self, entry: StoredChange, window: int, window_bytes: int) -> None:
        self.history.append(entry)
        self.versions.append(entry.version)
        self.size += len(entry.record.data)
        # Cut in batches, so that a change costs the same on average however long the window is.
        if len(self.history) < 2 * window and self.size < 2 * window_bytes:
            return
        first_kept = len(self.history)
        size = 0
        while first_kept > 0 and len(self.history) - first_kept < window and size < window_bytes:
            first_kept -= 1
            size += len(self.history[first_kept].record.data)
        if first_kept:
            self.floor = self.versions[first_kept - 1]
            del self.history[:first_kept], self.versions[:first_kept]
        self.size = size


class Store:
    def __init__(self, *, window: int = WINDOW, window_bytes: int = WINDOW_BYTES) -> None:
        self.version = 1
        self._window = window
        self._window_bytes = window_bytes
        self._tables: dict[str, _Table] = {}
        self._owned: dict[str, set[tuple[str, Key]]] = {}

    def get(self, resource: str, key: Key) -> StoredObject | None:
        table = self._tables.get(resource)
        return table.records.get(key) if table else None

    def records(self, resource: str, namespace: str | None = None, after: Key | None = None) -> Iterator[StoredObject]:
        """Yield the objects of a resource in key order; if `after` is given, only those with later keys."""
        table = self._tables.get(resource)
        if table is None:
            return
        start = bisect_right(table.keys, after) if after is not None else 0
        if namespace is not None:
            start = max(start, bisect_left(table.keys, (namespace, "")))
        for key in table.keys[start:]:
            if namespace is not None and key[0] != namespace:
                return
            yield table.records[key]

    def resources(self) -> list[str]:
        return list(self._tables)

    def dependents(self, uid: str) -> list[tuple[str, Key]]:
        return sorted(self._owned.get(uid, ()))

    def since(self, resource: str, version: int, limit: int = 500) -> list[StoredChange]:
        """Return up to `limit` changes of a resource after a version, oldest first; raise Gone if history no longer has all of them."""
        table = self._tables.get(resource)
        if table is None:
            return []
        if version < table.floor:
            raise Gone(f"too old resource version: {version} ({table.floor})")
        start = bisect_right(table.versions, version)
        return table.history[start : start + limit]

    def put(self, resource: str, key: Key, data: bytes, version: int) -> StoredChange:
        """Store an object at `version`, which must be later than all versions of the store."""
        table = self._table(resource)
        previous = table.records.get(key)
        record = StoredObject(version, data)
        if previous is None:
            insort(table.keys, key)
        else:
            self._disown(resource, key, previous)
            previous.settle()
        table.records[key] = record
        self._own(resource, key, record)
        return self._remember(table, StoredChange(version, MODIFIED if previous else ADDED, key, record, previous))

    def remove(self, resource: str, key: Key, data: bytes, version: int) -> StoredChange:
        """Remove an object; `data` is its last state."""
        table = self._table(resource)
        previous = table.records.pop(key)
        del table.keys[bisect_left(table.keys, key)]
        self._disown(resource, key, previous)
        previous.settle()
        return self._remember(table, StoredChange(version, DELETED, key, StoredObject(version, data), previous))

    def undo(self, resource: str, entry: StoredChange) -> None:
        """Undo the latest change without a trace in history."""
        table = self._table(resource)
        assert table.history
        assert table.history[-1] is entry
        table.history.pop()
        table.versions.pop()
        table.size -= len(entry.record.data)
        if entry.type != DELETED:
            self._disown(resource, entry.key, table.records.pop(entry.key))
            if entry.previous is None:
                del table.keys[bisect_left(table.keys, entry.key)]
        elif entry.previous is not None:
            insort(table.keys, entry.key)
        if entry.previous is not None:
            table.records[entry.key] = entry.previous
            self._own(resource, entry.key, entry.previous)
        self.version = entry.version - 1

    def forget(self) -> None:
        """Drop all history, as a restarted server does."""
        for table in self._tables.values():
            table.history.clear()
            table.versions.clear()
            table.size = 0
            table.floor = self.version

    def _table(self, resource: str) -> _Table:
        return self._tables.setdefault(resource, _Table())

    def _remember(self, table: _Table, entry: StoredChange) -> StoredChange:
        self.version = entry.version
        table.remember(entry, self._window, self._window_bytes)
        return entry

    def _own(self, resource: str, key: Key, record: StoredObject) -> None:
        for owner in record.meta.owner_references:
            self._owned.setdefault(owner.uid, set()).add((resource, key))

    def _disown(self, resource: str, key: Key, record: StoredObject) -> None:
        for owner in record.meta.owner_references:
            owned = self._owned.get(owner.uid)
            if owned is not None:
                owned.discard((resource, key))
                if not owned:
                    del self._owned[owner.uid]


class Writes:
    """The changes of one request with their consequences, all or nothing. Assigns every change its version."""

    def __init__(self, store: Store, committed: Callable[[Sequence[tuple[str, StoredChange]]], None]) -> None:
        """`committed` is called with each write and its consequences; if it raises, all of them are undone."""
        self.store = store
        self._committed = committed
        self._entries: list[tuple[str, StoredChange]] = []

    @contextmanager
    def together(self) -> Iterator[None]:
        """Make the writes in the `with` block one transaction. No reader runs in between, because nothing here awaits."""
        try:
            yield
            if self._entries:
                self._committed(self._entries)
        except BaseException:
            for resource, entry in reversed(self._entries):
                self.store.undo(resource, entry)
            raise
        finally:
            self._entries = []

    def put(self, resource: Resource[Any], key: Key, obj: Raw) -> StoredObject:
        version = self.store.version + 1
        entry = self.store.put(resource.id, key, _with_version(obj, version), version)
        self._entries.append((resource.id, entry))
        return entry.record

    def remove(self, resource: Resource[Any], key: Key, record: StoredObject) -> None:
        """Remove an object; watchers see its last state, at the version of its removal."""
        version = self.store.version + 1
        entry = self.store.remove(resource.id, key, _with_version(record.plain(), version), version)
        self._entries.append((resource.id, entry))


def _with_version(obj: Raw, version: int) -> bytes:
    return msgspec.json.encode({**obj, "metadata": {**obj["metadata"], "resourceVersion": str(version)}})
