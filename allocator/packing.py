"""Packed integers: many small numbers side by side in one Python integer.

There are two kinds of fields, each with a guard bit on top. A *stock* field holds a remaining amount; one subtraction takes from all
fields at once, and it fits if no guard bit was borrowed. A *common* field holds the values that all members so far have in common;
one AND adds a member, and it fits if no field became empty (all-ones added to an empty field do not carry into its guard bit).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class BitFields:
    """A growing row of fields; `guards` has the guard bit of each field."""

    __slots__ = ("guards", "width")

    def __init__(self) -> None:
        self.width = 0
        self.guards = 0

    def add(self, width: int) -> int:
        """Add a field and return its first bit."""
        start = self.width
        self.width += width + 1
        self.guards |= 1 << (start + width)
        return start


def spans(guards: int) -> Iterator[tuple[int, int]]:
    """Yield start and guard position of every field."""
    start = 0
    while guards:
        guard = (guards & -guards).bit_length() - 1
        yield start, guard
        start = guard + 1
        guards &= guards - 1


def side_by_side(parts: list[tuple[int, int]]) -> tuple[int, int]:
    """Join (value, width) pairs into one pair, with the first value in the lowest bits.

    Neighbours are joined in rounds, so that joining many pairs stays cheap.
    """
    if not parts:
        return 0, 0
    while len(parts) > 1:
        if len(parts) % 2:
            parts.append((0, 0))
        parts = [
            (low | high << width, width + more)
            for (low, width), (high, more) in zip(parts[::2], parts[1::2], strict=True)
        ]
    return parts[0]


def bitset(members: Iterable[int], size: int) -> int:
    """Return an integer with these bits set."""
    if size <= 1024:
        bits = 0
        for member in members:
            bits |= 1 << member
        return bits
    table = bytearray(size // 8 + 1)
    for member in members:
        table[member >> 3] |= 1 << (member & 7)
    return int.from_bytes(table, "little")


def members(bits: int) -> Iterator[int]:
    """Yield the positions of the set bits, lowest first."""
    if bits.bit_length() <= 1024:
        while bits:
            yield (bits & -bits).bit_length() - 1
            bits &= bits - 1
        return
    for index, byte in enumerate(bits.to_bytes(bits.bit_length() // 8 + 1, "little")):
        remaining = byte
        while remaining:
            yield index * 8 + (remaining & -remaining).bit_length() - 1
            remaining &= remaining - 1


def union(sets: Iterable[int]) -> int:
    """Return the bitwise OR of integers."""
    bits = 0
    for set_ in sets:
        bits |= set_
    return bits


class Disjoint:
    """A union-find over integers; an integer that was never joined is its own set."""

    __slots__ = ("_parents",)

    def __init__(self) -> None:
        self._parents: dict[int, int] = {}

    def find(self, member: int) -> int:
        """Return the representative of a set."""
        parents = self._parents
        parent = parents.setdefault(member, member)
        while parent != member:
            above = parents[parent]
            parents[member] = above
            member, parent = above, parents[above]
        return member

    def join(self, member: int, other: int) -> None:
        """Merge the sets of two integers; the representative of `other`'s set remains."""
        self._parents[self.find(member)] = self.find(other)

    def groups(self, integers: Iterable[int]) -> list[list[int]]:
        """Group integers by set; groups and members keep their order."""
        groups: dict[int, list[int]] = {}
        for member in integers:
            groups.setdefault(self.find(member), []).append(member)
        return list(groups.values())
