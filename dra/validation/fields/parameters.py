"""Free-form JSON that drivers read: parameters and status data (validateRawExtension)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dra.validation.problem import Problem, Problems

if TYPE_CHECKING:
    from dra.wire import Opaque

MAX_BYTES = 10 * 1024


def driver_parameters(value: Opaque | None, path: str, *, needed: bool) -> Problems:
    """Judge a value that must be a JSON object of limited size.

    The size counts in the bytes that reach the server: those of compact JSON, which is what clients send for YAML.
    """
    if value is None:
        if needed:
            yield Problem("D101", path, "parameters are required")
    elif (length := len(value.json)) > MAX_BYTES:
        yield Problem("D103", path, f"{length} bytes, at most {MAX_BYTES} are allowed")
    elif not value.json.startswith(b"{"):
        yield Problem("D112", path, "must be a JSON object")
