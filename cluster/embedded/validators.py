"""The API server's field validation for the embedded store: `dra.validation`'s rules, in the words of an API error.

An update is judged by what it brings: what was wrong with an object before is not held against a change of something
else, as the server's ratcheting has it.
"""

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
from dra.validation import errors, gates

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cluster.embedded.registry import Validator
    from cluster.resources import Raw
    from dra.validation import Problem


def validate(new: Raw, old: Raw | None, subresource: str) -> list[Cause]:
    """Find what a write breaks."""
    del subresource
    found = errors(new, gates.ALL)
    known = {(one.path, one.message) for one in errors(old, gates.ALL)} if found and old is not None else set()
    return [_cause(one) for one in found if (one.path, one.message) not in known]


def _cause(problem: Problem) -> Cause:
    return Cause(
        field=field_path(problem.path), message=f"Invalid value: {problem.message}", reason="FieldValueInvalid"
    )


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
