"""CPU time and memory of another process, on Linux."""

from __future__ import annotations

import time
from pathlib import Path


def cpu_of(pid: int) -> float:
    """Return the CPU seconds of all threads of a process."""
    return time.clock_gettime((~pid << 3) | 2)


def memory_of(pid: int) -> float:
    """Return the resident memory of a process in MiB."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    resident = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(resident.split()[1]) / 1024
