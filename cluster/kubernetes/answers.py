"""Answers of an API server as values: a list's page, a watch's line. Pure, and the hot path of every informer.

Each answer is decoded in one pass as what it nearly always is. Only if that fails is it taken apart, so that one object
that is not what it should be is named (`Unreadable`) and the others arrive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from cluster.errors import Status, Unavailable, from_status
from cluster.kubernetes.members import elements, members
from cluster.protocol import ADDED, DELETED, MODIFIED, Bookmark, Change, Page, Unreadable
from cluster.resources import is_plain, key
from dra.wire import WireError, decode

if TYPE_CHECKING:
    from cluster.resources import Raw, Resource
    from dra.objects import ObjectMeta

T = TypeVar("T")
_INITIAL_END = "k8s.io/initial-events-end"
_QUOTED = 120
_LONGEST_PROBLEM = 500


class _ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _List(msgspec.Struct, Generic[T], frozen=True):
    # Both are demanded: any other JSON would pass for a collection that has become empty.
    metadata: _ListMeta
    items: tuple[T, ...] | None


class _Line(msgspec.Struct, Generic[T], frozen=True):
    type: str
    object: T


class _Meta(msgspec.Struct, frozen=True, rename="camel"):
    """Who an object is, read leniently: its other metadata may be what is broken."""

    name: str = ""
    namespace: str = ""
    resource_version: str = ""
    annotations: dict[str, str] = {}


class _OnlyMetadata(msgspec.Struct, frozen=True):
    metadata: _Meta = _Meta()


def one(data: bytes, resource: Resource[T]) -> T:
    """Read the answer to a get or a write."""
    try:
        found = decode(data, resource.type)
    except WireError as error:
        raise Unavailable(f"the answer is not a {resource.kind}: {error}") from error
    if not key(found)[1]:
        raise Unavailable(f"the answer is not a {resource.kind}: it has no name")
    return found


def page(data: bytes, resource: Resource[T]) -> Page[T]:
    """Read one page of a list."""
    try:
        found = decode(data, _list_of(resource.type))
    except WireError:
        return _item_by_item(data, resource)
    items = found.items or ()
    if is_plain(resource.type):
        for item in items:
            _name_type(resource, item)
    return Page(items, found.metadata.resource_version, found.metadata.continue_)


def line(data: bytes, resource: Resource[T]) -> Change[T] | Bookmark | Unreadable:
    """Read one line of a watch; an ERROR line is raised as the error it tells."""
    try:
        event = decode(data, _line_of(resource.type))
    except WireError as error:
        return _odd_line(data, resource, error)
    type_, obj = event.type, event.object
    if type_ in (ADDED, MODIFIED, DELETED):
        version = _version(obj)
        if version:
            return Change(type_, obj, version)
    return _odd_line(data, resource, None)


def _odd_line(data: bytes, resource: Resource[T], error: WireError | None) -> Bookmark | Unreadable:
    """A line that is not a change of an object we can read."""
    try:
        type_, body = _event(data)
        match type_:
            case "ERROR":
                raise from_status(decode(body, Status))
            case "BOOKMARK":
                meta = _meta(body)
                return Bookmark(meta.resource_version, initial_end=meta.annotations.get(_INITIAL_END) == "true")
            case "ADDED" | "MODIFIED" | "DELETED" if error is not None:
                return _unreadable(body, error, deleted=type_ == DELETED)
    except WireError as inner:
        error = inner
    quoted = data[:_QUOTED].decode("utf-8", "replace")
    why = error or "no type that is known, or an object without a version"
    raise Unavailable(f"a line of the watch of {resource.id} makes no sense ({why}): {quoted}")


def _event(data: bytes) -> tuple[str, bytes]:
    """The type of an event and its object as it stands, whatever stands in it."""
    try:
        event = decode(data, _Line[msgspec.Raw])
    except WireError as error:
        parts = members(data)
        if not {"type", "object"} <= parts.keys():
            raise error from None
        return decode(parts["type"], str), parts["object"]
    return event.type, bytes(event.object)


def _item_by_item(data: bytes, resource: Resource[T]) -> Page[T]:
    try:
        meta, raw = _collection(data)
    except WireError as error:
        raise Unavailable(f"the answer is not a list of {resource.id}: {error}") from error
    items: list[T] = []
    unreadable: list[Unreadable] = []
    for item in raw:
        try:
            items.append(decode(item, resource.type))
        except WireError as error:
            try:
                unreadable.append(_unreadable(item, error))
            except WireError:
                raise Unavailable(f"the answer is not a list of {resource.id}: {error}") from error
    if is_plain(resource.type):
        for one_ in items:
            _name_type(resource, one_)
    return Page(tuple(items), meta.resource_version, meta.continue_, tuple(unreadable))


def _collection(data: bytes) -> tuple[_ListMeta, list[bytes]]:
    """The head of a list and its items as they stand, whatever stands in them."""
    try:
        found = decode(data, _List[msgspec.Raw])
    except WireError as error:
        parts = members(data)
        if not {"metadata", "items"} <= parts.keys():
            raise error from None
        meta = decode(parts["metadata"], _ListMeta)
        return meta, elements(parts["items"])
    return found.metadata, [bytes(item) for item in found.items or ()]


def _unreadable(data: bytes, error: WireError, *, deleted: bool = False) -> Unreadable:
    meta = _meta(data)
    problem = str(error)
    if len(problem) > _LONGEST_PROBLEM:
        problem = f"{problem[:_LONGEST_PROBLEM]}..."
    return Unreadable(meta.namespace, meta.name, meta.resource_version, problem, deleted)


def _meta(data: bytes) -> _Meta:
    """Who an object is, whatever the rest of it is."""
    try:
        return decode(data, _OnlyMetadata).metadata
    except WireError:
        meta = members(members(data).get("metadata", b"{}"))
        return _Meta(
            name=decode(meta.get("name", b'""'), str),
            namespace=decode(meta.get("namespace", b'""'), str),
            resource_version=decode(meta.get("resourceVersion", b'""'), str),
        )


def _name_type(resource: Resource[T], item: Any) -> None:
    """Items of a list do not say what they are; plain ones are told, so that they can stand alone."""
    item["apiVersion"], item["kind"] = resource.api_version, resource.kind


def _version(obj: Any) -> str:
    if isinstance(obj, dict):
        plain: Raw = obj.get("metadata") or {}
        return str(plain.get("resourceVersion") or "")
    meta: ObjectMeta = obj.metadata
    return meta.resource_version


# Making a generic alias costs as much as decoding a small object, so each is made once.
_LISTS: dict[type, Any] = {}
_LINES: dict[type, Any] = {}


def _list_of(type_: type[T]) -> type[_List[T]]:
    made: type[_List[T]] = _LISTS.get(type_) or _LISTS.setdefault(type_, _List[type_])  # type: ignore[valid-type]  # made at run time
    return made


def _line_of(type_: type[T]) -> type[_Line[T]]:
    made: type[_Line[T]] = _LINES.get(type_) or _LINES.setdefault(type_, _Line[type_])  # type: ignore[valid-type]  # made at run time
    return made
