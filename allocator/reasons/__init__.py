"""Explains refusals, finds changes that would fit, and computes which devices can be in use together."""

from allocator.reasons.explain import (
    MAX_EXPLAINED,
    attribute_text,
    by_text,
    cannot_serve,
    distance,
    equal_answers,
    lines,
    listed,
    sentence,
    summary,
)
from allocator.reasons.losses import losses
from allocator.reasons.matrix import Matrix, MatrixRow, matrix
from allocator.reasons.nearest import Kind, NearestFit, drivers_of, nearest_fits, request_positions, with_fields

__all__ = [
    "MAX_EXPLAINED",
    "Kind",
    "Matrix",
    "MatrixRow",
    "NearestFit",
    "attribute_text",
    "by_text",
    "cannot_serve",
    "distance",
    "drivers_of",
    "equal_answers",
    "lines",
    "listed",
    "losses",
    "matrix",
    "nearest_fits",
    "request_positions",
    "sentence",
    "summary",
    "with_fields",
]
