"""Limits the memory of a collection's copy, in total and for each owner, which is a namespace or a node.

An owner can always keep FLOOR bytes, however much others use, so that no owner's objects displace another's. Beyond that, the object that comes
first gets the memory. Small objects count as a third of their size, because honest objects are many and small, and an attacker's are large.
Objects that do not fit are counted by owner, and read again when there is room (`is_freed`). The limits are made for the container's memory limit
in manifests/, and grow with it (`scale`).
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cluster.resources import Key

MIB = 1 << 20
FLOOR = MIB
NODE_SHARE = 6 * MIB  # the limit of a node; that of a namespace is half of `size`, because it may be the only namespace
SMALL = 16 * 1024
_REREAD_PART = 8  # one eighth of the limit must be free again before the collection is read again


class Allotment:
    """The bytes used by the objects of one collection, by owner."""

    def __init__(self, size: int, share: int = 0) -> None:
        """`share` is the limit of one owner, by default half of `size`."""
        self.size = size
        self._share = share or size // 2
        self._sizes: dict[Key, tuple[str, int]] = {}
        self._used: dict[str, int] = {}
        self._total = 0
        self._freed = 0
        self.aside: dict[str, int] = {}  # the number of objects that are not kept, by owner

    def take(self, key: Key, owner: str, size: int) -> bool:
        """Reserve room for an object instead of its previous room; report whether the object fits."""
        _, replaced = self._sizes.get(key, ("", 0))
        self.leave(key)
        size = size if size > SMALL else size // 3
        used = self._used.get(owner, 0) + size
        share = self._share if owner else self.size
        if used > FLOOR and (used > share or self._total + size > self.size):
            return False
        self._freed -= min(replaced, size)  # the object keeps that much
        self._sizes[key] = owner, size
        self._used[owner] = used
        self._total += size
        return True

    def leave(self, key: Key) -> None:
        """Free the room of an object."""
        owner, size = self._sizes.pop(key, ("", 0))
        if not size:
            return
        self._total -= size
        self._freed += size
        self._used[owner] -= size
        if not self._used[owner]:
            del self._used[owner]

    def has(self, key: Key) -> bool:
        return key in self._sizes

    def put_aside(self, owner: str, name: str, size: int) -> str:
        """Count an object that does not fit, and return the problem of its owner."""
        self.aside[owner] = self.aside.get(owner, 0) + 1
        limit = self._share if owner else self.size
        last = f"the last one {name} of {size / MIB:.2f} MiB"
        limits = f"the limit is {limit / MIB:.0f} MiB for one owner and {self.size / MIB:.0f} MiB in total"
        return f"{self.aside[owner]} objects are not kept, {last}: {limits}"

    def take_back(self, owner: str) -> bool:
        """Stop counting an object that is not kept, because it is deleted or tried again; report whether its owner has no other."""
        if owner not in self.aside:
            return False
        self.aside[owner] -= 1
        if self.aside[owner]:
            return False
        del self.aside[owner]
        return True

    @property
    def is_freed(self) -> bool:
        """Whether enough room was freed to read again the objects that are not kept."""
        return bool(self.aside) and self._freed > self.size // _REREAD_PART


SHIPPED = 1 << 30  # the memory limit in manifests/
# The container's memory limit by cgroup version 2 and 1. Without a limit it is `max` or a huge number.
LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
_NO_LIMIT = 1 << 50


@cache
def scale() -> float:
    """Return the ratio of the process' memory limit to the shipped one; 1 without a limit or with a smaller one."""
    for file in LIMITS:
        try:
            limit = int(file.read_text())
        except (OSError, ValueError):
            continue
        if limit < _NO_LIMIT:
            return max(1.0, limit / SHIPPED)
    return 1.0
