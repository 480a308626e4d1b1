"""Server-side apply, as far as one process with a few field managers needs it.

As in structured-merge-diff: each manager owns the fields it applied last; a field that it no longer applies and that no other
manager owns is removed; a field that it applies with another value is taken over from other managers. Known lists are
maps by their key (containers by name, reservedFor by uid); every other list is one value. Ownership is kept in
`metadata.managedFields` in the server's own notation, for managers that apply. One thing differs from a real server:
plain updates own nothing here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from cluster.errors import BadRequest
from cluster.patch import equal_json
from dra.raw import members

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cluster.patch import Apply
    from cluster.resources import Raw

Json = Any
# Steps in FieldsV1 notation: f:<member>, k:<key members as JSON> of a list that is a map, v:<value as JSON> of a set.
Path = tuple[str, ...]
_LIST_KEYS = {
    "conditions": "type",
    "containers": "name",
    "env": "name",
    "initContainers": "name",
    "ownerReferences": "uid",
    "reservedFor": "uid",
    "resourceClaimStatuses": "name",
    "resourceClaims": "name",
    "sharedCounters": "name",
    "volumes": "name",
    "webhooks": "name",
}
_SETS = frozenset({"finalizers"})
_OPAQUE = frozenset({"parameters"})
_META_OF_THE_SERVER = frozenset(
    {
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "generateName",
        "generation",
        "managedFields",
        "name",
        "namespace",
        "resourceVersion",
        "uid",
    }
)


def server_side_apply(old: Raw, patch: Apply, subresource: str, *, now: str) -> Raw:
    if not patch.manager:
        raise BadRequest("fieldManager: Required value: is required for apply patch")
    metadata = old.get("metadata") or {}
    own_entry: Raw = {}
    others: list[Raw] = []
    for managed in _managed(metadata.get("managedFields")):
        identity = (managed.get("manager"), managed.get("operation"), managed.get("subresource") or "")
        if not own_entry and identity == (patch.manager, "Apply", subresource):
            own_entry = managed
        else:
            others.append(managed)
    leaves = dict(_leaves(_ownable(patch.body)))
    result: Json = _overlay(old, patch.body, "")
    remaining_paths = set(leaves)
    for other in others:
        remaining_paths.update(_paths(other.get("fieldsV1") or {}))
    # A list item comes before its key field, by which the item is found.
    for path in sorted(_paths(own_entry.get("fieldsV1") or {})):
        if not any(other[: len(path)] == path for other in remaining_paths):
            result = _without(result, path)
    fields = _tree(leaves)
    is_known = own_entry and equal_json(own_entry.get("fieldsV1"), fields)
    entry = {
        "manager": patch.manager,
        "operation": "Apply",
        "apiVersion": patch.body.get("apiVersion") or old.get("apiVersion"),
        "time": own_entry["time"] if is_known else now,
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }
    entry |= {"subresource": subresource} if subresource else {}
    before = dict(_leaves(_ownable(old)))
    taken_over = {path for path, value in leaves.items() if path not in before or not equal_json(before[path], value)}
    managers: list[Raw] = []
    for other in others:
        fields_left = _tree(path for path in _paths(other["fieldsV1"]) if path not in taken_over)
        if fields_left:
            managers.append({**other, "fieldsV1": fields_left})
    managers.append(entry)
    metadata = result.get("metadata") or {}
    return {**result, "metadata": {**metadata, "managedFields": managers}}


def _managed(managed_fields: Json) -> list[Raw]:
    """Return the managedFields of an object; none, as in the API server, if a client wrote something invalid there."""
    entries: list[Raw] = []
    for member in members(managed_fields):
        if (
            not isinstance(member, dict)
            or not isinstance(member.get("fieldsV1"), dict)
            or not isinstance(member.get("time"), str)
        ):
            return []
        entries.append(member)
    return entries


def _ownable(body: Raw) -> Raw:
    """Return the fields of a body that can have an owner: all but those that identify the object."""
    ownable = {name: value for name, value in body.items() if name not in ("apiVersion", "kind", "metadata")}
    metadata = body.get("metadata") or {}
    meta = {name: value for name, value in metadata.items() if name not in _META_OF_THE_SERVER}
    return ownable | ({"metadata": meta} if meta else {})


def _leaves(value: Json, path: Path = ()) -> Iterator[tuple[Path, Json]]:
    name = path[-1][2:] if path else ""
    if isinstance(value, dict) and (value or not path) and name not in _OPAQUE:
        for member, inner in value.items():
            yield from _leaves(inner, (*path, f"f:{member}"))
    elif isinstance(value, list) and _is_keyed(name, value):
        for step, item in _items(name, value):
            item_path = (*path, step)
            yield item_path, None
            if not isinstance(item, dict):
                continue
            for member, inner in item.items():
                below = (*item_path, f"f:{member}")
                yield from _leaves(inner, below)
    else:
        yield path, value


def _is_keyed(name: str, items: list[Json]) -> bool:
    """Whether a list is a map or a set, rather than one value."""
    return name in _SETS or bool(_list_key(name, items))


def _items(name: str, items: list[Json]) -> Iterator[tuple[str, Json]]:
    """Yield the items of a list that is a map or a set, each with its step."""
    key = _list_key(name, items)
    for item in items:
        yield (f"k:{_text({key: item[key]})}" if key else f"v:{_text(item)}"), item


def _list_key(name: str, items: list[Json]) -> str:
    key = _LIST_KEYS.get(name, "")
    return key if key and all(isinstance(item, dict) and key in item for item in items) else ""


def _text(value: Json) -> str:
    return msgspec.json.encode(value, order="sorted").decode()


def _tree(paths: Iterable[Path]) -> Raw:
    """Return paths as a FieldsV1 tree; `.` marks an item that is owned itself, beside its fields."""
    tree: Raw = {}
    for path in paths:
        node = tree
        for step in path:
            node = node.setdefault(step, {})
        if path[-1].startswith("k:"):
            node["."] = {}
    return tree


def _paths(tree: Raw, path: Path = ()) -> Iterator[Path]:
    for step, inner in tree.items():
        if step == ".":
            yield path
        elif inner:
            yield from _paths(inner, (*path, step))
        else:
            yield (*path, step)


def _position(value: list[Json], step: str) -> int:
    """Return the index of an item of a list that is a map or a set; -1 if there is none."""
    wanted = msgspec.json.decode(step[2:])
    for index, item in enumerate(value):
        if step.startswith("v:"):
            if equal_json(item, wanted):
                return index
        elif isinstance(item, dict) and all(equal_json(item.get(name), member) for name, member in wanted.items()):
            return index
    return -1


def _without(value: Json, path: Path) -> Json:
    """Return a document without one field, and without parent fields that are then empty."""
    step = path[0]
    rest = path[1:]
    if isinstance(value, dict) and step.startswith("f:"):
        name = step[2:]
        if name not in value:
            return value
        changed = dict(value)
        inner = _without(value[name], rest) if rest else None
        if inner in (None, {}, []):
            del changed[name]
        else:
            changed[name] = inner
        return changed
    if isinstance(value, list) and not step.startswith("f:"):
        index = _position(value, step)
        if index < 0:
            return value
        items = list(value)
        if rest:
            items[index] = _without(value[index], rest)
        else:
            del items[index]
        return items
    return value


def _overlay(old: Json, new: Json, name: str) -> Json:
    if isinstance(new, dict) and isinstance(old, dict) and name not in _OPAQUE:
        merged = dict(old)
        for member, value in new.items():
            before = old.get(member)
            merged[member] = _overlay(before, value, member)
        return merged
    if isinstance(new, list) and isinstance(old, list) and _is_keyed(name, new):
        # Common items are in the new order; items that only the old list has keep their place before or after them.
        old_items = dict(_items(name, old))
        new_items = dict(_items(name, new))
        result = []
        waiting = list(old_items)
        for step, item in new_items.items():
            while waiting and (waiting[0] not in new_items or step in waiting):
                first = waiting.pop(0)
                if first not in new_items:
                    result.append(old_items[first])
                elif first == step:
                    break
            result.append(_overlay(old_items[step], item, "") if step in old_items else item)
        return result + [old_items[step] for step in waiting if step not in new_items]
    return new
