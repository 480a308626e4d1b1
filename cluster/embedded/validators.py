"""The API server's field validation for the embedded store: `dra.validation`'s rules, in the words of an API error."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cluster.errors import Cause
from cluster.resources import (
    DEVICE_CLASSES,
    DEVICE_COMPATIBILITIES,
    DEVICE_TAINT_RULES,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from dra.pointer import field_path
from dra.validation import errors, gates, update_errors

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cluster.embedded.registry import Validator
    from cluster.resources import Raw
    from dra.validation import Problem


# What the API server calls forbidden, and not an invalid value.
_FORBIDDEN = frozenset({("D116", "/status/reservedFor")})


def validate(new: Raw, old: Raw | None, subresource: str) -> list[Cause]:
    """Find what a write breaks."""
    if old is None:
        return [_cause(one) for one in errors(new, gates.ALL)]
    return [_cause(one) for one in update_errors(new, old, gates.ALL, status=subresource == "status")]


def _cause(problem: Problem) -> Cause:
    field = field_path(problem.path)
    if (problem.code, problem.path) in _FORBIDDEN:
        return Cause(field, f"Forbidden: {problem.message}", "FieldValueForbidden")
    return Cause(field, f"Invalid value: {problem.message}", "FieldValueInvalid")


VALIDATORS: Mapping[str, Validator] = {
    resource.id: validate
    for resource in (
        DEVICE_CLASSES,
        DEVICE_COMPATIBILITIES,
        DEVICE_TAINT_RULES,
        RESOURCE_CLAIM_TEMPLATES,
        RESOURCE_CLAIMS,
        RESOURCE_SLICES,
    )
}
