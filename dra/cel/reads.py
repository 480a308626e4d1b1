"""Finds which attributes and fields of a device an expression reads, from its tree alone.

Devices with equal values of these attributes and fields get the same result, so one evaluation serves all such devices.
A path with literal names is recognised: `device.attributes["domain"].name`, with or without `?`, `has` or `in`, also
through `cel.bind`. Any other use of the device counts as reading everything: for example, iterating over a domain, or
passing `device` as a value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dra.cel.device_fields import SCALARS
from dra.cel.tree import children

if TYPE_CHECKING:
    from dra.cel.tree import Expr


class Reads(NamedTuple):
    """What an expression reads: names as (``attributes`` or ``capacity``, domain, id), and scalar fields."""

    names: frozenset[tuple[str, str, str]] = frozenset()
    scalars: frozenset[str] = frozenset()
    everything: bool = False


EVERYTHING = Reads(everything=True)


class _EverythingError(Exception):
    """The expression uses the device, one of its maps or one of its domains as a whole."""


def reads_of(root: Expr) -> Reads:
    reader = _ReadsFinder()
    try:
        reader.value(root)
    except _EverythingError:
        return EVERYTHING
    return Reads(frozenset(reader.names), frozenset(reader.scalars))


# A path into the device: device, device.attributes, device.attributes["domain"].
_DevicePath = tuple[str, ...]


class _ReadsFinder:
    def __init__(self) -> None:
        self.names: set[tuple[str, str, str]] = set()
        self.scalars: set[str] = set()
        self._bound: dict[str, _DevicePath | None] = {}

    def value(self, node: Expr) -> None:
        """Record what a node reads. The caller uses its value in a way that is not tracked."""
        if self.path_of(node) is not None:
            raise _EverythingError

    def path_of(self, node: Expr) -> _DevicePath | None:
        """Record what a node reads.

        If its value is the device or a map within the device, return the path to the value.
        """
        if node.kind == "ident":
            return ("device",) if node.name == ".device" else self._bound.get(node.name)
        if node.kind in ("select", "has"):
            return self._step(self.path_of(node.args[0]), node.name)
        if node.kind == "call" and node.name in ("_[_]", "_[?_]", "_?._", "@in"):
            operand, key = node.args if node.name != "@in" else reversed(node.args)
            path = self.path_of(operand)
            if node.name == "@in" and path is not None and len(path) < 3:
                raise _EverythingError  # a domain exists if the device has any name in it
            if path is None:
                self.value(key)
                return None
            if key.kind != "literal" or not isinstance(key.value, str):
                raise _EverythingError
            return self._step(path, key.value)
        fold = node.fold
        if fold is None:
            for child in children(node):
                self.value(child)
            return None
        bind = fold.macro == "bind"
        path = self.path_of(fold.init)
        if path is not None and not bind:
            raise _EverythingError
        self.value(fold.range)
        outer = self._bound
        self._bound = {**outer, fold.var: None, fold.var2: None, fold.accu: path}
        if not bind:
            self.value(fold.condition)
            self.value(fold.step)
        result = self.path_of(fold.result)
        self._bound = outer
        return result

    def _step(self, path: _DevicePath | None, name: str) -> _DevicePath | None:
        if path is None:
            return None
        if len(path) == 1 and name in SCALARS:
            self.scalars.add(name)
            return None
        if len(path) < 3:
            return (*path, name)
        self.names.add((path[1], path[2], name))
        return None
