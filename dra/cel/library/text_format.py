"""`"…".format([…])`: the clauses %s %d %f %e %b %x %X %o (cel-go ext/formatting.go)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from dra.cel.library.standard import to_string
from dra.cel.values import LARGEST_TEXT, Duration, Timestamp, TypeValue, Uint, Value, require_room, type_name
from dra.errors import SelectorRunError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_LARGEST_PRECISION = 1000
# Escapes in quoted strings.
ESCAPES = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    "\\": "\\\\",
    '"': '\\"',
}


class Clause(NamedTuple):
    """One `%` clause: its letter and, for %f and %e, the number of digits after the point."""

    letter: str
    precision: int


def clauses(template: str, arguments: int) -> Iterator[str | Clause]:
    """Split a template into texts and clauses; raise if there are more clauses than arguments."""
    position, argument_count = 0, 0
    while position < len(template):
        if template[position] != "%":
            end = template.find("%", position)
            end = len(template) if end < 0 else end
            yield template[position:end]
            position = end
            continue
        position += 1
        if template[position : position + 1] == "%":
            yield "%"
            position += 1
            continue
        if argument_count >= arguments:
            raise SelectorRunError(f"index {argument_count} out of range")
        argument_count += 1
        if position >= len(template):
            raise SelectorRunError("unexpected end of string")
        precision = 6
        if template[position] == ".":
            end = position + 1
            while end < len(template) and template[end] in "0123456789":
                end += 1
            if end >= len(template):
                raise SelectorRunError("could not parse formatting clause: could not find end of precision specifier")
            digits = template[position + 1 : end]
            if not digits or len(digits) > 18:
                raise SelectorRunError("could not parse formatting clause: error while converting precision to integer")
            precision, position = int(digits), end
        letter = template[position]
        if letter not in "sdfebxXo":
            raise SelectorRunError(f'could not parse formatting clause: unrecognized formatting clause "{letter}"')
        yield Clause(letter, precision)
        position += 1


def fill_in(template: str, values: list[Value]) -> str:
    """Replace the clauses of a template with values."""
    remaining = iter(values)
    parts = clauses(template, len(values))
    texts: list[str] = []
    length = 0
    for part in parts:
        texts.append(part if isinstance(part, str) else _CLAUSES[part.letter](next(remaining), part))
        length += len(texts[-1])
        require_room(length, LARGEST_TEXT)
    return "".join(texts)


def _fails(problem: str, value: Value) -> SelectorRunError:
    return SelectorRunError(f"error during formatting: {problem}, was given {type_name(value)}")


def _text(value: Value, _: Clause | None = None) -> str:
    kind = type(value)
    if kind is list:
        return f"[{', '.join(map(_quote, value))}]"
    if isinstance(value, dict):
        for key in value:
            if type(key) not in (str, bool, int, Uint):
                raise SelectorRunError(f"no formatting function for map key of type {type_name(key)}")
        entries = sorted((_quote(key), _quote(member)) for key, member in value.items())
        return f"{{{', '.join(f'{key}:{text}' for key, text in entries)}}}"
    if value is None:
        return "null"
    if kind in (int, Uint, float, bool, str, Timestamp, bytes, Duration, TypeValue):
        return to_string(value)
    raise _fails(
        "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps",
        value,
    )


def _quote(value: Value) -> str:
    """Format a member of a list or map."""
    kind = type(value)
    if kind is str:
        return _go_quote(value)
    if kind is bytes:
        return "b" + _go_quote(to_string(value))
    if kind is float:
        return f"{value:.6f}" if math.isfinite(value) else f'"{to_string(value)}"'
    if kind is Timestamp:
        return f'timestamp("{to_string(value)}")'
    if kind is Duration:
        return f'duration("{to_string(value)}")'
    return _text(value)


def _go_quote(text: str) -> str:
    """Quote a text as Go's %q does."""
    parts = []
    for char in text:
        if char in ESCAPES:
            parts.append(ESCAPES[char])
        elif char.isprintable():
            parts.append(char)
        else:
            code = ord(char)
            parts.append(f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}")
    return f'"{"".join(parts)}"'


def _whole(value: Value, base: str, problem: str) -> str:
    if type(value) in (int, Uint):
        return format(int(value), base)
    raise _fails(problem, value)


def _double(problem: str, value: Value) -> float:
    if type(value) is float:
        return value
    if type(value) is str and value in ("NaN", "Infinity", "-Infinity"):
        return float(value)
    raise _fails(f"{problem} clause can only be used on doubles", value)


def _special(value: float) -> str | None:
    if math.isnan(value):
        return "NaN"
    return None if math.isfinite(value) else "∞" if value > 0 else "-∞"


def _fixed_point(value: Value, clause: Clause) -> str:
    number = _double("fixed-point", value)
    special = _special(number)
    if special is not None:
        return special
    text = f"{abs(number):.{min(clause.precision, _LARGEST_PRECISION)}f}"
    whole, point, fraction = text.partition(".")
    sign = "-" if math.copysign(1.0, number) < 0 else ""
    grouped = f"{int(whole):,}" if len(whole) < 4000 else whole
    return sign + grouped + point + fraction


def _scientific(value: Value, clause: Clause) -> str:
    number = _double("scientific", value)
    special = _special(number)
    if special is not None:
        return special
    mantissa, _, exponent = f"{number:.{min(clause.precision, _LARGEST_PRECISION)}e}".partition("e")
    exponent_digits = f"{int(exponent):03d}" if int(exponent) < 0 else f"{int(exponent):02d}"
    return f"{mantissa}\u202f×\u202f10{exponent_digits.translate(_SUPERSCRIPTS)}"


_SUPERSCRIPTS = str.maketrans("0123456789-+", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺")


def _hexadecimal(value: Value, clause: Clause) -> str:
    if type(value) in (str, bytes):
        text = (value if type(value) is bytes else value.encode()).hex()
    else:
        text = _whole(value, "x", "only integers, byte buffers, and strings can be formatted as hex")
    return text.upper() if clause.letter == "X" else text


_CLAUSES: dict[str, Callable[[Value, Clause], str]] = {
    "s": _text, "f": _fixed_point, "e": _scientific, "x": _hexadecimal, "X": _hexadecimal,
    "d": lambda value, _: _whole(value, "d", "decimal clause can only be used on integers"),
    "o": lambda value, _: _whole(value, "o", "octal clause can only be used on integers"),
    "b": lambda value, _: _whole(value + 0 if type(value) is bool else value, "b", "only integers and bools can be formatted as binary"),
}  # fmt: skip
