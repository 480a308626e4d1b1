"""Access to untyped JSON. A value of an unexpected type counts as absent."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

Object = dict[str, Any]


def mapping(value: Any) -> Object:
    """Return the value if it is an object, else {}."""
    return value if isinstance(value, dict) else {}


def inside(value: Any, *path: str) -> Object:
    """Return the object at a path of member names, or {}."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def members(value: Any) -> list[Any]:
    """Return the value if it is a list, else []."""
    return value if isinstance(value, list) else []


def items(obj: Object, name: str) -> list[Object]:
    """Return the objects in a list member."""
    value = obj.get(name)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def containers_of(spec: Object) -> list[Object]:
    """Return the containers of a pod's spec, init containers first."""
    return [*items(spec, "initContainers"), *items(spec, "containers")]


def strings(obj: Object, *names: str) -> list[str]:
    """Return the strings in the lists with these names, one list after the other."""
    return [item for name in names for item in members(obj.get(name)) if isinstance(item, str)]


def text(value: Any) -> str:
    """Return the value if it is a string, else ""."""
    return value if isinstance(value, str) else ""


def decoded(value: Any) -> Any:
    """Decode a JSON text; return None if the value is not a valid JSON text."""
    try:
        return msgspec.json.decode(text(value))
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None


def moment(value: Any) -> datetime | None:
    """Parse a timestamp in the form that API servers write; return None for any other value."""
    try:
        parsed = datetime.fromisoformat(text(value))
    except ValueError:
        return None
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
