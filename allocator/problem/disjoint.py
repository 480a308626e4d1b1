"""Things that belong together, found pair by pair: a union-find over integers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class Disjoint:
    """Disjoint sets; what was never joined is alone."""

    __slots__ = ("_parents",)

    def __init__(self) -> None:
        self._parents: dict[int, int] = {}

    def find(self, one: int) -> int:
        """Find the member that stands for a set."""
        parents = self._parents
        parent = parents.setdefault(one, one)
        while parent != one:
            above = parents[parent]
            parents[one] = above
            one, parent = above, parents[above]
        return one

    def join(self, one: int, other: int) -> None:
        """Make two sets one; the other's representative stands for it."""
        self._parents[self.find(one)] = self.find(other)

    def groups(self, ones: Iterable[int]) -> list[list[int]]:
        """Gather what belongs together; groups and their members in the order given."""
        found: dict[int, list[int]] = {}
        for one in ones:
            found.setdefault(self.find(one), []).append(one)
        return list(found.values())
