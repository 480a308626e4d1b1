"""What those who have been cheap may take of the loop while an attack lasts, beyond the brief time that everybody has.

An honest review takes longer than usual just after others have had a memory emptied, or on a machine that many want. It would be
ended after as long as a hostile one, and find the workers full of those. So it may go on, and so may who was honest only so far: together they
have a purse of time, which fills again slowly. It cannot hold the loop for more than a purse and a share of the time since.
What it is not: a clock. Seconds are the loop's own, and are told.
"""

from __future__ import annotations

# The share of the time that flows back.
SHARE = 0.1


class Allowance:
    """A purse of seconds."""

    def __init__(self, most: float) -> None:
        """It holds so many at most, and is full at first."""
        self._most = most
        self._left = most
        self._looked = float("-inf")

    def left(self, now: float) -> float:
        """Say what is there at some moment."""
        self._left = min(self._most, self._left + (now - self._looked) * SHARE)
        self._looked = now
        return self._left

    def spend(self, seconds: float) -> None:
        """Take out what was used."""
        self._left = max(0.0, self._left - max(0.0, seconds))
