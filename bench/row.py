"""A row of the benchmark table, and how to measure a figure."""

from __future__ import annotations

import gc
import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, kw_only=True)
class Row:
    """`what` was measured, for drawbridge (`ours`) and for a peer (`theirs`), in the same unit. `target` is the aim, in words."""

    what: str
    unit: str
    ours: float
    peer: str = ""
    theirs: float | None = None
    target: str = ""
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """Return the peer's figure as a multiple of drawbridge's."""
        return self.theirs / self.ours if self.theirs is not None and self.ours else None


def median_seconds(work: Callable[[], object], *, runs: int = 7, warmup: int = 1) -> float:
    """Return the median time of several runs, without garbage collection, as in long-running processes."""
    for _ in range(warmup):
        work()
    gc.collect()
    gc.freeze()
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    gc.unfreeze()
    return statistics.median(times)
