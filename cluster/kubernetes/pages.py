"""How many objects to ask for at once, so that an answer is of bounded size. Pure.

A server counts objects and not bytes: five hundred of 1.5 MiB make 750 MiB. So a page that turns out too large is given up and asked
for anew with a quarter of the objects. What fits is remembered for each collection, and doubled where pages stay small.
"""

from __future__ import annotations

# Above what a page of honest objects takes. A single object may be larger, and is read all the same.
LARGEST_PAGE = 8 << 20
_ROOMY = LARGEST_PAGE // 8
_ALL = 400


class PageSizes:
    """How many objects fit into a page, by collection."""

    def __init__(self) -> None:
        self._most: dict[str, int] = {}

    def limit(self, collection: str, wanted: int) -> int:
        """Say how many objects to ask for. Nobody gets more than he wants; 0 is all."""
        most = self._most.get(collection, 0)
        return min(wanted or most, most or wanted)

    def shrink(self, collection: str, asked: int) -> None:
        """Take in that a page of so many objects is too large."""
        self._most[collection] = max(1, (asked or _ALL) // 4)

    def learn(self, collection: str, size: int) -> None:
        """Take in the size of a page that was read."""
        if collection in self._most and size < _ROOMY:
            self._most[collection] *= 2
