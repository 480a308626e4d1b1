"""Access to untyped JSON: a value of an unexpected type counts as absent."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

Object = dict[str, Any]


def mapping(value: Any) -> Object:
    """Return an object, or {} for any other value."""
    return value if isinstance(value, dict) else {}


def inside(obj: Object, *path: str) -> Object:
    """Return the object at a path of member names, or {}."""
    for name in path:
        obj = mapping(obj.get(name))
    return obj


def items(obj: Object, name: str) -> list[Object]:
    """Return the objects in a list member."""
    listed = obj.get(name)
    return [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []


def strings(obj: Object, *names: str) -> list[str]:
    """Return the strings in some list members, one list after the other."""
    found: list[str] = []
    for name in names:
        listed = obj.get(name)
        if isinstance(listed, list):
            found += [item for item in listed if isinstance(item, str)]
    return found


def text(value: Any) -> str:
    """Return a string, or "" for any other value."""
    return value if isinstance(value, str) else ""


def moment(value: Any) -> datetime | None:
    """Parse a timestamp as API servers write it; None for any other value."""
    try:
        read = datetime.fromisoformat(text(value))
    except ValueError:
        return None
    return read if read.tzinfo else read.replace(tzinfo=UTC)
