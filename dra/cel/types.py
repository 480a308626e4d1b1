"""CEL types and assignability (cel-go common/types/types.go, checker/types.go)."""

from __future__ import annotations

from typing import NamedTuple


class Type(NamedTuple):
    """One type. Kinds: dyn, any, null, scalar, struct, opaque, list, map, type, param."""

    kind: str
    name: str
    params: tuple[Type, ...] = ()

    def __str__(self) -> str:
        if self.kind == "param":
            return f"<{self.name}>"
        if not self.params:
            return self.name
        return f"{self.name}({', '.join(map(str, self.params))})"


DYN = Type("dyn", "dyn")
ANY = Type("any", "any")
NULL = Type("null", "null_type")
BOOL = Type("scalar", "bool")
INT = Type("scalar", "int")
UINT = Type("scalar", "uint")
DOUBLE = Type("scalar", "double")
STRING = Type("scalar", "string")
BYTES = Type("scalar", "bytes")
TIMESTAMP = Type("scalar", "google.protobuf.Timestamp")
DURATION = Type("scalar", "google.protobuf.Duration")
QUANTITY = Type("struct", "kubernetes.Quantity")
SEMVER = Type("struct", "kubernetes.Semver")
URL = Type("struct", "kubernetes.URL")
FORMAT = Type("struct", "kubernetes.NamedFormat")
DEVICE = Type("struct", "kubernetes.DRADevice")
IP = Type("opaque", "net.IP")
CIDR = Type("opaque", "net.CIDR")
COMPARABLE = (INT, UINT, DOUBLE, BOOL, DURATION, TIMESTAMP, STRING, BYTES)

A, B = Type("param", "A"), Type("param", "B")


def list_of(element: Type) -> Type:
    """The type of a list."""
    return Type("list", "list", (element,))


def map_of(key: Type, value: Type) -> Type:
    """The type of a map."""
    return Type("map", "map", (key, value))


def optional_of(value: Type) -> Type:
    """The type of an optional value."""
    return Type("opaque", "optional_type", (value,))


def type_of(param: Type) -> Type:
    """The type of an expression whose value is a type, such as `type(x)`."""
    return Type("type", "type", (param,))


def is_dyn(t: Type) -> bool:
    """Whether nothing is known about the type."""
    return t.kind in ("dyn", "any")


def unwrap(t: Type) -> tuple[Type, bool]:
    """Return the type inside an optional type, and whether it was optional."""
    if t.kind == "opaque" and t.name == "optional_type":
        return t.params[0], True
    return t, False


_NULLABLE = frozenset(("opaque", "struct", "any"))


class Bindings:
    """The types bound to the type parameters of one expression. `assign` changes bindings only if it returns True."""

    def __init__(self) -> None:
        self._bound: dict[Type, Type] = {}
        self._fresh = 0

    def fresh(self) -> Type:
        """Make a new type parameter."""
        self._fresh += 1
        return Type("param", f"_var{self._fresh - 1}")

    def assign(self, source: Type, target: Type) -> bool:
        """Whether `source` can be used where `target` is expected."""
        return self.assign_all((source,), (target,))

    def assign_all(self, sources: tuple[Type, ...], targets: tuple[Type, ...]) -> bool:
        """Whether each source can be used where the target at its position is expected. If not, no binding changes."""
        previous = self._bound
        self._bound = dict(previous)
        if len(sources) == len(targets) and all(map(self._assign, sources, targets)):
            return True
        self._bound = previous
        return False

    def substitute(self, t: Type, *, finish: bool = False) -> Type:
        """Replace bound parameters by their types; with `finish`, replace unbound parameters by dyn."""
        if t.kind == "param":
            bound = self._bound.get(t)
            if bound is not None:
                return self.substitute(bound, finish=finish)
            return DYN if finish else t
        if not t.params:
            return t
        return Type(t.kind, t.name, tuple(self.substitute(param, finish=finish) for param in t.params))

    def _assign(self, source: Type, target: Type) -> bool:
        if target.kind == "param":
            valid, bound = self._bind(source, target)
            if valid or bound:
                return valid
        if source.kind == "param":
            return self._bind(target, source)[0]
        if is_dyn(source) or is_dyn(target):
            return True
        if source.kind == "null" or target.kind == "null":
            other = target if source.kind == "null" else source
            return other.kind in _NULLABLE or other in (NULL, TIMESTAMP, DURATION)
        if source.kind == "type":
            return target.kind == "type"
        if source.kind in ("opaque", "list", "map"):
            is_same_kind = (
                source.kind == target.kind and source.name == target.name and len(source.params) == len(target.params)
            )
            return is_same_kind and all(map(self._assign, source.params, target.params))
        return source == target

    def _bind(self, source: Type, param: Type) -> tuple[bool, bool]:
        """Whether `param` can be bound to `source`, and whether it was already bound."""
        if source == param:
            return True, True
        bound = self._bound.get(param)
        if bound is None:
            if self._occurs(param, source):
                return False, False
            self._bound[param] = source
            return True, False
        if source == bound:
            return True, True
        if not self._assign(source, bound):
            return False, True
        general = source if less_specific(source, bound) else bound
        if not self._occurs(param, general):
            self._bound[param] = general
        return True, True

    def _occurs(self, param: Type, within: Type) -> bool:
        if param == within:
            return True
        if within.kind == "param":
            bound = self._bound.get(within)
            return bound is not None and self._occurs(param, bound)
        return any(self._occurs(param, part) for part in within.params)


def less_specific(left: Type, right: Type) -> bool:
    """Whether `left` is no more specific than `right`."""
    if is_dyn(left) or left.kind == "param":
        return True
    if is_dyn(right) or right.kind == "param":
        return False
    if left.kind != right.kind:
        return False
    if left.kind in ("opaque", "list", "map"):
        if left.name != right.name or len(left.params) != len(right.params):
            return False
        return all(map(less_specific, left.params, right.params))
    return left.kind == "type" or left == right


def equivalent(left: Type, right: Type) -> bool:
    """Whether the types are equal except for the names of type parameters."""
    if left.kind != right.kind or len(left.params) != len(right.params):
        return False
    if left.kind != "param" and left.name != right.name:
        return False
    return all(map(equivalent, left.params, right.params))
