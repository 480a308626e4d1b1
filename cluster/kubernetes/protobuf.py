"""Patches of claims in protobuf, which keep every other field byte for byte.

With a JSON patch the server encodes the whole object again: blanks in opaque parameters are dropped, `<` becomes an escape, and
server-side apply also changes numbers and the order of keys. The result differs from the stored object, so the server refuses (422)
the change of an immutable spec or allocation, even if the patch is for other fields. Protobuf preserves these bytes. This is not a general
encoder: it handles only the fields that we patch.

The field numbers are those of generated.proto in k8s.io/api/resource/v1, and in apimachinery pkg/apis/meta/v1 and pkg/runtime.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from cluster.errors import Conflict
from cluster.patch import Apply, Merge
from dra.protobuf import varint, wire_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cluster.errors import Invalid
    from cluster.patch import Patch
    from cluster.resources import Raw

    _Change = Callable[[list[bytes]], list[bytes]]  # all values of a field, before and after

CONTENT_TYPE = "application/vnd.kubernetes.protobuf"
# The server refuses a write that changes the bytes of these fields. To change statuses of other drivers' devices, a permission is needed.
_KEPT = {"spec", "status.allocation", "status.devices"}
_MAGIC = b"k8s\x00"
_OBJECT = 2  # the field of the envelope that has the object
_METADATA, _STATUS = 1, 3
_UID, _VERSION, _ANNOTATIONS, _FINALIZERS = 5, 6, 12, 14
_RESERVED_FOR, _DEVICES = 2, 4
_NAMED = {"name", "namespace", "uid", "resourceVersion"}
_Shape = Mapping[str, "tuple[int, _Shape | None]"]
_ENTRY: _Shape = {"key": (1, None), "value": (2, None)}
_CONSUMER: _Shape = {"apiGroup": (1, None), "resource": (3, None), "name": (4, None), "uid": (5, None)}
_TIME: _Shape = {"seconds": (1, None)}
_CONDITION: _Shape = {
    "type": (1, None),
    "status": (2, None),
    "observedGeneration": (3, None),
    "lastTransitionTime": (4, _TIME),
    "reason": (5, None),
    "message": (6, None),
}
_NETWORK: _Shape = {"interfaceName": (1, None), "ips": (2, None), "hardwareAddress": (3, None)}
_DEVICE: _Shape = {
    "driver": (1, None),
    "pool": (2, None),
    "device": (3, None),
    "conditions": (4, _CONDITION),
    "networkData": (6, _NETWORK),
    "shareID": (7, None),
}
_DEVICE_ID = ("driver", "pool", "device", "shareID")


class Unsuitable(Exception):  # noqa: N818  not a defect
    """A patch or response that this module cannot handle."""


def is_for(error: Invalid) -> bool:
    """Whether the server may have refused bytes that the patch does not contain."""
    fields = {cause.field for cause in error.causes}
    return bool(fields) and fields <= _KEPT


def patched(data: bytes, patch: Patch) -> bytes:
    """Apply a patch to a claim as the server sent it; raise Conflict if the patch is for another uid or version."""
    if not data.startswith(_MAGIC) or not isinstance(patch, Merge | Apply):
        raise Unsuitable
    try:
        return _MAGIC + _edited(data[len(_MAGIC) :], {_OBJECT: _single_change(lambda claim: _claim(claim, patch))})
    except (IndexError, KeyError, ValueError, AttributeError) as error:
        raise Unsuitable from error


def _claim(claim: bytes, patch: Merge | Apply) -> bytes:
    edits: dict[int, _Change] = {}
    for name, value in patch.body.items():
        match name, value:
            case "metadata", dict():
                edits[_METADATA] = _single_change(partial(_metadata, value))
            case "status", dict():
                match patch, [*value]:
                    case Merge(), ["reservedFor"]:
                        change = {_RESERVED_FOR: _all(value["reservedFor"], _CONSUMER)}
                    case Apply(), ["devices"]:
                        change = {_DEVICES: partial(_devices, value["devices"])}
                    case _:
                        raise Unsuitable
                edits[_STATUS] = _single_change(partial(_edited, edits=change))
            case "apiVersion" | "kind", _:
                continue
            case _:
                raise Unsuitable
    return _edited(claim, edits)


def _metadata(metadata: Raw, old: bytes) -> bytes:
    contents = {number: content for number, content, _ in _fields(old)}
    for name, number in (("uid", _UID), ("resourceVersion", _VERSION)):
        if metadata.get(name) and str(metadata[name]).encode() != contents.get(number):
            raise Conflict(f"Operation cannot be fulfilled on the claim: its {name} is not {metadata[name]} any more")
    edits: dict[int, _Change] = {}
    for name in metadata.keys() - _NAMED:
        value = metadata[name]
        match name:
            case "finalizers":
                edits[_FINALIZERS] = _all(value, None)
            case "annotations":
                edits[_ANNOTATIONS] = partial(_annotations, value)
            case _:
                raise Unsuitable
    return _edited(old, edits)


def _annotations(changes: Mapping[str, str | None], old: list[bytes]) -> list[bytes]:
    unchanged = [entry for entry in old if _text(entry, 1) not in changes]
    more = ({"key": key, "value": value} for key, value in changes.items() if value is not None)
    return [*unchanged, *(_encoded(entry, _ENTRY) for entry in more)]


def _devices(devices: list[Raw], old: list[bytes]) -> list[bytes]:
    """Replace the statuses of these devices; the statuses of all other devices are kept."""
    changed_ids = {tuple(device.get(name, "") for name in _DEVICE_ID) for device in devices}
    numbers = [_DEVICE[name][0] for name in _DEVICE_ID]
    unchanged = [device for device in old if tuple(_text(device, number) for number in numbers) not in changed_ids]
    return [*unchanged, *(_encoded(device, _DEVICE) for device in devices)]


# The encoding.


def _fields(message: bytes) -> list[tuple[int, bytes, bytes]]:
    """Return the number of each field, its content if it is length-delimited, and its bytes."""
    fields = wire_fields(message)
    return [(field.number, field.value if isinstance(field.value, bytes) else b"", field.whole) for field in fields]


def _field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def _edited(message: bytes, edits: Mapping[int, _Change]) -> bytes:
    """Change the values of some fields; all other fields are kept, in their order."""
    fields = _fields(message)
    encoded_fields = [whole for number, _, whole in fields if number not in edits]
    for number, change in edits.items():
        old = [content for other, content, _ in fields if other == number]
        encoded_fields += [_field(number, content) for content in change(old)]
    return b"".join(encoded_fields)


def _single_change(change: Callable[[bytes], bytes]) -> _Change:
    return lambda old: [change(b"".join(old))]


def _all(values: Iterable[Any] | None, shape: _Shape | None) -> _Change:
    return lambda _: [_content(value, shape) for value in values or ()]


def _content(value: Any, shape: _Shape | None) -> bytes:
    if shape is _TIME:
        value = {"seconds": int(datetime.fromisoformat(value).timestamp())}
    return str(value).encode() if shape is None else _encoded(value, shape)


def _encoded(value: Raw, shape: _Shape) -> bytes:
    encoded = b""
    for name, member in value.items():
        number, inner = shape[name]
        for item in member if isinstance(member, list) else [member]:
            encoded += (
                varint(number << 3) + varint(item) if isinstance(item, int) else _field(number, _content(item, inner))
            )
    return encoded


def _text(message: bytes, number: int) -> str:
    contents = [content for other, content, _ in _fields(message) if other == number]
    return contents[-1].decode() if contents else ""
