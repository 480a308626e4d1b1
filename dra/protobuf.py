"""The wire format of protocol buffers: varints, and the undecoded fields of a message."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
INT64 = 1 << 64
_LONGEST_VARINT = 10


class ProtobufError(ValueError):
    """The bytes are not a valid message."""


class WireField(NamedTuple):
    """A field of a message: its number, its value (bytes if length-delimited), and its whole encoding."""

    number: int
    value: int | bytes
    whole: bytes


def varint(value: int) -> bytes:
    """Encode a non-negative number with seven bits in each byte, lowest first.

    The high bit means that more bytes follow.
    """
    written = bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)


def wire_fields(message: bytes) -> Iterator[WireField]:
    """Split a message into its fields; raise ProtobufError if it is malformed."""
    at, length = 0, len(message)
    while at < length:
        begin = at
        key, at = (message[at], at + 1) if message[at] < 0x80 else _read_varint(message, at)
        number, kind = key >> 3, key & 7
        if number == 0:
            raise ProtobufError("a field has the number 0")
        if kind == VARINT:
            value, at = _read_varint(message, at)
            yield WireField(number, value, message[begin:at])
            continue
        if kind == BYTES:
            short = at < length and message[at] < 0x80
            size, at = (message[at], at + 1) if short else _read_varint(message, at)
        elif kind in (FIXED32, FIXED64):
            size = 4 if kind == FIXED32 else 8
        else:
            raise ProtobufError(f"wire type {kind} is not part of proto3")
        end = at + size
        if end > length:
            raise ProtobufError(f"field {number} is cut off")
        yield WireField(number, message[at:end], message[begin:end])
        at = end


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    if at < len(data) and data[at] < 0x80:  # the common case
        return data[at], at + 1
    value = 0
    for index in range(_LONGEST_VARINT):
        if at + index >= len(data):
            raise ProtobufError("a varint is cut off")
        byte = data[at + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value % INT64, at + index + 1
    raise ProtobufError("a varint has more than ten bytes")
