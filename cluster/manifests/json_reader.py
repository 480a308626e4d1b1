"""JSON text becomes values: one object, or a stream of them, as `kubectl -f` takes them.

Quick for the usual single object; the slow way is for streams, for errors with a place, and for keys given twice.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from cluster.manifests.yaml_reader import MAX_DEPTH

if TYPE_CHECKING:
    from collections.abc import Iterator

REMEDY: Final = "look for a missing or surplus comma, quote or bracket just before"
_BLANKS: Final = re.compile(r"\s*")
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")

Value = tuple[Any, bytes, int]  # a value, its text, and the line at which that begins


class JsonError(Exception):
    """The text is not a stream of JSON values. Line and column count from 1; 0 is nowhere in particular."""

    def __init__(self, message: str, line: int = 0, column: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.column = column


def stream(data: bytes, most: int = 1) -> list[Value] | JsonError:
    """Read one value after the other, up to one more than `most`; give the error if the text is not JSON, for it may be YAML's flow style."""
    try:
        value = msgspec.json.decode(data)
    except UnicodeDecodeError:
        return JsonError("not UTF-8")
    except msgspec.DecodeError:
        return _slowly(data.decode(), most)
    except RecursionError:
        return JsonError("nested too deeply")
    return JsonError("nested too deeply") if _is_deep(value) else [(value, data, 1)]


class _Listed(msgspec.Struct):
    """A List as `kubectl get -o json` writes it, its items still as they are written."""

    kind: str
    items: list[msgspec.Raw]


def items(data: bytes) -> Iterator[Any] | None:
    """Read the items of a List one after the other, so that a caller that keeps little of each needs little memory; None for anything else."""
    try:
        listed = msgspec.json.decode(data, type=_Listed)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None
    if listed.kind != "List":
        return None
    # What is wrong with an item is given in its place.
    readings = (stream(bytes(text)) for text in listed.items)
    return (read if isinstance(read, JsonError) else read[0][0] for read in readings)


def _slowly(text: str, most: int) -> list[Value] | JsonError:
    def no_constant(name: str) -> None:
        raise ValueError(f"{name} is not JSON")

    decoder = json.JSONDecoder(parse_constant=no_constant)
    found: list[Value] = []
    at, line = 0, 1
    try:
        while at < len(text) and len(found) <= most:
            blanks = _BLANKS.match(text, at)
            start = blanks.end() if blanks is not None else at
            line += text.count("\n", at, start)
            if start == len(text):
                break
            value, at = decoder.raw_decode(text, start)
            if _is_deep(value):
                return JsonError("nested too deeply")
            if _SURROGATE.search(text, start, at):
                value = _mend(value)
            found.append((value, text[start:at].encode(), line))
            line += text.count("\n", start, at)
    except json.JSONDecodeError as error:
        return JsonError(f"not JSON: {error.msg[:1].lower()}{error.msg[1:]}", error.lineno, error.colno)
    except RecursionError:
        return JsonError("nested too deeply", line)
    except ValueError as error:
        # Python refuses to read numbers of thousands of digits, and says so in its own words.
        return JsonError("a number has thousands of digits" if "digits" in str(error) else f"not JSON: {error}", line)
    return found


def _mend(value: Any) -> Any:
    """Read half of a surrogate pair, which is not a character and cannot be written, as Go's decoder does: as U+FFFD."""
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
    """Find the keys that some object of the text gives twice; the later one counts."""
    names: list[str] = []

    def note(pairs: list[tuple[str, Any]]) -> None:
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                names.append(name)
            seen.add(name)

    json.loads(data, object_pairs_hook=note)
    return names


def _is_deep(value: Any) -> bool:
    """Say whether a value is nested deeper than any manifest, level by level and so at little cost."""
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
