"""A folder's face whose names are imported when they are asked for: one of its files may be read without all that the others need."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


def lazily(face: str, names: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """Make the `__getattr__` of a face, of what each of its modules gives."""
    homes = {name: module for module, given in names.items() for name in given}

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {face!r} has no attribute {name!r}")
        return getattr(import_module(f"{face}.{homes[name]}"), name)

    return get
