"""Server-side apply, as far as `demo`, `standalone` and the tests need it.

A manager sets fields; a field that it set by its last apply and no longer sets is removed. Known lists are maps by a key of their items
(containers by name, reservedFor by uid) or sets; every other list is one value. Unlike an API server, the store does not know that several
managers set a field, and plain updates own nothing. `metadata.managedFields` has each manager's last apply, not the paths of its fields.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from cluster.errors import BadRequest
from dra.raw import mapping, members

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cluster.patch import Apply
    from cluster.resources import Raw

Json = Any
# The member that identifies an item of a list; "" for a set, whose items identify themselves.
_LIST_KEYS = {
    "conditions": "type",
    "containers": "name",
    "env": "name",
    "finalizers": "",
    "initContainers": "name",
    "ownerReferences": "uid",
    "reservedFor": "uid",
    "resourceClaimStatuses": "name",
    "resourceClaims": "name",
    "sharedCounters": "name",
    "volumes": "name",
    "webhooks": "name",
}
_OPAQUE = "parameters"
# The other metadata is set by the server, or identifies the object.
_OWNED_METADATA = ("annotations", "finalizers", "labels", "ownerReferences")


def server_side_apply(old: Raw, patch: Apply, subresource: str) -> Raw:
    if not patch.manager:
        raise BadRequest("fieldManager: Required value: is required for apply patch")
    identity: Raw = {"manager": patch.manager, "operation": "Apply", "subresource": subresource}
    last: Json = None
    others: list[Raw] = []
    for entry in members((old.get("metadata") or {}).get("managedFields")):
        if not isinstance(entry, dict):
            continue  # a client may write anything there
        if all(entry.get(name) == value for name, value in identity.items()):
            last = entry.get("fieldsV1")
        else:
            others.append(entry)
    metadata = mapping(patch.body.get("metadata"))
    owned = {name: value for name, value in patch.body.items() if name not in ("apiVersion", "kind")}
    owned["metadata"] = {name: metadata[name] for name in _OWNED_METADATA if name in metadata}
    result = _applied(old, patch.body, last, "")
    managed = [*others, {**identity, "fieldsV1": owned}]
    return {**result, "metadata": {**(result.get("metadata") or {}), "managedFields": managed}}


def _applied(old: Json, new: Json, last: Json, name: str) -> Json:
    """Return a value after an apply of `new` by the manager that applied `last` before. None stands for a missing value."""
    if new is None and last is None:
        return old
    olds, news, lasts = (_members(value, name) for value in (old, new, last))
    if olds is None or (new is not None and (news is None or type(old) is not type(new))):
        return new
    news, lasts = news or {}, lasts or {}
    is_list = isinstance(old, list)
    result: Raw = {}
    for step in _in_order([*olds], news) if is_list else olds | news:
        if is_list and step not in news:
            value = None if step in lasts else olds[step]
        else:
            value = _applied(olds.get(step), news.get(step), lasts.get(step), "" if is_list else step)
        if value is not None:
            result[step] = value
    if new is None and not result:
        return None
    return [*result.values()] if is_list else result


def _members(value: Json, name: str) -> Raw | None:
    """Return the members of an object, or the items of a list that is a map or a set; None for any other value."""
    if isinstance(value, dict):
        return value if name != _OPAQUE else None
    if not isinstance(value, list) or name not in _LIST_KEYS:
        return None
    key = _LIST_KEYS[name]
    if key and not all(isinstance(item, dict) and key in item for item in value):
        return None
    return {msgspec.json.encode(item[key] if key else item, order="sorted").decode(): item for item in value}


def _in_order(olds: list[str], news: Mapping[str, Json]) -> Iterator[str]:
    """Yield common items in the new order. Items that only the old list has keep their place before or after them."""
    for step in news:
        while olds and (olds[0] not in news or step in olds):
            first = olds.pop(0)
            if first not in news:
                yield first
            elif first == step:
                break
        yield step
    yield from (step for step in olds if step not in news)
