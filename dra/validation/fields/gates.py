"""The feature gates on which fields of resource.k8s.io depend (pkg/registry/resource). `dra.server` has the gates' defaults.

If the gate of a field is off, the API server drops the field before it validates the object. So an invalid value of the field
is no error. A finding reports that the field has no effect.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import msgspec

from dra import server
from dra.finding import Finding, finding_at
from dra.pointer import member
from dra.wire import copied

if TYPE_CHECKING:
    from collections.abc import Iterator


Gates = frozenset[str]

_ANY = "*"
_DEVICE = ("spec", "devices", _ANY)
_REQUEST = ("spec", "devices", "requests", _ANY)
_RESULT = ("status", "allocation", "devices", "results", _ANY)
_REQUEST_FIELDS = (
    (("derivedAttributes",), server.DERIVED),
    (("capacity",), server.CAPACITY),
    (("tolerations",), server.TAINTS),
)
_CLAIM_SPEC = (
    *(((*_REQUEST, "exactly", *field), gate) for field, gate in _REQUEST_FIELDS),
    *(((*_REQUEST, "firstAvailable", _ANY, *field), gate) for field, gate in _REQUEST_FIELDS),
    (("spec", "devices", "constraints", _ANY, "distinctAttribute"), server.CAPACITY),
)

# The path of each field that has a gate, and the gate. `*` stands for every item of a list and every member of a map.
_FIELDS: Final[dict[str, tuple[tuple[tuple[str, ...], str], ...]]] = {
    "ResourceSlice": (
        (("spec", "partitionTypeAttribute"), server.PARTITION_TYPE),
        (("spec", "skipNodeOperations"), server.OPTIONAL_OPERATIONS),
        (("spec", "sharedCounters"), server.COUNTERS),
        (("spec", "perDeviceNodeSelection"), server.COUNTERS),
        ((*_DEVICE, "consumesCounters"), server.COUNTERS),
        ((*_DEVICE, "nodeName"), server.COUNTERS),
        ((*_DEVICE, "nodeSelector"), server.COUNTERS),
        ((*_DEVICE, "allNodes"), server.COUNTERS),
        ((*_DEVICE, "consumesCounters", _ANY, "compatibilityGroups"), server.GROUPS),
        ((*_DEVICE, "nodeAllocatableResources"), server.NODE_RESOURCES),
        ((*_DEVICE, "bindingConditions"), server.BINDING),
        ((*_DEVICE, "bindingFailureConditions"), server.BINDING),
        ((*_DEVICE, "bindsToNode"), server.BINDING),
        ((*_DEVICE, "allowMultipleAllocations"), server.CAPACITY),
        ((*_DEVICE, "capacity", _ANY, "requestPolicy"), server.CAPACITY),
        ((*_DEVICE, "taints"), server.TAINTS),
        *(((*_DEVICE, "attributes", _ANY, kind), server.LISTS) for kind in ("ints", "bools", "strings", "versions")),
    ),
    "ResourceClaim": (
        *_CLAIM_SPEC,
        ((*_RESULT, "bindingConditions"), server.BINDING),
        ((*_RESULT, "bindingFailureConditions"), server.BINDING),
        ((*_RESULT, "shareID"), server.CAPACITY),
        ((*_RESULT, "consumedCapacity"), server.CAPACITY),
        ((*_RESULT, "skipNodeOperations"), server.OPTIONAL_OPERATIONS),
        (("status", "devices", _ANY, "shareID"), server.CAPACITY),
    ),
    "DeviceClass": ((("spec", "extendedResourceName"), server.EXTENDED),),
    "ResourceClaimTemplate": tuple((("spec", *path), gate) for path, gate in _CLAIM_SPEC),
}  # fmt: skip
_OF_FIELDS: Final[Gates] = frozenset(gate for fields in _FIELDS.values() for _, gate in fields)


@lru_cache(maxsize=64)
def with_locked(gates: Gates, minor: int) -> Gates:
    """Add the gates of fields that are locked on in a server of a minor."""
    return gates | {gate for gate, stage in server.known_gates(minor).items() if gate in _OF_FIELDS and stage.locked}


# The gates that can be set in the newest release. No field depends on FRACTIONAL; it permits further amounts in a request policy.
ALL: Final[Gates] = _OF_FIELDS - with_locked(frozenset(), server.CURRENT) | {server.FRACTIONAL}
DEFAULT: Final[Gates] = server.server_of().gates & ALL


# Fields whose gates are on by default in every supported server; `drop` does not report these fields.
_USUALLY_ON: Final = (
    ((*_REQUEST, "exactly", "adminAccess"), server.ADMIN_ACCESS),
    ((*_REQUEST, "firstAvailable"), server.ALTERNATIVES),
)


def required_by(kind: str, value: dict[str, Any]) -> Gates:
    """Return the gates that must be on for the API server to keep all fields of an object's spec."""
    below = ("spec",) if kind == "ResourceClaimTemplate" else ()
    also = [((*below, *path), gate) for path, gate in _USUALLY_ON] if kind.startswith("ResourceClaim") else []
    fields = [(path, gate) for path, gate in _FIELDS.get(kind, ()) if path[0] == "spec"]
    return frozenset([gate for path, gate in (*fields, *also) if next(_find(value, path, ""), None)])


def drop(kind: str, value: dict[str, Any], gates: Gates) -> tuple[dict[str, Any], list[Finding]]:
    """Return the object without the fields whose gate is off, which the API server drops, and a finding for each such field."""
    problems: list[Finding] = []
    off = [(path, gate) for path, gate in _FIELDS.get(kind, ()) if gate not in gates]
    # Most objects use none of these fields, and a search in the object's text is quicker than a walk through the object.
    text = msgspec.json.encode(value) if off else b""
    for path, gate in off:
        if path[-1].encode() not in text:
            continue
        gated = list(_find(value, path, ""))
        if gated and not problems:
            value = copied(value)
            gated = list(_find(value, path, ""))
        for parent, name, pointer in gated:
            del parent[name]
            since = server.GATES[gate][0].since
            since_clause = f", which exists from 1.{since} on," if since > server.OLDEST else ""
            message = f"the API server drops {name} unless the feature gate {gate}{since_clause} is on"
            problems.append(finding_at("D006", pointer, message))
    return value, problems


def _find(value: Any, path: tuple[str, ...], pointer: str) -> Iterator[tuple[dict[str, Any], str, str]]:
    """Yield the parent object, the name and the pointer of each field that is set at this path."""
    first_step, remaining_steps = path[0], path[1:]
    if first_step == _ANY:
        if isinstance(value, list):
            for index, item in enumerate(value):
                yield from _find(item, remaining_steps, f"{pointer}/{index}")
        elif isinstance(value, dict):
            for name, inner in value.items():
                yield from _find(inner, remaining_steps, member(pointer, name))
        return
    if not isinstance(value, dict) or value.get(first_step) is None:
        return
    field_pointer = f"{pointer}/{first_step}"
    if remaining_steps:
        yield from _find(value[first_step], remaining_steps, field_pointer)
    else:
        yield value, first_step, field_pointer
