"""The standard library: operators, sizes, conversions and optionals (cel-go common/stdlib, cel/library.go)."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from dra.cel.library.times import FIRST_SECOND, make_timestamp, parse_timestamp, timestamp_to_string
from dra.cel.signatures import Overload, method, over
from dra.cel.types import (
    BOOL,
    BYTES,
    CIDR,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    IP,
    NULL,
    STRING,
    TIMESTAMP,
    UINT,
    A,
    B,
    Type,
    list_of,
    map_of,
    optional_of,
    type_of,
)
from dra.cel.values import (
    INT_MAX,
    INT_MIN,
    LARGEST_LIST,
    MISSING,
    NONE,
    ORDERED,
    UINT_MAX,
    Duration,
    Optional,
    Sized,
    Timestamp,
    TypeValue,
    Uint,
    Value,
    as_key,
    compare,
    contains,
    find,
    keys_of,
    no_such_overload,
    require_room,
    type_name,
)
from dra.errors import NoSuchKey, SelectorRunError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_OVERFLOW = "integer overflow"


def int_in_range(value: int) -> int:
    """Return a signed integer, or raise if it does not fit in 64 bits."""
    if INT_MIN <= value <= INT_MAX:
        return value
    raise SelectorRunError(_OVERFLOW)


def _uint_in_range(value: int) -> Uint:
    if 0 <= value <= UINT_MAX:
        return Uint(value)
    raise SelectorRunError("unsigned integer overflow")


def add(left: Value, right: Value) -> Value:
    """`+` on numbers, strings, bytes, lists and times."""
    kind, other = type(left), type(right)
    if kind is other:
        if kind is int:
            return int_in_range(left + right)
        if kind is str or kind is float or kind is bytes:
            return left + right
        if kind is list:
            require_room(len(left) + len(right), LARGEST_LIST)
            return left + right
        if kind is Uint:
            return _uint_in_range(int(left) + int(right))
        if kind is Duration:
            return Duration(int_in_range(left.nanos + right.nanos))
    if kind is Timestamp and other is Duration:
        return make_timestamp(left.nanos + right.nanos, left.offset)
    if kind is Duration and other is Timestamp:
        return make_timestamp(left.nanos + right.nanos, right.offset)
    raise no_such_overload("_+_")


def subtract(left: Value, right: Value) -> Value:
    """`-` on numbers and times."""
    kind, other = type(left), type(right)
    if kind is other:
        if kind is int:
            return int_in_range(left - right)
        if kind is float:
            return left - right
        if kind is Uint:
            return _uint_in_range(int(left) - int(right))
        if kind is Duration:
            return Duration(int_in_range(left.nanos - right.nanos))
        if kind is Timestamp:
            return Duration(int_in_range(left.nanos - right.nanos))
    if kind is Timestamp and other is Duration:
        return make_timestamp(left.nanos - right.nanos, left.offset)
    raise no_such_overload("_-_")


def multiply(left: Value, right: Value) -> Value:
    """`*` on numbers of one kind."""
    kind = type(left)
    if kind is type(right):
        if kind is int:
            return int_in_range(left * right)
        if kind is float:
            return left * right
        if kind is Uint:
            return _uint_in_range(int(left) * int(right))
    raise no_such_overload("_*_")


def divide(left: Value, right: Value) -> Value:
    """`/`, towards zero for integers."""
    kind = type(left)
    if kind is type(right):
        if kind is float:
            if right != 0:
                return left / right
            if left == 0 or math.isnan(left):
                return math.nan
            return math.copysign(math.inf, left) * math.copysign(1.0, right)
        if kind is int or kind is Uint:
            if right == 0:
                raise SelectorRunError("division by zero")
            quotient = abs(left) // abs(right)
            if kind is Uint:
                return Uint(quotient)
            return int_in_range(quotient if (left < 0) == (right < 0) else -quotient)
    raise no_such_overload("_/_")


def modulo(left: Value, right: Value) -> Value:
    """`%` with the sign of the left side."""
    kind = type(left)
    if kind is type(right) and (kind is int or kind is Uint):
        if right == 0:
            raise SelectorRunError("modulus by zero")
        if left == INT_MIN and right == -1:
            raise SelectorRunError(_OVERFLOW)
        remainder = abs(left) % abs(right)
        return Uint(remainder) if kind is Uint else -remainder if left < 0 else remainder
    raise no_such_overload("_%_")


def negate(value: Value) -> Value:
    """Unary minus."""
    kind = type(value)
    if kind is int:
        return int_in_range(-value)
    if kind is float:
        return -value
    if kind is Duration:
        return Duration(int_in_range(-value.nanos))
    raise no_such_overload("-_")


def logical_not(value: Value) -> bool:
    """`!`."""
    if value is True or value is False:
        return not value
    raise no_such_overload("!_")


def index(container: Value, key: Value) -> Value:
    """`a[b]` and `a.b`: raise if there is no value."""
    value = find_at(container, key)
    if value is not MISSING:
        return value
    if type(container) is list:
        raise SelectorRunError(f"index out of bounds: {_show(key)}")
    raise NoSuchKey(_show(key))


def _show(key: Value) -> str:
    if type(key) is str or type(key) is int:
        return str(key)
    return str(key).lower() if type(key) is bool else f"a {type_name(key)}"


def find_at(container: Value, key: Value) -> Value:
    """Return the value at a key or index, or MISSING; raise if the key has the wrong type."""
    if type(container) is list:
        if type(key) is not int and type(key) is not Uint and not (type(key) is float and key.is_integer()):
            raise SelectorRunError(f"unsupported index type '{type_name(key)}' in list")
        position = int(key)
        return container[position] if 0 <= position < len(container) else MISSING
    if isinstance(container, dict):
        return find(container, key)
    return MISSING


def size_of(value: Value) -> int:
    """`size()`."""
    if type(value) in (str, list, dict, bytes) or isinstance(value, dict):
        return len(value)
    if isinstance(value, Sized) and value.type_name in ("net.IP", "net.CIDR"):
        return value.size
    raise no_such_overload("size")


# ---- Conversions -------------------------------------------------------------------------------------------------


def _fails(source: str, target: str) -> SelectorRunError:
    return SelectorRunError(f"type conversion error from '{source}' to '{target}'")


_INTEGER = "[+-]?[0-9]+"
_UNSIGNED = "[0-9]+"
# Possessive (`*+`), because two parts take digits and would otherwise backtrack.
_DOUBLE = r"(?i)[+-]?(?:[0-9]*+\.?+[0-9]*+(?:e[+-]?[0-9]++)?|inf|infinity|nan|0x(?P<hex>[0-9a-f]*+\.?+[0-9a-f]*+)p[+-]?[0-9]++)"


def _string_to_int(text: str) -> int:
    if re.fullmatch(_INTEGER, text) and len(text) < 4000 and INT_MIN <= int(text) <= INT_MAX:
        return int(text)
    raise _fails("string", "int")


def _string_to_uint(text: str) -> Uint:
    if re.fullmatch(_UNSIGNED, text) and len(text) < 4000 and int(text) <= UINT_MAX:
        return Uint(text)
    raise _fails("string", "uint")


def string_to_double(text: str) -> float:
    """Parse a double as Go's ParseFloat does."""
    match = re.fullmatch(_DOUBLE, text)
    try:
        if match is None:
            raise _fails("string", "double")
        value = float.fromhex(text) if match["hex"] is not None else float(text)
    except (ValueError, OverflowError):
        raise _fails("string", "double") from None
    if math.isinf(value) and "inf" not in text.lower():
        raise _fails("string", "double")
    return value


def _string_to_bool(text: str) -> bool:
    if text in ("1", "t", "T", "TRUE", "true", "True"):
        return True
    if text in ("0", "f", "F", "FALSE", "false", "False"):
        return False
    raise _fails("string", "bool")


def _double_to_int(value: float) -> int:
    # Go refuses the two ends of the int64 range, where doubles are imprecise.
    if math.isnan(value) or not -9223372036854775808.0 < value < 9223372036854775807.0:
        raise SelectorRunError(_OVERFLOW)
    return int(value)


def _double_to_uint(value: float) -> Uint:
    if math.isnan(value) or not 0 <= value < 18446744073709551615.0:
        raise SelectorRunError("unsigned integer overflow")
    return Uint(value)


def double_to_string(value: float) -> str:
    """Format a double as Go's %g: the shortest digits that parse to the same double, with an exponent from 1e+06 on."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    sign, digits, exponent = shortest_digits(value)
    if -4 <= exponent < 6:
        return sign + plain_decimal(digits, exponent)
    return f"{sign}{digits[0]}{'.' + digits[1:] if len(digits) > 1 else ''}e{exponent:+03d}"


def shortest_digits(value: float) -> tuple[str, str, int]:
    """Split a finite double into its sign, its shortest digits, and the power of ten of the first digit."""
    sign = ""
    if math.copysign(1.0, value) < 0:
        sign = "-"
    size = abs(value)
    candidates = (f"{size:.{precision}e}" for precision in range(17))
    shortest = next(text for text in candidates if float(text) == size)
    mantissa, _, exponent = shortest.partition("e")
    digits = mantissa.replace(".", "")
    return sign, digits, int(exponent)


def plain_decimal(digits: str, exponent: int) -> str:
    """Write `d.ddd × 10^exponent` without an exponent."""
    if exponent < 0:
        return "0." + "0" * (-exponent - 1) + digits
    whole = digits[: exponent + 1].ljust(exponent + 1, "0")
    fraction = digits[exponent + 1 :]
    return f"{whole}.{fraction}" if fraction else whole


def to_string(value: Value) -> str:
    """`string()`."""
    kind = type(value)
    if kind is str:
        return str(value)
    if kind is bool:
        return "true" if value else "false"
    if kind is int or kind is Uint:
        return str(int(value))
    if kind is float:
        return double_to_string(value)
    if kind is bytes:
        try:
            return str(value, "utf-8")
        except UnicodeDecodeError:
            raise SelectorRunError("invalid UTF-8 in bytes, cannot convert to string") from None
    if kind is Duration:
        return duration_to_string(value)
    if kind is Timestamp:
        return timestamp_to_string(value)
    if kind is TypeValue:
        return str(value.name)
    if isinstance(value, Sized) and value.type_name in ("net.IP", "net.CIDR"):
        return str(value)
    raise no_such_overload("string")


def duration_to_string(value: Duration) -> str:
    """Format a duration in seconds, in double precision."""
    whole, nanos = divmod(abs(value.nanos), 10**9)
    sign, digits, exponent = shortest_digits(whole + nanos / 1e9)
    return f"{'-' if value.nanos < 0 else sign}{plain_decimal(digits, exponent)}s"


_DURATION_PART = r"([0-9]*)(?:\.([0-9]*))?(ns|us|µs|μs|ms|s|m|h)"
_UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}


def string_to_duration(text: str) -> Duration:
    """Parse a duration as Go's ParseDuration does."""
    signed = text[:1] in ("+", "-")
    negative = text[:1] == "-"
    unsigned = text[1:] if signed else text
    if unsigned == "0":
        return Duration(0)
    read_part = re.compile(_DURATION_PART).match
    total = position = 0
    while position < len(unsigned):
        part = read_part(unsigned, position)
        if part is None:
            raise _fails("string", "google.protobuf.Duration")
        whole, digits, name = part.groups(default="")
        if not (whole or digits) or len(whole) > 30:
            raise _fails("string", "google.protobuf.Duration")
        unit = _UNITS[name]
        total += int(whole or 0) * unit
        fraction = digits[:18]
        if fraction:
            total += int(fraction) * unit // 10 ** len(fraction)
        position = part.end()
    if not unsigned or total > INT_MAX + negative:
        raise _fails("string", "google.protobuf.Duration")
    return Duration(-total if negative else total)


def _same(value: Value) -> Value:
    return value


def convert_type(value: Value) -> TypeValue:
    """`type()`."""
    return TypeValue(type_name(value))


# ---- Optionals ---------------------------------------------------------------------------------------------------


def _value(optional: Optional) -> Value:
    if not optional.present:
        raise SelectorRunError("optional.none() dereference")
    return optional.value


def _non_zero(value: Value) -> Optional:
    kind = type(value)
    zero = (
        value is None
        or (kind in (str, bytes, list, dict) and not value)
        or (kind in (int, Uint, float, bool) and value == 0)
        or (kind is Duration and value.nanos == 0)
        or (kind is Timestamp and value.nanos == FIRST_SECOND * 10**9)
    )
    return NONE if zero else Optional(value)


def _unwrap(values: list[Value]) -> list[Value]:
    for value in values:
        if type(value) is not Optional:
            raise SelectorRunError(f"a value of type {type_name(value)} is not optional")
    return [value.value for value in values if value.present]


def _map_insert(mapping: dict[Value, Value], *entry: Value) -> dict[Value, Value]:
    entries = [entry]
    if len(entry) == 1:
        (added,) = entry
        entries = list(zip(keys_of(added), added.values(), strict=True))
    # `mapping` is the accumulator of a macro. Nothing else references it, so it can be changed in place.
    for key, value in entries:
        if find(mapping, key) is not MISSING:
            raise SelectorRunError(f"insert failed: key {_show(key)} already exists")
        map_key = as_key(key)
        mapping[map_key] = value
    return mapping


# ---- Declarations ------------------------------------------------------------------------------------------------

_LIST_A, _MAP_AB = list_of(A), map_of(A, B)
_OPTIONAL_A, _OPTIONAL_B = optional_of(A), optional_of(B)
_COMPARED = ((BOOL, "bool"), (INT, "int64"), (UINT, "uint64"), (DOUBLE, "double"), (STRING, "string"), (BYTES, "bytes"),
             (TIMESTAMP, "timestamp"), (DURATION, "duration"))  # fmt: skip
_PRINTED = ((BOOL, "bool"), (BYTES, "bytes"), (DOUBLE, "double"), (DURATION, "duration"), (INT, "int64"), (TIMESTAMP, "timestamp"),
            (UINT, "uint64"), (IP, "ip"), (CIDR, "cidr"))  # fmt: skip
_CROSS = ((INT, DOUBLE), (INT, UINT), (UINT, DOUBLE), (UINT, INT), (DOUBLE, INT), (DOUBLE, UINT))


def _relations(symbol: str, word: str, holds: Callable[[int], bool]) -> Iterator[Overload]:
    def relation(left: Value, right: Value) -> bool:
        if type(left) not in ORDERED:
            raise no_such_overload(symbol)
        return holds(compare(left, right))

    for type_, name in _COMPARED:
        yield over(symbol, f"{word}_{name}", (type_, type_), BOOL, relation, total=True)
    for left, right in _CROSS:
        yield over(symbol, f"{word}_{left.name}_{right.name}", (left, right), BOOL, relation, total=True)


def _arithmetic(symbol: str, word: str, work: Callable[[Value, Value], Value], *types: Type) -> tuple[Overload, ...]:
    return tuple(over(symbol, f"{word}_{t.name}", (t, t), t, work, total=True) for t in types)


def _sizes(*types: Type) -> Iterator[Overload]:
    for t in types:
        yield over("size", f"size_{t.name}", (t,), INT, size_of, total=True)
        yield method("size", f"{t.name}_size", (t,), INT, size_of, total=True)


FUNCTIONS: tuple[Overload, ...] = (
    over("_?_:_", "conditional", (BOOL, A, A), A),
    over("_&&_", "logical_and", (BOOL, BOOL), BOOL),
    over("_||_", "logical_or", (BOOL, BOOL), BOOL),
    over("!_", "logical_not", (BOOL,), BOOL, logical_not, total=True),
    over("@not_strictly_false", "not_strictly_false", (BOOL,), BOOL),
    over("_==_", "equals", (A, A), BOOL),
    over("_!=_", "not_equals", (A, A), BOOL),
    over("_+_", "add_bytes", (BYTES, BYTES), BYTES, add, total=True),
    over("_+_", "add_double", (DOUBLE, DOUBLE), DOUBLE, add, total=True),
    over("_+_", "add_duration_duration", (DURATION, DURATION), DURATION, add, total=True),
    over("_+_", "add_duration_timestamp", (DURATION, TIMESTAMP), TIMESTAMP, add, total=True),
    over("_+_", "add_timestamp_duration", (TIMESTAMP, DURATION), TIMESTAMP, add, total=True),
    over("_+_", "add_int64", (INT, INT), INT, add, total=True),
    over("_+_", "add_list", (_LIST_A, _LIST_A), _LIST_A, add, total=True),
    over("_+_", "add_string", (STRING, STRING), STRING, add, total=True),
    over("_+_", "add_uint64", (UINT, UINT), UINT, add, total=True),
    over("_-_", "subtract_double", (DOUBLE, DOUBLE), DOUBLE, subtract, total=True),
    over("_-_", "subtract_duration_duration", (DURATION, DURATION), DURATION, subtract, total=True),
    over("_-_", "subtract_int64", (INT, INT), INT, subtract, total=True),
    over("_-_", "subtract_timestamp_duration", (TIMESTAMP, DURATION), TIMESTAMP, subtract, total=True),
    over("_-_", "subtract_timestamp_timestamp", (TIMESTAMP, TIMESTAMP), DURATION, subtract, total=True),
    over("_-_", "subtract_uint64", (UINT, UINT), UINT, subtract, total=True),
    *_arithmetic("_*_", "multiply", multiply, DOUBLE, INT, UINT),
    *_arithmetic("_/_", "divide", divide, DOUBLE, INT, UINT),
    *_arithmetic("_%_", "modulo", modulo, INT, UINT),
    over("-_", "negate_double", (DOUBLE,), DOUBLE, negate, total=True),
    over("-_", "negate_int64", (INT,), INT, negate, total=True),
    *_relations("_<_", "less", lambda order: order < 0),
    *_relations("_<=_", "less_equals", lambda order: order <= 0),
    *_relations("_>_", "greater", lambda order: order > 0),
    *_relations("_>=_", "greater_equals", lambda order: order >= 0),
    over("_[_]", "index_list", (_LIST_A, INT), A, index, total=True),
    over("_[_]", "index_map", (_MAP_AB, A), B, index, total=True),
    over("_[_]", "optional_list_index_int", (optional_of(_LIST_A), INT), _OPTIONAL_A, index, total=True),
    over("_[_]", "optional_map_index_value", (optional_of(_MAP_AB), A), _OPTIONAL_B, index, total=True),
    over("_?._", "select_optional_field", (DYN, STRING), _OPTIONAL_A),
    over("_[?_]", "list_optindex_optional_int", (_LIST_A, INT), _OPTIONAL_A),
    over("_[?_]", "optional_list_optindex_optional_int", (optional_of(_LIST_A), INT), _OPTIONAL_A),
    over("_[?_]", "map_optindex_optional_value", (_MAP_AB, A), _OPTIONAL_B),
    over("_[?_]", "optional_map_optindex_optional_value", (optional_of(_MAP_AB), A), _OPTIONAL_B),
    over("@in", "in_list", (A, _LIST_A), BOOL, lambda item, container: contains(container, item), total=True),
    over("@in", "in_map", (A, _MAP_AB), BOOL, lambda item, container: contains(container, item), total=True),
    *_sizes(BYTES, _LIST_A, _MAP_AB, STRING),
    over("type", "type", (A,), type_of(A), convert_type, total=True),
    over("bool", "bool_to_bool", (BOOL,), BOOL, _same),
    over("bool", "string_to_bool", (STRING,), BOOL, _string_to_bool),
    over("bytes", "bytes_to_bytes", (BYTES,), BYTES, _same),
    over("bytes", "string_to_bytes", (STRING,), BYTES, str.encode),
    over("double", "double_to_double", (DOUBLE,), DOUBLE, _same),
    over("double", "int64_to_double", (INT,), DOUBLE, float),
    over("double", "string_to_double", (STRING,), DOUBLE, string_to_double),
    over("double", "uint64_to_double", (UINT,), DOUBLE, float),
    over("dyn", "to_dyn", (A,), DYN, _same, total=True),
    over("int", "int64_to_int64", (INT,), INT, _same),
    over("int", "double_to_int64", (DOUBLE,), INT, _double_to_int),
    over("int", "duration_to_int64", (DURATION,), INT, lambda value: value.nanos),
    over("int", "string_to_int64", (STRING,), INT, _string_to_int),
    over("int", "timestamp_to_int64", (TIMESTAMP,), INT, lambda value: value.nanos // 10**9),
    over("int", "uint64_to_int64", (UINT,), INT, lambda value: int_in_range(int(value))),
    over("string", "string_to_string", (STRING,), STRING, _same),
    *(over("string", f"{name}_to_string", (type_,), STRING, to_string) for type_, name in _PRINTED),
    over("timestamp", "timestamp_to_timestamp", (TIMESTAMP,), TIMESTAMP, _same),
    over("timestamp", "int64_to_timestamp", (INT,), TIMESTAMP, lambda seconds: make_timestamp(seconds * 10**9, 0)),
    over("timestamp", "string_to_timestamp", (STRING,), TIMESTAMP, parse_timestamp),
    over("duration", "duration_to_duration", (DURATION,), DURATION, _same),
    over("duration", "string_to_duration", (STRING,), DURATION, string_to_duration),
    over("uint", "uint64_to_uint64", (UINT,), UINT, _same),
    over("uint", "double_to_uint64", (DOUBLE,), UINT, _double_to_uint),
    over("uint", "int64_to_uint64", (INT,), UINT, _uint_in_range),
    over("uint", "string_to_uint64", (STRING,), UINT, _string_to_uint),
    over("optional.of", "optional_of", (A,), _OPTIONAL_A, Optional),
    over("optional.ofNonZeroValue", "optional_ofNonZeroValue", (A,), _OPTIONAL_A, _non_zero),
    over("optional.none", "optional_none", (), _OPTIONAL_A, lambda: NONE),
    method("value", "optional_value", (_OPTIONAL_A,), A, _value),
    method("hasValue", "optional_hasValue", (_OPTIONAL_A,), BOOL, lambda optional: optional.present),
    method("or", "optional_or_optional", (_OPTIONAL_A, _OPTIONAL_A), _OPTIONAL_A),
    method("orValue", "optional_orValue_value", (_OPTIONAL_A, A), A),
    over("optional.unwrap", "optional_unwrap", (list_of(_OPTIONAL_A),), _LIST_A, _unwrap),
    method("unwrapOpt", "optional_unwrapOpt", (list_of(_OPTIONAL_A),), _LIST_A, _unwrap),
    over("cel.@mapInsert", "@mapInsert_map_key_value", (_MAP_AB, A, B), _MAP_AB, _map_insert),
    over("cel.@mapInsert", "@mapInsert_map_map", (_MAP_AB, _MAP_AB), _MAP_AB, _map_insert),
)  # fmt: skip

# Names of types that can be used as values.
TYPE_NAMES: dict[str, Type] = {
    t.name: t for t in (BOOL, BYTES, DOUBLE, DURATION, INT, STRING, TIMESTAMP, UINT, IP, CIDR, NULL)
} | {
    "list": list_of(DYN), "map": map_of(DYN, DYN), "type": Type("type", "type"), "optional_type": optional_of(DYN),
}  # fmt: skip
