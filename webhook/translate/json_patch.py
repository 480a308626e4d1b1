"""JSON Patch (RFC 6902) operations for a raw object.

A missing or null parent is created once, with everything that goes into it. Lists are only appended to, so indices stay valid. A
`test` operation on a container's name comes first, so that a patch of another object fails and changes no wrong container.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dra.pointer import escape

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dra.wire import Json


def remove_keys(
    path: str, mapping: Mapping[str, Json], keys: Sequence[str], *, coarse: bool = False
) -> list[dict[str, Json]]:
    """Remove keys of a map, and the map itself if nothing remains.

    A `coarse` removal replaces the map by what remains, if that is no more than what goes: one operation is applied faster than several.
    """
    removed = [key for key in keys if key in mapping]
    if not removed:
        return []
    remaining = len(mapping) - len(removed)
    if not remaining:
        return [{"op": "remove", "path": path}]
    if coarse and 1 < len(removed) >= remaining:
        remaining_members: dict[str, Json] = {key: value for key, value in mapping.items() if key not in removed}
        return [{"op": "replace", "path": path, "value": remaining_members}]
    return [{"op": "remove", "path": f"{path}/{escape(key)}"} for key in removed]


def set_keys(path: str, mapping: Json, values: Mapping[str, Json]) -> list[dict[str, Json]]:
    """Set members of a map that may not be there yet."""
    if not values:
        return []
    if not isinstance(mapping, dict):
        return [{"op": "add", "path": path, "value": dict(values)}]
    return [
        {"op": "add", "path": f"{path}/{escape(key)}", "value": value}
        for key, value in values.items()
        if mapping.get(key) != value
    ]


def append(path: str, items: Json, values: Sequence[Json]) -> list[dict[str, Json]]:
    """Append to a list that may not be there yet."""
    if isinstance(items, list):
        return [{"op": "add", "path": f"{path}/-", "value": value} for value in values]
    return [{"op": "add", "path": path, "value": list(values)}] if values else []
