"""The three kinds of patches that we write: merge patch (RFC 7396), JSON Patch (RFC 6902) and server-side apply.

The functions apply them for the embedded store and the offline commands; a real cluster applies patches itself. Documents are never
changed in place. The webhook applies its own operations
with `webhook.translate.json_patch.apply_own`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from cluster.errors import BadRequest, Invalid

if TYPE_CHECKING:
    from collections.abc import Iterable

Json = Any


class Merge(msgspec.Struct, frozen=True, tag="merge"):
    """Members replace members, null removes a member, and lists are replaced whole.

    With a resourceVersion, a concurrent write causes a Conflict.
    """

    body: dict[str, Json]


class Operations(msgspec.Struct, frozen=True, tag="json"):
    """JSON Patch operations, in order, all or nothing."""

    operations: tuple[dict[str, Json], ...]


class Apply(msgspec.Struct, frozen=True, tag="apply"):
    """Server-side apply: the fields this manager wants, and only those. Other managers lose the fields that it changes."""

    body: dict[str, Json]
    manager: str


Patch = Merge | Operations | Apply


def apply_merge_patch(target: Json, patch: Json) -> Json:
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = apply_merge_patch(result.get(name), value)
    return result


# The member that identifies an item of a list. An apply replaces other lists whole.
_LIST_KEYS = {
    "conditions": "type",
    "containers": "name",
    "env": "name",
    "initContainers": "name",
    "ownerReferences": "uid",
    "reservedFor": "uid",
    "resourceClaimStatuses": "name",
    "resourceClaims": "name",
    "volumes": "name",
}


def apply_configuration(old: Json, new: Json, name: str = "") -> Json:
    """Set the fields of a server-side apply. Unlike an API server, keep fields that the manager applied before and now leaves out."""
    if isinstance(old, dict) and isinstance(new, dict) and name != "parameters":
        return old | {member: apply_configuration(old.get(member), value, member) for member, value in new.items()}
    key = _LIST_KEYS.get(name)
    if key is None or not (isinstance(old, list) and isinstance(new, list)):
        return new
    if not all(isinstance(item, dict) and key in item for item in [*old, *new]):
        return new
    items = {item[key]: item for item in old}
    return [*(items | {item[key]: apply_configuration(items.get(item[key]), item) for item in new}).values()]


def apply_json_patch(document: Json, operations: Iterable[dict[str, Json]]) -> Json:
    """Apply operations to a copy of a document, all or none. Raises BadRequest for a malformed operation, Invalid for one that fails."""
    import jsonpatch

    try:
        return jsonpatch.apply_patch(document, list(operations))
    except jsonpatch.InvalidJsonPatch as error:
        raise BadRequest(f"JSON Patch: {error}") from None
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException) as error:
        raise Invalid(f"JSON Patch: {error}") from None


def equal_json(left: Json, right: Json) -> bool:
    """Compare JSON values: numbers by value, and true is not 1."""
    if left is right:
        return True  # values that a patch did not change are shared
    if isinstance(left, bool) or isinstance(right, bool):
        return False
    if isinstance(left, dict) and isinstance(right, dict):
        if left.keys() != right.keys():
            return False
        return all(equal_json(value, right[name]) for name, value in left.items())
    if isinstance(left, list) and isinstance(right, list):
        if len(left) != len(right):
            return False
        return all(map(equal_json, left, right))
    return bool(left == right)
