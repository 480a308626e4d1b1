"""How long to wait before the next try. Pure: the randomness comes as a number."""

from __future__ import annotations

import msgspec

from cluster.errors import Throttled, Unavailable


class Backoff(msgspec.Struct, frozen=True):
    """Doubling waits between a least and a most, spread over their upper half so that many clients do not march in step."""

    least: float = 0.5
    most: float = 30.0

    def seconds(self, failures: int, fraction: float, error: Exception | None = None) -> float:
        """The wait after so many failures in a row; `fraction` is random in [0, 1). A server's own word is a minimum."""
        doublings = max(failures - 1, 0)
        doublings = min(doublings, 32)
        longest = self.least * 2.0**doublings
        full = min(self.most, longest)
        wait = full * (0.5 + fraction / 2)
        if isinstance(error, Throttled | Unavailable):
            wait = max(wait, error.retry_after)
        return wait
