"""Pools: the slices with one driver and one pool name, as one node sees them.

This module decides which slices of a pool count (by generation and completeness), which devices a node can use, in
which order the allocator tries them, and when a pool is invalid. It mirrors `GatherPools` in
k8s.io/dynamic-resource-allocation/structured/internal/experimental/pools_experimental.go, with a known flaw: if all
slices of a newer generation are for other nodes, a node uses outdated slices that satisfy their own slice count.

A slice with a nodeName may have been written by that node (the admission plugin NodeRestriction checks only the name),
and a node may be compromised. So for the whole cluster, a slice with a nodeName supersedes only slices of the same node
(`newest`).
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
from dra.stock.slice_reading import ALL, SliceReading
from dra.stock.usage import PoolId

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from dra.objects import DeviceTaintRule, Node


class Page(msgspec.Struct, frozen=True, eq=False):
    """One slice as an allocator reads it, with the taints of DeviceTaintRules added to its devices.

    Pages are compared by identity. A page stays the same object until its slice changes, so a result that depends only
    on a page may be cached by page.
    """

    slice: ResourceSlice
    devices: tuple[Device, ...]
    bodies: tuple[Body, ...]  # the tokens of the devices (`dra.stock.equivalence`), in the order of the devices
    pool: PoolId
    content: SliceContent
    usable: bool = True  # whether devices of the slice can be allocated
    counts: bool = True  # whether the slice counts towards the completeness of the pool
    everywhere: bool = False  # whether it is a slice with counters that counts on every node

    @property
    def name(self) -> str:
        return self.slice.metadata.name

    @property
    def generation(self) -> int:
        return self.slice.spec.pool.generation

    @property
    def node_name(self) -> str:
        return "" if self.everywhere else self.slice.spec.node_name or ""


def page_of(slice_: ResourceSlice, rules: Iterable[DeviceTaintRule] = (), reading: SliceReading = ALL) -> Page:
    """Make the page of a slice. The taints of rules are added as resourceslice/tracker adds them."""
    spec = slice_.spec
    driver, pool = spec.driver, spec.pool.name
    devices = spec.devices
    if reading is not ALL:
        devices = tuple([reading.device(device) for device in devices])
    for rule in map(reading.rule, rules) if reading.rules else ():
        if rule.spec.device_selector is not None:
            devices = tuple(
                msgspec.structs.replace(device, taints=(*device.taints, rule.spec.taint))
                if selects(rule.spec.device_selector, driver, pool, device.name)
                else device
                for device in devices
            )
    if reading is ALL:  # the usual reading, for which skipping the checks below saves 7 % of the time
        bodies = tuple([body(device) for device in devices])
        return Page(slice_, devices, bodies, (driver, pool), content(spec, devices, bodies))
    shares = reading.enabled(gates.CAPACITY)
    missing_gates = map(reading.missing_gate, spec.devices)
    bodies = tuple(
        [body(device, shares=shares, missing_gate=gate) for device, gate in zip(devices, missing_gates, strict=True)]
    )
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
    """One pool as one node sees it. Pages with devices are `accessible` from the node, or `elsewhere`."""

    id: PoolId
    status: PoolStatus = PoolStatus.OK
    reason: str = ""
    accessible: tuple[Page, ...] = ()
    elsewhere: tuple[Page, ...] = ()
    counters: dict[str, dict[str, int]] = {}  # counter set → counter → declared value in nano-units
    binding: bool = False
    # All pages of a pool that is not OK. Its devices are not allocated; claims keep the devices that they hold.
    unusable: tuple[Page, ...] = ()

    def pages(self) -> tuple[Page, ...]:
        """Return all pages with devices; pages that are accessible from the node come first."""
        return self.accessible + self.elsewhere


def gather(
    node: Node, reached: Iterable[Page], every: Mapping[PoolId, tuple[Page, ...]], reading: SliceReading = ALL
) -> list[Pool]:
    """Return the pools that a node can use, in the order in which the allocator tries them.

    `reached` has the pages with devices for the node (`targets`), `every` has all pages of the cluster by pool.
    """
    newest_pages: dict[PoolId, list[Page]] = {}
    for candidate in reached:
        generation = candidate.generation
        pages = newest_pages.setdefault(candidate.pool, [])
        if pages and generation > pages[0].generation:
            pages.clear()
        if not pages or generation == pages[0].generation:
            pages.append(candidate)
    pools: list[Pool] = []
    own_name = node.metadata.name
    for id_, pages in newest_pages.items():
        pool = _pool(id_, pages, every[id_], reading)
        if pool is None:
            continue
        if pool.status is not PoolStatus.OK:
            # A lookup by device name takes the first page: the node's own pages, then pages without a node name, then
            # pages of other nodes, each with the newest first.
            pages_by_node = [(page.slice.spec.node_name, page) for page in every[id_]]
            pages_by_node.sort(key=lambda pair: (pair[0] != own_name, bool(pair[0]), -pair[1].generation))
            pool = msgspec.structs.replace(pool, unusable=tuple([page for _, page in pages_by_node]))
        pools.append(pool)
    return sorted(pools, key=lambda pool: (pool.binding, pool.id[0].encode(), pool.id[1].encode()))


def newest(slices: Iterable[ResourceSlice]) -> list[ResourceSlice]:
    """Keep slices that are not superseded by a newer generation, of the same node or of slices without a node name."""
    slices = tuple(slices)
    generations: dict[tuple[PoolId, str], int] = {}
    for slice_ in slices:
        part = _pool_of(slice_), slice_.spec.node_name or ""
        generations[part] = max(slice_.spec.pool.generation, generations.get(part, 0))
    kept_slices: list[ResourceSlice] = []
    for slice_ in slices:
        pool = _pool_of(slice_)
        of_node, of_no_node = generations[pool, slice_.spec.node_name or ""], generations.get((pool, ""), 0)
        if slice_.spec.pool.generation == max(of_node, of_no_node):
            kept_slices.append(slice_)
    return kept_slices


def _pool_of(slice_: ResourceSlice) -> PoolId:
    return slice_.spec.driver, slice_.spec.pool.name


def usable(slices: Iterable[ResourceSlice]) -> list[ResourceSlice]:
    """Keep the newest slices of each complete and valid pool.

    A pool is judged separately for each node: slices of other nodes may complete the pool, but do not exceed its count.
    """
    pools: dict[PoolId, list[ResourceSlice]] = {}
    for slice_ in newest(slices):
        pools.setdefault(_pool_of(slice_), []).append(slice_)
    kept_slices: list[ResourceSlice] = []
    for members in pools.values():
        counters: dict[str, set[str]] = {}
        by_node: dict[str, list[ResourceSlice]] = {}
        for slice_ in members:
            by_node.setdefault(slice_.spec.node_name or "", []).append(slice_)
            for counter_set in slice_.spec.shared_counters:
                counters.setdefault(counter_set.name, set()).update(counter_set.counters)
        of_no_node = by_node.get("", [])
        for node, own_slices in by_node.items():
            visible = own_slices + of_no_node if node else own_slices
            expected = own_slices[0].spec.pool.resource_slice_count
            if len(visible) <= expected <= len(members) and not _is_invalid(visible, counters):
                kept_slices += own_slices
    return kept_slices


class PoolDevices(msgspec.Struct, frozen=True):
    """The devices of a pool, by the node name of their slice ("" if it has none) and by device name.

    Slices of two nodes may have devices of the same name. A claim names a device without a node, and means the device
    of the node to which the claim is allocated.
    """

    by_node: dict[str, dict[str, tuple[Page, Device]]]

    @classmethod
    def index(cls, pages: Iterable[Page]) -> PoolDevices:
        """Index the devices of pages. If two devices of a node have one name, the first device counts."""
        by_node: dict[str, dict[str, tuple[Page, Device]]] = {}
        for page in pages:
            on_node = by_node.setdefault(page.slice.spec.node_name or "", {})
            for device in page.devices:
                on_node.setdefault(device.name, (page, device))
        return cls(by_node)

    def find(self, name: str, node: str) -> tuple[Page, Device] | None:
        """Find a device by name: the node's, else a device without a node name.

        If `node` is "", find any device of the name.
        """
        places = (node, "") if node else ("", *self.by_node)
        for publishing_node in places:
            publication = self.by_node.get(publishing_node, {}).get(name)
            if publication is not None:
                return publication
        return None


def _is_invalid(visible: Sequence[ResourceSlice], counters: Mapping[str, Collection[str]]) -> bool:
    """Whether the slices that a node sees make the pool invalid, as in `_pool`. `counters` are those of the whole pool.

    Two devices that one node can use must not have the same name; devices of different nodes may. Node selectors are
    not evaluated: slices with different selectors count as slices for different nodes.
    """
    declared = [counter_set.name for slice_ in visible for counter_set in slice_.spec.shared_counters]
    if len(set(declared)) < len(declared):
        return True
    everywhere: set[str] = set()
    by_nodes: dict[object, set[str]] = {}
    for slice_ in visible:
        spec = slice_.spec
        names = everywhere if spec.all_nodes else by_nodes.setdefault(spec.node_name or spec.node_selector, set())
        for device in spec.devices:
            if device.name in names:
                return True
            names.add(device.name)
    if any(not everywhere.isdisjoint(names) for names in by_nodes.values()):
        return True
    return bool(_unknown_counter((slice_.spec.devices for slice_ in visible), counters))


def targets(page: Page, node: Node) -> bool:
    """Whether a slice has devices for the node. A slice that selects no nodes has none."""
    spec = page.slice.spec
    if page.everywhere or not page.usable:
        return page.usable
    try:
        if spec.node_name or spec.all_nodes or spec.node_selector is not None:
            return reaches(spec, node)
        return bool(spec.per_device_node_selection) and any(reaches(device, node) for device in page.devices)
    except NodeSelectorError as error:
        raise NodeSelectorError(f"ResourceSlice/{page.name}: node selector: {error}") from error


def reaches(selecting: Device | msgspec.Struct, node: Node) -> bool:
    """Whether a slice or device selects the node."""
    if name := getattr(selecting, "node_name", None):
        return bool(name == node.metadata.name)
    if getattr(selecting, "all_nodes", None):
        return True
    selector = getattr(selecting, "node_selector", None)
    return selector is not None and nodes.matches(selector, node)


def _pool(id_: PoolId, reached: list[Page], every: tuple[Page, ...], reading: SliceReading) -> Pool | None:
    """Make one pool; None if the node sees part of a generation while newer slices exist for other nodes."""
    first = reached[0]
    generation = first.generation
    expected = first.slice.spec.pool.resource_slice_count
    in_order = sorted(reached, key=lambda page: page.name.encode())
    accessible = tuple([page for page in in_order if not page.slice.spec.shared_counters])
    devices = [device for page in accessible for device in page.devices]
    binding = any(device.binding_conditions is not None for device in devices)
    reason = ""
    device_names: set[str] = set()
    for device in devices:
        if device.name in device_names:
            reason = reason or f"two devices are called {device.name}"
        device_names.add(device.name)
    other_pages: list[Page] = []
    if len(reached) != expected:
        if reading.oldest:  # 1.34 allocates devices of incomplete pools if their names are unique
            if reason:
                return Pool(id_, PoolStatus.INVALID, reason)
            reason = f"{len(reached)} slices are for the node, resourceSliceCount says {expected}"
            return Pool(id_, PoolStatus.INCOMPLETE, reason, accessible, binding=binding)
        if any(other.generation > generation for other in every):
            return None
        current = [other for other in every if other.generation == generation and other.counts]
        if len(current) != expected:
            reason = f"{len(current)} slices of generation {generation} exist, resourceSliceCount says {expected}"
            return Pool(id_, PoolStatus.INCOMPLETE, reason)
        if len(reached) < len(current):
            names = {page.name for page in reached}
            other_pages = [other for other in current if other.name not in names]
    if not reading.enabled(gates.COUNTERS):
        return Pool(id_, PoolStatus.INVALID, reason) if reason else Pool(id_, accessible=accessible, binding=binding)
    counters: dict[str, dict[str, int]] = {}
    for page in (*in_order, *other_pages):
        for counter_set in page.slice.spec.shared_counters:
            if counter_set.name in counters:
                reason = reason or f"counter set {counter_set.name} is declared twice"
            amounts = {name: counter.value.nano for name, counter in counter_set.counters.items()}
            counters[counter_set.name] = amounts
    elsewhere = [page for page in other_pages if not page.slice.spec.shared_counters]
    consuming = (page.devices for page in (*accessible, *elsewhere))
    reason = reason or _unknown_counter(consuming, counters)
    if reason:
        return Pool(id_, PoolStatus.INVALID, reason)
    return Pool(id_, accessible=accessible, elsewhere=tuple(elsewhere), counters=counters, binding=binding)


def _unknown_counter(slices: Iterable[Sequence[Device]], counters: Mapping[str, Collection[str]]) -> str:
    """Return a message about the first device that consumes a counter that the pool does not have, or ""."""
    for device in chain.from_iterable(slices):
        for consumption in device.consumes_counters:
            declared = counters.get(consumption.counter_set)
            if declared is None:
                return f"device {device.name} consumes counter set {consumption.counter_set}, which does not exist"
            for name in consumption.counters:
                if name not in declared:
                    return f"device {device.name} consumes counter {name}, which {consumption.counter_set} lacks"
    return ""
