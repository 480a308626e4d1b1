"""How many reviews are decided at a time, and how long one may take: on the loop, in a worker, and waiting for either."""

from __future__ import annotations

from typing import NamedTuple


class DecisionLimits(NamedTuple):
    """What one process decides at a time; what its door lets in is `runtime.http.Limits`."""

    # Reviews that are decided in a worker or looked at a second time; the others never wait.
    reviews: int = 128
    # A refused object is decided on once more after this long: our copy of the cluster is a moment old, and a class may
    # have been applied just before the first pod that names it.
    second_look: float = 0.25
    # Larger reviews are decided in a worker process from the start.
    inline: int = 64 * 1024
    # The longest that a review may hold the loop, and the same while somebody sends reviews that do. The kernel's ticks and
    # what is then given back to memory come on top, up to two fifths more. A first look at 5,000 nodes takes 40 ms; under attack it goes on review by review.
    hold: float = 0.05
    hold_under_attack: float = 0.01
    # What a worker may take, waiting for it included.
    patience: float = 1.5
    workers: int = 2
    # Who has stood in line for so long is told to come again, where at least so many others stand behind.
    line: float = 0.25
    crowd: int = 64
