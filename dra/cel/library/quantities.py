"""Quantities and versions in CEL (k8s.io/apiserver/pkg/cel/library/quantity.go, semverlib.go)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dra.cel.signatures import Function, function, method, over
from dra.cel.types import BOOL, DOUBLE, INT, QUANTITY, SEMVER, STRING
from dra.cel.values import INT_MAX, Sum
from dra.errors import QuantityError, SelectorRunError, SemverError
from dra.quantity import Quantity
from dra.semver import Version

if TYPE_CHECKING:
    from collections.abc import Callable


def _quantity(text: str) -> Quantity:
    try:
        return Quantity.parse(text)
    except QuantityError as error:
        raise SelectorRunError(str(error)) from None


def _version(text: str, tolerant: bool = False) -> Version:
    try:
        return Version.parse_tolerant(text) if tolerant else Version.parse(text)
    except SemverError as error:
        raise SelectorRunError(str(error)) from None


def _is_quantity(text: str) -> bool:
    try:
        Quantity.parse(text)
    except QuantityError:
        return False
    return True


def _is_version(text: str, tolerant: bool = False) -> bool:
    try:
        _version(text, tolerant)
    except SelectorRunError:
        return False
    return True


def _as_integer(quantity: Quantity) -> int:
    value = quantity.as_int()
    if value is None:
        raise SelectorRunError("cannot convert value to integer")
    return value


def _order(left: Quantity | Version, right: Quantity | Version) -> int:
    return int(left > right) - int(left < right)  # type: ignore[operator]  # both are of one kind, or no overload fits


def _of_int(value: int) -> Quantity:
    return Quantity.from_int(value, "DecimalExponent")


def _wrap(number: int) -> int:
    return number if number <= INT_MAX else number - 2**64


def _part(name: str, read: Callable[[Version], int]) -> Function:
    return function(name, method(f"semver_{name}", (SEMVER,), INT, lambda version: _wrap(read(version))))


FUNCTIONS: tuple[Function, ...] = (
    function("quantity", over("string_to_quantity", (STRING,), QUANTITY, _quantity)),
    function("isQuantity", over("is_quantity_string", (STRING,), BOOL, _is_quantity)),
    function(
        "sign", over("quantity_sign", (QUANTITY,), INT, lambda quantity: (quantity.nano > 0) - (quantity.nano < 0))
    ),
    function("asApproximateFloat", method("quantity_get_float", (QUANTITY,), DOUBLE, Quantity.as_float)),
    function("asInteger", method("quantity_get_int", (QUANTITY,), INT, _as_integer)),
    function(
        "isInteger", method("quantity_is_integer", (QUANTITY,), BOOL, lambda quantity: quantity.as_int() is not None)
    ),
    function(
        "add",
        method("quantity_add", (QUANTITY, QUANTITY), QUANTITY, lambda left, right: Sum.of(left + right)),
        method("quantity_add_int", (QUANTITY, INT), QUANTITY, lambda left, right: Sum.of(left + _of_int(right))),
    ),
    function(
        "sub",
        method("quantity_sub", (QUANTITY, QUANTITY), QUANTITY, lambda left, right: Sum.of(left - right)),
        method("quantity_sub_int", (QUANTITY, INT), QUANTITY, lambda left, right: Sum.of(left - _of_int(right))),
    ),
    function(
        "isGreaterThan",
        method("quantity_is_greater_than", (QUANTITY, QUANTITY), BOOL, lambda left, right: left > right),
        method("semver_is_greater_than", (SEMVER, SEMVER), BOOL, lambda left, right: left > right),
    ),
    function(
        "isLessThan",
        method("quantity_is_less_than", (QUANTITY, QUANTITY), BOOL, lambda left, right: left < right),
        method("semver_is_less_than", (SEMVER, SEMVER), BOOL, lambda left, right: left < right),
    ),
    function(
        "compareTo",
        method("quantity_compare_to", (QUANTITY, QUANTITY), INT, _order),
        method("semver_compare_to", (SEMVER, SEMVER), INT, _order),
    ),
    function(
        "semver",
        over("string_to_semver", (STRING,), SEMVER, _version),
        over("string_bool_to_semver", (STRING, BOOL), SEMVER, _version),
    ),
    function(
        "isSemver",
        over("is_semver_string", (STRING,), BOOL, _is_version),
        over("is_semver_string_bool", (STRING, BOOL), BOOL, _is_version),
    ),
    _part("major", lambda version: version.major),
    _part("minor", lambda version: version.minor),
    _part("patch", lambda version: version.patch),
)
