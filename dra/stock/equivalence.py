"""Tokens for the contents of devices and slices. Devices with the same token differ only in their names and attributes.

An allocator evaluates devices with the same token once. A token does not cover attributes, because requests rarely read
most of them (serial numbers, bus addresses); to the token, the allocator adds the values that a request reads. Tokens
are compared by identity. After an `Interner` has dropped a token, equal contents may get different tokens, which costs
time but is not wrong.
"""

from __future__ import annotations

from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import msgspec

from dra.errors import SemverError
from dra.objects import Device, DeviceTaint, ResourceSliceSpec
from dra.quantity import Quantity
from dra.semver import Version

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from dra.objects import DeviceAttribute

T = TypeVar("T")
_MAX_BYTES = 32 << 20  # bytes of content in each interner


class CounterUse(NamedTuple):
    """What a device consumes of one counter set. The counters are a tuple, because the object is used as a key."""

    counter_set: str
    counters: tuple[tuple[str, int], ...]  # counter, nano-units
    groups: tuple[str, ...]  # the device's compatibility groups for this counter set


Consumption = tuple[CounterUse, ...]


class Plain(msgspec.Struct, frozen=True, eq=False, gc=False):
    """The token of a device's content without name, attributes and counters."""


class Body(msgspec.Struct, frozen=True, eq=False, gc=False):
    """The token of a device's content without name and attributes."""

    plain: Plain
    consumption: Consumption
    multi: bool  # whether several requests may share the device
    missing_gate: str  # a disabled feature gate without which the device is never allocated, or ""


class SliceContent(msgspec.Struct, frozen=True, eq=False, gc=False):
    """The token of a slice's content without the names and attributes of devices."""


class Interner(Generic[T]):
    """Returns the same token for equal contents, as `sys.intern` does for strings.

    Drivers choose the contents, so the memory is bounded as in `dra.cache`. This class repeats the two halves of that
    cache because every published device is looked up twice, and one call less takes 7 % off the time to build a stock.
    """

    def __init__(self, limit: int = _MAX_BYTES) -> None:
        self._half = limit // 2
        self._young: dict[Hashable, T] = {}
        self._old: dict[Hashable, T] = {}
        self._weight = 0  # the weight of the young half

    def token(self, content: Hashable, make: Callable[[], T]) -> T:
        token = self._young.get(content)
        if token is not None:
            return token
        token = self._old.pop(content, None)
        if token is None:
            token = make()
        weight = _weight(content)
        if weight > self._half:
            return token
        if self._weight + weight > self._half:
            self._old, self._young, self._weight = self._young, {}, 0
        self._young[content] = token
        self._weight += weight
        return token


def _weight(content: object) -> int:
    """Estimate the bytes that a content keeps alive."""
    weight = 0
    todo = [content]
    while todo:
        part = todo.pop()
        if isinstance(part, tuple):
            weight += 56 + 8 * len(part)
            todo += part
        elif isinstance(part, str):
            weight += 50 + len(part)
        elif isinstance(part, msgspec.Struct) and not isinstance(part, Plain | Body):
            weight += 100
            todo += [getattr(part, name) for name in part.__struct_fields__]
    return weight


_CONTENTS: Interner[SliceContent] = Interner()
_PLAINS: Interner[Plain] = Interner()
_BODIES: Interner[Body] = Interner()
# Every field of an API type is part of the content, except the fields listed here, each with the reason.
LEFT_OUT: dict[type[msgspec.Struct], frozenset[str]] = {
    Device: frozenset(
        (
            "name",  # devices that differ in nothing else are interchangeable
            "attributes",  # the allocator adds the values that a request reads
            "consumes_counters",  # in `Body.consumption`
            "allow_multiple_allocations",  # in `Body.multi`, if the server supports shares
            "binds_to_node",  # it matters only after an allocation, as the binding conditions do
            "binding_conditions",  # the content of a slice says whether any device has a list of them
            "binding_failure_conditions",
            "node_allocatable_resources",  # counted by the scheduler, not by the allocator
        )
    ),
    DeviceTaint: frozenset(("time_added",)),
    ResourceSliceSpec: frozenset(
        (
            "pool",  # `content` adds its generation and slice count; its name is the node's name in most fleets
            "devices",  # `content` adds their bodies
            "node_name",  # the node selection of a slice is evaluated separately, for each node
            "node_selector",
            "all_nodes",
            "per_device_node_selection",
            "skip_node_operations",
            "partition_type_attribute",  # informational
        )
    ),
}


def content(spec: ResourceSliceSpec, devices: tuple[Device, ...], bodies: tuple[Body, ...]) -> SliceContent:
    """Return the token of a slice whose devices have these bodies."""
    key = (
        spec.pool.generation,
        spec.pool.resource_slice_count,
        bodies,
        len({device.name for device in devices}) == len(devices),
        any(device.binding_conditions is not None for device in devices),
        _content_key(spec),
    )
    return _CONTENTS.token(key, SliceContent)


def body(device: Device, *, shares: bool = True, missing_gate: str = "") -> Body:
    """Return the token of a device.

    Without `shares`, the allocator does not support devices that several requests share.
    """
    shared = shares and bool(device.allow_multiple_allocations)
    readable = all(map(_readable, device.attributes.values()))
    plain = _PLAINS.token((shared, readable, missing_gate, _content_key(device)), Plain)
    uses: list[CounterUse] = []
    for consumed in device.consumes_counters:
        counters = sorted([(name, counter.value.nano) for name, counter in consumed.counters.items()])
        groups = sorted(set(consumed.compatibility_groups))
        uses.append(CounterUse(consumed.counter_set, tuple(counters), tuple(groups)))
    consumption = tuple(uses)

    def make() -> Body:
        return Body(plain, consumption, shared, missing_gate)

    return _BODIES.token((plain, consumption), make)


def _content_key(value: object) -> object:
    """Convert an API value to a hashable key of its content."""
    kind = value.__class__
    to_key = _KEY_MAKERS.get(kind)
    if to_key is None:
        to_key = _KEY_MAKERS[kind] = _key_maker(kind)
    return to_key(value)


def _key_maker(kind: type) -> Callable[[Any], object]:
    if not issubclass(kind, msgspec.Struct):
        return lambda value: value
    left_out = LEFT_OUT.get(kind, frozenset())
    names = [name for name in kind.__struct_fields__ if name not in left_out]
    if len(names) == 1:
        return lambda value: _content_key(getattr(value, names[0]))
    read = attrgetter(*names)
    # Most values are scalars, and a call for each scalar would take half as long again.
    return lambda value: tuple(
        [member if member.__class__ in _SCALARS else _content_key(member) for member in read(value)]
    )


_SCALARS = {type(None), bool, int, str}
_KEY_MAKERS: dict[type, Callable[[Any], object]] = {
    dict: lambda value: tuple([(name, _content_key(value[name])) for name in sorted(value)]) if value else (),
    tuple: lambda value: tuple([_content_key(member) for member in value]) if value else (),
    # Everything about a quantity that a selector or a policy can distinguish.
    Quantity: lambda value: (value.nano, value.format, value.as_int() is None),
}


def _readable(attribute: DeviceAttribute) -> bool:
    """Whether selectors can be evaluated at all on a device with this attribute."""
    attr = attribute
    if attr.ints is not None or attr.bools is not None or attr.strings is not None:
        return True
    if attr.versions is not None:
        return all(map(_is_version, attr.versions))
    if attr.string is not None or attr.int_ is not None or attr.bool_ is not None:
        return True
    if attr.version is None:
        return False
    return _is_version(attr.version)


@lru_cache(maxsize=1024)
def _is_version(text: str) -> bool:
    try:
        Version.parse(text)
    except SemverError:
        return False
    return True
