"""JSON pointers (RFC 6901): the paths in findings, patches and decoding errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from dra.raw import text

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAX: Final = 100_000  # the most values of an object that are read; aliases of YAML can repeat a value without limit


def escape(name: str) -> str:
    """Escape a member name for use in a pointer."""
    return name.replace("~", "~0").replace("/", "~1")


def split(pointer: str) -> list[str]:
    """Split a pointer into member names and indices."""
    parts = pointer.split("/")[1:]
    return [part.replace("~1", "/").replace("~0", "~") for part in parts] if "~" in pointer else parts


def look_up(value: Any, pointer: str) -> Any:
    """Return the value at a pointer, or None. The pointer may pass through objects, not through lists."""
    for name in split(pointer):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def text_at(value: Any, pointer: str) -> str:
    """Return the string at a pointer, or ""."""
    return text(look_up(value, pointer))


def member(path: str, name: str) -> str:
    """Extend a pointer by a member name, which may hold any character."""
    return f"{path}/{escape(name)}"


def values_in(value: Any, pointer: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values at every depth of a value that is at a pointer, each with its own pointer."""
    waiting: list[tuple[str, Any]] = [(pointer, value)]
    for _ in range(_MAX):
        if not waiting:
            return
        path, part = waiting.pop()
        yield path, part
        if isinstance(part, dict):
            waiting += [(member(path, name), below) for name, below in part.items()]
        elif isinstance(part, list):
            waiting += [(f"{path}/{index}", below) for index, below in enumerate(part)]


def mappings_in(value: Any, pointer: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the mappings at every depth of a value that is at a pointer, each with its own pointer."""
    return ((path, part) for path, part in values_in(value, pointer) if isinstance(part, dict))


def field_path(pointer: str) -> str:
    """Convert a pointer to the form of API errors: /spec/devices/requests/0/name to spec.devices.requests[0].name."""
    path = ""
    for name in split(pointer):
        if not name.isdigit() and name.isidentifier():
            path += f".{name}" if path else name
        else:
            path += f"[{name}]"
    return path


def of_path(path: str) -> str:
    """Convert a path in an error of msgspec to a pointer: $.spec.devices[0].name to /spec/devices/0/name.

    msgspec writes `[...]` for any member of a map; the pointer then ends at the map.
    """
    prefix = path.partition("[...]")[0]
    return prefix.removeprefix("$").replace("[", "/").replace("]", "").replace(".", "/")
