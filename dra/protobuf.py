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
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def wire_fields(message: bytes) -> Iterator[WireField]:
    """Split a message into its fields; raise ProtobufError if it is malformed."""
    position, length = 0, len(message)
    while position < length:
        field_start = position
        key, position = (
            (message[position], position + 1) if message[position] < 0x80 else _read_varint(message, position)
        )
        number, kind = key >> 3, key & 7
        if number == 0:
            raise ProtobufError("a field has the number 0")
        if kind == VARINT:
            value, position = _read_varint(message, position)
            yield WireField(number, value, message[field_start:position])
            continue
        if kind == BYTES:
            is_one_byte = position < length and message[position] < 0x80
            size, position = (message[position], position + 1) if is_one_byte else _read_varint(message, position)
        elif kind in (FIXED32, FIXED64):
            size = 4 if kind == FIXED32 else 8
        else:
            raise ProtobufError(f"wire type {kind} is not part of proto3")
        end = position + size
        if end > length:
            raise ProtobufError(f"field {number} is cut off")
        yield WireField(number, message[position:end], message[field_start:end])
        position = end


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    if position < len(data) and data[position] < 0x80:  # the common case
        return data[position], position + 1
    value = 0
    for index in range(_LONGEST_VARINT):
        if position + index >= len(data):
            raise ProtobufError("a varint is cut off")
        byte = data[position + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value % INT64, position + index + 1
    raise ProtobufError("a varint has more than ten bytes")
