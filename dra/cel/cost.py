"""The worst-case cost of an expression, exactly as the API server estimates it.

This module mirrors cel-go checker/cost.go, apiserver library/cost.go and ext/costs.go. A cost is an upper bound. A size
is a range, because some functions cost more for shorter inputs. Sums and products saturate at 2^64-1. `Path` reproduces
how Go's slices share memory, because in Go the estimated size of a loop variable depends on it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from dra.cel import types as t
from dra.cel.device_fields import ATTRIBUTE, FIELDS, Extent
from dra.cel.types import COMPARABLE

if TYPE_CHECKING:
    from collections.abc import Callable

    from dra.cel.tree import Expr, Fold
    from dra.cel.types import Type

    # Called with the target, if the call has one, and the arguments.
    _Estimator = Callable[..., "_Estimate"]

MAX_COST: Final = 1_000_000  # resource.k8s.io CELSelectorExpressionMaxCost
MAX_TEXT: Final = 1_024  # characters of `value` in a TEXT expression
UNBOUNDED: Final = 2**64 - 1
_CALL, _LIST, _MAP = 1, 10, 30
STRING_FACTOR: Final = 0.1
REGEX_FACTOR: Final = 0.25
_LARGEST_FORMAT_REGEX = 128


def _sum(*costs: int) -> int:
    return min(sum(costs), UNBOUNDED)


def _product(left: int, right: int) -> int:
    return min(left * right, UNBOUNDED)


def scale(size: int, factor: float) -> int:
    """Multiply in double precision and round up."""
    number = float(size)
    if number > 0 and factor > 0 and number > float(UNBOUNDED) / factor:
        return UNBOUNDED
    return min(math.ceil(number * factor), UNBOUNDED)


class Size(NamedTuple):
    """The least and greatest number of characters, bytes or elements of a value."""

    minimum: int
    maximum: int

    def plus(self, other: Size) -> Size:
        return Size(_sum(self.minimum, other.minimum), _sum(self.maximum, other.maximum))

    def times(self, other: Size) -> Size:
        return Size(_product(self.minimum, other.minimum), _product(self.maximum, other.maximum))

    def union(self, other: Size) -> Size:
        return Size(min(self.minimum, other.minimum), max(self.maximum, other.maximum))


_UNKNOWN = Size(0, UNBOUNDED)
_ONE = Size(1, 1)


def _exactly(size: int) -> Size:
    return Size(size, size)


class _Elements(NamedTuple):
    """The sizes of the keys and values of a list or map."""

    kind: str
    key: Size
    value: Size


class Path(NamedTuple):
    """The path from a variable to a value, as a Go slice of names that may share `memory` with others."""

    memory: list[str]
    length: int
    capacity: int

    def append(self, name: str) -> Path:
        """Append as Go does, which writes into the shared memory while there is capacity."""
        longer = self.length + 1
        if self.length < self.capacity:
            self.memory[self.length : longer] = [name]
            return Path(self.memory, longer, self.capacity)
        return Path([*self.names(), name], longer, max(1, 2 * self.capacity))

    def names(self) -> list[str]:
        return self.memory[: self.length]


_NO_PATH = Path([], 0, 0)


# ---- The sizes of the variables ----------------------------------------------------------------------------------------


_ROOTS = {
    "device": Extent(0, fields={name: field.extent for name, field in FIELDS.items()}),
    "value": Extent(MAX_TEXT),
}


def _size_at(path: list[str]) -> Size | None:
    shape = _ROOTS.get(path[0]) if path else None
    if shape is None:
        return None
    for name in path[1:]:
        if name in ("@items", "@values"):
            part = shape.element
        elif name == "@keys":
            part = shape.key
        else:
            # All attributes have the same bound.
            part = shape.fields.get(name, ATTRIBUTE if shape.element is ATTRIBUTE else None)
        if part is None:
            return None
        shape = part
    return Size(0, shape.maximum)


# ---- The estimate --------------------------------------------------------------------------------------------------


class _Local(NamedTuple):
    path: Path
    size: Size | None
    entry: _Elements | None


class Operand(NamedTuple):
    """An argument of a call."""

    node: Expr
    type: Type
    path: list[str]
    size: Size | None

    @property
    def extent(self) -> Size:
        """The known size, or the bound of its path."""
        return self.size or _size_at(self.path) or _UNKNOWN

    @property
    def own(self) -> Size:
        """The known size, without the bound of the path. Go uses this one for standard functions."""
        return self.size or _UNKNOWN


class _Estimate(NamedTuple):
    cost: int
    result: Size | None = None


def worst_case(root: Expr, *, since_38: bool = False) -> int:
    """Return Kubernetes' upper bound of the cost of evaluating a checked tree."""
    return _Coster(since_38=since_38).cost(root)


_SCALARS = frozenset((t.BOOL, t.DOUBLE, t.DURATION, t.INT, t.TIMESTAMP, t.UINT))


class _Coster:
    """Walks a tree from the leaves up and records the path, size and elements of each node, as Go does."""

    def __init__(self, *, since_38: bool) -> None:
        self._since_38 = since_38
        self._paths: dict[int, Path] = {}
        self._sizes: dict[int, Size] = {}
        self._entries: dict[int, _Elements] = {}
        self._locals: dict[str, list[_Local]] = {}

    def cost(self, node: Expr) -> int:
        kind = node.kind
        if kind == "literal":
            return 0
        if kind == "ident":
            local = self._peek(node.name)
            self._paths[id(node)] = local.path if local else Path([node.name.removeprefix(".")], 1, 1)
            return 1
        if kind == "has":
            return self.cost(node.args[0])
        if kind == "select":
            operand = node.args[0]
            cost = self.cost(operand)
            self._paths[id(node)] = self._path(operand).append(node.name)
            return _sum(cost, 1) if self._since_38 or operand.type.kind in ("map", "struct", "param") else cost
        if kind == "call":
            return self._call(node)
        if kind == "fold":
            assert node.fold is not None
            return self._fold(node, node.fold)
        # For a list or a map, the size range of a member covers the ranges of all members.
        keys = values = Size(0 if not node.args else UNBOUNDED, 0)
        cost = _LIST if kind == "list" else _MAP
        for i, arg in enumerate(node.args):
            cost = _sum(cost, self.cost(arg))
            size = self._size(arg) or _UNKNOWN
            if kind == "map" and i % 2 == 0:
                keys = keys.union(size)
            else:
                values = values.union(size)
        self._entries[id(node)] = _Elements(kind, _ONE if kind == "list" else keys, values)
        return cost

    # Calls

    def _call(self, node: Expr) -> int:
        if node.name == "dyn":
            cost = self.cost(node.args[0])
            self._copy_sizes(node, node.args[0])
            return _sum(cost, 1)
        args = node.args[node.member :]
        costs, operands = [], []
        for arg in args:
            costs.append(self.cost(arg))
            operands.append(self._operand(arg))
        total = 0
        target: Operand | None = None
        if node.member:
            total = self.cost(node.args[0])
            target = self._operand(node.args[0])
        largest = 0
        result: Size | None = None
        for overload in node.overloads:
            estimate = self._estimate(node, overload, target, operands)
            if overload == "conditional":
                cost = _sum(costs[0], max(costs[1:]))
            else:
                cost = _sum(_CALL if estimate is None else estimate.cost, *costs)
            largest = max(largest, cost)
            if estimate is not None and estimate.result is not None:
                result = estimate.result if result is None else result.union(estimate.result)
            if overload in ("index_list", "index_map"):
                entry = self._entry(args[0])
                result = entry.value if entry else None
                part = "@items" if overload == "index_list" else "@values"
                self._paths[id(node)] = self._path(args[0]).append(part)
            if result is None:
                result = self._size(node)
        if result is not None:
            self._sizes[id(node)] = result
        return _sum(total, largest)

    def _operand(self, node: Expr) -> Operand:
        path = self._path(node).names()
        if path and path[0] in ("@result", "__result__"):
            path = []
        return Operand(node, node.type, path, self._size(node))

    def _estimate(self, node: Expr, overload: str, target: Operand | None, args: list[Operand]) -> _Estimate | None:
        """Return an estimate of cel-go's extensions, else of Kubernetes' libraries, else of CEL itself, or None."""
        extension = _BY_OVERLOAD.get(overload)
        if extension is not None:
            return extension(*args) if target is None else extension(target, *args)
        if self._since_38 and target is not None and overload in _URL_PARTS:
            return _Estimate(1, target.extent.times(Size(1, _URL_PARTS[overload])))
        estimate = _function(node.name, overload, target, args)
        if estimate is not None:
            return estimate
        if overload in ("logical_or", "logical_and"):
            return _Estimate(0)
        if overload not in ("conditional", "add_string", "add_bytes", "add_list"):
            return None
        # The two branches of a conditional, or the two operands of a concatenation.
        first, second = args[-2:]
        first_elements, second_elements = self._entry(first.node), self._entry(second.node)
        if first_elements is not None and second_elements is not None:
            key, value = (
                first_elements.key.union(second_elements.key),
                first_elements.value.union(second_elements.value),
            )
            self._entries[id(node)] = _Elements(first_elements.kind, key, value)
        if overload == "conditional":
            return _Estimate(0, first.own.union(second.own))
        size = first.own.plus(second.own)
        return _Estimate(1 if overload == "add_list" else scale(size.maximum, STRING_FACTOR), size)

    # Comprehensions

    def _fold(self, node: Expr, fold: Fold) -> int:
        total = _sum(self.cost(fold.range), self.cost(fold.init))
        self._push(fold.accu, _Local(self._path(fold.init), self._size(fold.init), self._entry(fold.init)))
        if fold.macro == "bind":
            total = _sum(total, self.cost(fold.result))
            self._locals[fold.accu].pop()
            self._copy_sizes(node, fold.result)
            return total
        # A single variable is the element of a list or the key of a map. The first of two variables is the index or the
        # key.
        variables = [fold.var, fold.var2] if fold.var2 else [fold.var]
        for index, name in enumerate(variables):
            entry = self._entry(fold.range)
            is_list = (entry.kind if entry else fold.range.type.kind) == "list"
            if index == 0 and (fold.var2 or not is_list):
                part, size = "@indices" if is_list else "@keys", entry.key if entry else None
            else:
                part, size = "@items" if is_list else "@values", entry.value if entry else None
            self._push(name, _Local(self._path(fold.range).append(part), size, None))
        step_cost = _sum(self.cost(fold.condition), self.cost(fold.step))
        for name in variables:
            self._locals[name].pop()
        total = _sum(total, self.cost(fold.result))
        self._locals[fold.accu].pop()
        count = self._size(fold.range) or _UNKNOWN
        if fold.init.kind == "literal":
            size = self._size(fold.init)
            if size is not None:
                self._sizes[id(node)] = size
        elif fold.init.kind in ("list", "map"):
            self._sizes[id(node)] = count
            entry = self._entry(fold.step)
            if entry is not None:
                self._entries[id(node)] = entry
        return _sum(total, _product(count.maximum, step_cost))

    def _push(self, name: str, local: _Local) -> None:
        self._locals.setdefault(name, []).append(local)

    def _peek(self, name: str) -> _Local | None:
        stack = self._locals.get(name)
        return stack[-1] if stack else None

    # What is known about a node

    def _path(self, node: Expr) -> Path:
        local = self._peek(node.name) if node.kind == "ident" else None
        return local.path if local is not None else self._paths.get(id(node), _NO_PATH)

    def _copy_sizes(self, node: Expr, source: Expr) -> None:
        size, entry = self._size(source), self._entry(source)
        if size is not None:
            self._sizes[id(node)] = size
        if entry is not None:
            self._entries[id(node)] = entry

    def _size(self, node: Expr) -> Size | None:
        size = self._sizes.get(id(node))
        if size is not None:
            return size
        if node.kind == "literal":
            return _exactly(len(node.value) if isinstance(node.value, str | bytes) else 1)
        if node.kind in ("list", "map"):
            return _exactly(len(node.args) // (1 if node.kind == "list" else 2))
        size = _size_at(self._path(node).names())
        if size is not None:
            self._sizes[id(node)] = size
            return size
        type_, is_optional = t.unwrap(node.type)
        while is_optional:
            type_, is_optional = t.unwrap(type_)
        if type_ in _SCALARS or (self._since_38 and type_.kind == "type"):
            return _ONE
        local = self._peek(node.name) if node.kind == "ident" else None
        return local.size if local else None

    def _entry(self, node: Expr) -> _Elements | None:
        entry = self._entries.get(id(node))
        if entry is None and node.kind == "ident":
            local = self._peek(node.name)
            entry = local.entry if local else None
        return entry


# ---- Costs of functions --------------------------------------------------------------------------------------------

_COMPARED = frozenset(
    [f"{word}_{kind}" for word in ("less", "greater", "less_equals", "greater_equals") for kind in ("string", "bytes")]
    + ["equals", "not_equals"]
)


# The methods of URLs, and how many characters of their result a character of the URL may become. Before Kubernetes 1.38, the size is unknown.
_URL_PARTS: Final = {
    f"url_get_{part}": 3 if part == "escaped_path" else 1
    for part in ("scheme", "hostname", "host", "port", "escaped_path", "query")
}

# Functions that read a text, and functions that read a list or a text. An evaluation is charged for the same functions.
TRAVERSING: Final = frozenset(["cidr", "isIP", "isCIDR", "ip", "quantity", "isQuantity", "semver", "isSemver"])
SEARCHING: Final = frozenset(["isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"])


def _function(name: str, overload: str, target: Operand | None, args: list[Operand]) -> _Estimate | None:
    """Return the estimate of Kubernetes' libraries for a function name, else that of CEL for an overload; None if a call costs 1."""
    first = args[0] if args else None
    if name in TRAVERSING and first:
        return _Estimate(scale(first.extent.maximum, STRING_FACTOR))
    if name in SEARCHING and target:
        return _search(target)
    if name == "url" and first:
        return _transform(overload, first, [])
    if name == "ip.isCanonical" and first:
        return _Estimate(scale(first.extent.maximum, 2 * STRING_FACTOR))
    if name == "validate" and first:
        cost = scale(first.extent.maximum, STRING_FACTOR)
        return _Estimate(scale(cost, _LARGEST_FORMAT_REGEX * REGEX_FACTOR))
    if name in _METHODS and target:
        return _METHODS[name](overload, target, args)
    if name == "_==_" and args[0].type.name == args[1].type.name:
        type_, text = args[0].type, args[1].size
        if type_ in (t.IP, t.CIDR, t.QUANTITY, t.SEMVER):
            return _Estimate(1)
        if type_ == t.FORMAT:
            return _Estimate(scale(64, STRING_FACTOR))
        if type_ == t.URL:
            return _Estimate(scale(text.maximum if text else 1, STRING_FACTOR))
    if overload in _COMPARED:
        left, right = args
        return _Estimate(scale(min(left.own.maximum, right.own.maximum), STRING_FACTOR))
    if overload in ("starts_with_string", "ends_with_string") and first:
        return _Estimate(scale(first.own.maximum, STRING_FACTOR))
    if overload == "in_list":
        return _Estimate(scale(args[1].own.maximum, 1))
    if overload in ("matches", "matches_string"):
        subject, pattern = (target, *args) if target else args
        return _Estimate(_regex(subject.own, pattern.own))
    if overload == "contains_string" and target and first:
        return _Estimate(_product(scale(target.own.maximum, STRING_FACTOR), scale(first.own.maximum, STRING_FACTOR)))
    if overload == "string_format" and target:
        return _Estimate(scale(target.own.maximum, STRING_FACTOR))
    if overload in ("string_to_bytes", "bytes_to_string", "strings_quote") and first:
        least, most = first.own
        size = {
            "string_to_bytes": Size(least, most * 4 % 2**64),
            "bytes_to_string": Size(least // 4, most),
            "strings_quote": Size((least + 2) % 2**64, (most * 2 + 2) % 2**64),
        }
        return _Estimate(scale(most, STRING_FACTOR), size[overload])
    return None


def _regex(text: Size, pattern: Size) -> int:
    return _product(scale(_sum(text.maximum, 1), STRING_FACTOR), scale(pattern.maximum, REGEX_FACTOR))


def _search(target: Operand) -> _Estimate:
    size = target.extent
    element = _element(target)
    if element is not None:
        element_cost = 1
        if target.type.params[0] in (t.STRING, t.BYTES):
            element_cost = _sum(element_cost, scale(element.maximum, STRING_FACTOR))
        return _Estimate(_product(size.maximum, element_cost))
    return _Estimate(scale(size.maximum, STRING_FACTOR))


def _element(target: Operand) -> Size | None:
    if not target.type.params:
        return None
    size = _size_at([*target.path, "@items"]) if target.path else None
    return size or _UNKNOWN


def _includes(_: str, target: Operand, __: list[Operand]) -> _Estimate:
    return _search(target) if _element(target) is not None else _Estimate(target.extent.maximum)


def _transform(_: str, target: Operand, __: list[Operand]) -> _Estimate:
    return _Estimate(scale(target.extent.maximum, STRING_FACTOR), target.extent)


def _replace(_: str, target: Operand, args: list[Operand]) -> _Estimate:
    size, old, new = target.extent, args[0].extent, args[1].extent
    # The least and greatest number of replacements, and how many characters of the original text are kept with each.
    if old.maximum == 0:
        fewest, kept_least = _sum(size.minimum, 1), size.minimum
    elif old.maximum <= new.minimum:
        fewest, kept_least = 0, size.minimum
    else:
        fewest, kept_least = _ceil_ratio(size.minimum, old.maximum), 0
    if old.minimum == 0:
        often, kept_most = _sum(size.maximum, 1), size.maximum
    elif new.maximum <= old.minimum:
        often, kept_most = 0, size.maximum
    else:
        often, kept_most = _ceil_ratio(size.maximum, old.minimum), 0
    result = Size(_sum(_product(fewest, new.minimum), kept_least), _sum(_product(often, new.maximum), kept_most))
    return _Estimate(scale(size.maximum, 2 * STRING_FACTOR), result)


def _ceil_ratio(size: int, part: int) -> int:
    ratio = math.ceil(float(size) / float(part))
    return ratio if ratio < 2**64 else 2**63  # Go's conversion on amd64


def _split(_: str, target: Operand, args: list[Operand]) -> _Estimate:
    parts = target.extent.maximum
    limit = args[1].node if len(args) > 1 else None
    if limit is not None and limit.kind == "literal" and type(limit.value) is int:
        parts = limit.value % 2**64
    return _Estimate(scale(target.extent.maximum, 2 * STRING_FACTOR), Size(0, parts))


def _join(_: str, target: Operand, args: list[Operand]) -> _Estimate:
    count, element = target.extent, _element(target)
    size = count.times(element) if element is not None else Size(0, 0)
    if args:
        gaps = Size(max(count.minimum - 1, 0), max(count.maximum - 1, 0))
        size = size.plus(args[0].extent.times(gaps))
    return _Estimate(scale(size.maximum, STRING_FACTOR), size)


def _find(_: str, target: Operand, args: list[Operand]) -> _Estimate:
    return _Estimate(_regex(target.extent, args[0].extent), Size(0, target.extent.maximum))


def _within(overload: str, _: Operand, args: list[Operand]) -> _Estimate:
    """Return the estimate of `containsIP` or `containsCIDR`, with the parsing of a string argument."""
    cost = scale(32, STRING_FACTOR)
    if overload.startswith("cidr_contains_cidr"):
        cost += scale(16, STRING_FACTOR) + 1
    if overload.endswith("_string"):
        cost = _sum(cost, scale(args[0].extent.maximum, STRING_FACTOR))
    return _Estimate(cost)


_METHODS: dict[str, Callable[[str, Operand, list[Operand]], _Estimate]] = {
    "includes": _includes, "lowerAscii": _transform, "upperAscii": _transform, "substring": _transform, "trim": _transform,
    "replace": _replace, "split": _split, "join": _join, "find": _find, "findAll": _find,
    "containsIP": _within, "containsCIDR": _within,
}  # fmt: skip


# ---- cel-go's extensions for lists and sets ------------------------------------------------------------------------


def _literal_or(operand: Operand, default: int) -> int:
    node = operand.node
    if node.kind != "literal" or type(node.value) is not int:
        return default
    return max(node.value, 0)


def _allocation(factor: float, size: Size) -> _Estimate:
    return _Estimate(_sum(scale(size.maximum, factor), _CALL, _LIST), size)


def _slice(values: Operand, start: Operand, end: Operand) -> _Estimate:
    stop = _literal_or(end, values.extent.maximum)
    return _allocation(1, _exactly((stop - _literal_or(start, 0)) % 2**64))


def _flatten(values: Operand, depth: Operand | None = None) -> _Estimate:
    levels = 1 if depth is None else _literal_or(depth, UNBOUNDED)
    return _allocation(float(levels), values.extent)


def _comparing(factor: float) -> _Estimator:
    """Return the estimator of functions that compare all pairs of elements (values or keys) of their last argument."""
    return lambda *lists: _allocation(factor, lists[-1].extent.times(lists[-1].extent))


def _set(factor: float) -> _Estimator:
    return lambda left, right: _Estimate(_sum(scale(left.extent.times(right.extent).maximum, factor), _CALL))


def _order_factor(type_: Type) -> float:
    return 2.0 + STRING_FACTOR if type_ in (t.STRING, t.BYTES) else 2.0


_BY_OVERLOAD: dict[str, _Estimator] = {
    "list_slice": _slice,
    "list_flatten": _flatten,
    "list_flatten_int": _flatten,
    "lists_range": lambda count: _allocation(1, _exactly(_literal_or(count, UNBOUNDED))),
    "list_reverse": lambda values: _allocation(1, values.extent),
    "list_distinct": _comparing(2.0),
    "list_sets_contains_list": _set(1),
    "list_sets_intersects_list": _set(1),
    "list_sets_equivalent_list": _set(2),
    **{f"list_{type_.name}_sort": _comparing(_order_factor(type_)) for type_ in COMPARABLE},
    **{f"list_{type_.name}_sortByAssociatedKeys": _comparing(_order_factor(type_)) for type_ in COMPARABLE},
}
