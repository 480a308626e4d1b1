"""Responses of an API server as values: pages of lists and events of watches. This is the hot path of every informer.

Each response is decoded in one pass. If that fails, or if the resource has a `reduce`, the response is decoded object by object: a
malformed object is reported (`Unreadable`), and the other objects are returned.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from cluster.errors import ClusterError, Status, Unavailable, from_status
from cluster.protocol import ADDED, DELETED, MODIFIED, Bookmark, Change, ListPage, Unreadable
from cluster.resources import is_plain, key, version_of
from dra.wire import WireError, decode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster.resources import Resource

T = TypeVar("T")
_INITIAL_END = "k8s.io/initial-events-end"
_QUOTED = 120
_LONGEST_PROBLEM = 500
# An object in etcd is at most 1.5 MiB by default and rarely 8 MiB. A longer line does not come from an API server.
LONGEST_LINE = 16 * 1024 * 1024
# A complete string, or a structural character.
_TOKEN = re.compile(rb'"(?>[^"\\]++|\\.)*+"|[{}\[\],:]', re.DOTALL)


class _ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _ListAnswer(msgspec.Struct, Generic[T], frozen=True):
    # Both are required, because otherwise any JSON would be read as an empty collection.
    metadata: _ListMeta
    items: tuple[T, ...] | None


class _WatchLine(msgspec.Struct, Generic[T], frozen=True):
    type: str
    object: T


# A generic alias costs as much as decoding a small object, so each is created once.
_LISTS: dict[type, Any] = {}
_LINES: dict[type, Any] = {}


class _Meta(msgspec.Struct, frozen=True, rename="camel"):
    """The identity of an object, decoded leniently, because its other metadata may be malformed."""

    name: str = ""
    namespace: str = ""
    resource_version: str = ""
    annotations: dict[str, str] = {}


class _OnlyMetadata(msgspec.Struct, frozen=True):
    metadata: _Meta = _Meta()


def decode_object(data: bytes, resource: Resource[T]) -> T:
    try:
        obj = decode(data, resource.type)
    except WireError as error:
        raise Unavailable(f"the answer is not a {resource.kind}: {error}") from error
    is_stored = "/" not in resource.plural and not resource.kind.endswith("Review")
    if is_stored and not key(obj)[1]:  # the response of a subresource is a Status, and a review has no name
        raise Unavailable(f"the answer is not a {resource.kind}: it has no name")
    return obj


def page(data: bytes, resource: Resource[T]) -> ListPage[T]:
    type_ = resource.type
    unreadable: tuple[Unreadable, ...] = ()
    if resource.reduce is not None:
        meta, items, unreadable = _item_by_item(data, resource)
        return ListPage(items, meta.resource_version, meta.continue_, unreadable)
    try:
        answer: _ListAnswer[T] = decode(data, _LISTS.get(type_) or _LISTS.setdefault(type_, _ListAnswer[type_]))  # type: ignore[valid-type]
        meta, items = answer.metadata, answer.items or ()
        for item in items if is_plain(type_) else ():
            _name_kind(item, resource)
    except WireError:
        meta, items, unreadable = _item_by_item(data, resource)
    return ListPage(items, meta.resource_version, meta.continue_, unreadable)


def _name_kind(item: Any, resource: Resource[T]) -> None:
    """Set apiVersion and kind of a plain item, because the items of a list have neither."""
    item["apiVersion"], item["kind"] = resource.api_version, resource.kind


def line(data: bytes, resource: Resource[T]) -> Change[T] | Bookmark | Unreadable:
    """Decode one line of a watch; raise the error of an ERROR line."""
    type_ = resource.type
    try:
        event: _WatchLine[T] = decode(data, _LINES.get(type_) or _LINES.setdefault(type_, _WatchLine[type_]))  # type: ignore[valid-type]
    except WireError as error:
        return _odd_line(data, resource, error)
    if event.type in (ADDED, MODIFIED, DELETED):
        version = version_of(event.object)
        if version:
            return Change(event.type, event.object, version)
    return _odd_line(data, resource, None)


def _odd_line(data: bytes, resource: Resource[T], error: WireError | None) -> Bookmark | Unreadable:
    try:
        # The type of the event, and its object undecoded.
        try:
            event = decode(data, _WatchLine[msgspec.Raw])
            type_, body = event.type, bytes(event.object)
        except WireError as inner:
            parts = members(data)
            if not {"type", "object"} <= parts.keys():
                raise inner from None
            type_, body = decode(parts["type"], str), parts["object"]
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
    why = error or "its type is not known, or its object has no version"
    raise Unavailable(f"a line of the watch of {resource.id} is not valid ({why}): {quoted}")


def _item_by_item(data: bytes, resource: Resource[T]) -> tuple[_ListMeta, tuple[T, ...], tuple[Unreadable, ...]]:
    # The metadata of the list, and its items undecoded.
    try:
        try:
            answer = decode(data, _ListAnswer[msgspec.Raw])
            meta, raw = answer.metadata, [bytes(item) for item in answer.items or ()]
        except WireError as error:
            parts = members(data)
            if not {"metadata", "items"} <= parts.keys():
                raise error from None
            meta, raw = decode(parts["metadata"], _ListMeta), elements(parts["items"])
    except WireError as error:
        raise Unavailable(f"the answer is not a list of {resource.id}: {error}") from error
    items: list[T] = []
    unreadable: list[Unreadable] = []
    for item in raw:
        try:
            found_item: T | None = decode(item, resource.type)
        except WireError as error:
            try:
                unreadable.append(_unreadable(item, error))
            except WireError:
                raise Unavailable(f"the answer is not a list of {resource.id}: {error}") from error
            continue
        if is_plain(resource.type):
            _name_kind(found_item, resource)
        if resource.reduce is not None and found_item is not None:
            found_item = resource.reduce(found_item)
        if found_item is not None:
            items.append(found_item)
    return meta, tuple(items), tuple(unreadable)


def _unreadable(data: bytes, error: WireError, *, deleted: bool = False) -> Unreadable:
    meta = _meta(data)
    problem = str(error)
    if len(problem) > _LONGEST_PROBLEM:
        problem = f"{problem[:_LONGEST_PROBLEM]}..."
    return Unreadable(meta.namespace, meta.name, meta.resource_version, problem, deleted)


def _meta(data: bytes) -> _Meta:
    """Decode the identity of an object, even if the rest is malformed."""
    try:
        return decode(data, _OnlyMetadata).metadata
    except WireError:
        meta = members(members(data).get("metadata", b"{}"))
        return _Meta(
            name=decode(meta.get("name", b'""'), str),
            namespace=decode(meta.get("namespace", b'""'), str),
            resource_version=decode(meta.get("resourceVersion", b'""'), str),
        )


class Lines:
    """Splits bytes into lines, because a full ResourceSlice exceeds an HTTP library's limit for a line. Holds at most one unfinished line."""

    def __init__(self, longest: int = LONGEST_LINE) -> None:
        self._longest = longest
        self._pieces: list[bytes] = []
        self._size = 0

    @property
    def unfinished(self) -> int:
        return self._size

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        *whole, rest = chunk.split(b"\n")
        if whole:
            whole[0] = b"".join((*self._pieces, whole[0]))
            self._pieces.clear()
            self._size = 0
        if rest:
            self._pieces.append(rest)
            self._size += len(rest)
        yield from (document for document in whole if document and not document.isspace())
        if self._size > self._longest:
            raise Unavailable(
                f"a line of the watch exceeds {self._longest} bytes: this is not the watch of an API server"
            )


class Stream(Generic[T]):
    """Decodes the events of a watch from chunks of bytes, which may be cut anywhere; a state machine without I/O.

    `feed` returns the events that are complete before a failure. Once `failure` is set, the stream has ended.
    """

    def __init__(self, resource: Resource[T], *, longest: int = LONGEST_LINE) -> None:
        self._resource = resource
        self._lines = Lines(longest)
        self.failure: ClusterError | None = None

    def feed(self, chunk: bytes) -> list[Change[T] | Bookmark | Unreadable]:
        """Return the events that a chunk completes, up to the first failure."""
        events: list[Change[T] | Bookmark | Unreadable] = []
        if self.failure is not None:
            return events
        try:
            for data in self._lines.feed(chunk):
                events.append(line(data, self._resource))  # noqa: PERF401  the events before a failure must be kept
        except ClusterError as error:
            self.failure = error
        return events

    def end(self) -> None:
        """Handle the end of the response; an end in the middle of a line means that the connection broke."""
        if self._lines.unfinished and self.failure is None:
            self.failure = Unavailable(
                f"the watch of {self._resource.id} ended in the middle of a line ({self._lines.unfinished} bytes of it)"
            )


def members(data: bytes) -> dict[str, bytes]:
    """Return the members of a JSON object, with their values undecoded.

    The values are found by matching brackets, without recursion, for documents that a decoder refuses: an API server stores an
    object nested ten thousand levels deep, and sends it in a list with a thousand others. Much slower than a decoder.
    """
    parts: dict[str, bytes] = {}
    for part in json_parts(data, b"{", b"}"):
        quoted = _TOKEN.match(part)
        colon = part.find(b":", quoted.end()) if quoted is not None else -1
        if quoted is None or colon < 0:
            raise WireError("not JSON: a member without a name or a value")
        try:
            parts[msgspec.json.decode(quoted.group(), type=str)] = part[colon + 1 :].strip()
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise WireError(f"not JSON: {error}") from error
    return parts


def elements(data: bytes) -> list[bytes]:
    return list(json_parts(data, b"[", b"]"))


def json_parts(data: bytes, opening: bytes, closing: bytes) -> Iterator[bytes]:
    text = data.strip()
    if not (text.startswith(opening) and text.endswith(closing)):
        raise WireError(f"not JSON: expected {opening.decode()}...{closing.decode()}")
    depth = 0
    begin = 1
    for token in _TOKEN.finditer(text):
        match token.group():
            case b"{" | b"[":
                depth += 1
            case b"}" | b"]":
                depth -= 1
                if depth == 0 and token.end() != len(text):
                    raise WireError("not JSON: something follows the end")
            case b"," if depth == 1:
                yield text[begin : token.start()].strip()
                begin = token.end()
            case _:
                pass
    if depth:
        raise WireError("not JSON: it ends early")
    if last := text[begin:-1].strip():
        yield last
