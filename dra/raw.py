"""Parts of an object that may have any shape: what is not of the expected one is as if it were not there."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

Object = dict[str, Any]


def mapping(value: Any) -> Object:
    """Give an object, or an empty one for any other value."""
    return value if isinstance(value, dict) else {}


def inside(obj: Object, *path: str) -> Object:
    """Follow names into an object; empty where they lead nowhere."""
    for name in path:
        obj = mapping(obj.get(name))
    return obj


def items(obj: Object, name: str) -> list[Object]:
    """Give the objects of a list in an object."""
    listed = obj.get(name)
    return [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []


def strings(obj: Object, *names: str) -> list[str]:
    """Give the texts of lists in an object, one list after the other."""
    return [
        one for name in names if isinstance(listed := obj.get(name), list) for one in listed if isinstance(one, str)
    ]


def text(value: Any) -> str:
    """Give a text, or "" for any other value."""
    return value if isinstance(value, str) else ""


def moment(value: Any) -> datetime | None:
    """Read a time as API servers write it; None for any other value."""
    try:
        read = datetime.fromisoformat(text(value))
    except ValueError:
        return None
    return read if read.tzinfo else read.replace(tzinfo=UTC)
