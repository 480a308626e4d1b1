"""Objects in memory with versions and a window of history, as etcd and the watch cache are for an API server.

This module has no API rules (`cluster.embedded.registry`) and does no I/O. An object is stored as JSON bytes, so that a reader cannot
change it; it is decoded once for each type, and typed values are shared.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from cluster.errors import Gone
from cluster.protocol import ADDED, DELETED, MODIFIED
from cluster.resources import is_plain
from dra.objects import ObjectMeta
from dra.wire import Wire, decode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cluster.resources import Key, Raw, Resource

T = TypeVar("T")
WINDOW = 10_000


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
    __slots__ = ("floor", "history", "keys", "records")

    def __init__(self) -> None:
        self.records: dict[Key, StoredObject] = {}
        self.keys: list[Key] = []
        self.history: list[StoredChange] = []
        self.floor = 0


class Store:
    def __init__(self, changed: Callable[[], None], *, window: int = WINDOW) -> None:
        """`changed` is called after each change. No reader runs before it, because nothing here awaits."""
        self.version = 1
        self._changed = changed
        self._window = window
        self._tables: defaultdict[str, _Table] = defaultdict(_Table)
        self._owned: defaultdict[str, set[tuple[str, Key]]] = defaultdict(set)

    def get(self, resource: str, key: Key) -> StoredObject | None:
        return self._tables[resource].records.get(key)

    def records(self, resource: str, namespace: str | None = None, after: Key | None = None) -> Iterator[StoredObject]:
        """Yield the objects of a resource in key order; if `after` is given, only those with later keys."""
        table = self._tables[resource]
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
        table = self._tables[resource]
        if version < table.floor:
            raise Gone(f"too old resource version: {version} ({table.floor})")
        start = bisect_right(table.history, version, key=lambda change: change.version)
        return table.history[start : start + limit]

    def put(self, resource: Resource[Any], key: Key, obj: Raw) -> StoredObject:
        table = self._tables[resource.id]
        record = StoredObject(self.version + 1, _with_version(obj, self.version + 1))
        previous = table.records.get(key)
        if previous is None:
            insort(table.keys, key)
        else:
            self._disown(resource, key, previous)
        table.records[key] = record
        for owner in record.meta.owner_references:
            self._owned[owner.uid].add((resource.id, key))
        self._remember(table, StoredChange(record.version, MODIFIED if previous else ADDED, key, record, previous))
        return record

    def remove(self, resource: Resource[Any], key: Key) -> None:
        """Remove an object; watchers see its last state, at the version of its removal."""
        table = self._tables[resource.id]
        previous = table.records[key]
        record = StoredObject(self.version + 1, _with_version(previous.plain(), self.version + 1))
        del table.records[key]
        del table.keys[bisect_left(table.keys, key)]
        self._disown(resource, key, previous)
        self._remember(table, StoredChange(record.version, DELETED, key, record, previous))

    def _disown(self, resource: Resource[Any], key: Key, record: StoredObject) -> None:
        record.settle()
        for owner in record.meta.owner_references:
            owned = self._owned[owner.uid]
            owned.discard((resource.id, key))
            if not owned:
                del self._owned[owner.uid]

    def _remember(self, table: _Table, change: StoredChange) -> None:
        self.version = change.version
        table.history.append(change)
        if len(table.history) >= 2 * self._window:  # cut in batches, so that a change costs the same on average
            table.floor = table.history[self._window - 1].version
            del table.history[: self._window]
        self._changed()


def _with_version(obj: Raw, version: int) -> bytes:
    return msgspec.json.encode({**obj, "metadata": {**obj["metadata"], "resourceVersion": str(version)}})
