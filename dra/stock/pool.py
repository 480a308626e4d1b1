"""Pools: slices of one driver and pool name, put together as one node sees them.

Which slices count (generation, completeness), which devices can be reached, in which order they are tried, and what makes
a pool invalid. Mirrors `GatherPools` in k8s.io/dynamic-resource-allocation/structured/internal/experimental/pools_experimental.go,
its blind spots included: a stale slice that satisfies its own slice count is used although a newer generation exists for
other nodes only.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from dra import server as gates
from dra.errors import NodeSelectorError
from dra.objects import Device, ResourceSlice, selects
from dra.objects import node as nodes
from dra.stock.equivalence import Body, Content, body, content
from dra.stock.reading import ALL, Reading
from dra.stock.usage import PoolId

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from dra.objects import DeviceTaintRule, Node


class Page(msgspec.Struct, frozen=True, eq=False):
    """One slice as an allocator looks at it: its devices carry the taints of the rules, too.

    Pages are compared by identity and live as long as the slice does not change, so whoever computes something from a
    page alone may remember it by the page.
    """

    slice: ResourceSlice
    devices: tuple[Device, ...]
    bodies: tuple[Body, ...]  # what makes them interchangeable, device by device
    pool: PoolId
    content: Content  # what makes the page interchangeable with others, apart from names and attributes
    seen: bool = True  # else its devices are not to be had, although it may count
    counts: bool = True  # when the pool is looked at for being complete
    everywhere: bool = False  # a slice of counters that is there for each node

    @property
    def name(self) -> str:
        return self.slice.metadata.name

    @property
    def generation(self) -> int:
        return self.slice.spec.pool.generation

    @property
    def node_name(self) -> str:
        return "" if self.everywhere else self.slice.spec.node_name or ""


def page(slice_: ResourceSlice, rules: Iterable[DeviceTaintRule] = (), reading: Reading = ALL) -> Page:
    """Prepare a slice as an allocator reads it, adding the taints of rules as resourceslice/tracker does."""
    spec = slice_.spec
    driver, pool = spec.driver, spec.pool.name
    devices = spec.devices
    if reading is not ALL:
        devices = tuple([reading.device(device) for device in devices])
    for rule in rules if reading.rules else ():
        if rule.spec.device_selector is not None:
            devices = tuple(
                msgspec.structs.replace(device, taints=(*device.taints, rule.spec.taint))
                if selects(rule, driver, pool, device.name)
                else device
                for device in devices
            )
    if reading is ALL:
        bodies = tuple([body(device) for device in devices])
        return Page(slice_, devices, bodies, (driver, pool), content(spec, devices, bodies))
    shares = reading.on(gates.CAPACITY)
    closed = map(reading.closed, spec.devices)
    bodies = tuple([body(device, shares=shares, closed=gate) for device, gate in zip(devices, closed, strict=True)])
    return Page(
        slice_,
        devices,
        bodies,
        (driver, pool),
        content(spec, devices, bodies),
        reading.sees(slice_) and reading.counts(slice_),
        reading.counts(slice_),
        reading.counters_everywhere and bool(spec.shared_counters),
    )


class PoolStatus(StrEnum):
    OK = "ok"
    INCOMPLETE = "incomplete"
    INVALID = "invalid"


class Pool(msgspec.Struct, frozen=True, eq=False):
    """One pool as seen from one node. Pages with devices only: `here` can be reached, `elsewhere` counts for counters."""

    id: PoolId
    status: PoolStatus = PoolStatus.OK
    reason: str = ""
    here: tuple[Page, ...] = ()
    elsewhere: tuple[Page, ...] = ()
    counters: dict[str, dict[str, int]] = {}  # counter set → counter → declared value in nano-units
    binding: bool = False
    # Of a pool that is not OK: what is known of it. Nobody is given its devices now; who holds one goes on holding it.
    unusable: tuple[Page, ...] = ()

    def pages(self) -> tuple[Page, ...]:
        """Every page with devices, those that can be reached first."""
        return self.here + self.elsewhere


def _order(pool: Pool) -> tuple[bool, bytes, bytes]:
    driver, name = pool.id
    return pool.binding, driver.encode(), name.encode()


def gather(
    node: Node,
    own: Iterable[Page],
    shared: Iterable[Page],
    every: Mapping[PoolId, tuple[Page, ...]],
    reading: Reading = ALL,
) -> list[Pool]:
    """Put together the pools that a node can reach, in the order in which their devices are tried.

    `own` are the pages that name the node, `shared` those that name none, `every` all pages of the cluster by pool.
    """
    kept: dict[PoolId, list[Page]] = {}
    for candidate in (*own, *shared):
        if not targets(candidate, node):
            continue
        generation = candidate.generation
        pages = kept.setdefault(candidate.pool, [])
        if pages and generation > pages[0].generation:
            pages.clear()
        if not pages or generation == pages[0].generation:
            pages.append(candidate)
    pools: list[Pool] = []
    for id_, pages in kept.items():
        pool = _pool(id_, pages, every[id_], reading)
        if pool is None:
            continue
        if pool.status is not PoolStatus.OK:
            known = sorted(every[id_], key=_newest_first)
            pool = msgspec.structs.replace(pool, unusable=tuple(known))
        pools.append(pool)
    return sorted(pools, key=_order)


def _newest_first(one: Page) -> int:
    return -one.generation


def usable(slices: Iterable[ResourceSlice]) -> list[ResourceSlice]:
    """Keep the newest generation of each pool: if all of its slices are there, and no node finds it invalid."""
    pools: dict[PoolId, list[ResourceSlice]] = {}
    for one in slices:
        pool_id = one.spec.driver, one.spec.pool.name
        members = pools.setdefault(pool_id, [])
        members.append(one)
    kept: list[ResourceSlice] = []
    for members in pools.values():
        newest = max(one.spec.pool.generation for one in members)
        current = [one for one in members if one.spec.pool.generation == newest]
        expected = current[0].spec.pool.resource_slice_count
        if len(current) == expected and not _is_invalid(current):
            kept += current
    return kept


def _is_invalid(slices: Iterable[ResourceSlice]) -> bool:
    """Whether the slices of a pool contradict each other, as `_build` finds for one node."""
    counters: dict[str, Collection[str]] = {}
    for one in slices:
        for counter_set in one.spec.shared_counters:
            if counter_set.name in counters:
                return True
            counters[counter_set.name] = counter_set.counters
    devices = (device for one in slices for device in one.spec.devices)
    return _repeats_a_name(slices) or bool(_unknown_counter(devices, counters))


def _repeats_a_name(slices: Iterable[ResourceSlice]) -> bool:
    """Whether two devices have one name where a node may reach both, which makes a pool invalid there (`_build`).

    Slices of different nodes may repeat each other's names: no node sees both. What a selector reaches is not looked at,
    so slices with different ones count as apart; what is for all nodes is together with everything.
    """
    everywhere: set[str] = set()
    apart: dict[object, set[str]] = {}
    for one in slices:
        spec = one.spec
        place = everywhere if spec.all_nodes else apart.setdefault(spec.node_name or spec.node_selector, set())
        for device in spec.devices:
            if device.name in place:
                return True
            place.add(device.name)
    return any(not everywhere.isdisjoint(names) for names in apart.values())


def targets(page_: Page, node: Node) -> bool:
    """Say whether a slice has something for the node; a slice without any node selection has not."""
    spec = page_.slice.spec
    if page_.everywhere or not page_.seen:
        return page_.seen
    try:
        if spec.node_name or spec.all_nodes or spec.node_selector is not None:
            return reaches(spec, node)
        return bool(spec.per_device_node_selection) and any(reaches(device, node) for device in page_.devices)
    except NodeSelectorError as error:
        raise NodeSelectorError(f"ResourceSlice/{page_.name}: node selector: {error}") from error


def reaches(place: Device | msgspec.Struct, node: Node) -> bool:
    """Say whether the node selection of a slice or a device includes the node."""
    if name := getattr(place, "node_name", None):
        return bool(name == node.metadata.name)
    if getattr(place, "all_nodes", None):
        return True
    selector = getattr(place, "node_selector", None)
    return selector is not None and nodes.matches(selector, node)


def _pool(id_: PoolId, kept: list[Page], every: tuple[Page, ...], reading: Reading) -> Pool | None:
    first = kept[0]
    generation = first.generation
    expected = first.slice.spec.pool.resource_slice_count
    rest: list[Page] = []
    in_order = sorted(kept, key=_name_in_bytes)
    if reading.oldest and len(kept) != expected:
        return _half_seen(id_, in_order, expected)
    if len(kept) != expected:
        if any(other.generation > generation for other in every):
            return None
        newest = [other for other in every if other.generation == generation]
        current = [other for other in newest if other.counts]
        if len(current) != expected:
            reason = f"{len(current)} slices of generation {generation} exist, resourceSliceCount says {expected}"
            return Pool(id_, PoolStatus.INCOMPLETE, reason)
        if len(kept) < len(current):
            names = {one.name for one in kept}
            rest = [other for other in current if other.name not in names]
    counted = reading.on(gates.COUNTERS)
    return _build(id_, in_order, rest, counted=counted)


def _name_in_bytes(one: Page) -> bytes:
    return one.name.encode()


def _half_seen(id_: PoolId, kept: list[Page], expected: int) -> Pool:
    """What the oldest allocator makes of a pool of which a node does not see all: its devices can be had."""
    reason = f"{len(kept)} slices are for the node, resourceSliceCount says {expected}"
    here = [one for one in kept if not one.slice.spec.shared_counters]
    return Pool(
        id_,
        PoolStatus.INCOMPLETE,
        reason,
        tuple(here),
        binding=_binds(here),
    )


def _build(id_: PoolId, kept: list[Page], rest: list[Page], *, counted: bool) -> Pool:
    here = [one for one in kept if not one.slice.spec.shared_counters]
    elsewhere = [one for one in rest if not one.slice.spec.shared_counters]
    counters: dict[str, dict[str, int]] = {}
    reason = _duplicate_device(here)
    if not counted:
        return Pool(id_, PoolStatus.INVALID, reason) if reason else Pool(id_, here=tuple(here), binding=_binds(here))
    for one in (*kept, *rest):
        for counter_set in one.slice.spec.shared_counters:
            name = counter_set.name
            if name in counters:
                reason = reason or f"counter set {name} is declared twice"
            counters[name] = {key: counter.value.nano for key, counter in counter_set.counters.items()}
    devices = (device for one in (*here, *elsewhere) for device in one.devices)
    reason = reason or _unknown_counter(devices, counters)
    if reason:
        return Pool(id_, PoolStatus.INVALID, reason)
    return Pool(
        id_,
        here=tuple(here),
        elsewhere=tuple(elsewhere),
        counters=counters,
        binding=_binds(here),
    )


def _binds(pages: Iterable[Page]) -> bool:
    return any(device.binding_conditions is not None for one in pages for device in one.devices)


def _duplicate_device(pages: Sequence[Page]) -> str:
    seen: set[str] = set()
    for one in pages:
        for device in one.devices:
            if device.name in seen:
                return f"two devices are called {device.name}"
            seen.add(device.name)
    return ""


def _unknown_counter(devices: Iterable[Device], counters: Mapping[str, Collection[str]]) -> str:
    for device in devices:
        for consumption in device.consumes_counters:
            declared = counters.get(consumption.counter_set)
            if declared is None:
                return f"device {device.name} consumes counter set {consumption.counter_set}, which does not exist"
            for name in consumption.counters:
                if name not in declared:
                    return f"device {device.name} consumes counter {name}, which {consumption.counter_set} lacks"
    return ""
