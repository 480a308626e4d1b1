"""Explains refusals, finds changes that would fit, and computes which devices can be in use together."""

from allocator.reasons.explain import (
    attribute_text,
    distance,
    equal_answers,
    lines,
    listed,
    loss,
    sentence,
    summary,
    tally,
)
from allocator.reasons.losses import losses
from allocator.reasons.matrix import Matrix, MatrixRow, matrix
from allocator.reasons.nearest import Kind, NearestFit, nearest
from allocator.reasons.relax import RequestPosition, asking, largest_amount, spots, with_amount

__all__ = [
    "Kind",
    "Matrix",
    "MatrixRow",
    "NearestFit",
    "RequestPosition",
    "asking",
    "attribute_text",
    "distance",
    "equal_answers",
    "largest_amount",
    "lines",
    "listed",
    "loss",
    "losses",
    "matrix",
    "nearest",
    "sentence",
    "spots",
    "summary",
    "tally",
    "with_amount",
]
