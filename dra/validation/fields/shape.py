"""Checks the shape of an object: values have the types of their fields, and no unknown field is present.

The shapes are derived from the wire types. These have all fields of the kinds of resource.k8s.io, and only some fields of pods and nodes,
whose unknown fields are therefore not reported (`pod_schema` has all fields of pods). Values are checked as Go's JSON decoder checks them
(sigs.k8s.io/json): null means "not set", 1.0 is not an integer, and a missing value is zero. Drawbridge's own types that forbid unknown
fields (the configuration) are checked in the same way; in addition, their required fields must be present.
"""

from __future__ import annotations

import difflib
import re
import sys
from datetime import date
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from msgspec import inspect

from dra.errors import QuantityError
from dra.finding import Finding, Findings, finding_at
from dra.objects import (
    Container,
    EnvVar,
    ExactDeviceRequest,
    Node,
    NodeSpec,
    NodeStatus,
    ObjectMeta,
    Pod,
    PodSpec,
    PodStatus,
    ResourceRequirements,
)
from dra.pointer import escape
from dra.quantity import Quantity, from_json
from dra.wire import Opaque, WireError, convert

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    # Returns what is wrong with a text; "" if nothing is.
    Rule = Callable[[str], str]
    # Returns what is wrong with an object whose fields are valid by themselves.
    ObjectRule = Callable[[Mapping[str, Any], str], Findings]

T = TypeVar("T")

# The fields that hold times, which are strings on the wire.
_TIMES: Final = frozenset(
    {"creationTimestamp", "deletionTimestamp", "timeAdded", "allocationTimestamp", "lastTransitionTime"}
)
_TIME: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T([01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:[.,]\d+)?(?:Z|[+-](?:[01]\d|2[0-4]):[0-5]\d)", re.ASCII
)
_NUMBER: Final = re.compile(r"-?\d+(?:\.\d+)?", re.ASCII)
# Wire types that have only some of the fields of the Kubernetes type.
_PARTIAL: Final = frozenset(
    {Pod, PodSpec, PodStatus, Container, EnvVar, ResourceRequirements, Node, NodeSpec, NodeStatus}
)
# Outdated or misplaced fields (of older API versions, or of classic DRA), and the hint for each: what to write instead.
_BELOW_EXACTLY: Final = "in resource.k8s.io/v1 it is under `exactly:` of the request"
_CLASSIC: Final = "it belongs to classic DRA, which was removed: write devices.requests with a deviceClassName"
_MOVED: Final[dict[str, dict[str, str]]] = {
    "DeviceRequest": dict.fromkeys(ExactDeviceRequest.__struct_encode_fields__, _BELOW_EXACTLY),
    "Device": {
        "basic": "in resource.k8s.io/v1 attributes and capacity are fields of the device",
        "compatibleOnlyWith": "the API server drops it: write the expression into a DeviceCompatibility, with a selector for the device",
    },
    "ResourceClaimSpec": {
        **dict.fromkeys(("resourceClassName", "parametersRef", "allocationMode", "controller"), _CLASSIC),
        "requests": "put it below `devices:`",
        "constraints": "put it below `devices:`",
        "config": "put it below `devices:`",
    },
    "DeviceClassSpec": {"suitableNodes": "removed in Kubernetes 1.32: ResourceSlices say which nodes have devices"},
    "DeviceTaintSelector": dict.fromkeys(("deviceClassName", "selectors"), "it was removed in 1.35: use driver, pool or device"),
    "PodResourceClaim": {"source": "since 1.31 resourceClaimName and resourceClaimTemplateName are next to the name"},
    "DeviceSelector": {"expression": "put it below `cel:`"},
    "ResourceClaimTemplateSpec": {"devices": "a template has `spec.spec.devices`: put it below another `spec:`"},
}  # fmt: skip
# The hint for a plain value in place of an object: what the author most likely meant.
_PLAIN: Final = {
    "DeviceCapacity": "write {{value: {0}}}",
    "Counter": "write {{value: {0}}}",
    "DeviceAttribute": "write the kind of value: {{string: ...}}, {{int: ...}}, {{bool: ...}} or {{version: ...}}",
    "CELDeviceSelector": "write {{expression: ...}}",
}
# A similar name is searched only for a name up to this length, and among at most this many names.
_LONGEST_NAME: Final = 64
_MANY: Final = 200
_MORE_METADATA: Final = ("selfLink", "deletionGracePeriodSeconds", "managedFields")
# The most characters of a value in a message.
_SHOWN: Final = 60
INT64: Final = range(-(2**63), 2**63)


def bad_value(path: str, message: str, hint: str = "") -> Finding:
    """Return the finding that a value does not have the required shape."""
    return finding_at("D001", path, message, hint)


def show(value: object) -> str:
    """Format a value for a message."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


class JsonShape:
    """The shape that a value must have. A value whose type is in `types` is valid; `check` need not be called."""

    types: frozenset[type] = frozenset()
    zero: Any = None

    def check(self, value: Any, path: str, findings: list[Finding]) -> None:
        """Add to `findings` what is wrong with a value that is not null."""

    def complete(self, value: Any) -> Any:
        """Return the value with Go's zero values in place of nulls in collections and of missing values."""
        return value


class Scalar(JsonShape):
    """A string or a boolean."""

    def __init__(self, name: str, type_: type, rule: Rule | None = None) -> None:
        self.name = name
        self.types = frozenset() if rule else frozenset({type_})
        self.zero = type_()
        self._rule = rule

    def check(self, value: Any, path: str, findings: list[Finding]) -> None:
        if type(value) is type(self.zero):
            if self._rule is not None and (wrong := self._rule(value)):
                findings.append(bad_value(path, f"{show(value)} {wrong}"))
            return
        hint = ""
        if self.zero is False:
            hint = "write it without quotes" if isinstance(value, str) else ""
        elif isinstance(value, bool):
            hint = "quote it: without quotes YAML reads yes, no, on, off, y, n, true and false as truth values"
        elif isinstance(value, int | float):
            hint = f'quote it: "{value}"'
        findings.append(bad_value(path, f"expected {self.name}, got {_describe(value)}", hint))


class Integer(JsonShape):
    """An integer in a range except the numbers in `but`, or one of the numbers in `also`."""

    zero = 0

    def __init__(
        self, low: int = INT64.start, high: int = INT64[-1], *, but: tuple[int, ...] = (), also: tuple[int, ...] = ()
    ) -> None:
        self._range = range(low, high + 1)
        self._but = but
        self._also = also

    def check(self, value: Any, path: str, findings: list[Finding]) -> None:
        if type(value) is not int:
            quoted = isinstance(value, str) and value.lstrip("-").isdecimal()
            message = f"expected a whole number, got {_describe(value)}"
            findings.append(bad_value(path, message, "remove the quotes" if quoted else ""))
        elif value in self._but:
            findings.append(bad_value(path, f"{value} is reserved"))
        elif value not in self._range and value not in self._also:
            alternatives = "".join(f" or {number}" for number in self._also)
            message = f"{show(value)} is not from {self._range[0]} to {self._range[-1]}{alternatives}"
            if value < self._range[0] and self._range[-1] == INT64[-1]:
                message = f"{show(value)} is below {self._range[0]}"
            findings.append(bad_value(path, message))


class Number(JsonShape):
    """A number that may have a fraction, and that is greater than `above`."""

    zero = 0.0

    def __init__(self, above: float | None = None) -> None:
        self._above = above

    def check(self, value: Any, path: str, findings: list[Finding]) -> None:
        if type(value) not in (int, float):
            quoted = isinstance(value, str) and _NUMBER.fullmatch(value)
            message = f"expected a number, got {_describe(value)}"
            findings.append(bad_value(path, message, "remove the quotes" if quoted else ""))
        elif not abs(value) <= sys.float_info.max:
            findings.append(bad_value(path, f"{show(value)} is too large"))
        elif self._above is not None and value <= self._above:
            findings.append(bad_value(path, f"{show(value)} is not above {self._above:g}"))


class AmountShape(JsonShape):
    """A quantity, at least as large as `least`."""

    zero = "0"

    def __init__(self, least: str = "") -> None:
        self._least = Quantity.parse(least) if least else None

    def check(self, value: Any, path: str, findings: list[Finding]) -> None:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            findings.append(bad_value(path, f"expected an amount such as 16Gi, got {_describe(value)}"))
            return
        try:
            amount = from_json(value)
        except QuantityError as error:
            findings.append(bad_value(path, str(error)))
            return
        if self._least is not None and amount < self._least:
            findings.append(bad_value(path, f"{show(value)} is less than {self._least}"))

    def complete(self, value: Any) -> Any:
        return value.strip(" ") if isinstance(value, str) else value


class _Time(JsonShape):
    zero = ""

    def check(self, value: Any, path: str, findings: list[Finding]) -> None:
        match = _TIME.fullmatch(value) if isinstance(value, str) else None
        try:
            if match:
                date(*map(int, match.group(1, 2, 3)))
                return
        except ValueError:
            pass
        findings.append(bad_value(path, f"expected a time such as 2026-01-31T12:00:00Z, got {_describe(value)}"))


class OneOf(JsonShape):
    """One of a few strings."""

    def __init__(self, *values: str) -> None:
        self.values = values
        self.zero = values[0]

    def check(self, value: Any, path: str, findings: list[Finding]) -> None:
        if value not in self.values:
            known = list(filter(None, self.values))
            hint = f"{guess(value, known)} one of {', '.join(known)}".lstrip()
            findings.append(bad_value(path, f"{_describe(value)} is not allowed here", hint))


class ListOf(JsonShape):
    """A list of values of one shape, at most `most`."""

    def __init__(self, items: JsonShape, most: int | None = None) -> None:
        self.items = items
        self._most = most

    def check(self, value: Any, path: str, findings: list[Finding]) -> None:
        if not isinstance(value, list):
            hint = "write it as a list: begin the line with `- `"
            if isinstance(value, dict):
                hint = "put `- ` before its first key"
            findings.append(bad_value(path, f"expected a list, got {_describe(value)}", hint))
            return
        if self._most is not None and len(value) > self._most:
            findings.append(bad_value(path, f"{len(value)} entries are more than {self._most}"))
            return
        types, check = self.items.types, self.items.check
        for index, item in enumerate(value):
            if type(item) not in types and item is not None:
                check(item, f"{path}/{index}", findings)

    def complete(self, value: Any) -> Any:
        return [self.items.complete(_zero(self.items) if item is None else item) for item in value]


class MapOf(JsonShape):
    """A map whose values have one shape. `rule` checks the keys."""

    def __init__(self, values: JsonShape, rule: Rule | None = None) -> None:
        self.values = values
        self._rule = rule

    def check(self, value: Any, path: str, findings: list[Finding]) -> None:
        if not isinstance(value, dict):
            findings.append(bad_value(path, f"expected a mapping, got {_describe(value)}"))
            return
        types, check = self.values.types, self.values.check
        for name, member in value.items():
            if self._rule is not None and (wrong := self._rule(name)):
                findings.append(bad_value(f"{path}/{escape(name)}", f"{show(name)} {wrong}"))
            if type(member) not in types and member is not None:
                check(member, f"{path}/{escape(name)}", findings)

    def complete(self, value: Any) -> Any:
        return {
            name: self.values.complete(_zero(self.values) if member is None else member)
            for name, member in value.items()
        }


class Fields(JsonShape):
    """An object with these fields; a `partial` shape permits other fields, too. `rule` checks the fields against each other."""

    def __init__(
        self,
        fields: Mapping[str, JsonShape],
        *,
        name: str = "",
        demanded: tuple[str, ...] = (),
        moved: Mapping[str, str] | None = None,
        rule: ObjectRule | None = None,
    ) -> None:
        self.fields = fields
        self.name = name
        self.required: frozenset[str] = frozenset()
        self.amounts: tuple[str, ...] = ()  # required quantities, which read as 0 if they are missing
        self.demanded = demanded  # fields that must be present
        self.partial = False
        self.ignored: frozenset[str] = frozenset()
        # Common fields that the object does not have, and the hint for each.
        self._moved = moved or _MOVED.get(name, {})
        self._rule = rule

    def check(self, value: Any, path: str, findings: list[Finding]) -> None:
        if not isinstance(value, dict):
            hint = _PLAIN.get(self.name, "").format(value)
            findings.append(bad_value(path, f"expected an object, got {_describe(value)}", hint))
            return
        first_finding = len(findings)
        fields = self.fields
        for name, member in value.items():
            shape = fields.get(name)
            if shape is None:
                if self.partial or name in self.ignored:
                    continue
                hint = self._moved.get(name, "")
                if not hint and len(findings) < _MANY:
                    hint = guess(name, [field for field in fields if field not in value])
                if not hint and (self.demanded or not self.name):
                    hint = f"known: {', '.join(fields)}" if fields else "it has no fields"
                message = f"unknown field {name[:80]!r}"
                findings.append(finding_at("D002", f"{path}/{escape(name)}", message, hint))
            elif type(member) not in shape.types and member is not None:
                shape.check(member, f"{path}/{name}", findings)
        missing_fields = [name for name in self.demanded if value.get(name) is None]
        findings += [bad_value(path, f"{name} is missing", f"add {name}") for name in missing_fields]
        zero = [name for name in self.amounts if value.get(name) is None]
        findings += [finding_at("D007", path, f"{name} is missing and reads as 0") for name in zero]
        if self._rule is not None:
            malformed = {problem.path for problem in findings[first_finding:] if problem.code == "D001"}
            sound = {name: member for name, member in value.items() if f"{path}/{escape(name)}" not in malformed}
            # A problem with the path of the object is about a missing field. If a field is malformed, it is not missing.
            findings += [
                problem for problem in self._rule(sound, path) if problem.path != path or len(sound) == len(value)
            ]

    def complete(self, value: Any) -> Any:
        members = {
            name: self.fields[name].complete(member) if name in self.fields else member
            for name, member in value.items()
            if member is not None
        }
        for name in self.required:
            members.setdefault(name, _zero(self.fields[name]))
        return members


def text(rule: Rule) -> Scalar:
    return Scalar("a text", str, rule)


def matching(pattern: re.Pattern[str], problem: str) -> Rule:
    """Return the rule that a text must match a pattern; `problem` is what is wrong with other texts."""
    return lambda value: "" if pattern.fullmatch(value) else problem


TEXT: Final = Scalar("a text", str)
FLAG: Final = Scalar("true or false", bool)
_ANY: Final = JsonShape()
_SHAPES: Final[dict[type, JsonShape]] = {}


def nearest_name(name: str, names: Collection[str]) -> str:
    """Return the name that the author of a mistyped name most likely meant, or ""."""
    if len(name) > _LONGEST_NAME or len(names) > _MANY:
        return ""
    by_fold = {candidate.casefold(): candidate for candidate in names}
    matches = difflib.get_close_matches(name.casefold(), by_fold, n=1, cutoff=0.75)
    return by_fold[matches[0]] if matches else ""


def nearest_kind(name: str, names: Collection[str]) -> str:
    """Return `nearest_name` among the names whose words with digits are the same: H100 is no mistyped A100, A10O is one."""
    return nearest_name(name, [other for other in names if _models(other) == _models(name)])


_LOOK_ALIKE = str.maketrans("oil", "011")


def _models(name: str) -> list[str]:
    return [word.translate(_LOOK_ALIKE) for word in re.findall(r"[a-z]*\d[a-z0-9]*", name.casefold())]


def guess(name: object, names: Collection[str]) -> str:
    """Return a hint with the most similar name; "" if no name is similar."""
    similar = nearest_name(name, names) if isinstance(name, str) else ""
    return f"did you mean {similar}?" if similar else ""


def check(value: dict[str, Any], type_: type, path: str = "") -> list[Finding]:
    """Report values of the wrong type and unknown fields."""
    findings: list[Finding] = []
    shape_of(type_).check(value, path, findings)
    return findings


def expected_object(value: Any) -> Finding:
    """Return the finding that a whole document is not an object."""
    return bad_value("", f"expected an object, got {_describe(value)}")


def convert_checked(value: Any, type_: type[T]) -> T:
    """Convert a value to its wire type. `check` must have found no wrong types."""
    # Searching the encoded text for nulls is quick, and nulls are rare.
    if b"null" in msgspec.json.encode(value) and _has_null(value):
        return convert(shape_of(type_).complete(value), type_)
    try:
        return convert(value, type_)
    except WireError:
        return convert(shape_of(type_).complete(value), type_)


def _has_null(value: Any) -> bool:
    members = value.values() if isinstance(value, dict) else value
    return any(m is None or (isinstance(m, dict | list) and _has_null(m)) for m in members)


def shape_of(type_: type) -> JsonShape:
    if type_ not in _SHAPES:
        _SHAPES[type_] = _from(inspect.type_info(type_), "", {})
    return _SHAPES[type_]


def _from(info: inspect.Type, name: str, structs: dict[type, Fields]) -> JsonShape:
    match info:
        case inspect.UnionType():
            (kind,) = (part for part in info.types if not isinstance(part, inspect.NoneType))
            return _from(kind, name, structs)
        case inspect.StructType():
            cls = info.cls
            if cls in structs:
                return structs[cls]
            fields: dict[str, JsonShape] = {}
            required = sorted(field.encode_name for field in info.fields if field.required)
            demanded = tuple(required) if cls.__struct_config__.forbid_unknown_fields else ()
            shape = structs[cls] = Fields(fields, name=cls.__name__, demanded=demanded)
            for field in info.fields:
                fields[field.encode_name] = _from(field.type, field.encode_name, structs)
            shape.required = frozenset(required)
            shape.amounts = tuple(name for name in required if fields[name].zero == "0")
            shape.partial = cls in _PARTIAL
            if cls is ObjectMeta:
                shape.ignored = frozenset(_MORE_METADATA)
            return shape
        case inspect.VarTupleType():
            return ListOf(_from(info.item_type, name, structs), info.max_length)
        case inspect.DictType():
            return MapOf(_from(info.value_type, name, structs), _length_rule(info.key_type))
        case inspect.CustomType():
            return _ANY if info.cls is Opaque else AmountShape()
        case inspect.IntType():
            return Integer(INT64.start if info.ge is None else info.ge, INT64[-1] if info.le is None else info.le)
        case inspect.FloatType():
            return Number(info.gt)
        case inspect.BoolType():
            return FLAG
        case inspect.LiteralType():
            return OneOf(*map(str, info.values))
        case inspect.EnumType():
            return OneOf(*[str(member.value) for member in info.cls])
        case inspect.StrType():
            rule = _length_rule(info)
            return text(rule) if rule else _Time() if name in _TIMES else TEXT
    return _ANY


def _length_rule(info: inspect.Type) -> Rule | None:
    if isinstance(info, inspect.StrType) and (info.min_length or info.max_length):
        return partial(_wrong_length, info.min_length or 0, info.max_length or sys.maxsize)
    return None


def _wrong_length(least: int, most: int, value: str) -> str:
    if len(value) < least:
        return f"has fewer than {least} characters" if value else "is empty"
    return f"has more than {most} characters" if len(value) > most else ""


def _zero(shape: JsonShape) -> Any:
    if isinstance(shape, Fields | MapOf):
        return shape.complete({})
    return [] if isinstance(shape, ListOf) else shape.zero


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
