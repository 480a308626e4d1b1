"""What makes two devices interchangeable: everything but their names and their attributes, as one token.

Attributes are left out because most of them (serial numbers, bus addresses) are asked for by nobody: who asks adds the
few values it reads. Tokens are compared by identity; two devices with the same token have the same body. The opposite may
fail to hold once an `Interner` has forgotten a token, which costs sharing and nothing else.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

import msgspec

from dra.errors import SemverError
from dra.semver import Version

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from dra.objects import (
        CapacityRequestPolicy,
        CounterSet,
        Device,
        DeviceAttribute,
        DeviceCapacity,
        DeviceCounterConsumption,
        ResourceSliceSpec,
    )
    from dra.quantity import Quantity

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
    closed: str  # the gate without which nobody gets it, if that is off


class Content(msgspec.Struct, frozen=True, eq=False, gc=False):
    """The token of a slice's content apart from all names of devices and their attributes."""


class Interner(Generic[T]):
    """Gives equal contents the same token: identity for what is equal, as `sys.intern` does it for text.

    It is bounded by what the contents weigh, since strangers publish them: two halves as in `dra.cache`, written out here
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
        return found if found is not None else self._admit(content, make)

    def _admit(self, content: Hashable, make: Callable[[], T]) -> T:
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


_CONTENTS: Interner[Content] = Interner()
_PLAINS: Interner[Plain] = Interner()
_BODIES: Interner[Body] = Interner()


def content(spec: ResourceSliceSpec, devices: tuple[Device, ...], bodies: tuple[Body, ...]) -> Content:
    """Find the token of a slice whose devices have these bodies."""
    key = (
        spec.driver,
        spec.pool.generation,
        spec.pool.resource_slice_count,
        bodies,
        len({device.name for device in devices}) == len(devices),
        any(device.binding_conditions is not None for device in devices),
        tuple([_counter_set_key(one) for one in spec.shared_counters]),
    )
    return _CONTENTS.token(key, Content)


def _counter_set_key(one: CounterSet) -> tuple[str, tuple[tuple[str, int], ...]]:
    return one.name, tuple(sorted((name, counter.value.nano) for name, counter in one.counters.items()))


def body(device: Device, *, shares: bool = True, closed: str = "") -> Body:
    """Find the token of a device, as an allocator sees it that knows shares or not."""
    shared = shares and bool(device.allow_multiple_allocations)
    readable = all(map(_readable, device.attributes.values()))
    amounts: tuple[object, ...] = ()
    taints: tuple[object, ...] = ()
    consumption: Consumption = ()
    # Most devices have none of these, and a loop over nothing costs more than a look.
    capacity = device.capacity
    if capacity:
        amounts = tuple([_amount(name, capacity[name]) for name in sorted(capacity)])
    if device.taints:
        taints = tuple([(taint.key, taint.value, taint.effect) for taint in device.taints])
    nodes = device.node_name, device.all_nodes, device.node_selector
    alone = (
        shared,
        readable,
        amounts,
        taints,
        nodes,
        closed,
    )
    plain = _PLAINS.token(alone, Plain)
    consumed = device.consumes_counters
    if consumed:
        consumption = tuple([_counter_use(one) for one in consumed])
    key = plain, consumption

    def make() -> Body:
        return Body(plain, consumption, shared, closed)

    return _BODIES.token(key, make)


def _amount(name: str, one: DeviceCapacity) -> tuple[object, ...]:
    return name, *_number(one.value), _policy(one.request_policy)


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


def _number(quantity: Quantity) -> tuple[int, str, bool]:
    """Whatever of a quantity a selector or a policy can tell apart."""
    return quantity.nano, quantity.format, quantity.as_int() is None


def _policy(policy: CapacityRequestPolicy | None) -> object:
    if policy is None:
        return None
    between = policy.valid_range
    return (
        policy.default and _number(policy.default),
        tuple(_number(value) for value in policy.valid_values),
        between and tuple(bound and _number(bound) for bound in (between.min, between.max, between.step)),
    )


def _counter_use(one: DeviceCounterConsumption) -> CounterUse:
    counters = sorted([(name, counter.value.nano) for name, counter in one.counters.items()])
    return CounterUse(one.counter_set, tuple(counters), tuple(sorted(set(one.compatibility_groups))))
