"""The wire format of protocol buffers, as far as the kubelet's few messages need it.

A message is a frozen Struct, and the number of a field is its place in it: the kubelet's messages count their fields without gaps, so
the types say all that a .proto would. There are texts, whole numbers, truths, messages, lists of these and maps from texts to messages;
no floats and no packed lists, because none of the messages has any. As every reader of proto3 does, this one passes over what it does not know.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from dra.varint import varint

if TYPE_CHECKING:
    from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_LONGEST_VARINT = 10
_INT64 = 1 << 64
AnyMessage = TypeVar("AnyMessage", bound="Message")


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """Base of every message."""


class Passed(Message, frozen=True):
    """The place of a field that is neither read nor written."""


class MessageError(ValueError):
    """Bytes that are no message."""


class _Field(NamedTuple):
    """A field of a message: `many` is "", "list" or "map"; `optional` tells an empty text from none."""

    number: int
    name: str
    type: Any
    many: str = ""
    optional: bool = False


class _Piece(NamedTuple):
    """A field as it stands in bytes: a number, or what follows a length."""

    number: int
    value: int | bytes


def encode(message: Message) -> bytes:
    """Write a message. What is as it is by default takes no bytes, as proto3 has it."""
    written = bytearray()
    for field in _fields(type(message)):
        value = getattr(message, field.name)
        if field.many == "map":
            for key in sorted(value):
                entry = _one(1, key) + _one(2, value[key])
                written += _one(field.number, entry)
        elif field.many:
            for item in value:
                written += _one(field.number, item)
        elif value is not None and (value or field.optional):
            written += _one(field.number, value)
    return bytes(written)


def decode(data: bytes, type_: type[AnyMessage]) -> AnyMessage:
    """Read a message; MessageError if the bytes are none."""
    by_number = {field.number: field for field in _fields(type_)}
    values: dict[str, Any] = {}
    for part in _parts(data):
        field = by_number.get(part.number)
        if field is None:
            continue
        if field.many == "map":
            # An entry is a message whose first field is the key, and whose second is the value.
            key, value = "", field.type()
            for inner in _parts(_bytes(part)):
                if inner.number == 1:
                    key = _read(inner, str)
                elif inner.number == 2:
                    value = _read(inner, field.type)
            values.setdefault(field.name, {})[key] = value
        elif field.many:
            values.setdefault(field.name, []).append(_read(part, field.type))
        else:
            values[field.name] = _read(part, field.type)
    for field in by_number.values():
        if field.many == "list" and field.name in values:
            values[field.name] = tuple(values[field.name])
    return type_(**values)


def _one(number: int, value: Any) -> bytes:
    """Write one value with the key of its field."""
    if isinstance(value, bool | int):
        key = varint(number << 3 | VARINT)
        return key + varint(int(value) % _INT64)
    data: bytes = value
    if isinstance(value, Message):
        data = encode(value)
    elif isinstance(value, str):
        data = value.encode()
    key = varint(number << 3 | BYTES)
    return key + varint(len(data)) + data


def _read(part: _Piece, type_: Any) -> Any:
    if type_ is str:
        try:
            return _bytes(part).decode()
        except UnicodeDecodeError:
            raise MessageError(f"field {part.number} is not UTF-8") from None
    if type_ is bool or type_ is int:
        if not isinstance(part.value, int):
            raise MessageError(f"field {part.number} is not a number")
        signed = part.value - _INT64 if part.value >= _INT64 // 2 else part.value
        return type_(signed)
    return decode(_bytes(part), type_)


def _bytes(part: _Piece) -> bytes:
    if not isinstance(part.value, bytes):
        raise MessageError(f"field {part.number} is a number where bytes belong")
    return part.value


def _parts(data: bytes) -> Iterator[_Piece]:
    """Cut a message into its fields."""
    at = 0
    while at < len(data):
        key, at = _read_varint(data, at)
        number, kind = key >> 3, key & 7
        if number == 0:
            raise MessageError("a field has the number 0")
        if kind == VARINT:
            value, at = _read_varint(data, at)
            yield _Piece(number, value)
            continue
        if kind == BYTES:
            size, at = _read_varint(data, at)
        elif kind in (FIXED32, FIXED64):
            size = 4 if kind == FIXED32 else 8
        else:
            raise MessageError(f"wire type {kind} is not of proto3")
        if at + size > len(data):
            raise MessageError(f"field {number} is cut off")
        yield _Piece(number, data[at : at + size])
        at += size


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place in range(_LONGEST_VARINT):
        if at + place >= len(data):
            raise MessageError("a number is cut off")
        byte = data[at + place]
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value % _INT64, at + place + 1
    raise MessageError("a number has more than ten bytes")


@lru_cache(maxsize=64)
def _fields(type_: type[Message]) -> tuple[_Field, ...]:
    hints = get_type_hints(type_)
    found: list[_Field] = []
    for number, name in enumerate(type_.__struct_fields__, 1):
        hint = hints[name]
        parts = get_args(hint)
        if hint is Passed:
            continue
        if get_origin(hint) is tuple:
            field = _Field(number, name, parts[0], "list")
        elif get_origin(hint) is dict:
            field = _Field(number, name, parts[1], "map")
        elif type(None) in parts:
            field = _Field(number, name, parts[0], "", optional=True)
        else:
            field = _Field(number, name, hint)
        found.append(field)
    return tuple(found)
