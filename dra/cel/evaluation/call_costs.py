"""What Go charges for each call (cel-go interpreter/runtimecost.go, apiserver library/cost.go).

A charge is computed from the arguments; the charges in `BY_RESULT` are also computed from the result.

Some calls are also charged work (`dra.cel.evaluation.account`), because they take longer in Python than in Go or
because Go charges too little. Adding two lists copies both lists here, and not in Go. The comparison of nested lists
that share their parts costs 1 in Go, but its time doubles with each level. Go charges `replace` for the text that it
reads, not for the text that it writes. Go charges a pattern by its length, not by the size of its compiled program.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from dra.cel.cost import MAX_COST, REGEX_FACTOR, SEARCHING, STRING_FACTOR, TRAVERSING
from dra.cel.evaluation.account import BUDGET, SPENT, charge_whole_work, charge_work, cost_exceeded, work_left
from dra.cel.library.named_formats import Format
from dra.cel.library.regexes import PatternError, compile_pattern
from dra.cel.library.regexes import work as pattern_work
from dra.cel.library.urls import Url
from dra.cel.values import LARGEST_LIST, Optional, Sized, Sum, Value, size, weigh
from dra.quantity import Quantity
from dra.semver import Version

if TYPE_CHECKING:
    from collections.abc import Callable

    from dra.cel.evaluation.account import Frame
    from dra.cel.tree import Expr

    Charge = Callable[[list[Value], Value], int]
    Before = Callable[[Frame, list[Value]], None]
    After = Callable[[Frame, Value], None]


FAILED: Final = object()  # stands for an argument or result that was an error; its size is 1


def charge_of(name: str, overload: str) -> Charge:
    """Return the charge of a call: the charge of its overload, else of the function's name, else 1."""
    return _BY_OVERLOAD.get(overload) or _BY_NAME.get(name) or _STANDARD.get(overload) or flat


def flat(_: list[Value], __: Value) -> int:
    """The charge for most calls."""
    return 1


def _equality(args: list[Value], result: Value) -> int:
    """The charge for `==`."""
    left = args[0]
    if type(left) is int and type(args[1]) is int:
        return 1
    if isinstance(left, Quantity | Version | Format | Url | Sum) or (isinstance(left, Sized) and left.type_name):
        return 1
    return _smaller(args, result)


def pattern_charge(text_size: int, pattern_size: int) -> int:
    """The charge for searching a text for a pattern."""
    return math.ceil((1.0 + text_size) * STRING_FACTOR) * math.ceil(pattern_size * REGEX_FACTOR)


def _smaller(args: list[Value], _: Value) -> int:
    return math.ceil(min(size(args[0]), size(args[1])) * STRING_FACTOR)


def _library_size(value: Value) -> int:
    """Return the size by which Kubernetes' libraries charge; that of an optional is 1."""
    return 1 if type(value) is Optional else size(value)


def _scan(position: int, factor: float = STRING_FACTOR) -> Charge:
    return lambda args, _: math.ceil(float(_library_size(args[position])) * factor)


def _size(position: int) -> Charge:
    return lambda args, _: math.ceil(size(args[position]) * STRING_FACTOR)


def _join(_: list[Value], result: Value) -> int:
    return math.ceil(float(_library_size(result)) * 2 * STRING_FACTOR)


def _find(args: list[Value], _: Value) -> int:
    return pattern_charge(_library_size(args[0]), _library_size(args[1]))


def _matches(args: list[Value], _: Value) -> int:
    return pattern_charge(size(args[0]), size(args[1]))


def _traversal(value: Value) -> int:
    kind = type(value)
    if kind is str:
        return int(len(value.encode(errors="surrogatepass")) * STRING_FACTOR)
    if kind is bytes:
        return int(len(value) * STRING_FACTOR)
    if kind is list:
        return sum(map(_traversal, value))
    if isinstance(value, dict):
        return sum(_traversal(key) + _traversal(item) for key, item in value.items())
    return 1


def _contains_ip(args: list[Value], _: Value) -> int:
    return math.ceil(2 * _library_size(args[0]) * STRING_FACTOR)


def _contains_cidr(args: list[Value], result: Value) -> int:
    return _contains_ip(args, result) + math.ceil(_library_size(args[0]) * STRING_FACTOR) + 1


def _and_parsing(charge: Charge) -> Charge:
    """Add the charge for parsing the second argument, a text."""
    return lambda args, result: charge(args, result) + math.ceil(_library_size(args[1]) * STRING_FACTOR)


def _both(args: list[Value], _: Value) -> int:
    return math.ceil((size(args[0]) + size(args[1])) * STRING_FACTOR)


def _allocation(factor: float, count: int) -> int:
    return int(count * (1.0 if factor < 0 else factor)) + 11


def _product(_: list[Value], result: Value) -> int:
    return _allocation(1, _library_size(result))


def _flattening(args: list[Value], _: Value) -> int:
    depth = float(args[1]) if len(args) == 2 and type(args[1]) is int else 1.0
    return _allocation(depth, _library_size(args[0]))


def _self_comparison(position: int) -> Charge:
    def charge(args: list[Value], _: Value) -> int:
        values = args[position]
        if type(values) is not list:
            return 1
        textual = bool(values) and type(values[0]) in (str, bytes)
        return _allocation(2.0 + STRING_FACTOR if textual else 2.0, len(values) ** 2)

    return charge


def _sets(factor: float) -> Charge:
    return lambda args, _: 1 + int(_library_size(args[0]) * _library_size(args[1]) * factor)


BY_RESULT: Final = frozenset((_join, _product))
_TYPES = ("int", "uint", "double", "bool", "google.protobuf.Duration", "google.protobuf.Timestamp", "string", "bytes")

_BY_OVERLOAD: dict[str, Charge] = {
    "cidr_ip": flat, "cidr_contains_ip_string": _and_parsing(_contains_ip), "cidr_contains_cidr_string": _and_parsing(_contains_cidr),
    "list_slice": _product, "lists_range": _product, "list_reverse": _product,
    "list_flatten": _flattening, "list_flatten_int": _flattening, "list_distinct": _self_comparison(0),
    **{f"list_{name}_sort": _self_comparison(0) for name in _TYPES},
    **{f"list_{name}_sortByAssociatedKeys": _self_comparison(1) for name in _TYPES},
    "list_sets_contains_list": _sets(1), "list_sets_intersects_list": _sets(1), "list_sets_equivalent_list": _sets(2),
}  # fmt: skip
_BY_NAME: dict[str, Charge] = {
    **dict.fromkeys((*SEARCHING, "includes"), lambda args, _: _traversal(args[0])),
    **dict.fromkeys((*TRAVERSING, "url", "lowerAscii", "upperAscii", "substring", "trim"), _scan(0)),
    **dict.fromkeys(("replace", "split", "ip.isCanonical"), _scan(0, 2 * STRING_FACTOR)),
    "join": _join, "find": _find, "findAll": _find, "containsIP": _contains_ip, "containsCIDR": _contains_cidr,
    "validate": lambda args, _: pattern_charge(_library_size(args[1]), args[0].regex_size) if isinstance(args[0], Format) else 1,
    "_==_": _equality, "_!=_": _smaller,
}  # fmt: skip
_STANDARD: dict[str, Charge] = {
    **dict.fromkeys(("starts_with_string", "ends_with_string"), _size(1)),
    **dict.fromkeys(("string_to_bytes", "bytes_to_string", "strings_quote", "string_format"), _size(0)),
    "in_list": lambda args, _: size(args[1]),
    **{f"{word}_{kind}": _smaller for word in ("less", "greater", "less_equals", "greater_equals") for kind in ("string", "bytes")},
    "contains_string": lambda args, _: math.ceil(size(args[0]) * STRING_FACTOR) * math.ceil(size(args[1]) * STRING_FACTOR),
    "add_string": _both, "add_bytes": _both, "matches": _matches, "matches_string": _matches,
}  # fmt: skip


# ---- Work that Go does not charge ------------------------------------------------------------------------------------

# How many members of a value are read, copied or built in one step, and how many characters are written in one step.
_READ_PER_STEP, _COPIED_PER_STEP, _BUILT_PER_STEP = 4, 16, 4
_WRITTEN_PER_STEP: Final = 64
_NESTED: Final = frozenset(("list", "map", "dyn", "any", "opaque", "param"))


def work_before(node: Expr) -> Before | None:
    """Return the function that charges work before a call, or None. The work depends on the arguments."""
    if node.name in ("_==_", "_!=_") and not all(map(_may_nest, node.args)):
        return None  # comparing with a scalar never descends
    return _BEFORE.get(node.name)


def work_after(node: Expr) -> After | None:
    """Return the function that charges work after a call, or None. The work depends on the result."""
    return None if node.name == "_+_" and not _may_nest(node) else _AFTER.get(node.name)


def _may_nest(node: Expr) -> bool:
    return node.kind != "literal" and node.type.kind in _NESTED


def _weigh(frame: Frame, value: Value) -> int:
    """Count the members of a value. The count ends a little beyond the work that is left."""
    return weigh(value, _READ_PER_STEP * (work_left(frame) + 2))


def _weighing(position: int) -> Before:
    return lambda frame, args: charge_work(frame, _weigh(frame, args[position]) // _READ_PER_STEP)


def _search_members(frame: Frame, args: list[Value]) -> None:
    """Charge `in`, where the comparison of a list, map or optional with each member takes time."""
    if type(args[0]) in (list, Optional) or isinstance(args[0], dict):
        charge_work(frame, _weigh(frame, args[1]) // _READ_PER_STEP)


def _cross(frame: Frame, args: list[Value]) -> None:
    """Charge the comparison of all pairs of members. Go's charge is enough unless the members are nested."""
    weight, count = _weigh(frame, args[0]), len(args[0]) if type(args[0]) is list else 1
    if weight > 2 * count + 2:
        charge_work(frame, weight * count // _READ_PER_STEP)


def _check_range(frame: Frame, args: list[Value]) -> None:
    """Charge `lists.range` before the list is built, so that no list beyond the limits is built.

    Go charges afterwards.
    """
    count = args[0]
    if type(count) is int and 0 < count <= LARGEST_LIST:
        if count >= MAX_COST - frame[SPENT]:
            raise cost_exceeded()
        charge_whole_work(frame, count // _COPIED_PER_STEP)


def _match(frame: Frame, args: list[Value]) -> None:
    text, pattern = args[0], args[1]
    if type(text) is str and type(pattern) is str:
        try:
            program = compile_pattern(pattern, frame[BUDGET])
        except PatternError:
            return  # the call itself raises
        charge_whole_work(frame, pattern_work(program.programsize, len(text)))


def _match_all(frame: Frame, args: list[Value]) -> None:
    _match(frame, args)
    if type(args[0]) is str:
        charge_work(frame, len(args[0]) + (len(args[0]) ** 2 >> 10))


def _copy(frame: Frame, result: Value) -> None:
    if type(result) is list:
        charge_work(frame, len(result) // _COPIED_PER_STEP)


def _make(frame: Frame, result: Value) -> None:
    charge_work(frame, len(result) // _BUILT_PER_STEP)


def _write(frame: Frame, result: Value) -> None:
    if type(result) is str:
        charge_work(frame, len(result) // _WRITTEN_PER_STEP)


_BEFORE: dict[str, Before] = {
    "_==_": _weighing(0), "_!=_": _weighing(0), "@in": _search_members, "flatten": _weighing(0), "format": _weighing(1),
    "lists.range": _check_range, "matches": _match, "find": _match, "findAll": _match_all,
    **dict.fromkeys(("distinct", "sets.contains", "sets.intersects", "sets.equivalent"), _cross),
    **dict.fromkeys(("indexOf", "lastIndexOf", "includes"), _weighing(0)),
}  # fmt: skip
_AFTER: dict[str, After] = {
    "_+_": _copy, "optional.unwrap": _copy, "unwrapOpt": _copy, "split": _make, "findAll": _make,
    **dict.fromkeys(("replace", "join", "format"), _write),
}  # fmt: skip
