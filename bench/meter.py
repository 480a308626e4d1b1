"""What another process has used so far: processor, and memory. Of Linux."""

from __future__ import annotations

import time
from pathlib import Path


def cpu_of(pid: int) -> float:
    """Seconds of the processor that all threads of a process have used, by the kernel's own clock of it."""
    return time.clock_gettime((~pid << 3) | 2)


def memory_of(pid: int | str = "self") -> float:
    """MiB of a process that are in memory."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    resident = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(resident.split()[1]) / 1024
