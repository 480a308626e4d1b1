"""Strings: the standard functions and version 2 of the extension (cel-go common/types/string.go, ext/strings.go)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dra.cel.library.text_format import ESCAPES, fill_in
from dra.cel.signatures import Overload, method, over
from dra.cel.types import BOOL, DYN, INT, STRING, list_of
from dra.cel.values import LARGEST_TEXT, require_room, type_name
from dra.errors import SelectorRunError

if TYPE_CHECKING:
    from dra.cel.values import Value

_UPPER = str.maketrans("abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_LOWER = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")
# Go's unicode.IsSpace; Python's str.strip removes a few more control characters.
_BLANKS = "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
_QUOTES = str.maketrans(ESCAPES)


def _out_of_range(position: int) -> SelectorRunError:
    return SelectorRunError(f"index out of range: {position}")


def _char_at(text: str, position: int) -> str:
    if not 0 <= position <= len(text):
        raise _out_of_range(position)
    return text[position : position + 1]


def _index_of(text: str, part: str, start: int = 0) -> int:
    if start < 0:
        raise _out_of_range(start)
    if not part:
        return min(start, len(text))
    return text.find(part, start)


def _last_index_of(text: str, part: str, start: int | None = None) -> int:
    if start is None:
        return text.rfind(part)
    if start < 0:
        raise _out_of_range(start)
    if not part:
        return min(start, len(text))
    if start >= len(text):
        return -1
    return text.rfind(part, 0, start + len(part))


def _replace(text: str, old: str, new: str, count: int = -1) -> str:
    replaced = text.count(old)
    if count >= 0:
        replaced = min(replaced, count)
    require_room(len(text) + replaced * (len(new) - len(old)), LARGEST_TEXT)
    return text.replace(old, new, max(count, -1))


def _split(text: str, separator: str, count: int = -1) -> list[Value]:
    if count == 0:
        return []
    if separator:
        cuts = count - 1 if count > 0 else -1
        return list(text.split(separator, cuts))
    if count < 0 or count > len(text):
        return list(text)
    if not text:
        return []
    splits = count - 1
    return [*text[:splits], text[splits:]]


def _substring(text: str, start: int, end: int | None = None) -> str:
    if end is not None and start > end:
        raise SelectorRunError(f"invalid substring range. start: {start}, end: {end}")
    for position in (start, end):
        if position is not None and not 0 <= position <= len(text):
            raise _out_of_range(position)
    return text[start:end]


def _join(values: list[Value], separator: str = "") -> str:
    for value in values:
        if type(value) is not str:
            raise SelectorRunError(f"join: invalid input of type {type_name(value)}")
    require_room(sum(map(len, values)) + len(values) * len(separator), LARGEST_TEXT)
    return separator.join(values)


_TEXTS = list_of(STRING)

FUNCTIONS: tuple[Overload, ...] = (
    method("contains", "contains_string", (STRING, STRING), BOOL, lambda text, part: part in text),
    method("endsWith", "ends_with_string", (STRING, STRING), BOOL, str.endswith),
    method("startsWith", "starts_with_string", (STRING, STRING), BOOL, str.startswith),
    method("charAt", "string_char_at_int", (STRING, INT), STRING, _char_at),
    method("indexOf", "string_index_of_string", (STRING, STRING), INT, _index_of),
    method("indexOf", "string_index_of_string_int", (STRING, STRING, INT), INT, _index_of),
    method("lastIndexOf", "string_last_index_of_string", (STRING, STRING), INT, _last_index_of),
    method("lastIndexOf", "string_last_index_of_string_int", (STRING, STRING, INT), INT, _last_index_of),
    method("lowerAscii", "string_lower_ascii", (STRING,), STRING, lambda text: text.translate(_LOWER)),
    method("upperAscii", "string_upper_ascii", (STRING,), STRING, lambda text: text.translate(_UPPER)),
    method("replace", "string_replace_string_string", (STRING, STRING, STRING), STRING, _replace),
    method("replace", "string_replace_string_string_int", (STRING, STRING, STRING, INT), STRING, _replace),
    method("split", "string_split_string", (STRING, STRING), _TEXTS, _split),
    method("split", "string_split_string_int", (STRING, STRING, INT), _TEXTS, _split),
    method("substring", "string_substring_int", (STRING, INT), STRING, _substring),
    method("substring", "string_substring_int_int", (STRING, INT, INT), STRING, _substring),
    method("trim", "string_trim", (STRING,), STRING, lambda text: text.strip(_BLANKS)),
    method("format", "string_format", (STRING, list_of(DYN)), STRING, fill_in),
    over("strings.quote", "strings_quote", (STRING,), STRING, lambda text: f'"{text.translate(_QUOTES)}"'),
    method("join", "list_join", (_TEXTS,), STRING, _join),
    method("join", "list_join_string", (_TEXTS, STRING), STRING, _join),
)  # fmt: skip
