"""JSON Patch (RFC 6902) operations for a raw object.

A missing or null parent is created once, with all its new members. Lists are only appended to, so indices stay valid. A
`test` operation on a container's name comes first, so that the patch fails on another object instead of changing a wrong container.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dra.pointer import escape, split

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dra.raw import Object
    from dra.wire import Json


def remove_keys(path: str, mapping: Mapping[str, Json], keys: Sequence[str]) -> list[dict[str, Json]]:
    """Remove keys of a map, and the map itself if nothing remains. The map is replaced if that is one operation instead of several."""
    removed = [key for key in keys if key in mapping]
    remaining = len(mapping) - len(removed)
    if removed and not remaining:
        return [{"op": "remove", "path": path}]
    if 1 < len(removed) >= remaining:
        return [{"op": "replace", "path": path, "value": {key: mapping[key] for key in mapping if key not in removed}}]
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


def apply_own(obj: Object, operations: Iterable[Mapping[str, Json]]) -> Object:
    """Apply operations that this module could have made for `obj`. The result shares the values that did not change.

    The library jsonpatch copies the whole object first. For a pod of 4 kB it takes 116 µs of CPU, and this function 20; a whole decision takes 500.
    """
    for operation in operations:
        if operation["op"] != "test":
            obj = _changed(obj, split(str(operation["path"])), operation)
    return obj


def _changed(value: Any, path: Sequence[str], operation: Mapping[str, Json]) -> Any:
    if not path:
        return operation["value"]
    changed = value.copy()
    is_list = isinstance(value, list)
    name, *rest = path
    if is_list and name == "-":
        changed.append(operation["value"])
        return changed
    member: Any = int(name) if is_list else name
    if not rest and operation["op"] == "remove":
        del changed[member]
    elif not rest and is_list and operation["op"] == "add":
        changed.insert(member, operation["value"])
    else:
        changed[member] = _changed(value[member] if rest else None, rest, operation)
    return changed
