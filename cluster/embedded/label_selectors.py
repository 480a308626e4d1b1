"""Label and field selectors as the API server reads them from a query (apimachinery pkg/labels, pkg/fields), and views filtered by them.

Only the embedded store evaluates these selectors; a real server gets their text. The fields are those that API servers index and that we
use; any other field is refused, as by a server.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from cluster.errors import BadRequest
from cluster.protocol import ADDED, DELETED, MODIFIED, Change, Unreadable
from cluster.resources import Resource
from dra.wire import WireError

if TYPE_CHECKING:
    from cluster.embedded.store import StoredChange, StoredObject

T = TypeVar("T")
_LONGEST_PROBLEM = 500
LabelTest = Callable[[Mapping[str, str]], bool]
FieldTest = Callable[[Mapping[str, Any]], bool]

_SET = re.compile(r"^(?P<key>[^\s=!,()]+)\s+(?P<operator>in|notin)\s*\((?P<values>[^()]*)\)$")
_EQUAL = re.compile(r"^(?P<key>[^\s=!,()]+)\s*(?P<operator>==|=|!=)\s*(?P<value>[^\s=!,()]*)$")
_EXISTS = re.compile(r"^(?P<negated>!?)\s*(?P<key>[^\s=!,()]+)$")
_COMMA = re.compile(r",(?![^()]*\))")
_FIELDS = {
    "": ("metadata.name", "metadata.namespace"),
    "resourceslices.resource.k8s.io": ("spec.nodeName", "spec.driver"),
    "pods": ("spec.nodeName", "status.phase"),
    "events": ("involvedObject.kind", "involvedObject.name", "reason", "reportingComponent"),
}


class QuerySelector(msgspec.Struct, frozen=True):
    """A label and a field selector, compiled; None selects everything."""

    labels: LabelTest | None
    fields: FieldTest | None

    def matches(self, labels: Mapping[str, str], plain: Callable[[], Mapping[str, Any]]) -> bool:
        """Whether an object is selected; `plain` returns the whole object, and is called only for a field selector."""
        return (self.labels is None or self.labels(labels)) and (self.fields is None or self.fields(plain()))


def selector(resource_id: str, labels: str, fields: str) -> QuerySelector:
    field_tests = [_field(resource_id, part.strip(), fields) for part in fields.split(",")] if fields.strip() else []
    return QuerySelector(labels_test(labels), _every(field_tests) if field_tests else None)


def labels_test(text: str) -> LabelTest | None:
    """Compile a label selector; None if it selects everything."""
    if not text.strip():
        return None
    tests = [_label(part.strip(), text) for part in _COMMA.split(text)]
    return _every(tests)


def _every(tests: list[Callable[[T], bool]]) -> Callable[[T], bool]:
    return lambda value: all(test(value) for test in tests)


def _label(part: str, text: str) -> LabelTest:
    if match := _SET.match(part):
        key = match["key"]
        values = frozenset(map(str.strip, match["values"].split(",")))
        if match["operator"] == "in":
            return lambda have: have.get(key) in values
        return lambda have: have.get(key) not in values
    if match := _EQUAL.match(part):
        key = match["key"]
        value = match["value"]
        if match["operator"] == "!=":
            return lambda have: have.get(key) != value
        return lambda have: have.get(key) == value
    if match := _EXISTS.match(part):
        key = match["key"]
        expected = not match["negated"]
        return lambda have: (key in have) == expected
    raise BadRequest(f"unable to parse label selector {text!r} at {part!r}")


def _field(resource_id: str, part: str, text: str) -> FieldTest:
    match = _EQUAL.match(part)
    if not match:
        raise BadRequest(f"unable to parse field selector {text!r} at {part!r}")
    path = match["key"]
    value = match["value"]
    equal = match["operator"] != "!="
    if path not in _FIELDS[""] and path not in _FIELDS.get(resource_id, ()):
        raise BadRequest(f"field label not supported: {path} (of {resource_id})")
    names = path.split(".")

    def matches(obj: Mapping[str, Any]) -> bool:
        value_at: Any = obj
        for name in names:
            value_at = value_at.get(name) if isinstance(value_at, dict) else None
        return (str(value_at or "") == value) == equal

    return matches


class ReaderView(msgspec.Struct, Generic[T], frozen=True):
    """One reader's view of a resource: one namespace or all, filtered by a selector, as one type.

    An object that stops matching the selector is DELETED for this reader, and one that begins to match is ADDED, whatever changed in
    the store (k8s.io/apiserver pkg/storage/cacher).
    """

    resource: Resource[T]
    namespace: str | None
    selector: QuerySelector

    def has(self, record: StoredObject) -> bool:
        if self.namespace is not None and record.meta.namespace != self.namespace:
            return False
        return self.selector.matches(record.meta.labels, record.plain)

    def read(self, record: StoredObject) -> T | Unreadable:
        try:
            return record.read(self.resource.type)
        except WireError as error:
            meta = record.meta
            return Unreadable(meta.namespace, meta.name, str(record.version), str(error)[:_LONGEST_PROBLEM])

    def change(self, entry: StoredChange) -> Change[T] | Unreadable | None:
        """Convert a change in the store to this reader's event; None if the reader does not see the change."""
        record, previous = entry.record, entry.previous
        had = previous is not None and self.has(previous)
        has = entry.type != DELETED and self.has(record)
        type_ = MODIFIED
        if not had:
            type_ = ADDED
        if not has:
            type_ = DELETED
        if not had and not has:
            return None
        return self.event(type_, record, entry.version)

    def event(self, type_: str, record: StoredObject, version: int) -> Change[T] | Unreadable:
        read = self.read(record)
        if isinstance(read, Unreadable):
            return msgspec.structs.replace(read, deleted=type_ == DELETED)
        return Change(type_, read, str(version))
