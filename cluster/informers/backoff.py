"""Exponential backoff. The random number is an argument."""

from __future__ import annotations

import msgspec

from cluster.errors import Throttled, Unavailable


class Backoff(msgspec.Struct, frozen=True):
    """Doubling waits between `least` and `most` seconds, with jitter over the upper half."""

    least: float = 0.5
    most: float = 30.0

    def seconds(self, failures: int, fraction: float, error: Exception | None = None) -> float:
        """Return the wait after a number of consecutive failures; `fraction` is random in [0, 1). A server's Retry-After is a minimum."""
        doublings = max(failures - 1, 0)
        doublings = min(doublings, 32)
        longest = self.least * 2.0**doublings
        full = min(self.most, longest)
        wait = full * (0.5 + fraction / 2)
        if isinstance(error, Throttled | Unavailable):
            wait = max(wait, error.retry_after)
        return wait
