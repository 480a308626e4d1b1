"""How many reviews are decided at a time, and how long one may take: on the loop, in a worker, and waiting for either."""

from __future__ import annotations

from typing import NamedTuple


class DecisionLimits(NamedTuple):
    """What one process decides at a time; what its listener lets in is `runtime.http.Limits`."""

    # Reviews that are decided in a worker or looked at a second time; the others never wait.
    reviews: int = 128
    # A refused object is decided on once more after this long: our copy of the cluster is a moment old, and a class may
    # have been applied just before the first pod that names it. The template of a workload's pod is waited for as long at most.
    second_look: float = 0.25
    # Larger reviews are decided in a worker process from the start.
    inline: int = 64 * 1024
    # The longest that a review may hold the loop, and the same while an attack lasts. The kernel's ticks and what is then
    # given back to memory come on top, up to two fifths more. A first look at 5,000 nodes takes 40 ms; under attack it
    # goes on review by review.
    hold: float = 0.05
    hold_under_attack: float = 0.01
    # What a worker may take, waiting for it included.
    patience: float = 1.5
    workers: int = 2
    # A review that waited for so long is turned away, where at least so many others wait.
    line: float = 0.25
    crowd: int = 64


# The share of the time that flows back into a bucket.
SHARE = 0.1


class TokenBucket:
    """Seconds of the loop that clients who have been cheap may take together while an attack lasts, beyond `hold_under_attack`.

    An honest review takes longer than usual just after a cache was emptied, or on a busy machine. Ended after as little as
    a hostile one, it would find the workers full of those. All such clients share one bucket, so one that turns hostile
    cannot hold the loop for more than the bucket and a share of the time since.
    """

    def __init__(self, most: float) -> None:
        """It holds so many at most, and is full at first."""
        self._most = most
        self._left = most
        self._looked = float("-inf")

    def left(self, now: float) -> float:
        """Say what is there at a moment of the loop's clock."""
        self._left = min(self._most, self._left + (now - self._looked) * SHARE)
        self._looked = now
        return self._left

    def spend(self, seconds: float) -> None:
        """Take out what was used."""
        self._left = max(0.0, self._left - max(0.0, seconds))
