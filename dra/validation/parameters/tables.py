"""Reads the tables of `drivers.json`: the parameters of each known driver, according to the driver's published sources."""

from __future__ import annotations

import ipaddress
import re
from contextlib import suppress
from enum import Enum
from functools import cached_property, partial
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from dra.finding import Finding, Findings, finding_at
from dra.raw import inside
from dra.validation.fields.shape import (
    FLAG,
    INT64,
    TEXT,
    AmountShape,
    Fields,
    Integer,
    ListOf,
    MapOf,
    OneOf,
    bad_value,
    show,
    text,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dra.validation.fields.shape import JsonShape, Rule

_LONGEST_NAME: Final = 15  # bytes of the name of a Linux network interface
_HARDWARE: Final = re.compile(
    r"[0-9a-f]{2}([:-])[0-9a-f]{2}(?:\1[0-9a-f]{2})*|[0-9a-f]{4}(?:\.[0-9a-f]{4})+", re.IGNORECASE
)
_HARDWARE_DIGITS: Final = (12, 16, 40)
_INTERFACE: Final = re.compile(r"[\w.-]*")
_PLAIN: Final[dict[str, JsonShape]] = {"string": TEXT, "boolean": FLAG}


class Order(Enum):
    """Which entry of parameters counts if several entries apply to one device."""

    LAST = "the last one"
    FIRST = "the first one"
    MERGED = "all of them, the later ones win"


class _TableRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Base of the rows of `drivers.json`."""


class FieldsRule(_TableRow, frozen=True, kw_only=True):
    """A finding about an object: all fields of `with` are set, none of `without` is set, and the fields of `equal` have these values.

    A field is set unless it is missing, null, false, 0, "" or an empty list. A dot in the path of a field separates names.
    """

    message: str
    remedy: str = ""
    code: str = "D001"
    at: str = ""  # the field at which the finding is reported; empty for the object
    present: tuple[str, ...] = msgspec.field(default=(), name="with")
    absent: tuple[str, ...] = msgspec.field(default=(), name="without")
    equal: dict[str, str | list[str]] = {}


class ParameterSchema(_TableRow, frozen=True, kw_only=True):
    """The schema of a value. In place of a schema, a text is the name of a definition."""

    type: Literal["object", "list", "map", "integer", "string", "quantity"] = "object"
    enum: tuple[str, ...] = ()
    # Of the items of a list and of the values of a map.
    items: ParameterSchema | str = ""
    # Of a text, and of the keys of a map: a regular expression, what is wrong with other texts, and a name in `_FORMATS`.
    pattern: str = ""
    problem: str = ""
    format: str = ""
    optional: bool = False  # whether "" is valid, too
    # Of a number.
    minimum: int | str | None = None
    maximum: int = INT64[-1]
    reserved: tuple[int, ...] = ()
    also: tuple[int, ...] = ()
    # Of an object. `hints` are for unknown fields. An object with `partial` may have other fields.
    fields: dict[str, ParameterSchema | str] = {}
    required: tuple[str, ...] = ()
    partial: bool = False
    hints: dict[str, str] = {}
    rules: tuple[FieldsRule, ...] = ()
    required_with: dict[str, str] = {}
    ordered: tuple[str, str] | None = None
    same_family: tuple[tuple[str, str], ...] = ()
    subnet: bool = False  # whether the field `subnet` has the network to which the addresses in the other fields belong
    # The schema for each value of the field `type`, and of fields that may contain secrets. `read_members` drops all these fields.
    by_type: dict[str, ParameterSchema] = {}
    private: dict[str, ParameterSchema] = {}


class ParameterKind(_TableRow, frozen=True, kw_only=True, dict=True):
    """The schema of one kind of parameters, and the devices for which it is."""

    schema: ParameterSchema | str
    # The values of the attribute `type` of these devices; empty if the kind is for all devices.
    devices: frozenset[str] = frozenset()
    # The feature gate of the driver that must be on for this kind.
    gate: str = ""
    # The class in the driver's chart whose devices the driver prepares only with parameters of this kind.
    device_class: str = ""

    @cached_property
    def form(self) -> JsonShape:
        return _shape(self.schema)


class KnownDriver(_TableRow, frozen=True, kw_only=True):
    """The parameters that a driver reads. A driver without a version has neither apiVersion nor kind in its parameters."""

    name: str
    source: str  # the repository of the sources, and their version
    version: str = ""
    kinds: dict[str, ParameterKind] = {}
    order: Order = Order.LAST
    # All values of the attribute `type` of the driver's devices; empty if there is no such attribute, or if not all values are known.
    types: tuple[str, ...] = ()
    # Whether the driver applies an entry without requests to no request; other drivers apply such an entry to all requests.
    listed_only: bool = False


class _Tables(_TableRow, frozen=True, kw_only=True):
    definitions: dict[str, ParameterSchema]
    drivers: tuple[KnownDriver, ...]


_TABLES: Final = msgspec.json.decode((files(__package__) / "drivers.json").read_bytes(), type=_Tables)
# The drivers whose parameters are known. Entries of other drivers are not judged.
DRIVERS: Final = {driver.name: driver for driver in _TABLES.drivers}


def _shape(schema: ParameterSchema | str) -> JsonShape:
    if isinstance(schema, str):
        return _PLAIN[schema] if schema in _PLAIN else _shape(_TABLES.definitions[schema])
    match schema.type:
        case "list":
            return ListOf(_shape(schema.items))
        case "map":
            return MapOf(_shape(schema.items), _text_rule(schema) if schema.pattern else None)
        case "integer":
            minimum = INT64.start if schema.minimum is None else int(schema.minimum)
            return Integer(minimum, schema.maximum, but=schema.reserved, also=schema.also)
        case "string":
            return OneOf(*schema.enum) if schema.enum else text(_text_rule(schema))
        case "quantity":
            return AmountShape(str(schema.minimum or ""))
    fields = {name: _shape(field) for name, field in schema.fields.items()}
    by_type = {type_: _shape(inner) for type_, inner in schema.by_type.items()}
    private = {name: _shape(inner) for name, inner in schema.private.items()}
    rule = partial(_object_findings, schema, by_type, private)
    form = Fields(fields, demanded=schema.required, moved=schema.hints, rule=rule)
    form.partial = schema.partial
    return form


def _text_rule(schema: ParameterSchema) -> Rule:
    pattern, problem_of = re.compile(schema.pattern or ".*", re.DOTALL), _FORMATS[schema.format]

    def rule(value: str) -> str:
        if not value and schema.optional:
            return ""
        return problem_of(value) if pattern.fullmatch(value) else schema.problem

    return rule


def _object_findings(
    schema: ParameterSchema,
    by_type: Mapping[str, JsonShape],
    private: Mapping[str, JsonShape],
    value: Mapping[str, Any],
    path: str,
) -> Findings:
    """Check the fields of an object against each other."""
    for rule in schema.rules:
        is_set = {name: _is_set(value, name) for name in rule.present + rule.absent}
        equal = all(value.get(name) == wanted for name, wanted in rule.equal.items())
        if equal and all(is_set[name] == (name in rule.present) for name in is_set):
            yield finding_at(rule.code, f"{path}/{rule.at}" if rule.at else path, rule.message, rule.remedy)
    for name, other in schema.required_with.items():
        if value.get(name) is not None and value.get(other) is None:
            yield bad_value(f"{path}/{name}", f"{name} needs {other}")
    if schema.ordered is not None:
        low, high = (value.get(name) for name in schema.ordered)
        if low is not None and high is not None and low > high:
            yield bad_value(f"{path}/{schema.ordered[1]}", f"{high} is less than {schema.ordered[0]}")
    for first, second in schema.same_family:
        families = _family(value.get(first)), _family(value.get(second))
        if 0 not in families and families[0] != families[1]:
            yield bad_value(f"{path}/{second}", f"{second} is of IPv{families[1]} and {first} of IPv{families[0]}")
    if schema.subnet and value.get("subnet"):
        yield from _in_subnet(value, path)
    found: list[Finding] = []
    if value.get("type") in by_type:
        by_type[value["type"]].check(value, path, found)
    for name, shape in private.items():
        if value.get(name) is not None:
            shape.check(value[name], f"{path}/{name}", found)
    yield from found


def _is_set(value: Mapping[str, Any], path: str) -> bool:
    *parents, name = path.split(".")
    member = inside(value, *parents).get(name)
    return bool(member) or isinstance(member, dict)


def _in_subnet(value: Mapping[str, Any], path: str) -> Findings:
    """Check the addresses of a range as the CNI plugin host-local does."""
    subnet = ipaddress.ip_interface(value["subnet"]).network
    if subnet.prefixlen > subnet.max_prefixlen - 2:
        yield bad_value(f"{path}/subnet", f"{show(str(subnet))} has no address to allocate")
    addresses = {
        name: ipaddress.ip_address(value[name]) for name in ("rangeStart", "rangeEnd", "gateway") if value.get(name)
    }
    outside = [name for name, address in addresses.items() if address not in subnet]
    for name in outside:
        yield bad_value(f"{path}/{name}", f"{show(value[name])} is not in the subnet {subnet}")
    first, last = addresses.get("rangeStart"), addresses.get("rangeEnd")
    if not outside and first is not None and last is not None and int(first) > int(last):
        yield bad_value(f"{path}/rangeEnd", f"{show(value['rangeEnd'])} is before rangeStart")


# The formats of texts: each returns what is wrong with a text, or "".


def _interface(name: str) -> str:
    if len(name.encode()) > _LONGEST_NAME:
        return f"is longer than the {_LONGEST_NAME} bytes of an interface's name"
    if name in (".", "..") or not _INTERFACE.fullmatch(name):
        return "is not the name of an interface, which may contain only letters, digits, '-', '_' and '.'"
    return ""


def _network(value: str, version: int = 0) -> str:
    address, _, length = value.partition("/")
    if length.isdecimal() and "%" not in address:
        with suppress(ValueError):
            found = ipaddress.ip_interface(value).version
            return f"is not an address of IPv{version}" if version not in (0, found) else ""
    return "is not an address with a prefix length, as in 192.0.2.1/24"


def _address(value: str) -> str:
    return "" if "%" not in value and _family(value) and "/" not in value else "is not an IP address"


def _hardware_address(value: str) -> str:
    digits = len(re.sub("[:.-]", "", value))
    is_address = _HARDWARE.fullmatch(value) and digits in _HARDWARE_DIGITS
    return "" if is_address else "is not a hardware address, as in 02:00:5e:10:00:01"


def _family(value: object) -> int:
    """Return the version of IP of an address or a network; 0 if the value is neither."""
    try:
        return ipaddress.ip_address(str(value).partition("/")[0]).version
    except ValueError:
        return 0


_FORMATS: Final[dict[str, Rule]] = {
    "": lambda _: "",
    "interface": _interface,
    "network": _network,
    "IPv4 network": partial(_network, version=4),
    "IPv6 network": partial(_network, version=6),
    "address": _address,
    "hardware address": _hardware_address,
}
