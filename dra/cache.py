"""A memory that is bounded by bytes, for what requests can make large: compiled selectors, patterns, views.

`functools.lru_cache` counts entries, and 4,096 entries of 300 KiB are 1.2 GiB. This one is told what an entry weighs. It
has two halves: new entries, and old ones that are found again, go into the young half; when that is full it becomes the
old one, and what the old one held is forgotten. So finding an entry is one look into a dict, and nothing is
forgotten that was asked for since the halves last changed places. Two threads may lose an entry, or miscount one until the
halves change places, and nothing worse (a configuration is read in one while reviews are decided in another).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable

V = TypeVar("V")


class Cache(Generic[V]):
    """Remembers values under keys, up to a number of bytes."""

    __slots__ = ("_half", "_old", "_weight", "_young", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._half = limit // 2
        self._young: dict[Hashable, tuple[V, int]] = {}
        self._old: dict[Hashable, tuple[V, int]] = {}
        self._weight = 0  # of the young half

    def get(self, key: Hashable) -> V | None:
        """Find a value that was put; None if it was not, or is forgotten."""
        found = self._young.get(key)
        if found is not None:
            return found[0]
        found = self._old.pop(key, None)
        if found is None:
            return None
        self.put(key, *found)
        return found[0]

    def put(self, key: Hashable, value: V, weight: int) -> None:
        """Remember a value that weighs about so many bytes, its key included; what is too heavy is not remembered."""
        if weight > self._half:
            return
        if self._weight + weight > self._half:
            self._old, self._young, self._weight = self._young, {}, 0
        self._young[key] = value, weight
        self._weight += weight

    def clear(self) -> None:
        """Forget everything."""
        self._old, self._young, self._weight = {}, {}, 0

    def __len__(self) -> int:
        return len(self._young) + len(self._old)
