"""The local copy of a collection: objects by key, updated by events.

Readers see the collection at one version, never a partial change: `replace` and `change` apply a change as a whole and return the differences
as deltas, in order.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from cluster.protocol import DELETED, Change, Unreadable
from cluster.resources import Key, key, version_of
from dra.objects import is_news

if TYPE_CHECKING:
    from collections.abc import Iterable

T = TypeVar("T")


class Delta(msgspec.Struct, Generic[T], frozen=True):
    """An object before and after a change: without `old` it is new, without `new` it is deleted."""

    key: Key
    old: T | None
    new: T | None


class ObjectCache(Generic[T]):
    """Objects by namespace and name."""

    def __init__(self) -> None:
        objects: dict[Key, T] = {}
        unreadable: dict[Key, Unreadable] = {}
        self._objects = objects
        self._unreadable = unreadable
        self.objects = MappingProxyType(objects)
        self.unreadable = MappingProxyType(unreadable)

    def replace(self, objects: Iterable[T], unreadable: Iterable[Unreadable] = ()) -> tuple[Delta[T], ...]:
        """Replace the whole collection. An object that has become unreadable keeps its last readable form."""
        fresh = {key(obj): obj for obj in objects}
        broken = {(broken_object.namespace, broken_object.name): broken_object for broken_object in unreadable}
        deltas = [
            Delta(where, old, None)
            for where, old in self._objects.items()
            if where not in fresh and where not in broken
        ]
        for where, new in fresh.items():
            old = self._objects.get(where)
            if old is None or version_of(old) != version_of(new):
                deltas.append(Delta(where, old, new))
        for delta in deltas:
            self._take(delta)
        self._unreadable.clear()
        self._unreadable.update(broken)
        return tuple(deltas)

    def change(self, change: Change[T]) -> Delta[T] | None:
        """Apply one event; return None if the event has nothing new."""
        new = change.object
        where = key(new)
        old = self._objects.get(where)
        if old is not None and not is_news(change.resource_version, version_of(old)):
            return None
        self._unreadable.pop(where, None)
        if change.type != DELETED:
            return self._take(Delta(where, old, new))
        if old is None:
            return None
        return self._take(Delta(where, old, None))

    def skip(self, broken: Unreadable) -> Delta[T] | None:
        """Apply an event with an unreadable object: keep the previous form, and list the object as unreadable."""
        where = (broken.namespace, broken.name)
        if not broken.deleted:
            self._unreadable[where] = broken
            return None
        self._unreadable.pop(where, None)
        old = self._objects.get(where)
        return self._take(Delta(where, old, None)) if old is not None else None

    def _take(self, delta: Delta[T]) -> Delta[T]:
        if delta.new is None:
            self._objects.pop(delta.key, None)
        else:
            self._objects[delta.key] = delta.new
        return delta
