"""How much memory the process may take: bounds on copies are made for the limit that the manifests ship, and grow with it."""

from __future__ import annotations

from functools import cache
from pathlib import Path

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
