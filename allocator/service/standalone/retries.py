"""Which pods are left alone for a while, because the last try to place them failed, and until when. Pure: no clock.

A conflict means that another writer was faster, and that what we know is old: looking again at once sees the same old
state, so every failure is followed by a pause, and each pause is longer than the one before. A conflict that outlives
`MOST` of them will not be cured by another try; the pod is left alone until something about it changes.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

import msgspec

from cluster.errors import Conflict, NotFound
from runtime.informers import Backoff

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST = 8  # failures in a row of the kind that only news can cure
Versions = tuple[str, ...]  # the versions of everything a try was based on


class Failure(msgspec.Struct, frozen=True):
    """How often placing a pod has failed in a row, what was seen the last time, and when the pause ends."""

    versions: Versions
    times: int
    pause_ends: float
    needs_news: bool


class Retries:
    """The pods whose last try failed."""

    def __init__(self, backoff: Backoff | None = None) -> None:
        self._backoff = backoff or Backoff(least=0.05, most=30.0)
        self._failures: dict[str, Failure] = {}

    def __len__(self) -> int:
        return len(self._failures)

    def due(self, uid: str, versions: Versions, now: float) -> bool:
        """Say whether a pod may be tried now."""
        failure = self._failures.get(uid)
        if failure is None:
            return True
        if failure.needs_news and failure.versions == versions:
            return False
        return failure.pause_ends <= now

    def note_failure(self, uid: str, versions: Versions, error: Exception, *, now: float, fraction: float) -> Failure:
        """Note a failure; `fraction`, random in [0, 1), spreads the pauses."""
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
        """Note that a try came to an end: the pod has a node, or is known to have to wait."""
        self._failures.pop(uid, None)

    def keep(self, uids: Iterable[str]) -> None:
        """Forget all other pods."""
        remaining = set(uids)
        self._failures = {uid: failure for uid, failure in self._failures.items() if uid in remaining}

    def next_due(self) -> float:
        """Say when the first pause ends; infinity if no pod waits for that."""
        ends = (failure.pause_ends for failure in self._failures.values() if not failure.needs_news)
        return min(ends, default=inf)
