"""A mapping that is never changed: an entry more or less is another mapping that shares nearly all of it.

Ten thousand claims are one dictionary of ten thousand entries if they are copied at every event. Here they are 64 of a hundred and
fifty, of which one is copied. Not a general container: keys are uids and names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar, overload
from zlib import crc32

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

V = TypeVar("V")
D = TypeVar("D")

_SHARDS = 64


class Shards(Generic[V]):
    """An immutable mapping from text to values."""

    __slots__ = ("_shards",)

    def __init__(self, entries: Mapping[str, V] | None = None) -> None:
        self._shards: tuple[dict[str, V], ...] = tuple({} for _ in range(_SHARDS))
        for key, value in (entries or {}).items():
            self._shards[_place(key)][key] = value

    def with_(self, key: str, value: V) -> Shards[V]:
        """Answer with the mapping in which this entry is new or has replaced the one of its key."""
        place = _place(key)
        return self._with_shard(place, {**self._shards[place], key: value})

    def without(self, key: str) -> Shards[V]:
        """Answer with the mapping that lacks one key; an unknown one is not missed."""
        place = _place(key)
        if key not in self._shards[place]:
            return self
        left = dict(self._shards[place])
        del left[key]
        return self._with_shard(place, left)

    def changes_since(self, earlier: Shards[V]) -> Iterator[tuple[str, V | None]]:
        """Walk through the entries that are others than in an earlier mapping; None is one that is gone."""
        pairs = zip(self._shards, earlier._shards, strict=True)
        for now, then in pairs:
            if now is then:
                continue
            for key in sorted(now.keys() | then.keys()):
                value = now.get(key)
                if value is not then.get(key):
                    yield key, value

    def _with_shard(self, place: int, shard: dict[str, V]) -> Shards[V]:
        copy: Shards[V] = Shards.__new__(Shards)
        copy._shards = (*self._shards[:place], shard, *self._shards[place + 1 :])
        return copy

    def __getitem__(self, key: str) -> V:
        return self._shards[_place(key)][key]

    @overload
    def get(self, key: str) -> V | None: ...

    @overload
    def get(self, key: str, default: D) -> V | D: ...

    def get(self, key: str, default: D | None = None) -> V | D | None:
        return self._shards[_place(key)].get(key, default)

    def __contains__(self, key: str) -> bool:
        return key in self._shards[_place(key)]

    def __len__(self) -> int:
        return sum(len(shard) for shard in self._shards)

    def __iter__(self) -> Iterator[str]:
        """Walk through the keys in their order."""
        return iter(sorted(key for shard in self._shards for key in shard))

    def items(self) -> Iterator[tuple[str, V]]:
        """Walk through the entries in no order that means anything: there may be tens of thousands."""
        return (entry for shard in self._shards for entry in shard.items())

    def values(self) -> Iterator[V]:
        return (value for shard in self._shards for value in shard.values())


def _place(key: str) -> int:
    return crc32(key.encode()) % _SHARDS
