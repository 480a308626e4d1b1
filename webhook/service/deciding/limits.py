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
    # So are those with more members: decoding and looking at each takes some microseconds. A pod of 64 KiB of variables has 4,000.
    members: int = 8_000
    # CPU seconds that a decision may take on the loop; what is not charged piece by piece adds up to 20 ms. A first look at
    # 5,000 nodes takes 40 ms, and goes on review by review.
    hold: float = 0.033
    # What a worker may take, waiting for it included.
    patience: float = 1.5
    workers: int = 2
    # A review that waited for so long is turned away, where at least so many others wait.
    line: float = 0.25
    crowd: int = 64
