"""Label and field selectors as the API server reads them from a query (apimachinery pkg/labels, pkg/fields).

Only the embedded store evaluates them; a real server gets the text. Fields are the ones that API servers index and we
use; any other is refused as there.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from cluster.errors import BadRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Predicate = Callable[[Mapping[str, Any]], bool]
    LabelTest = Callable[[Mapping[str, str]], bool]

_SET = re.compile(r"^(?P<key>[^\s=!,()]+)\s+(?P<operator>in|notin)\s*\((?P<values>[^()]*)\)$")
_EQUAL = re.compile(r"^(?P<key>[^\s=!,()]+)\s*(?P<operator>==|=|!=)\s*(?P<value>[^\s=!,()]*)$")
_EXISTS = re.compile(r"^(?P<negated>!?)\s*(?P<key>[^\s=!,()]+)$")
_COMMA = re.compile(r",(?![^()]*\))")
_FIELDS = {
    "": ("metadata.name", "metadata.namespace"),
    "resourceslices.resource.k8s.io": ("spec.nodeName", "spec.driver", "spec.pool.name"),
    "pods": ("spec.nodeName", "spec.schedulerName", "spec.serviceAccountName", "spec.restartPolicy", "status.phase"),
    "nodes": ("spec.unschedulable",),
    "events": (
        "involvedObject.kind",
        "involvedObject.name",
        "involvedObject.namespace",
        "involvedObject.uid",
        "reason",
        "type",
    ),
    "namespaces": ("status.phase",),
}


def selector(resource_id: str, labels: str, fields: str) -> Predicate | None:
    """Compile a label and a field selector into one test on plain objects; None if both are empty."""
    tests = [_labels(labels)] if labels.strip() else []
    if fields.strip():
        tests.append(_fields(resource_id, fields))
    if not tests:
        return None
    return lambda obj: all(test(obj) for test in tests)


def _labels(text: str) -> Predicate:
    tests = [_label(part.strip(), text) for part in _COMMA.split(text)]

    def matches(obj: Mapping[str, Any]) -> bool:
        have = obj["metadata"].get("labels") or {}
        return all(test(have) for test in tests)

    return matches


def _label(part: str, text: str) -> LabelTest:
    if found := _SET.match(part):
        key, values = found["key"], frozenset(value.strip() for value in found["values"].split(","))
        if found["operator"] == "in":
            return lambda have: have.get(key) in values
        return lambda have: have.get(key) not in values
    if found := _EQUAL.match(part):
        key, value = found["key"], found["value"]
        if found["operator"] == "!=":
            return lambda have: have.get(key) != value
        return lambda have: have.get(key) == value
    if found := _EXISTS.match(part):
        key, wanted = found["key"], not found["negated"]
        return lambda have: (key in have) == wanted
    raise BadRequest(f"unable to parse label selector {text!r} at {part!r}")


def _fields(resource_id: str, text: str) -> Predicate:
    tests = [_field(resource_id, part.strip(), text) for part in text.split(",")]
    return lambda obj: all(test(obj) for test in tests)


def _field(resource_id: str, part: str, text: str) -> Predicate:
    found = _EQUAL.match(part)
    if not found:
        raise BadRequest(f"unable to parse field selector {text!r} at {part!r}")
    path, value, equal = found["key"], found["value"], found["operator"] != "!="
    if path not in _FIELDS[""] and path not in _FIELDS.get(resource_id, ()):
        raise BadRequest(f"field label not supported: {path} (of {resource_id})")
    names = path.split(".")

    def matches(obj: Mapping[str, Any]) -> bool:
        have: Any = obj
        for name in names:
            have = have.get(name) if isinstance(have, dict) else None
        text = str(have).lower() if isinstance(have, bool) else str(have or "")
        return (text == value) == equal

    return matches
