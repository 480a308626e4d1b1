"""A mapping that is never changed: an entry more or less is another mapping that shares nearly all of it.

Thirty thousand claims are one dictionary of thirty thousand entries if they are copied at every event. Here they are 32 rows of 32
dictionaries of thirty, and one of these is copied, with its row. Not a general container: keys are uids and names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload
from zlib import crc32

if TYPE_CHECKING:
    from collections.abc import Iterator

V = TypeVar("V")
D = TypeVar("D")

_WIDTH = 32
_NOTHING: dict[str, Any] = {}
_EMPTY = ((_NOTHING,) * _WIDTH,) * _WIDTH


class Shards(Generic[V]):
    """An immutable mapping from text to values."""

    __slots__ = ("_rows",)

    def __init__(self) -> None:
        self._rows: tuple[tuple[dict[str, V], ...], ...] = _EMPTY

    def with_(self, key: str, value: V) -> Shards[V]:
        """Answer with the mapping in which this entry is new or has replaced the one of its key."""
        row, column = _place(key)
        return self._with_shard(row, column, {**self._rows[row][column], key: value})

    def without(self, key: str) -> Shards[V]:
        """Answer with the mapping that lacks one key; an unknown one is not missed."""
        row, column = _place(key)
        if key not in self._rows[row][column]:
            return self
        left = dict(self._rows[row][column])
        del left[key]
        return self._with_shard(row, column, left)

    def changes_since(self, earlier: Shards[V]) -> Iterator[tuple[str, V | None]]:
        """Walk through the entries that are others than in an earlier mapping; None is one that is gone."""
        for row, former in zip(self._rows, earlier._rows, strict=True):
            if row is former:
                continue
            for now, then in zip(row, former, strict=True):
                if now is then:
                    continue
                for key in sorted(now.keys() | then.keys()):
                    value = now.get(key)
                    if value is not then.get(key):
                        yield key, value

    def _with_shard(self, row: int, column: int, shard: dict[str, V]) -> Shards[V]:
        old = self._rows[row]
        new = (*old[:column], shard, *old[column + 1 :])
        copy: Shards[V] = Shards.__new__(Shards)
        copy._rows = (*self._rows[:row], new, *self._rows[row + 1 :])
        return copy

    def _shard(self, key: str) -> dict[str, V]:
        row, column = _place(key)
        return self._rows[row][column]

    def _shards(self) -> Iterator[dict[str, V]]:
        return (shard for row in self._rows for shard in row if shard)

    def __getitem__(self, key: str) -> V:
        return self._shard(key)[key]

    @overload
    def get(self, key: str) -> V | None: ...

    @overload
    def get(self, key: str, default: D) -> V | D: ...

    def get(self, key: str, default: D | None = None) -> V | D | None:
        return self._shard(key).get(key, default)

    def __contains__(self, key: str) -> bool:
        return key in self._shard(key)

    def __len__(self) -> int:
        return sum(len(shard) for shard in self._shards())

    def __iter__(self) -> Iterator[str]:
        """Walk through the keys in their order."""
        return iter(sorted(key for shard in self._shards() for key in shard))

    def items(self) -> Iterator[tuple[str, V]]:
        """Walk through the entries in no order that means anything: there may be tens of thousands."""
        return (entry for shard in self._shards() for entry in shard.items())

    def values(self) -> Iterator[V]:
        return (value for shard in self._shards() for value in shard.values())


def _place(key: str) -> tuple[int, int]:
    return divmod(crc32(key.encode()) % (_WIDTH * _WIDTH), _WIDTH)
