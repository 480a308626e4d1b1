"""Reads YAML exactly as kubectl does.

libyaml parses; the values are built here, because scalars must be resolved as go.yaml.in/yaml/v2 does for sigs.k8s.io/yaml (resolve.go,
decode.go): YAML 1.1 booleans, octal and binary integers, no sexagesimals, dates as strings; a later merge overrides an earlier key, a later
key an earlier one. This module reads one document at a time; `cluster.manifests.documents` splits the files.
"""

from __future__ import annotations

import re
import struct
from base64 import b64decode
from contextlib import suppress
from decimal import Decimal
from functools import lru_cache
from math import isinf, isnan
from typing import TYPE_CHECKING, Any, Final

from yaml._yaml import CParser
from yaml.error import MarkedYAMLError, YAMLError
from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)
from yaml.reader import ReaderError

from dra.pointer import escape
from dra.wire import copied

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    _Each = Callable[[Any], Any] | None

MAX_DEPTH: Final = 256
_OF_DOCUMENT: Final = 2  # the depth of a list that is a member of the document itself

_TAG: Final = "tag:yaml.org,2002:"
_RESOLVED: Final = frozenset(_TAG + kind for kind in ("str", "bool", "int", "float", "null", "timestamp"))

_WORDS: Final[dict[str, bool | float | None]] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
}
_NUMERIC: Final = frozenset("0123456789+-.")
_INTEGER: Final = re.compile(r"([-+]?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|0[oO]?([0-7]+)|(0|[1-9][0-9]*))")
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]++|[0-9]++(?:\.[0-9]*+)?)(?:[eE][-+]?[0-9]++)?")
_LONGEST: Final = 70  # no 64-bit number has more digits in any base; Python refuses numbers with thousands of digits
_FRACTION: Final = re.compile(r"\.[0-9](?:_?[0-9])*(?:[eE][-+]?[0-9](?:_?[0-9])*)?")
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt ][0-9]{1,2}:[0-9]{1,2}:[0-9]{1,2}.*)?")

# goyaml refuses a document with too large a share of aliases: more than 99 % if the document takes at most the first number of decode
# steps, more than 10 % from the second number on, and a share in between otherwise.
_ALIASING_LOW, _ALIASING_HIGH = 400_000, 4_000_000


class YamlError(Exception):
    """The text is not YAML, or not a manifest's YAML. Line and column count from 1."""

    def __init__(self, message: str, line: int, column: int = 1) -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.column = column


class DepthError(YamlError):
    """The text is nested deeper than any object of Kubernetes."""


def load(text: bytes, first_line: int = 1, each: _Each = None) -> tuple[Any, tuple[tuple[str, int], ...]]:
    """Read one document: its value, and the duplicate keys with their lines (the later one counts).

    An empty document yields None. `first_line` is the line of the file at which the text begins. `each` reduces every item of a list that
    is a member of the document itself, before the next is read.
    """
    builder = _YamlBuilder(text, first_line, each)
    return builder.document(), tuple(builder.duplicates)


def load_like_kustomize(text: bytes) -> Any:
    """Read one document as kustomize does: `on`, `off`, `yes`, `no`, `y` and `n` are texts."""
    return _KustomizeBuilder(text, 1).document()


def positions(text: bytes, first_line: int = 1) -> dict[str, tuple[int, int]]:
    """Return the line and column of every JSON pointer of a document that `load` accepts; a member has the position of its key."""
    by_pointer: dict[str, tuple[int, int]] = {}
    try:
        for pointer, line, column in _walk(CParser(text)):
            by_pointer[pointer] = (line + first_line, column + 1)
    except YAMLError:
        pass  # JSON that is not YAML, such as escaped surrogates: the positions up to there are valid
    return by_pointer


def begin(text: bytes, first_line: int = 1) -> tuple[int, int]:
    """Return the line and column at which the value of a document begins, as `positions` does, and parse no further."""
    with suppress(YAMLError):
        for _, line, column in _walk(CParser(text)):
            return line + first_line, column + 1
    return first_line, 1


def resolve(text: str) -> Any:
    return _remembered(text) if len(text) <= _LONGEST else _resolve(text)


def _resolve(text: str) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _NUMERIC:
        return text
    number = _number(text)
    return text if number is None else number


# Only short texts are cached, so that the number of entries bounds the memory: a manifest may contain texts of megabytes.
_remembered = lru_cache(maxsize=8192)(_resolve)


def _number(text: str) -> int | float | None:
    plain = text.replace("_", "")
    if text[0] == ".":
        # Here underscores must be between digits, elsewhere they may be anywhere.
        return _float(plain) if _FRACTION.fullmatch(text) else None
    match = _INTEGER.fullmatch(plain)
    if match is None:
        return _float(plain)
    sign, *written = match.groups()
    digits, base = "", 10
    for group, its_base in zip(written, (16, 2, 8, 10), strict=True):
        if group is not None:
            digits, base = group, its_base
            break
    if len(digits) > _LONGEST:
        return _float(plain)
    value = int(digits, base)
    if sign == "-":
        value = -value
    most = 2**63 if sign else 2**64
    if -(2**63) <= value < most:
        return value
    return _float(plain)


def _float(text: str) -> float | None:
    if not _FLOAT.fullmatch(text):
        return None
    value = float(text)
    if value in (float("inf"), float("-inf")):
        return None  # strconv.ParseFloat: out of range, so it stays a string
    return value


def _key(value: Any) -> str | None:
    """Return the text of a mapping key; None if the value cannot be a key."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value) if value < 2**63 else None
    if isinstance(value, float):
        return _float32(value)
    return None


def _nearest_float32(value: float) -> float:
    (target,) = struct.unpack("f", struct.pack("f", value))
    return float(target)


def _float32(value: float) -> str:
    """Print as strconv.FormatFloat(value, 'g', -1, 32): the shortest digits that a float32 needs."""
    if isnan(value):
        return ".nan"
    infinite = ".inf" if value > 0 else "-.inf"
    if isinf(value):
        return infinite
    try:
        target = _nearest_float32(value)
    except OverflowError:
        return infinite
    if isinf(target):  # some machines round values that are too large, others refuse them
        return infinite
    shown = (f"{target:.{decimals}e}" for decimals in range(9))
    text = next(text for text in shown if _nearest_float32(float(text)) == target)
    mantissa, _, exponent = text.partition("e")
    power = int(exponent)
    if -4 <= power < 6:
        digits = mantissa.strip("-").replace(".", "")
        decimals = len(digits) - 1 - power
        return f"{float(text):.{max(0, decimals)}f}"
    return f"{mantissa}e{'-' if power < 0 else '+'}{abs(power):02}"


class _YamlBuilder:
    """Turns the events of one document into a value, and counts what goyaml counts."""

    def __init__(self, text: bytes, first_line: int, each: _Each = None) -> None:
        self.duplicates: list[tuple[str, int]] = []
        # The type stubs have only one general type of events. The code below checks the kind of each event.
        self._next: Callable[[], Any] = CParser(text).get_event
        self._text = text
        self._first_line = first_line
        self._each = each
        # Anchored values with the number of decode steps they cost; None while the value is still open.
        self._anchors: dict[str, tuple[Any, int] | None] = {}
        self._decoded = 0
        self._aliased = 0

    def document(self) -> Any:
        try:
            self._next()  # start of the stream
            if type(self._next()) is not DocumentStartEvent:
                return None
            value = self._value(self._next(), 0)
            self._next()  # the document ends
            event = self._next()
        except MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            problem = error.problem or "cannot be parsed"
            message = f"{problem} {error.context}" if error.context else problem
            line, column = (mark.line, mark.column) if mark is not None else (0, 0)
            raise YamlError(message, line + self._first_line, column + 1) from error
        except ReaderError as error:
            # A character that YAML does not allow, at the parser's offset.
            before = self._text[: error.position]
            line, column = before.count(b"\n"), len(before) - before.rfind(b"\n")
            message = f"{error.reason} (U+{error.character:04X})"
            raise YamlError(message, line + self._first_line, column) from error
        except YAMLError as error:
            raise YamlError(str(error), self._first_line) from error
        if type(event) is not StreamEndEvent:
            raise self._error(
                event, "kubectl ignores what follows a line of `...`: begin the next document with a line of `---`"
            )
        return value

    def _value(self, event: Any, depth: int) -> Any:
        kind = type(event)
        self._decoded += 1
        if kind is ScalarEvent:
            value = self._scalar(event)
            if event.anchor is not None:
                self._anchors[event.anchor] = (value, 1)
            return value
        if kind is AliasEvent:
            return self._alias(event)
        if depth > MAX_DEPTH:
            message = f"nested deeper than {MAX_DEPTH} levels: no object of Kubernetes is"
            raise DepthError(message, event.start_mark.line + self._first_line, event.start_mark.column + 1)
        if event.anchor is None:
            return self._mapping(depth + 1) if kind is MappingStartEvent else self._sequence(depth + 1)
        self._anchors[event.anchor] = None
        before = self._decoded
        value = self._mapping(depth + 1) if kind is MappingStartEvent else self._sequence(depth + 1)
        self._anchors[event.anchor] = (value, 1 + self._decoded - before)
        return value

    def _sequence(self, depth: int) -> list[Any]:
        items: list[Any] = []
        keep = self._each if depth == _OF_DOCUMENT else None
        while type(event := self._next()) is not SequenceEndEvent:
            item = self._value(event, depth)
            items.append(keep(item) if keep else item)
        return items

    def _mapping(self, depth: int) -> dict[str, Any]:
        members: dict[str, Any] = {}
        merged: set[str] = set()
        following, value = self._next, self._value
        while type(event := following()) is not MappingEndEvent:
            if type(event) is ScalarEvent:
                text = event.value
                if text == "<<" and (event.implicit[0] or event.tag == _TAG + "merge"):
                    merged.update(self._merge(members, depth))
                    continue
                if event.tag is None:
                    plain = resolve(text) if event.implicit[0] else text
                    name = plain if type(plain) is str else _key(plain)
                else:
                    name = _key(self._scalar(event, key=True))
                self._decoded += 1
                if event.anchor is not None:
                    self._anchors[event.anchor] = (self._scalar(event), 1)
            else:
                name = _key(value(event, depth))
            if name is None:
                raise self._error(event, "the key of a mapping must be a text, a number or a boolean: quote it")
            if name in members:
                if name not in merged:
                    self.duplicates.append((name, event.start_mark.line + self._first_line))
                merged.discard(name)
            members[name] = value(following(), depth)
        return members

    def _merge(self, members: dict[str, Any], depth: int) -> set[str]:
        """Merge the mappings that `<<` names into the members. They replace existing members, as in goyaml."""
        event = self._next()
        value = self._value(event, depth)
        parts = value if type(event) is SequenceStartEvent else [value]
        if not all(isinstance(part, dict) for part in parts):
            raise self._error(event, "`<<` merges a mapping or a list of mappings, nothing else")
        names: set[str] = set()
        for part in reversed(parts):
            members.update(part)
            names.update(part)
        return names

    def _scalar(self, event: Any, *, key: bool = False) -> Any:
        tag = event.tag
        if tag is None:
            value = resolve(event.value) if event.implicit[0] else event.value
        elif tag == _TAG + "binary":
            coded = event.value.replace("\n", "").replace("\r", "")
            try:
                return b64decode(coded, validate=True).decode(errors="replace")
            except ValueError as error:
                raise self._error(event, "!!binary value contains invalid base64 data: leave the tag out") from error
        elif tag not in _RESOLVED:
            return event.value
        else:
            # One of YAML's own tags, which the value must match.
            text, kind = event.value, tag.removeprefix(_TAG)
            if kind == "str" or (kind == "timestamp" and _DATE.fullmatch(text)):
                return text
            value = resolve(text)
            own_kind = {bool: "bool", int: "int", float: "float", type(None): "null"}.get(type(value), "str")
            if kind == "float" and own_kind == "int" and value < 2**63:
                value = float(value)
            elif kind != own_kind:
                raise self._error(event, f"cannot decode !!{own_kind} as a !!{kind}: quote it or leave the tag out")
        if type(value) is not float or key:
            return value
        if value - value != 0:  # infinity or not a number
            raise self._error(event, "JSON has no infinity or not-a-number: quote the value if it is meant as text")
        # Go prints integral floats below 1e21 without a point: the shortest digits of the float, padded with zeros.
        return int(Decimal(repr(value))) if value.is_integer() and abs(value) < 1e21 else value

    def _alias(self, event: Any) -> Any:
        name = event.anchor
        if name not in self._anchors:
            raise self._error(event, "unknown anchor referenced: define it with & before, or quote the value")
        anchored = self._anchors[name]
        if anchored is None:
            raise self._error(event, "the value of an anchor contains itself")
        value, steps = anchored
        self._decoded += steps
        self._aliased += steps
        large = (self._decoded - _ALIASING_LOW) / (_ALIASING_HIGH - _ALIASING_LOW)
        share = 0.99 - 0.89 * min(max(large, 0.0), 1.0)
        if self._aliased > 100 and self._decoded > 1000 and self._aliased > self._decoded * share:
            raise self._error(event, "document contains excessive aliasing: write the repeated parts out")
        return copied(value)

    def _error(self, event: Any, message: str) -> YamlError:
        return YamlError(message, event.start_mark.line + self._first_line, event.start_mark.column + 1)


class _KustomizeBuilder(_YamlBuilder):
    def _scalar(self, event: Any, *, key: bool = False) -> Any:
        value = super()._scalar(event, key=key)
        is_word = isinstance(value, bool) and event.tag is None and event.value.lower() not in ("true", "false")
        return event.value if is_word else value


def _walk(parser: CParser) -> Iterator[tuple[str, int, int]]:
    """Yield the pointer and position of each value of the first document, parents before children."""
    # One entry for each open collection: its pointer, and the next index of a list or None for a mapping.
    opened: list[tuple[str, int | None]] = []
    key: Any = None
    following: Callable[[], Any] = parser.get_event
    while type(event := following()) is not StreamEndEvent:
        kind = type(event)
        if kind is MappingEndEvent or kind is SequenceEndEvent:
            if not opened:
                return
            opened.pop()
            key = None
            continue
        if kind not in (ScalarEvent, AliasEvent, MappingStartEvent, SequenceStartEvent):
            continue
        mark = event.start_mark
        if not opened:
            pointer = ""
        else:
            parent, index = opened[-1]
            if index is not None:
                opened[-1] = (parent, index + 1)
                pointer = f"{parent}/{index}"
            elif key is None:
                key = event
                if kind is not ScalarEvent:
                    return  # a collection or an alias as a key ends the walk
                continue
            else:
                mark = key.start_mark
                pointer = f"{parent}/{escape(key.value)}"
                key = None
        yield pointer, mark.line, mark.column
        if kind is MappingStartEvent:
            opened.append((pointer, None))
        elif kind is SequenceStartEvent:
            opened.append((pointer, 0))
