"""Lists and sets: cel-go's extensions (ext/lists.go version 3, ext/sets.go) and Kubernetes' own (library/lists.go)."""

from __future__ import annotations

from functools import cmp_to_key, reduce
from itertools import pairwise
from typing import TYPE_CHECKING

from dra.cel.library.standard import add
from dra.cel.signatures import Overload, method, over
from dra.cel.types import BOOL, COMPARABLE, DOUBLE, DURATION, DYN, INT, UINT, A, Type, list_of, optional_of
from dra.cel.values import (
    LARGEST_LIST,
    NONE,
    ORDERED,
    Duration,
    Optional,
    Uint,
    Value,
    compare,
    contains,
    equal_or_false,
    no_such_overload,
    require_room,
)
from dra.errors import SelectorRunError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def _slice(values: list[Value], start: int, end: int) -> list[Value]:
    prefix = f"cannot slice({start}, {end})"
    if start < 0 or end < 0:
        raise SelectorRunError(f"{prefix}, negative indexes not supported")
    if start > end:
        raise SelectorRunError(f"{prefix}, start index must be less than or equal to end index")
    if len(values) < end:
        raise SelectorRunError(f"{prefix}, list is length {len(values)}")
    return values[start:end]


def _flatten(values: list[Value], depth: int = 1) -> list[Value]:
    if type(values) is not list or type(depth) is not int:
        raise no_such_overload("flatten")
    if depth < 0:
        raise SelectorRunError("level must be non-negative")
    flat: list[Value] = []
    for value in values:
        if type(value) is list and depth > 0:
            flat += _flatten(value, depth - 1)
            require_room(len(flat), LARGEST_LIST)
        else:
            flat.append(value)
    return flat


def _sort_by_keys(values: list[Value], keys: list[Value]) -> list[Value]:
    if len(values) != len(keys):
        raise SelectorRunError(
            f"@sortByAssociatedKeys() expected a list of the same size as the associated keys list, but got {len(values)} and {len(keys)} elements respectively"
        )
    if not keys:
        return values
    kind = type(keys[0])
    if kind not in ORDERED:
        raise SelectorRunError("list elements must be comparable")
    if len(keys) > 1 and any(type(key) is not kind for key in keys):
        raise SelectorRunError("list elements must have the same type")
    by_key = cmp_to_key(_order_or_same)
    return [values[i] for i in sorted(range(len(values)), key=lambda i: by_key(keys[i]))]


def _order_or_same(left: Value, right: Value) -> int:
    try:
        return compare(left, right)
    except SelectorRunError:
        return 0


def _range(count: int) -> list[Value]:
    if count < 0:
        raise SelectorRunError(f"lists.range: size must be non-negative, got {count}")
    if count > LARGEST_LIST:
        raise SelectorRunError(f"lists.range: size {count} exceeds maximum allowed ({LARGEST_LIST})")
    return list(range(count))


def _distinct(values: list[Value]) -> list[Value]:
    unique: list[Value] = []
    for value in values:
        if not contains(unique, value):
            unique.append(value)
    return unique


def _contains_all(values: list[Value], required: list[Value]) -> bool:
    return all(contains(values, value) for value in required)


def _is_sorted(values: list[Value]) -> bool:
    if any(type(value) not in ORDERED for value in values):
        raise no_such_overload("isSorted")
    # Two values that cannot be ordered count as sorted.
    return all(_order_or_same(left, right) <= 0 for left, right in pairwise(values))


def _extreme(name: str, sign: int) -> Callable[[list[Value]], Value]:
    def extreme(values: list[Value]) -> Value:
        if not values:
            raise SelectorRunError(f"{name} called on empty list")
        if any(type(value) not in ORDERED for value in values):
            raise no_such_overload(name)
        best = values[0]
        for value in values[1:]:
            if _order_or_same(best, value) == sign:
                best = value
        return best

    return extreme


def _position(values: Iterable[tuple[int, Value]], item: Value) -> int:
    return next((i for i, value in values if equal_or_false(value, item)), -1)


def _includes(target: Value, item: Value) -> bool:
    if type(target) is list:
        return any(equal_or_false(value, item) for value in target)
    return equal_or_false(target, item)


_LIST, _ANY_LIST = list_of(A), list_of(DYN)
_ZEROS: tuple[tuple[Type, Value], ...] = ((INT, 0), (UINT, Uint(0)), (DOUBLE, 0.0), (DURATION, Duration(0)))


def _short(t: Type) -> str:
    return t.name.rpartition(".")[2].lower()


FUNCTIONS: tuple[Overload, ...] = (
    method("slice", "list_slice", (_LIST, INT, INT), _LIST, _slice),
    method("flatten", "list_flatten", (list_of(_LIST),), _LIST, _flatten, total=True),
    method("flatten", "list_flatten_int", (_ANY_LIST, INT), _ANY_LIST, _flatten, total=True),
    *(method("sort", f"list_{t.name}_sort", (list_of(t),), list_of(t), lambda values: _sort_by_keys(values, values)) for t in COMPARABLE),
    *(method("@sortByAssociatedKeys", f"list_{t.name}_sortByAssociatedKeys", (_LIST, list_of(t)), _LIST, _sort_by_keys) for t in COMPARABLE),
    over("lists.range", "lists_range", (INT,), list_of(INT), _range),
    method("reverse", "list_reverse", (_LIST,), _LIST, lambda values: values[::-1]),
    method("distinct", "list_distinct", (_LIST,), _LIST, _distinct),
    method("first", "list_first", (_LIST,), optional_of(A), lambda values: Optional(values[0]) if values else NONE),
    method("last", "list_last", (_LIST,), optional_of(A), lambda values: Optional(values[-1]) if values else NONE),
    over("sets.contains", "list_sets_contains_list", (_LIST, _LIST), BOOL, _contains_all),
    over("sets.equivalent", "list_sets_equivalent_list", (_LIST, _LIST), BOOL, lambda left, right: _contains_all(left, right) and _contains_all(right, left)),
    over("sets.intersects", "list_sets_intersects_list", (_LIST, _LIST), BOOL, lambda left, right: any(contains(right, value) for value in left)),
    *(method("isSorted", f"list_{_short(t)}_is_sorted_bool", (list_of(t),), BOOL, _is_sorted) for t in COMPARABLE),
    *(method("sum", f"list_{_short(t)}_sum_{_short(t)}", (list_of(t),), t, lambda values, zero=zero: reduce(add, values, zero)) for t, zero in _ZEROS),
    *(method("max", f"list_{_short(t)}_max_{_short(t)}", (list_of(t),), t, _extreme("max", -1)) for t in COMPARABLE),
    *(method("min", f"list_{_short(t)}_min_{_short(t)}", (list_of(t),), t, _extreme("min", 1)) for t in COMPARABLE),
    method("indexOf", "list_a_index_of_int", (_LIST, A), INT, lambda values, wanted: _position(enumerate(values), wanted)),
    method("lastIndexOf", "list_a_last_index_of_int", (_LIST, A), INT, lambda values, wanted: _position(reversed(list(enumerate(values))), wanted)),
)  # fmt: skip

# Before Kubernetes 1.38, only environments with list attributes have `includes`.
INCLUDES: tuple[Overload, ...] = (method("includes", "list_includes_dyn_dyn", (DYN, DYN), BOOL, _includes),)
