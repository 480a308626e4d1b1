"""What is looked at without anybody asking: claims that hold the same, and what was left behind.

Overlaps are looked for wherever a claim changed, a moment after it did, and everywhere with each sweep. Whoever wrote them,
the ledger says who yields. The sweep is a second line: it repairs what two sweeps in a row have found.
"""

from __future__ import annotations

import logging
from collections import deque
from math import inf
from typing import TYPE_CHECKING

from allocator.reservations import Suspect, overlaps, pools_of, sweep

if TYPE_CHECKING:
    from collections.abc import Callable

    from allocator.reservations import Overlapped
    from allocator.service.bridge import Bridge
    from cluster.informers import Batch
    from dra.objects import ResourceClaim
    from dra.stock import PoolId

logger = logging.getLogger("drawbridge.allocator")
SWEEP_SECONDS = 180.0
_REMEMBERED = 256  # overlaps that are not logged a second time


class Rounds:
    """Goes round while its bridge leads."""

    def __init__(
        self,
        bridge: Bridge,
        *,
        clock: Callable[[], float],
        sweep_seconds: float = SWEEP_SECONDS,
    ) -> None:
        self._bridge = bridge
        self._clock = clock
        self._sweep_seconds = sweep_seconds
        self._sweep_at = -inf
        self._touched: set[PoolId] = set()
        self._suspects: frozenset[Suspect] = frozenset()
        self._logged: deque[frozenset[str]] = deque(maxlen=_REMEMBERED)
        self.overlapping: tuple[str, ...] = ()  # claims, as namespace/name
        self.left_behind: tuple[str, ...] = ()  # what the last two sweeps found, in sentences
        bridge.knowledge.claims.listen(self._notice)

    def begin(self) -> None:
        """Begin with everything: who led before may have left anything."""
        self._sweep_at = -inf
        self._suspects = frozenset()

    def go(self) -> None:
        """Go round once. A fault here must not end the lead: it is logged, and the next round is another try."""
        now = self._clock()
        everything = now >= self._sweep_at
        try:
            if everything:
                self._sweep_at = now + self._sweep_seconds
                self._sweep()
            self._look(None if everything else self._touched)
        except Exception:
            self._touched.clear()
            logger.exception("a bug while looking for overlaps; please report it")

    def _notice(self, batch: Batch[ResourceClaim]) -> None:
        for delta in batch.deltas:
            for claim in (delta.old, delta.new):
                if claim is not None:
                    self._touched |= pools_of(claim.status.allocation)

    def _look(self, pools: set[PoolId] | None) -> None:
        """Tell the ledger of overlaps. Where there are any, they are looked at again the next time."""
        found = overlaps(self._bridge.knowledge.stock, pools)
        self._touched = set()
        overlapping: set[str] = set()
        for overlap in found:
            names = self._names(overlap)
            overlapping |= names
            self._log(overlap, names)
            self._bridge.tell(overlap)
        self.overlapping = tuple(sorted(overlapping))

    def _names(self, overlap: Overlapped) -> set[str]:
        """Name the claims of an overlap, and remember the pools that they are in."""
        names: set[str] = set()
        ledger = self._bridge.ledger
        for uid in overlap.claims:
            hold = ledger.holds.get(uid)
            if hold is not None:
                claim = ledger.as_meant(hold)
                names.add(claim.metadata.key)
                self._touched |= pools_of(claim.status.allocation)
        return names

    def _log(self, overlap: Overlapped, names: set[str]) -> None:
        if overlap.claims in self._logged:
            return
        self._logged.append(overlap.claims)
        logger.warning("claims hold the same", extra={"claims": sorted(names)})

    def _sweep(self) -> None:
        pods = self._bridge.knowledge.pods.objects.values()
        alive = {pod.metadata.uid for pod in pods if not pod.has_ended}
        found = sweep(self._bridge.ledger, alive, self._suspects)
        self._suspects = found.suspects
        self.left_behind = found.sentences
        for sentence in found.sentences:
            logger.warning("left behind: %s", sentence)
        for effect in found.effects:
            self._bridge.perform(effect)
