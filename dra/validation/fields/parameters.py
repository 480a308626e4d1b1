"""Free-form JSON that drivers read: parameters and status data (validateRawExtension)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from dra.validation.problem import Problem, Problems

if TYPE_CHECKING:
    from dra.wire import Json

MAX_BYTES = 10 * 1024


def driver_parameters(value: Json, path: str, *, needed: bool) -> Problems:
    """Judge a value that must be a JSON object of limited size.

    The size counts in the bytes that reach the server: those of compact JSON, which is what clients send for YAML.
    """
    if value is None:
        if needed:
            yield Problem("D101", path, "parameters are required")
    elif (length := len(msgspec.json.encode(value))) > MAX_BYTES:
        yield Problem("D103", path, f"{length} bytes, at most {MAX_BYTES} are allowed")
    elif not isinstance(value, dict):
        yield Problem("D112", path, "must be a JSON object")
