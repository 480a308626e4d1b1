"""What makes two devices interchangeable: everything but their names and their attributes, as one token.

Attributes are left out because most of them (serial numbers, bus addresses) are rarely asked for: a request that does adds the
few values that it reads. Tokens are compared by identity; two devices with the same token have the same body. The opposite may
fail to hold once an `Interner` has forgotten a token, which costs sharing and nothing else.
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
_MOST_BYTES = 32 << 20  # of content that each interner remembers


class CounterUse(NamedTuple):
    """What a device consumes of one counter set. A tuple, since units are found by it."""

    counter_set: str
    counters: tuple[tuple[str, int], ...]  # counter, nano-units
    groups: tuple[str, ...]  # declared for this set


Consumption = tuple[CounterUse, ...]


class Plain(msgspec.Struct, frozen=True, eq=False, gc=False):
    """The token of what matters to a request that looks at one device alone."""


class Body(msgspec.Struct, frozen=True, eq=False, gc=False):
    """The token of a device's content apart from name and attributes."""

    plain: Plain
    consumption: Consumption
    multi: bool  # may be in use more than once
    closed: str  # the feature gate without which it is not allocated, if that is off


class SliceContent(msgspec.Struct, frozen=True, eq=False, gc=False):
    """The token of a slice's content apart from all names of devices and their attributes."""


class Interner(Generic[T]):
    """Gives equal contents the same token: identity for what is equal, as `sys.intern` does it for text.

    It is bounded by what the contents weigh, since drivers publish them: two halves as in `dra.cache`, written out here
    because every device that is published asks twice, and one call the less is 7 % of building a stock.
    """

    def __init__(self, limit: int = _MOST_BYTES) -> None:
        self._half = limit // 2
        self._young: dict[Hashable, T] = {}
        self._old: dict[Hashable, T] = {}
        self._weight = 0  # of the young half

    def token(self, content: Hashable, make: Callable[[], T]) -> T:
        """Find the token of a content, or make it."""
        found = self._young.get(content)
        if found is not None:
            return found
        found = self._old.pop(content, None)
        if found is None:
            found = make()
        weight = _weight(content)
        if weight > self._half:
            return found
        if self._weight + weight > self._half:
            self._old, self._young, self._weight = self._young, {}, 0
        self._young[content] = found
        self._weight += weight
        return found

    def __len__(self) -> int:
        return len(self._young) + len(self._old)


def _weight(content: object) -> int:
    """Estimate how many bytes a content keeps alive."""
    weight = 0
    todo = [content]
    while todo:
        one = todo.pop()
        if isinstance(one, tuple):
            weight += 56 + 8 * len(one)
            todo += one
        elif isinstance(one, str):
            weight += 50 + len(one)
        elif isinstance(one, msgspec.Struct) and not isinstance(one, Plain | Body):
            weight += 100
            todo += [getattr(one, name) for name in one.__struct_fields__]
    return weight


_CONTENTS: Interner[SliceContent] = Interner()
_PLAINS: Interner[Plain] = Interner()
_BODIES: Interner[Body] = Interner()
# Whatever else an API object says tells it from others: a field that Kubernetes adds counts as soon as the struct has it.
# These do not, each for its reason.
LEFT_OUT: dict[type[msgspec.Struct], frozenset[str]] = {
    Device: frozenset(
        (
            "name",  # two devices that differ in nothing else are interchangeable
            "attributes",  # added by who asks
            "consumes_counters",  # part of the body, `consumption`
            "allow_multiple_allocations",  # as the server reads it: `multi`
            "binds_to_node",  # as are the conditions, this is about what follows an allocation
            "binding_conditions",  # whether there are any is part of the content of a slice
            "binding_failure_conditions",
            "node_allocatable_resources",  # the scheduler counts these, the allocator does not
        )
    ),
    DeviceTaint: frozenset(("time_added",)),
    ResourceSliceSpec: frozenset(
        (
            "pool",  # its generation and count are added, its name is the node's in most fleets
            "devices",  # added as bodies
            "node_name",  # which nodes a slice is for is asked for each node
            "node_selector",
            "all_nodes",
            "per_device_node_selection",
            "skip_node_operations",
            "partition_type_attribute",  # for people
        )
    ),
}


def content(spec: ResourceSliceSpec, devices: tuple[Device, ...], bodies: tuple[Body, ...]) -> SliceContent:
    """Find the token of a slice whose devices have these bodies."""
    key = (
        spec.pool.generation,
        spec.pool.resource_slice_count,
        bodies,
        len({device.name for device in devices}) == len(devices),
        any(device.binding_conditions is not None for device in devices),
        _told(spec),
    )
    return _CONTENTS.token(key, SliceContent)


def body(device: Device, *, shares: bool = True, closed: str = "") -> Body:
    """Find the token of a device, as an allocator sees it that knows shares or not."""
    shared = shares and bool(device.allow_multiple_allocations)
    readable = all(map(_readable, device.attributes.values()))
    plain = _PLAINS.token((shared, readable, closed, _told(device)), Plain)
    uses: list[CounterUse] = []
    for one in device.consumes_counters:
        counters = sorted([(name, counter.value.nano) for name, counter in one.counters.items()])
        groups = sorted(set(one.compatibility_groups))
        uses.append(CounterUse(one.counter_set, tuple(counters), tuple(groups)))
    consumption = tuple(uses)

    def make() -> Body:
        return Body(plain, consumption, shared, closed)

    return _BODIES.token((plain, consumption), make)


def _told(value: object) -> object:
    """Tell what distinguishes an API value from others."""
    kind = value.__class__
    tell = _TELLERS.get(kind)
    if tell is None:
        tell = _TELLERS[kind] = _teller(kind)
    return tell(value)


def _teller(kind: type) -> Callable[[Any], object]:
    if not issubclass(kind, msgspec.Struct):
        return lambda value: value
    left_out = LEFT_OUT.get(kind, frozenset())
    names = [name for name in kind.__struct_fields__ if name not in left_out]
    if len(names) == 1:
        return lambda value: _told(getattr(value, names[0]))
    read = attrgetter(*names)
    # Most values are plain, and a call for each would take half as long again.
    return lambda value: tuple([one if one.__class__ in _PLAIN else _told(one) for one in read(value)])


_PLAIN = {type(None), bool, int, str}
_TELLERS: dict[type, Callable[[Any], object]] = {
    dict: lambda value: tuple([(name, _told(value[name])) for name in sorted(value)]) if value else (),
    tuple: lambda value: tuple([_told(one) for one in value]) if value else (),
    # Whatever of it a selector or a policy can tell apart.
    Quantity: lambda value: (value.nano, value.format, value.as_int() is None),
}


def _readable(attribute: DeviceAttribute) -> bool:
    """Say whether selectors can be evaluated on a device with this attribute at all, whichever they read."""
    one = attribute
    if one.ints is not None or one.bools is not None or one.strings is not None:
        return True
    if one.versions is not None:
        return all(map(_is_version, one.versions))
    if one.string is not None or one.int_ is not None or one.bool_ is not None:
        return True
    if one.version is None:
        return False
    return _is_version(one.version)


@lru_cache(maxsize=1024)
def _is_version(text: str) -> bool:
    try:
        Version.parse(text)
    except SemverError:
        return False
    return True
