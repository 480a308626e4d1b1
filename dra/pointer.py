"""JSON pointers (RFC 6901): the paths in findings, in patches and in the errors of readers."""

from __future__ import annotations

from typing import Any


def escape(name: str) -> str:
    """Write one member name as a part of a pointer."""
    return name.replace("~", "~0").replace("/", "~1")


def split(pointer: str) -> list[str]:
    """Take a pointer apart into member names and indices."""
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]


def look_up(value: Any, pointer: str) -> Any:
    """Return what stands at a pointer that leads through objects alone; None if nothing does."""
    for name in split(pointer):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def text_at(value: Any, pointer: str) -> str:
    """Return the text at a pointer; "" if there is none."""
    found = look_up(value, pointer)
    return found if isinstance(found, str) else ""


def member(path: str, name: str) -> str:
    """Point at a member whose name may hold anything."""
    return f"{path}/{escape(name)}"


def field_path(pointer: str) -> str:
    """Write a pointer as API errors do: /spec/devices/requests/0/name is spec.devices.requests[0].name."""
    path = ""
    for name in split(pointer):
        if not name.isdigit() and name.isidentifier():
            path += f".{name}" if path else name
        else:
            path += f"[{name}]"
    return path


def of_path(path: str) -> str:
    """Read a path as msgspec writes it: $.spec.devices[0].name is /spec/devices/0/name.

    msgspec does not say which member of a map it means, only that it is one: the map is pointed at.
    """
    known = path.partition("[...]")[0]
    return known.removeprefix("$").replace("[", "/").replace("]", "").replace(".", "/")
