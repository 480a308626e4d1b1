"""Periodic checks of the leader: for claims that hold the same device (overlaps), and for reservations that were left behind (the sweep).

A pool is checked for overlaps shortly after one of its claims changed, and all pools are checked with each sweep. The ledger decides which
claim gives up the device. The sweep is a second line of defence: it repairs what two sweeps in a row have found.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from math import inf
from typing import TYPE_CHECKING

from allocator.reservations import Suspect, overlaps, pools_of, sweep

if TYPE_CHECKING:
    from allocator.service.knowledge import Knowledge
    from allocator.service.live_ledger import LiveLedger
    from cluster.informers import Batch
    from dra.objects import ResourceClaim
    from dra.stock import PoolId

logger = logging.getLogger("drawbridge.allocator")
_REMEMBERED = 256  # the latest overlaps, which are not logged a second time


class PeriodicChecks:
    """Runs the checks while this replica leads."""

    def __init__(self, knowledge: Knowledge, ledger: LiveLedger, sweep_seconds: float) -> None:
        self._knowledge = knowledge
        self._ledger = ledger
        self._clock = asyncio.get_running_loop().time
        self._sweep_seconds = sweep_seconds
        self._sweep_at = -inf
        self._touched: set[PoolId] = set()
        self._suspects: frozenset[Suspect] = frozenset()
        self._logged: deque[frozenset[str]] = deque(maxlen=_REMEMBERED)
        self.overlapping: tuple[str, ...] = ()  # claims, as namespace/name
        self.left_behind: tuple[str, ...] = ()  # what both of the last two sweeps found, in sentences
        knowledge.claims.listen(self._notice)

    def begin(self) -> None:
        """Let the next check look at all pools, because an earlier leader may have left overlaps in any pool."""
        self._sweep_at = -inf
        self._suspects = frozenset()

    def check_once(self) -> None:
        """Check once. An exception must not end the leadership, so it is logged and the next check tries again."""
        now = self._clock()
        is_sweep = now >= self._sweep_at
        try:
            if is_sweep:
                self._sweep_at = now + self._sweep_seconds
                pods = self._knowledge.pods.objects.values()
                alive = {pod.metadata.uid for pod in pods if not pod.has_ended}
                result = sweep(self._ledger.state, alive, self._suspects)
                self._suspects = result.suspects
                self.left_behind = result.sentences
                for sentence in result.sentences:
                    logger.warning("left behind: %s", sentence)
                for effect in result.effects:
                    self._ledger.perform(effect)
            self._check_overlaps(None if is_sweep else self._touched)
        except Exception:
            self._touched.clear()
            logger.exception("a bug while checking for overlaps; please report it")

    def _notice(self, batch: Batch[ResourceClaim]) -> None:
        for delta in batch.deltas:
            for claim in (delta.old, delta.new):
                if claim is not None:
                    self._touched |= pools_of(claim.status.allocation)

    def _check_overlaps(self, pools: set[PoolId] | None) -> None:
        """Report overlaps to the ledger. The pools of an overlap are checked again the next time."""
        found_overlaps = overlaps(self._knowledge.stock, pools)
        self._touched = set()
        overlapping: set[str] = set()
        for overlap in found_overlaps:
            names: set[str] = set()
            ledger = self._ledger.state
            for uid in overlap.claims:
                hold = ledger.holds.get(uid)
                if hold is not None:
                    claim = ledger.as_intended(hold)
                    names.add(claim.metadata.key)
                    self._touched |= pools_of(claim.status.allocation)
            overlapping |= names
            if overlap.claims not in self._logged:
                self._logged.append(overlap.claims)
                logger.warning("claims hold the same devices", extra={"claims": sorted(names)})
            self._ledger.apply(overlap)
        self.overlapping = tuple(sorted(overlapping))
