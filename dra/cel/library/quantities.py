"""Quantities and versions in CEL (k8s.io/apiserver/pkg/cel/library/quantity.go, semverlib.go)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dra.cel.signatures import Overload, method, over, succeeds
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


def _as_integer(quantity: Quantity) -> int:
    value = quantity.as_int()
    if value is None:
        raise SelectorRunError("cannot convert value to integer")
    return value


def _order(left: Quantity | Version, right: Quantity | Version) -> int:
    return int(left > right) - int(left < right)  # type: ignore[operator]  # both are of one kind, or no overload fits


def _of_int(value: int) -> Quantity:
    return Quantity.from_int(value, "DecimalExponent")


def _part(name: str, read: Callable[[Version], int]) -> Overload:
    return method(
        name, f"semver_{name}", (SEMVER,), INT, lambda version: read(version) - (read(version) > INT_MAX) * 2**64
    )


FUNCTIONS: tuple[Overload, ...] = (
    over("quantity", "string_to_quantity", (STRING,), QUANTITY, _quantity),
    over("isQuantity", "is_quantity_string", (STRING,), BOOL, succeeds(_quantity)),
    over("sign", "quantity_sign", (QUANTITY,), INT, lambda quantity: (quantity.nano > 0) - (quantity.nano < 0)),
    method("asApproximateFloat", "quantity_get_float", (QUANTITY,), DOUBLE, Quantity.as_float),
    method("asInteger", "quantity_get_int", (QUANTITY,), INT, _as_integer),
    method("isInteger", "quantity_is_integer", (QUANTITY,), BOOL, lambda quantity: quantity.as_int() is not None),
    method("add", "quantity_add", (QUANTITY, QUANTITY), QUANTITY, lambda left, right: Sum.from_quantity(left + right)),
    method("add", "quantity_add_int", (QUANTITY, INT), QUANTITY, lambda left, right: Sum.from_quantity(left + _of_int(right))),
    method("sub", "quantity_sub", (QUANTITY, QUANTITY), QUANTITY, lambda left, right: Sum.from_quantity(left - right)),
    method("sub", "quantity_sub_int", (QUANTITY, INT), QUANTITY, lambda left, right: Sum.from_quantity(left - _of_int(right))),
    method("isGreaterThan", "quantity_is_greater_than", (QUANTITY, QUANTITY), BOOL, lambda left, right: left > right),
    method("isGreaterThan", "semver_is_greater_than", (SEMVER, SEMVER), BOOL, lambda left, right: left > right),
    method("isLessThan", "quantity_is_less_than", (QUANTITY, QUANTITY), BOOL, lambda left, right: left < right),
    method("isLessThan", "semver_is_less_than", (SEMVER, SEMVER), BOOL, lambda left, right: left < right),
    method("compareTo", "quantity_compare_to", (QUANTITY, QUANTITY), INT, _order),
    method("compareTo", "semver_compare_to", (SEMVER, SEMVER), INT, _order),
    over("semver", "string_to_semver", (STRING,), SEMVER, _version),
    over("semver", "string_bool_to_semver", (STRING, BOOL), SEMVER, _version),
    over("isSemver", "is_semver_string", (STRING,), BOOL, succeeds(_version)),
    over("isSemver", "is_semver_string_bool", (STRING, BOOL), BOOL, succeeds(_version)),
    _part("major", lambda version: version.major),
    _part("minor", lambda version: version.minor),
    _part("patch", lambda version: version.patch),
)  # fmt: skip
