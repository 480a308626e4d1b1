"""All published devices, and the results of selectors on them.

A selector is evaluated once for all devices that have equal values of the attributes that it reads, so many equal devices cost little.
Only the newest generation of each pool counts, even if it is incomplete, because the checks ask which devices exist, not which are free.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dra import cel
from dra.errors import NoSuchKey, SelectorError
from dra.stock import newest

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    from dra.objects import Device, DeviceAttribute, DeviceSelector, ResourceSlice
    from dra.quantity import Quantity


class PublishedDevice(NamedTuple):
    """A device with its driver, pool and node."""

    driver: str
    pool: str
    slice: str
    device: Device
    node: str = ""  # the only node that can use the device; "" if several nodes can

    @property
    def id(self) -> tuple[str, str, str]:
        return self.driver, self.pool, self.device.name

    @property
    def reference(self) -> str:
        return "/".join(self.id)

    def attribute(self, name: str) -> DeviceAttribute | None:
        """Return an attribute by its fully qualified name, as constraints look up attributes."""
        domain, _, bare = name.partition("/")
        attribute = self.device.attributes.get(name)
        return attribute if attribute is not None or domain != self.driver else self.device.attributes.get(bare)


class SelectorFailure(NamedTuple):
    """The failure of a selector on a device. It ends the scheduling of the claim's pod; it does not mean "no match"."""

    selector: int
    device: PublishedDevice
    error: SelectorError

    @property
    def missing_key(self) -> str:
        """The key that the device does not have; "" if the selector failed for another reason."""
        return self.error.key if isinstance(self.error, NoSuchKey) else ""


class Matches(NamedTuple):
    """The devices that all selectors of a list select, and the first failure of a selector."""

    devices: tuple[PublishedDevice, ...]
    failure: SelectorFailure | None = None


class Fleet:
    """Every published device."""

    def __init__(self, slices: Iterable[ResourceSlice]) -> None:
        devices: list[PublishedDevice] = []
        # The declared value of each counter, by driver, pool, counter set and counter.
        self.counters: dict[tuple[str, str, str, str], Quantity] = {}
        for piece in newest(slices):
            spec = piece.spec
            driver, pool = spec.driver, spec.pool.name
            name = piece.metadata.name
            devices += [PublishedDevice(driver, pool, name, device, spec.node_of(device)) for device in spec.devices]
            for counter_set in spec.shared_counters:
                for name, counter in counter_set.counters.items():
                    self.counters[driver, pool, counter_set.name, name] = counter.value
        self.devices = tuple(devices)
        self._known: dict[Hashable, Matches] = {}
        self._views: dict[int, cel.DeviceView] = {}
        self._names: dict[str, frozenset[tuple[str, str]]] = {}

    def matching(self, selectors: Sequence[DeviceSelector], among: Matches | None = None) -> Matches:
        """Return the devices that all selectors match. They are evaluated in order, as in the scheduler.

        `among` is an earlier result of this fleet; only the devices of that result are considered.
        """
        expressions = [selector.cel.expression if selector.cel else None for selector in selectors]
        key = tuple(expressions), id(among)
        if key not in self._known:
            self._known[key] = self._evaluate(selectors, self.devices if among is None else among.devices)
        return self._known[key]

    def names(self, kind: str) -> frozenset[tuple[str, str]]:
        """Return all published attributes or capacities, as domain and name."""
        if kind not in self._names:
            names: set[tuple[str, str]] = set()
            for published in self.devices:
                for name in published.device.attributes if kind == "attributes" else published.device.capacity:
                    domain, slash, end = name.partition("/")
                    names.add((domain, end) if slash else (published.driver, name))
            self._names[kind] = frozenset(names)
        return self._names[kind]

    def _evaluate(self, selectors: Sequence[DeviceSelector], devices: tuple[PublishedDevice, ...]) -> Matches:
        failure: SelectorFailure | None = None
        for number, selector in enumerate(selectors):
            if selector.cel is None:
                return Matches(())
            try:
                compiled = cel.compile(selector.cel.expression)
            except SelectorError:
                return Matches(())  # another check reports that the expression does not compile
            answers: dict[Hashable, bool | SelectorError] = {}
            readable = []
            for published in devices:
                key = _read(compiled.reads, published)
                answer = answers.get(key) if key is not None else None
                if answer is None:
                    view = self._views.get(id(published))
                    if view is None:
                        view = self._views[id(published)] = cel.view_of(published.driver, published.device)
                    try:
                        answer = compiled.matches(view)
                    except SelectorError as error:
                        answer = error
                    answers[key] = answer
                if answer is True:
                    readable.append(published)
                elif isinstance(answer, SelectorError) and failure is None:
                    failure = SelectorFailure(number, published, answer)
            devices = tuple(readable)
        return Matches(devices, failure)


def _read(reads: cel.Reads, published: PublishedDevice) -> Hashable:
    """Return a key of the values that a selector reads of a device; None if the selector reads everything."""
    if reads.everything:
        return None
    device, driver = published.device, published.driver
    scalars = {"driver": driver, "allowMultipleAllocations": bool(device.allow_multiple_allocations)}
    values: list[Hashable] = [scalars[name] for name in sorted(reads.scalars)]
    for kind, domain, name in sorted(reads.names):
        entries = device.attributes if kind == "attributes" else device.capacity
        value = entries.get(f"{domain}/{name}")
        if value is None and domain == driver:
            value = entries.get(name)
        values.append(repr(value))  # keeps the type: True is not 1
    return (driver if reads.names else "", *values)
