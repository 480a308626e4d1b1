"""Order of waiting items: known and unknown addresses alternate, and in each group the addresses take turns."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class Turns(Generic[T]):
    """Items that wait. One address with many items delays another address by one item."""

    def __init__(self) -> None:
        # The items of known and of unknown addresses, by address, in the order of the addresses' turns.
        self._waiting: dict[bool, dict[str, deque[T]]] = {True: {}, False: {}}
        self._is_known_next = True

    def __bool__(self) -> bool:
        return any(self._waiting.values())

    def add(self, item: T, peer: str, *, is_known: bool) -> None:
        self._waiting[is_known].setdefault(peer, deque()).append(item)

    def pop(self) -> T | None:
        """Remove and return the next item; None if there is none."""
        is_known = self._is_known_next if self._waiting[self._is_known_next] else not self._is_known_next
        self._is_known_next = not is_known
        peers = self._waiting[is_known]
        if not peers:
            return None
        peer = next(iter(peers))
        items = peers.pop(peer)
        item = items.popleft()
        if items:
            peers[peer] = items
        return item
