"""Values at run time: how Python represents CEL values, and how they are compared (cel-go common/types).

int, float, str, bytes, bool, None, list and dict represent the CEL values of the same kind. Quantities and versions are
`dra.quantity.Quantity` and `dra.semver.Version`. This module has the other classes. Operators test numbers by
`type(x)`, not by `isinstance`, because bool and `Uint` are subclasses of int in Python, and separate types in CEL.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar, Final

from msgspec import Struct

from dra.errors import CostExceeded, SelectorRunError
from dra.quantity import Quantity
from dra.semver import Version

if TYPE_CHECKING:
    from collections.abc import Iterator

Value = Any  # any of the types in the module docstring

INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**63 - 1
UINT_MAX: Final = 2**64 - 1


class Uint(int):
    """An unsigned 64-bit integer."""

    __slots__ = ()


class Optional(Struct, frozen=True, eq=False):
    """`optional.of(value)`, or `NONE`."""

    value: Value = None
    present: bool = True


NONE: Final = Optional(present=False)


class Timestamp(Struct, frozen=True):
    """A point in time in nanoseconds since 1970; `offset` is the zone for printing, in minutes east of UTC.

    As keys of a map, two timestamps are equal only if their zones are equal, too.
    """

    nanos: int
    offset: int = 0


class Duration(Struct, frozen=True):
    """A span of time in nanoseconds."""

    nanos: int


class TypeValue(Struct, frozen=True):
    """A type as a value, equal by name."""

    name: str


class Sum(Quantity):
    """The result of `add` and `sub` on quantities. Kubernetes boxes it, so `==` with a Sum on the right is an error."""

    __slots__ = ()


class Domains(dict[str, dict[str, Value]]):
    """The value of `device.attributes` or `device.capacity`, in which a missing domain is an empty map."""

    __slots__ = ()

    def __missing__(self, domain: str) -> dict[str, Value]:
        return EMPTY_MAP


EMPTY_MAP: Final[dict[str, Value]] = {}


class Sized(Struct, frozen=True):
    """Base of the value types of Kubernetes' libraries. `size` is the size by which costs are counted."""

    type_name: ClassVar = ""
    # Whether Go can hash the value as a map key.
    hashable: ClassVar = True

    @property
    def size(self) -> int:
        return 1

    def same(self, other: Sized) -> bool:
        """Whether both values, which are of one class, are equal."""
        return self == other


_NAMES: Final[dict[type, str]] = {
    int: "int", float: "double", str: "string", bytes: "bytes", bool: "bool", type(None): "null_type", list: "list",
    dict: "map", Domains: "map", Uint: "uint", Optional: "optional_type", Timestamp: "google.protobuf.Timestamp",
    Duration: "google.protobuf.Duration", TypeValue: "type", Quantity: "kubernetes.Quantity", Sum: "kubernetes.Quantity",
    Version: "kubernetes.Semver",
}  # fmt: skip


def type_name(value: Value) -> str:
    """Return the CEL name of a value's type."""
    name = _NAMES.get(type(value))
    return name if name is not None else str(value.type_name)


# Larger values are not built: one pass over them would cost more than the whole cost limit.
LARGEST_TEXT: Final = 10_000_000
LARGEST_LIST: Final = 1_000_000  # also the limit that Go has for lists.range


def require_room(length: int, limit: int) -> None:
    """Raise before a value is built that is too large. Go builds the value first and charges afterwards."""
    if length > limit:
        raise CostExceeded(
            f"operation cancelled: a value of {length} characters or elements is more than any selector may use"
        )


class Fatal(Exception):  # noqa: N818 - like a panic, not an error in CEL's sense
    """A panic in Go: it ends the evaluation, and neither `||` nor `&&` absorbs it."""

    def __init__(self, message: str) -> None:
        super().__init__(f"internal error: {message}")


def no_such_overload(function: str = "") -> SelectorRunError:
    """Make the error for arguments that no overload takes."""
    return SelectorRunError(f"no such overload: {function}" if function else "no such overload")


_NUMBERS: Final = frozenset((int, Uint, float))
_MAPS: Final = frozenset((dict, Domains))


def equal(left: Value, right: Value) -> bool:
    """Compare as CEL's `==`.

    Values of different types are unequal; if the left one has a Kubernetes type, `==` raises.
    """
    kind = type(left)
    if kind is str or kind is bool:
        return kind is type(right) and left == right
    if kind in _NUMBERS:
        return type(right) in _NUMBERS and _number_compare(left, right) == 0
    if left is None or right is None:
        return left is right
    if kind is list:
        return type(right) is list and len(left) == len(right) and all(map(_not_unequal, left, right))
    if kind in _MAPS:
        if type(right) not in _MAPS or len(left) != len(right):
            return False
        for key, value in left.items():
            other = find(right, key)
            if other is MISSING or not _not_unequal(value, other):
                return False
        return True
    if kind is Quantity or kind is Sum:
        if type(right) is not Quantity:
            raise no_such_overload()
        return bool(left == right)
    if kind is Version:
        if type(right) is not Version:
            raise no_such_overload()
        return bool(left == right)
    # The types below are rarer.
    is_same_type = kind is type(right)
    if kind is Optional:
        if not is_same_type or left.present != right.present:
            return False
        return not left.present or equal(left.value, right.value)
    if kind is bytes:
        return is_same_type and bool(left == right)
    if kind is Timestamp or kind is Duration:
        return is_same_type and bool(left.nanos == right.nanos)
    if kind is TypeValue:
        return is_same_type and bool(left.name == right.name)
    if not is_same_type:
        raise no_such_overload()
    return bool(left.same(right))


def _not_unequal(left: Value, right: Value) -> bool:
    # Inside lists and maps, Go treats an error as "not unequal".
    try:
        return equal(left, right)
    except SelectorRunError:
        return True


def equal_or_false(left: Value, right: Value) -> bool:
    """Compare as `==` does, with false for an error: for `in`, `indexOf` and `distinct`."""
    try:
        return equal(left, right)
    except SelectorRunError:
        return False


def differ(left: Value, right: Value) -> bool:
    """Compare as CEL's `!=`, which is true unless `==` returns true, also if `==` raises."""
    try:
        return not equal(left, right)
    except SelectorRunError:
        return True


def compare(left: Value, right: Value) -> int:
    """Return -1, 0 or 1; raise if the values cannot be ordered."""
    kind = type(left)
    if kind in _NUMBERS and type(right) in _NUMBERS:
        if math.isnan(left) or math.isnan(right):
            raise SelectorRunError("NaN values cannot be ordered")
        return _number_compare(left, right)
    if kind is type(right):
        if kind is str or kind is bytes or kind is bool:
            return int(left > right) - int(left < right)
        if kind is Timestamp or kind is Duration:
            return int(left.nanos > right.nanos) - int(left.nanos < right.nanos)
    raise no_such_overload()


ORDERED: Final = frozenset((int, Uint, float, str, bytes, bool, Timestamp, Duration))


def _number_compare(left: Value, right: Value) -> int:
    if type(left) is float or type(right) is float:
        if math.isnan(left) or math.isnan(right):
            return 2  # NaN is equal to nothing
        # If the double is in the range of the integer type, Go converts the integer to a double.
        if type(left) is not float:
            return -_double_compare(right, left)
        if type(right) is not float:
            return _double_compare(left, right)
    return int(left > right) - int(left < right)


def _double_compare(double: float, integer: int) -> int:
    unsigned = type(integer) is Uint
    if double < (0 if unsigned else INT_MIN):
        return -1
    if double > float(UINT_MAX if unsigned else INT_MAX):
        return 1
    converted = float(integer)
    return (double > converted) - (double < converted)


MISSING: Final = object()


class Boxed(Struct, frozen=True, eq=False):
    """A map key that is equal only to itself, as pointers are in Go."""

    value: Value


def as_key(value: Value) -> Value:
    """Return the dict key for a CEL value."""
    require_hashable(value)
    return Boxed(value) if type(value) in _BY_IDENTITY else value


def require_hashable(value: Value) -> None:
    """Raise Fatal for a value that Go cannot hash; Go panics there."""
    if type(value) is bytes or type(value) is Version or (isinstance(value, Sized) and not value.hashable):
        raise Fatal("runtime error: hash of unhashable type")


def keys_of(mapping: dict[Value, Value]) -> Iterator[Value]:
    """Return the keys of a map as CEL values."""
    return (key.value if type(key) is Boxed else key for key in mapping)


# Types that Go hashes by pointer: as map keys, two values are never equal.
_BY_IDENTITY: Final = frozenset((Optional, Quantity, Sum, list, dict, Domains))


def find(mapping: dict[Value, Value], key: Value) -> Value:
    """Look up a key as CEL does: numbers match across types, but true is not 1.

    Return MISSING if there is no such key.
    """
    kind = type(key)
    if kind is str:
        if type(mapping) is Domains:
            return mapping[key]
        return mapping.get(key, MISSING)
    if type(mapping) is Domains:
        return EMPTY_MAP
    if kind not in _NUMBERS and kind is not bool:
        if mapping:
            require_hashable(key)
        return mapping.get(key, MISSING) if kind not in _BY_IDENTITY else MISSING
    value = mapping.get(key, MISSING)
    if value is not MISSING and (kind is bool or key in (0, 1)):
        stored = next(stored_key for stored_key in mapping if stored_key == key)
        if (type(stored) is bool) != (kind is bool):
            return MISSING
    return value


_ONLY_INT: Final = frozenset((int,))


def contains(container: Value, item: Value) -> bool:
    """CEL's `in`."""
    kind = type(container)
    if kind is list:
        # A string equals only strings. In a list of integers only, Python's comparison agrees with CEL's.
        if type(item) is str or (type(item) is int and _ONLY_INT.issuperset(map(type, container))):
            return item in container
        return any(equal_or_false(item, element) for element in container)
    if kind is Domains:
        return type(item) is str and item in container
    if kind is dict:
        return find(container, item) is not MISSING
    raise no_such_overload("@in")


def size(value: Value) -> int:
    """Return the size by which costs are counted: the size that `size()` returns, or 1."""
    kind = type(value)
    if kind is str or kind is list or kind is dict or kind is Domains or kind is bytes:
        return len(value)
    if isinstance(value, Sized):
        return value.size
    if kind is Optional and value.present:
        return size(value.value)
    return 1


def weigh(value: Value, limit: int) -> int:
    """Count the members of a value at all levels, up to about `limit`. A part that occurs twice counts twice."""
    count = 1
    waiting = [value]
    while waiting and count < limit:
        item = waiting.pop()
        if type(item) is Optional:
            item = item.value
        if type(item) is list:
            waiting.extend(item)
            count += len(item)
        elif isinstance(item, dict):
            waiting.extend(item.values())
            count += 2 * len(item)
    return count
