"""Why not, what would have fitted, and which devices can be in use together."""

from __future__ import annotations

from allocator.reasons.explain import alike, distance, lines, loss, sentence, summary, tally
from allocator.reasons.losses import losses
from allocator.reasons.matrix import Matrix, Row, matrix
from allocator.reasons.nearest import Hint, Kind, nearest

__all__ = [
    "Hint",
    "Kind",
    "Matrix",
    "Row",
    "alike",
    "distance",
    "lines",
    "loss",
    "losses",
    "matrix",
    "nearest",
    "sentence",
    "summary",
    "tally",
]
