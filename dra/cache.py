"""A cache bounded by bytes, for entries whose size a request chooses: compiled selectors, patterns, views.

`functools.lru_cache` bounds the number of entries, and 4,096 entries of 300 KiB take 1.2 GiB. Here the caller states
the weight of each entry in bytes. The cache has two halves. New entries go into the young half, and so do entries of
the old half when they are read. When the young half is full, it becomes the old half, and the entries of the previous
old half are dropped. So the next swap never drops an entry that was used since the last one. The cache takes no lock.
Concurrent threads (one reads a configuration while another decides reviews) can at worst lose an entry, or count its
weight wrongly until the next swap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable

V = TypeVar("V")


class Cache(Generic[V]):
    __slots__ = ("_half", "_old", "_weight", "_young", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._half = limit // 2
        self._young: dict[Hashable, tuple[V, int]] = {}
        self._old: dict[Hashable, tuple[V, int]] = {}
        self._weight = 0  # the weight of the young half

    def get(self, key: Hashable) -> V | None:
        """Return the value of a key, or None if the cache does not hold the key."""
        entry = self._young.get(key)
        if entry is not None:
            return entry[0]
        entry = self._old.pop(key, None)
        if entry is None:
            return None
        self.put(key, *entry)
        return entry[0]

    def put(self, key: Hashable, value: V, weight: int) -> None:
        """Keep a value; with its key it takes about `weight` bytes. A value larger than half the cache is not kept."""
        if weight > self._half:
            return
        if self._weight + weight > self._half:
            self._old, self._young, self._weight = self._young, {}, 0
        self._young[key] = value, weight
        self._weight += weight

    def clear(self) -> None:
        """Drop every entry."""
        self._old, self._young, self._weight = {}, {}, 0

    def __len__(self) -> int:
        return len(self._young) + len(self._old)
