"""A bounded cache in which no owner can push out the entries of the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable

K = TypeVar("K")
V = TypeVar("V")


class FairCache(Generic[K, V]):
    """When the cache is full, the owner with the most entries loses its oldest one."""

    def __init__(self) -> None:
        self._entries: dict[K, tuple[Hashable, V]] = {}
        self._keys: dict[Hashable, dict[K, None]] = {}  # by owner, the oldest first

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K) -> V | None:
        return self._entries[key][1] if key in self._entries else None

    def put(self, key: K, value: V, *, owner: Hashable, limit: int) -> None:
        """Add an entry as the newest of its owner. At most `limit` entries stay."""
        self.discard(key)
        self._entries[key] = owner, value
        self._keys.setdefault(owner, {})[key] = None
        if len(self._entries) > limit:
            most = max(self._keys.values(), key=len)
            self.discard(next(iter(most)))

    def discard(self, key: K) -> None:
        if key in self._entries:
            owner, _ = self._entries.pop(key)
            del self._keys[owner][key]
            if not self._keys[owner]:
                del self._keys[owner]
