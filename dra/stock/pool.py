"""Pools: slices of one driver and pool name, put together as one node sees them.

Which slices count (generation, completeness), which devices can be reached, in which order they are tried, and what makes
a pool invalid. Mirrors `GatherPools` in k8s.io/dynamic-resource-allocation/structured/internal/experimental/pools_experimental.go,
its blind spots included: a stale slice that satisfies its own slice count is used although a newer generation exists for
other nodes only.

A slice with a nodeName may have been written by that node (admission plugin NodeRestriction looks at nothing else), and a node can
be stolen. So where no node is looked from, as for what the whole cluster has, it supersedes slices of the same node alone (`newest`).
"""

from __future__ import annotations

from enum import StrEnum
from itertools import chain
from typing import TYPE_CHECKING

import msgspec

from dra import server as gates
from dra.errors import NodeSelectorError
from dra.objects import Device, ResourceSlice, selects
from dra.objects import node as nodes
from dra.stock.equivalence import Body, SliceContent, body, content
from dra.stock.reading import ALL, Reading
from dra.stock.usage import PoolId

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from dra.objects import DeviceTaintRule, Node


class Page(msgspec.Struct, frozen=True, eq=False):
    """One slice as an allocator looks at it: its devices carry the taints of the rules, too.

    Pages are compared by identity and live as long as the slice does not change, so a caller may remember by the page
    what it computes from the page alone.
    """

    slice: ResourceSlice
    devices: tuple[Device, ...]
    bodies: tuple[Body, ...]  # what makes them interchangeable, device by device
    pool: PoolId
    content: SliceContent  # what makes the page interchangeable with others, apart from names and attributes
    seen: bool = True  # else its devices cannot be allocated, although it may count
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
    # Of a pool that is not OK: its known pages. Its devices are not allocated now; claims keep those that they have.
    unusable: tuple[Page, ...] = ()

    def pages(self) -> tuple[Page, ...]:
        """Every page with devices, those that can be reached first."""
        return self.here + self.elsewhere


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
    own_name = node.metadata.name
    for id_, pages in kept.items():
        pool = _pool(id_, pages, every[id_], reading)
        if pool is None:
            continue
        if pool.status is not PoolStatus.OK:
            # Of devices with one name the node's own counts, then that of no node, then others', each the newest first.
            named = [(one.slice.spec.node_name, one) for one in every[id_]]
            named.sort(key=lambda pair: (pair[0] != own_name, bool(pair[0]), -pair[1].generation))
            pool = msgspec.structs.replace(pool, unusable=tuple([one for _, one in named]))
        pools.append(pool)
    return sorted(pools, key=lambda pool: (pool.binding, pool.id[0].encode(), pool.id[1].encode()))


def newest(slices: Iterable[ResourceSlice]) -> list[ResourceSlice]:
    """Keep the slices that are not superseded by a newer generation of their pool: by slices of the same node, or of no node."""
    slices = tuple(slices)
    generations: dict[tuple[PoolId, str], int] = {}
    for one in slices:
        part = _pool_of(one), one.spec.node_name or ""
        generations[part] = max(one.spec.pool.generation, generations.get(part, 0))
    return [
        one
        for one in slices
        if one.spec.pool.generation
        == max(generations[_pool_of(one), one.spec.node_name or ""], generations.get((_pool_of(one), ""), 0))
    ]


def _pool_of(one: ResourceSlice) -> PoolId:
    return one.spec.driver, one.spec.pool.name


def usable(slices: Iterable[ResourceSlice]) -> list[ResourceSlice]:
    """Keep the newest slices of each pool: if all of them are there, and they do not contradict each other.

    What a node sees of a pool is judged by itself. Slices of other nodes may be what it lacks; they are never too many for it.
    """
    pools: dict[PoolId, list[ResourceSlice]] = {}
    for one in newest(slices):
        pools.setdefault(_pool_of(one), []).append(one)
    kept: list[ResourceSlice] = []
    for members in pools.values():
        counters: dict[str, set[str]] = {}
        by_node: dict[str, list[ResourceSlice]] = {}
        for one in members:
            by_node.setdefault(one.spec.node_name or "", []).append(one)
            for counter_set in one.spec.shared_counters:
                counters.setdefault(counter_set.name, set()).update(counter_set.counters)
        of_no_node = by_node.get("", [])
        for node, own in by_node.items():
            seen = own + of_no_node if node else own
            expected = own[0].spec.pool.resource_slice_count
            if len(seen) <= expected <= len(members) and not _is_invalid(seen, counters):
                kept += own
    return kept


class PoolDevices(msgspec.Struct, frozen=True):
    """The devices of a pool, by the node whose slices they are in ("" for slices of no node) and by name.

    Claims name devices without their node, and slices of two nodes may use one name: a claim means the device of the node it is for.
    """

    by_node: dict[str, dict[str, tuple[Page, Device]]]

    @classmethod
    def of(cls, pages: Iterable[Page]) -> PoolDevices:
        """Sort the devices of pages; of two that a node sees by one name, the first counts."""
        by_node: dict[str, dict[str, tuple[Page, Device]]] = {}
        for one in pages:
            here = by_node.setdefault(one.slice.spec.node_name or "", {})
            for device in one.devices:
                here.setdefault(device.name, (one, device))
        return cls(by_node)

    def find(self, name: str, node: str) -> tuple[Page, Device] | None:
        """Find the device that a claim on a node has: the node's own, else one of no node. Where the node is not known (""), any, those first."""
        places = (node, "") if node else ("", *self.by_node)
        for place in places:
            found = self.by_node.get(place, {}).get(name)
            if found is not None:
                return found
        return None


def _is_invalid(seen: Sequence[ResourceSlice], counters: Mapping[str, Collection[str]]) -> bool:
    """Whether the slices that a node sees contradict each other, as `_pool` finds. `counters` are those of the whole pool.

    Two devices must not have one name where a node may reach both. Slices of different nodes may repeat each other's
    names: no node sees both. Selectors are not evaluated, so slices with different ones count as apart; a slice for all
    nodes is together with everything.
    """
    declared = [counter_set.name for one in seen for counter_set in one.spec.shared_counters]
    if len(set(declared)) < len(declared):
        return True
    everywhere: set[str] = set()
    apart: dict[object, set[str]] = {}
    for one in seen:
        spec = one.spec
        place = everywhere if spec.all_nodes else apart.setdefault(spec.node_name or spec.node_selector, set())
        for device in spec.devices:
            if device.name in place:
                return True
            place.add(device.name)
    if any(not everywhere.isdisjoint(names) for names in apart.values()):
        return True
    return bool(_unknown_counter((one.spec.devices for one in seen), counters))


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
    """Put one pool together; None if the node sees only a part of a generation that is superseded elsewhere."""
    first = kept[0]
    generation = first.generation
    expected = first.slice.spec.pool.resource_slice_count
    in_order = sorted(kept, key=lambda one: one.name.encode())
    here = tuple([one for one in in_order if not one.slice.spec.shared_counters])
    devices = [device for one in here for device in one.devices]
    binding = any(device.binding_conditions is not None for device in devices)
    rest: list[Page] = []
    if len(kept) != expected:
        if reading.oldest:  # its devices can be allocated all the same
            reason = f"{len(kept)} slices are for the node, resourceSliceCount says {expected}"
            return Pool(id_, PoolStatus.INCOMPLETE, reason, here, binding=binding)
        if any(other.generation > generation for other in every):
            return None
        current = [other for other in every if other.generation == generation and other.counts]
        if len(current) != expected:
            reason = f"{len(current)} slices of generation {generation} exist, resourceSliceCount says {expected}"
            return Pool(id_, PoolStatus.INCOMPLETE, reason)
        if len(kept) < len(current):
            names = {one.name for one in kept}
            rest = [other for other in current if other.name not in names]
    reason = ""
    known: set[str] = set()
    for device in devices:
        if device.name in known:
            reason = reason or f"two devices are called {device.name}"
        known.add(device.name)
    if not reading.on(gates.COUNTERS):
        return Pool(id_, PoolStatus.INVALID, reason) if reason else Pool(id_, here=here, binding=binding)
    counters: dict[str, dict[str, int]] = {}
    for one in (*in_order, *rest):
        for counter_set in one.slice.spec.shared_counters:
            if counter_set.name in counters:
                reason = reason or f"counter set {counter_set.name} is declared twice"
            amounts = {name: counter.value.nano for name, counter in counter_set.counters.items()}
            counters[counter_set.name] = amounts
    elsewhere = [one for one in rest if not one.slice.spec.shared_counters]
    consuming = (one.devices for one in (*here, *elsewhere))
    reason = reason or _unknown_counter(consuming, counters)
    if reason:
        return Pool(id_, PoolStatus.INVALID, reason)
    return Pool(id_, here=here, elsewhere=tuple(elsewhere), counters=counters, binding=binding)


def _unknown_counter(slices: Iterable[Sequence[Device]], counters: Mapping[str, Collection[str]]) -> str:
    """Find a device that consumes what the pool does not declare, among the devices of several slices."""
    for device in chain.from_iterable(slices):
        for consumption in device.consumes_counters:
            declared = counters.get(consumption.counter_set)
            if declared is None:
                return f"device {device.name} consumes counter set {consumption.counter_set}, which does not exist"
            for name in consumption.counters:
                if name not in declared:
                    return f"device {device.name} consumes counter {name}, which {consumption.counter_set} lacks"
    return ""
