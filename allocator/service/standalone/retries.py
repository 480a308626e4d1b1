"""The pods whose last placement failed, and when each may be tried again. Pure: no clock.

After a conflict our view of the cluster is outdated, so an immediate retry would fail again: every failure is followed by a pause, each
longer than the last. After `MOST` conflicts in a row the pod is not tried again until the pod or one of its claims changes.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

import msgspec

from cluster.errors import Conflict, NotFound
from runtime.informers import Backoff

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST = 8  # consecutive conflicts
Versions = tuple[str, ...]  # of the pod and its claims when it was tried


class Failure(msgspec.Struct, frozen=True):
    """The consecutive failures of a pod."""

    versions: Versions
    times: int
    pause_ends: float
    needs_news: bool


class Retries:
    """The pods whose last placement failed."""

    def __init__(self, backoff: Backoff | None = None) -> None:
        self._backoff = backoff or Backoff(least=0.05, most=30.0)
        self._failures: dict[str, Failure] = {}

    def __len__(self) -> int:
        return len(self._failures)

    def due(self, uid: str, versions: Versions, now: float) -> bool:
        """Return whether a pod may be tried now."""
        failure = self._failures.get(uid)
        if failure is None:
            return True
        if failure.needs_news and failure.versions == versions:
            return False
        return failure.pause_ends <= now

    def note_failure(self, uid: str, versions: Versions, error: Exception, *, now: float, fraction: float) -> Failure:
        """Record a failure; `fraction`, random in [0, 1), spreads the pauses."""
        times = 1
        before = self._failures.get(uid)
        if before:
            times = before.times + 1
        pause = self._backoff.seconds(times, fraction, error)
        refused = isinstance(error, Conflict | NotFound)
        only_news_helps = refused and times >= MOST
        failure = Failure(versions, times, now + pause, only_news_helps)
        self._failures[uid] = failure
        return failure

    def forget(self, uid: str) -> None:
        """Forget the failures of a pod that was placed, or has to wait for something known."""
        self._failures.pop(uid, None)

    def keep(self, uids: Iterable[str]) -> None:
        """Forget all other pods."""
        remaining = set(uids)
        self._failures = {uid: failure for uid, failure in self._failures.items() if uid in remaining}

    def next_due(self) -> float:
        """Return when the first pause ends; infinity if there is none."""
        ends = (failure.pause_ends for failure in self._failures.values() if not failure.needs_news)
        return min(ends, default=inf)
