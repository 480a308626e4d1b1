"""Changes of a store that belong together: one request's write with all that follows from it, whole or not at all."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cluster.embedded.storage.store import Entry, Record, Store
    from cluster.resources import Key, Raw, Resource


class Writes:
    """The only way into a store for those who write by the API's rules. Gives every change its version."""

    def __init__(self, store: Store, committed: Callable[[Sequence[tuple[str, Entry]]], None]) -> None:
        """`committed` is told of each write with all that followed; if it raises, nothing of that has happened."""
        self.store = store
        self._committed = committed
        self._entries: list[tuple[str, Entry]] = []

    @contextmanager
    def together(self) -> Iterator[None]:
        """Keep what is written inside together. Nobody looks in between, since nothing here waits."""
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

    def put(self, resource: Resource[Any], key: Key, obj: Raw) -> Record:
        """Store an object under the next version."""
        version = self.store.version + 1
        versioned = _with_version(obj, version)
        entry = self.store.put(resource.id, key, versioned, version)
        self._entries.append((resource.id, entry))
        return entry.record

    def remove(self, resource: Resource[Any], key: Key, record: Record) -> None:
        """Take an object out; watchers see it as it was last, at the version of its removal."""
        version = self.store.version + 1
        entry = self.store.remove(resource.id, key, _with_version(record.plain(), version), version)
        self._entries.append((resource.id, entry))


def _with_version(obj: Raw, version: int) -> bytes:
    return msgspec.json.encode({**obj, "metadata": {**obj["metadata"], "resourceVersion": str(version)}})
