"""JSON taken apart one level at a time, without recursion and without being understood. Pure.

For documents that a decoder gives up on: an API server stores an object nested ten thousand levels deep (opaque
parameters of a claim, say) and sends it in a list with a thousand others. Here such an object is cut out by its
brackets, so that it can be named and the others read. Slower than a decoder by far, and only used where one failed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from dra.wire import WireError

if TYPE_CHECKING:
    from collections.abc import Iterator

# A string as a whole, or one of the characters that give a document its shape.
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[{}\[\],:]', re.DOTALL)


def members(data: bytes) -> dict[str, bytes]:
    """The members of a JSON object, their values as they stand."""
    found: dict[str, bytes] = {}
    for part in _parts(data, b"{", b"}"):
        quoted = _TOKEN.match(part)
        colon = part.find(b":", quoted.end()) if quoted is not None else -1
        if quoted is None or colon < 0:
            raise WireError("not JSON: a member without a name or a value")
        try:
            found[msgspec.json.decode(quoted.group(), type=str)] = part[colon + 1 :].strip()
        except msgspec.DecodeError as error:
            raise WireError(f"not JSON: {error}") from error
    return found


def elements(data: bytes) -> list[bytes]:
    """The elements of a JSON array as they stand."""
    return list(_parts(data, b"[", b"]"))


def _parts(data: bytes, opening: bytes, closing: bytes) -> Iterator[bytes]:
    """What stands between the commas of the outermost brackets."""
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
