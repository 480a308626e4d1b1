"""The shape of an object: every value of the type its field has, no field that does not exist.

The shapes are read off the wire types, which are complete for resource.k8s.io and deliberately partial for pods and nodes;
in partial ones unknown fields are not judged. Types are judged as Go's JSON decoder does it (sigs.k8s.io/json): a null is
"not set", 1.0 is not an integer, and a missing value is a zero. Types of our own that forbid unknown fields (the
configuration) are read the same way, and demand the fields that they require.
"""

from __future__ import annotations

import difflib
import re
from datetime import date
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from msgspec import inspect

from dra.errors import QuantityError
from dra.objects import (
    Container,
    EnvVar,
    Node,
    NodeSpec,
    NodeStatus,
    ObjectMeta,
    Pod,
    PodSpec,
    PodStatus,
    ResourceRequirements,
    SecurityContext,
)
from dra.pointer import escape
from dra.quantity import Quantity
from dra.validation.problem import Problem
from dra.wire import Opaque, WireError, convert

if TYPE_CHECKING:
    from collections.abc import Mapping

T = TypeVar("T")

# Times are texts on the wire; these are the fields that hold them.
_TIMES: Final = frozenset(
    {"creationTimestamp", "deletionTimestamp", "timeAdded", "allocationTimestamp", "lastTransitionTime"}
)
_TIME: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T([01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:[.,]\d+)?(?:Z|[+-](?:[01]\d|2[0-4]):[0-5]\d)", re.ASCII
)
# Wire types that hold only a part of what Kubernetes has.
_PARTIAL: Final = frozenset(
    {Pod, PodSpec, PodStatus, Container, EnvVar, ResourceRequirements, SecurityContext, Node, NodeSpec, NodeStatus}
)
# Where fields went that people still write: from older versions of the API, from classic DRA, or out of habit.
_BELOW_EXACTLY: Final = "in resource.k8s.io/v1 it stands below `exactly:` of the request"
_CLASSIC: Final = "it belongs to classic DRA, which is gone: write devices.requests with a deviceClassName"
_MOVED: Final[dict[str, dict[str, str]]] = {
    "DeviceRequest": dict.fromkeys(
        ("deviceClassName", "selectors", "allocationMode", "count", "adminAccess", "tolerations", "capacity", "derivedAttributes"),
        _BELOW_EXACTLY,
    ),
    "Device": {"basic": "in resource.k8s.io/v1 attributes and capacity stand in the device itself"},
    "ResourceClaimSpec": {
        **dict.fromkeys(("resourceClassName", "parametersRef", "allocationMode", "controller"), _CLASSIC),
        "requests": "put it below `devices:`",
        "constraints": "put it below `devices:`",
        "config": "put it below `devices:`",
    },
    "DeviceClassSpec": {"suitableNodes": "it is gone since 1.32: which nodes have devices is said by the slices"},
    "DeviceTaintSelector": dict.fromkeys(("deviceClassName", "selectors"), "it is gone since 1.35: say driver, pool or device"),
    "PodResourceClaim": {"source": "since 1.31 resourceClaimName and resourceClaimTemplateName stand beside the name"},
    "DeviceSelector": {"expression": "put it below `cel:`"},
    "ResourceClaimTemplateSpec": {"devices": "a template has `spec.spec.devices`: put it below another `spec:`"},
}  # fmt: skip
# What a plain value in the place of an object most likely means.
_PLAIN: Final = {
    "DeviceCapacity": "write {{value: {0}}}",
    "Counter": "write {{value: {0}}}",
    "DeviceAttribute": "say the kind of value: {{string: ...}}, {{int: ...}}, {{bool: ...}} or {{version: ...}}",
    "CELDeviceSelector": "write {{expression: ...}}",
}
# Nearest names are looked for where somebody mistyped, not where somebody sent nonsense.
_LONGEST_NAME: Final = 64
_MANY: Final = 200
_MORE_METADATA: Final = ("selfLink", "deletionGracePeriodSeconds", "managedFields")
_INT64: Final = range(-(2**63), 2**63)


class Shape:
    """What a value must look like. `types` are the types that need no closer look."""

    types: frozenset[type] = frozenset()
    zero: Any = None

    def check(self, value: Any, path: str, found: list[Problem]) -> None:
        """Add what is wrong with a value that is not null."""

    def complete(self, value: Any) -> Any:
        """Give nulls inside of collections and missing values the zero that Go gives them."""
        return value


class _Scalar(Shape):
    def __init__(self, name: str, types: frozenset[type], zero: Any) -> None:
        self.name = name
        self.types = types
        self.zero = zero

    def check(self, value: Any, path: str, found: list[Problem]) -> None:
        if type(value) not in self.types:
            hint = ""
            if self.zero == "" and isinstance(value, bool):
                hint = "quote it: without quotes YAML reads yes, no, on, off, y, n, true and false as truth values"
            elif self.zero == "" and isinstance(value, int | float):
                hint = f'quote it: "{value}"'
            found.append(Problem("D001", path, f"expected {self.name}, got {_describe(value)}", hint))


class _Integer(Shape):
    zero = 0

    def check(self, value: Any, path: str, found: list[Problem]) -> None:
        if type(value) is not int:
            hint = ""
            if isinstance(value, str) and value.lstrip("-").isdecimal():
                hint = "remove the quotes"
            message = f"expected a whole number, got {_describe(value)}"
            found.append(Problem("D001", path, message, hint))
        elif value not in _INT64:
            message = f"{value} does not fit into 64 bits"
            found.append(Problem("D001", path, message))


class _Amount(Shape):
    zero = "0"

    def check(self, value: Any, path: str, found: list[Problem]) -> None:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            message = f"expected an amount such as 16Gi, got {_describe(value)}"
            found.append(Problem("D001", path, message))
            return
        written = repr(value)
        if isinstance(value, str):
            written = value.strip(" ")  # as Go does before it reads
        try:
            Quantity.parse(written)
        except QuantityError as error:
            found.append(Problem("D001", path, str(error)))

    def complete(self, value: Any) -> Any:
        return value.strip(" ") if isinstance(value, str) else value


class _Time(Shape):
    zero = ""

    def check(self, value: Any, path: str, found: list[Problem]) -> None:
        match = _TIME.fullmatch(value) if isinstance(value, str) else None
        try:
            if match:
                date(*map(int, match.group(1, 2, 3)))
                return
        except ValueError:
            pass
        found.append(Problem("D001", path, f"expected a time such as 2026-01-31T12:00:00Z, got {_describe(value)}"))


class _Choice(Shape):
    """One of a few texts."""

    def __init__(self, values: tuple[str, ...]) -> None:
        self.values = values
        self.zero = values[0]

    def check(self, value: Any, path: str, found: list[Problem]) -> None:
        if value not in self.values:
            known = [one for one in self.values if one]
            hint = f"one of {', '.join(known)}"
            meant = nearest(value, known) if isinstance(value, str) else ""
            if meant:
                hint = f"did you mean {meant}? {hint}"
            found.append(Problem("D001", path, f"{_describe(value)} is not allowed here", hint))


class _List(Shape):
    zero = None

    def __init__(self, items: Shape) -> None:
        self.items = items

    def check(self, value: Any, path: str, found: list[Problem]) -> None:
        if not isinstance(value, list):
            hint = (
                "write it as a list: begin the line with `- `"
                if not isinstance(value, dict)
                else "put `- ` before its first key"
            )
            found.append(Problem("D001", path, f"expected a list, got {_describe(value)}", hint))
            return
        types, check = self.items.types, self.items.check
        for index, item in enumerate(value):
            if type(item) not in types and item is not None:
                check(item, f"{path}/{index}", found)

    def complete(self, value: Any) -> Any:
        return [self.items.complete(_zero(self.items) if item is None else item) for item in value]


class _Map(Shape):
    def __init__(self, values: Shape) -> None:
        self.values = values

    def check(self, value: Any, path: str, found: list[Problem]) -> None:
        if not isinstance(value, dict):
            message = f"expected a mapping, got {_describe(value)}"
            found.append(Problem("D001", path, message))
            return
        types = self.values.types
        check = self.values.check
        for name, member in value.items():
            if type(member) not in types and member is not None:
                at = f"{path}/{escape(name)}"
                check(member, at, found)

    def complete(self, value: Any) -> Any:
        return {
            name: self.values.complete(_zero(self.values) if member is None else member)
            for name, member in value.items()
        }


class _Struct(Shape):
    def __init__(self, name: str) -> None:
        self.name = name
        self.fields: Mapping[str, Shape] = {}
        self.required: frozenset[str] = frozenset()
        self.amounts: tuple[str, ...] = ()  # those of the required ones that read as 0
        self.demanded: tuple[str, ...] = ()  # those of a type of our own that have no default
        self.partial = False
        self.ignored: frozenset[str] = frozenset()

    def check(self, value: Any, path: str, found: list[Problem]) -> None:
        if not isinstance(value, dict):
            hint = _PLAIN.get(self.name, "").format(value)
            message = f"expected an object, got {_describe(value)}"
            found.append(Problem("D001", path, message, hint))
            return
        fields = self.fields
        for name, member in value.items():
            shape = fields.get(name)
            if shape is None:
                if not self.partial and name not in self.ignored:
                    helpful = len(found) < _MANY
                    problem = self._unknown(name, path, value, helpful=helpful)
                    found.append(problem)
            elif type(member) not in shape.types and member is not None:
                shape.check(member, f"{path}/{name}", found)
        for name in self.demanded:
            if value.get(name) is None:
                problem = Problem("D001", path, f"{name} is missing", f"add {name}")
                found.append(problem)
        for name in self.amounts:
            if value.get(name) is None:
                problem = Problem("D007", path, f"{name} is missing and reads as 0")
                found.append(problem)

    def _unknown(self, name: str, path: str, value: Mapping[str, Any], *, helpful: bool) -> Problem:
        moved = _MOVED.get(self.name, {})
        hint = moved.get(name, "")
        if helpful and not hint:
            unset = [field for field in self.fields if field not in value]
            near = nearest(name, unset)
            hint = f"did you mean {near}?" if near else ""
        if not hint and self.demanded:
            hint = f"known: {', '.join(self.fields)}"
        at = f"{path}/{escape(name)}"
        return Problem("D002", at, f"unknown field {name[:80]!r}", hint)

    def complete(self, value: Any) -> Any:
        members = {
            name: self.fields[name].complete(member) if name in self.fields else member
            for name, member in value.items()
            if member is not None
        }
        for name in self.required:
            members.setdefault(name, _zero(self.fields[name]))
        return members


_ANY: Final = Shape()
_SHAPES: Final[dict[type, Shape]] = {}


def nearest(name: str, names: list[str]) -> str:
    """Find the name that a mistyped one most likely stands for, or nothing."""
    if len(name) > _LONGEST_NAME or len(names) > _MANY:
        return ""
    by_fold = {candidate.casefold(): candidate for candidate in names}
    folded = name.casefold()
    found = difflib.get_close_matches(folded, by_fold, n=1, cutoff=0.75)
    if not found:
        return ""
    return by_fold[found[0]]


def check(value: dict[str, Any], type_: type, path: str = "") -> list[Problem]:
    """Find values of the wrong type and unknown fields."""
    found: list[Problem] = []
    of(type_).check(value, path, found)
    return found


def expected_object(value: Any) -> Problem:
    """Say that a whole document is not an object."""
    return Problem("D001", "", f"expected an object, got {_describe(value)}")


def read(value: Any, type_: type[T]) -> T:
    """Make the wire type of a value that `check` found no wrong types in."""
    # The text is quick to make and to search, and nulls are rare.
    if b"null" in msgspec.json.encode(value) and _has_null(value):
        return convert(of(type_).complete(value), type_)
    try:
        return convert(value, type_)
    except WireError:
        return convert(of(type_).complete(value), type_)


def _has_null(value: Any) -> bool:
    members = value.values() if isinstance(value, dict) else value
    return any(m is None or (isinstance(m, dict | list) and _has_null(m)) for m in members)


def of(type_: type) -> Shape:
    """Give the shape of a wire type."""
    if type_ not in _SHAPES:
        _SHAPES[type_] = _from(inspect.type_info(type_), "", {})
    return _SHAPES[type_]


def _from(info: inspect.Type, name: str, made: dict[type, _Struct]) -> Shape:
    if isinstance(info, inspect.UnionType):
        (kind,) = (part for part in info.types if not isinstance(part, inspect.NoneType))
        return _from(kind, name, made)
    if isinstance(info, inspect.StructType):
        return _struct(info, made)
    if isinstance(info, inspect.VarTupleType):
        item = _from(info.item_type, name, made)
        return _List(item)
    if isinstance(info, inspect.DictType):
        value = _from(info.value_type, name, made)
        return _Map(value)
    if isinstance(info, inspect.CustomType):
        return _ANY if info.cls is Opaque else _Amount()
    if isinstance(info, inspect.IntType):
        return _Integer()
    if isinstance(info, inspect.BoolType):
        return _Scalar("true or false", frozenset({bool}), zero=False)
    if isinstance(info, inspect.LiteralType):
        choices = map(str, info.values)
        return _Choice(tuple(choices))
    if isinstance(info, inspect.EnumType):
        values = [str(member.value) for member in info.cls]
        return _Choice(tuple(values))
    if not isinstance(info, inspect.StrType):
        return _ANY
    if name in _TIMES:
        return _Time()
    return _Scalar("a text", frozenset({str}), "")


def _struct(info: inspect.StructType, made: dict[type, _Struct]) -> Shape:
    cls = info.cls
    if cls in made:
        return made[cls]
    shape = made[cls] = _Struct(cls.__name__)
    fields: dict[str, Shape] = {}
    for field in info.fields:
        name = field.encode_name
        fields[name] = _from(field.type, name, made)
    shape.fields = fields
    required = sorted(field.encode_name for field in info.fields if field.required)
    shape.required = frozenset(required)
    if cls.__struct_config__.forbid_unknown_fields:
        shape.demanded = tuple(required)
    shape.amounts = tuple(name for name in required if fields[name].zero == "0")
    shape.partial = cls in _PARTIAL
    if cls is ObjectMeta:
        shape.ignored = frozenset(_MORE_METADATA)
    return shape


def _zero(shape: Shape) -> Any:
    if isinstance(shape, _Struct | _Map):
        return shape.complete({})
    return [] if isinstance(shape, _List) else shape.zero


def _describe(value: Any) -> str:
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return f"the number {value}"
        case str():
            return f"the text {value[:40]!r}"
        case list():
            return "a list"
        case _:
            return "an object"
