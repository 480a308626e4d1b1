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
from allocator.reasons.nearest import Kind, NearestFit, nearest_fits
from allocator.reasons.relax import request_positions, with_fields

__all__ = [
    "Kind",
    "Matrix",
    "MatrixRow",
    "NearestFit",
    "attribute_text",
    "distance",
    "equal_answers",
    "lines",
    "listed",
    "loss",
    "losses",
    "matrix",
    "nearest_fits",
    "request_positions",
    "sentence",
    "summary",
    "tally",
    "with_fields",
]
