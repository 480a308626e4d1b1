"""How much of a collection is kept: so many bytes in all, and so many of one owner, which is a namespace, or a node.

An owner may always keep a little (`FLOOR`), whatever others have taken, so that no owner's objects keep out another's. Beyond that
what comes first is kept. A small object counts as a third of what it takes, because honest ones are many and small, and large ones
are what an attacker fills a memory with. What is not kept is set aside: counted by owner, and read again when there is room (`is_freed`).
Bounds are made for the memory limit that the manifests ship, and grow with it (`scale`).
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cluster.resources import Key

MIB = 1 << 20
FLOOR = MIB
# What one owner may keep: a namespace half of a collection, because it may be all there is; a node is one of many.
NODE_SHARE = 6 * MIB
SMALL = 16 * 1024
# Of a collection, what has to be free again before it is worth reading anew.
_WORTH_READING = 8


class Allotment:
    """The bytes that the objects of one collection take, by owner."""

    def __init__(self, size: int, share: int = 0) -> None:
        """`share` is what one owner may keep, by default half of all."""
        self.size = size
        self._share = share or size // 2
        self._sizes: dict[Key, tuple[str, int]] = {}
        self._used: dict[str, int] = {}
        self._total = 0
        self._freed = 0
        self.aside: dict[str, int] = {}  # objects, by owner

    def take(self, key: Key, owner: str, size: int) -> bool:
        """Take room for an object, in place of what it had; say whether there is enough."""
        self.leave(key)
        size = size if size > SMALL else size // 3
        used = self._used.get(owner, 0) + size
        share = self._share if owner else self.size
        if used > FLOOR and (used > share or self._total + size > self.size):
            return False
        self._sizes[key] = owner, size
        self._used[owner] = used
        self._total += size
        return True

    def leave(self, key: Key) -> None:
        """Give back the room of an object that is gone."""
        owner, size = self._sizes.pop(key, ("", 0))
        if not size:
            return
        self._total -= size
        self._freed += size
        self._used[owner] -= size
        if not self._used[owner]:
            del self._used[owner]

    def has(self, key: Key) -> bool:
        """Say whether an object is kept as it is."""
        return key in self._sizes

    def put_aside(self, owner: str, name: str, size: int) -> str:
        """Count an object that there is no room for, and say what of its owner is not kept."""
        self.aside[owner] = self.aside.get(owner, 0) + 1
        limit = self._share if owner else self.size
        last = f"the last of them {name} of {size / MIB:.2f} MiB"
        kept = f"of one owner {limit / MIB:.0f} MiB are kept, and {self.size / MIB:.0f} of all"
        return f"{self.aside[owner]} objects are not kept, {last}: {kept}"

    def take_back(self, owner: str) -> bool:
        """One of those that are not kept is gone, or is looked at anew; say whether it was the last of its owner."""
        if owner not in self.aside:
            return False
        self.aside[owner] -= 1
        if self.aside[owner]:
            return False
        del self.aside[owner]
        return True

    @property
    def is_freed(self) -> bool:
        """Whether there is so much room again that what was set aside is worth reading anew."""
        return bool(self.aside) and self._freed > self.size // _WORTH_READING


SHIPPED = 1 << 30  # the memory limit in manifests/
# The limit of a container, by cgroup version. Without a limit a file says `max` or a number beyond any memory.
LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
_NO_LIMIT = 1 << 50


@cache
def scale() -> float:
    """Say by how much the process's memory limit exceeds the shipped one; 1 without a limit, or with a smaller one."""
    for file in LIMITS:
        try:
            limit = int(file.read_text())
        except (OSError, ValueError):
            continue
        if limit < _NO_LIMIT:
            return max(1.0, limit / SHIPPED)
    return 1.0
