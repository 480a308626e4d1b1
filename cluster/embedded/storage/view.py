"""What one reader sees of a store: a namespace or all, filtered by a selector, as one type. Pure.

The point that is easy to get wrong: an object that stops matching a selector is DELETED for this reader, and one that
begins to match is ADDED, whatever happened to it in the store (k8s.io/apiserver pkg/storage/cacher).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from cluster.embedded.label_selectors import Selector
from cluster.protocol import ADDED, DELETED, MODIFIED, Change, Unreadable
from cluster.resources import Resource
from dra.wire import WireError

if TYPE_CHECKING:
    from cluster.embedded.storage.store import Entry, Record

T = TypeVar("T")
_LONGEST_PROBLEM = 500


class View(msgspec.Struct, Generic[T], frozen=True):
    """A reader's cut of one resource."""

    resource: Resource[T]
    namespace: str | None
    selector: Selector

    def has(self, record: Record) -> bool:
        """Say whether an object belongs to the view."""
        if self.namespace is not None and record.meta.namespace != self.namespace:
            return False
        return self.selector.matches(record.meta.labels, record.plain)

    def read(self, record: Record) -> T | Unreadable:
        """Read an object as the view's type."""
        try:
            return record.read(self.resource.type)
        except WireError as error:
            meta = record.meta
            return Unreadable(meta.namespace, meta.name, str(record.version), str(error)[:_LONGEST_PROBLEM])

    def change(self, entry: Entry) -> Change[T] | Unreadable | None:
        """What a change in the store is to this reader; None if nothing."""
        record, previous = entry.record, entry.previous
        had = previous is not None and self.has(previous)
        has = entry.type != DELETED and self.has(record)
        type_ = MODIFIED
        if not had:
            type_ = ADDED
        if not has:
            type_ = DELETED
        if not had and not has:
            return None
        return self._event(type_, record, entry.version)

    def present(self, record: Record) -> Change[T] | Unreadable:
        """An object that is there when a streamed list begins."""
        return self._event(ADDED, record, record.version)

    def _event(self, type_: str, record: Record, version: int) -> Change[T] | Unreadable:
        read = self.read(record)
        if isinstance(read, Unreadable):
            return msgspec.structs.replace(read, deleted=type_ == DELETED)
        return Change(type_, read, str(version))
