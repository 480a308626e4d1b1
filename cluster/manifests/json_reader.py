"""Reads JSON: one object, or a stream of objects, as `kubectl -f` accepts them.

A single object is read fast; the slow path is for streams, errors with a place, and duplicate keys.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from cluster.manifests.yaml_reader import MAX_DEPTH

if TYPE_CHECKING:
    from collections.abc import Iterator

REMEDY: Final = "look for a missing or surplus comma, quote or bracket just before this place"
_BLANKS: Final = re.compile(r"\s*")
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")

Value = tuple[Any, bytes, int]  # a value, its text, and the first line of the text


class JsonError(Exception):
    """The text is not a stream of JSON values. Line and column count from 1; 0 means unknown."""

    def __init__(self, message: str, line: int = 0, column: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.column = column


def stream(data: bytes, limit: int = 1) -> list[Value] | JsonError:
    """Read up to `limit` + 1 values; return the error if the text is not JSON, because it may be YAML in flow style."""
    try:
        value = msgspec.json.decode(data)
    except UnicodeDecodeError:
        return JsonError("not UTF-8")
    except msgspec.DecodeError:
        return _slowly(data.decode(), limit)
    except RecursionError:
        return JsonError("nested too deeply")
    brackets = data.count(b"{") + data.count(b"[")
    is_deep = brackets > MAX_DEPTH and _is_deep(value)
    return JsonError("nested too deeply") if is_deep else [(value, data, 1)]


class _Listed(msgspec.Struct):
    """A List as `kubectl get -o json` writes it, with its items undecoded."""

    kind: str
    items: list[msgspec.Raw]


def items(data: bytes) -> Iterator[Any] | None:
    """Return an iterator over the items of a List, to save memory; None for any other text."""
    try:
        listed = msgspec.json.decode(data, type=_Listed)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None
    if listed.kind != "List":
        return None
    # An item that cannot be read is replaced by its error.
    readings = (stream(bytes(text)) for text in listed.items)
    return (read if isinstance(read, JsonError) else read[0][0] for read in readings)


def _slowly(text: str, limit: int) -> list[Value] | JsonError:
    def no_constant(name: str) -> None:
        raise ValueError(f"{name} is not JSON")

    decoder = json.JSONDecoder(parse_constant=no_constant)
    values: list[Value] = []
    position, line = 0, 1
    try:
        while position < len(text) and len(values) <= limit:
            blanks = _BLANKS.match(text, position)
            start = blanks.end() if blanks is not None else position
            line += text.count("\n", position, start)
            if start == len(text):
                break
            value, position = decoder.raw_decode(text, start)
            if _is_deep(value):
                return JsonError("nested too deeply")
            if _SURROGATE.search(text, start, position):
                value = _mend(value)
            values.append((value, text[start:position].encode(), line))
            line += text.count("\n", start, position)
    except json.JSONDecodeError as error:
        return JsonError(f"not JSON: {error.msg[:1].lower()}{error.msg[1:]}", error.lineno, error.colno)
    except RecursionError:
        return JsonError("nested too deeply", line)
    except ValueError as error:
        # Python refuses numbers with thousands of digits with its own message.
        return JsonError("a number has thousands of digits" if "digits" in str(error) else f"not JSON: {error}", line)
    return values


def _mend(value: Any) -> Any:
    """Replace half of a surrogate pair, which cannot be encoded, by U+FFFD, as Go's decoder does."""
    match value:
        case str():
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        case list():
            return [_mend(member) for member in value]
        case dict():
            return {_mend(name): _mend(member) for name, member in value.items()}
        case _:
            return value


def duplicates(data: bytes) -> list[str]:
    """Find the duplicate keys of any object in the text; the later one counts."""
    names: list[str] = []

    def note(pairs: list[tuple[str, Any]]) -> None:
        member_names: set[str] = set()
        for name, _ in pairs:
            if name in member_names:
                names.append(name)
            member_names.add(name)

    json.loads(data, object_pairs_hook=note)
    return names


def _is_deep(value: Any) -> bool:
    """Whether a value is nested deeper than any manifest, checked level by level."""
    level = [value] if type(value) in (dict, list) else []
    for _ in range(MAX_DEPTH):
        level = [
            member
            for outer in level
            for member in (outer.values() if type(outer) is dict else outer)
            if type(member) in (dict, list)
        ]
        if not level:
            return False
    return True
