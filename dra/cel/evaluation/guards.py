"""Type checks at run time, for arguments whose static types are unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dra.cel import types as t
from dra.cel.library.named_formats import Format
from dra.cel.library.networks import IPAddress, Network
from dra.cel.library.urls import Url
from dra.cel.values import Duration, Optional, Sum, Timestamp, TypeValue, Uint, Value, no_such_overload
from dra.quantity import Quantity
from dra.semver import Version

if TYPE_CHECKING:
    from collections.abc import Callable

    from dra.cel.signatures import Overload, Work
    from dra.cel.types import Type

    Guard = Callable[[Value], bool]

_CLASSES: dict[Type, tuple[type, ...]] = {
    t.BOOL: (bool,), t.INT: (int,), t.UINT: (Uint,), t.DOUBLE: (float,), t.STRING: (str,), t.BYTES: (bytes,), t.NULL: (type(None),),
    t.TIMESTAMP: (Timestamp,), t.DURATION: (Duration,), t.QUANTITY: (Quantity, Sum), t.SEMVER: (Version,), t.URL: (Url,), t.FORMAT: (Format,),
    t.IP: (IPAddress,), t.CIDR: (Network,),
}  # fmt: skip


def guard(type_: Type) -> Guard:
    """Make a check that a value has a type. Like Go, the check looks only at the first element of a list or map."""
    classes = _CLASSES.get(type_)
    if classes is not None:
        return lambda value: type(value) in classes
    if type_.kind == "list":
        element = guard(type_.params[0])
        return lambda value: type(value) is list and (not value or element(value[0]))
    if type_.kind == "map":
        key, item = map(guard, type_.params)

        def fits(value: Value) -> bool:
            if not isinstance(value, dict):
                return False
            if not value:
                return True
            first_key, first_value = next(iter(value.items()))
            return key(first_key) and item(first_value)

        return fits
    if type_.kind == "opaque":
        return lambda value: type(value) is Optional
    if type_.kind == "type":
        return lambda value: type(value) is TypeValue
    return lambda _: True


def guarded(name: str, work: Work, guards: list[tuple[int, Guard]]) -> Work:
    """Wrap the function of an overload in checks of its arguments.

    Each check comes with the position of its argument.
    """

    def check(*args: Value) -> Value:
        for i, fits in guards:
            if not fits(args[i]):
                raise no_such_overload(name)
        return work(*args)

    return check


def dispatched(name: str, overloads: list[Overload]) -> Work:
    """Return a function that calls the first overload whose types match the arguments."""
    rows = [([guard(type_) for type_ in overload.args], overload.work) for overload in overloads if overload.work]

    def run(*args: Value) -> Value:
        for guards, work in rows:
            if all(fits(arg) for fits, arg in zip(guards, args, strict=True)):
                return work(*args)
        raise no_such_overload(name)

    return run
