"""Finds claims whose allocations conflict, whichever program wrote them. The API server does not check this.

Conflicts are: a device allocated twice, exceeded capacities and counters, incompatible devices, and disjoint compatibility groups.
Results with admin access hold nothing. If a driver shrinks a pool, the pool's claims can conflict, too. In every conflict, claims whose
pods have not started yield: they give up their devices.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import msgspec

from allocator.reservations.events import Overlapped
from dra.objects import Device, DeviceRequestAllocationResult, node_of
from dra.policy import Rules, admits, conflicting_elsewhere, own_state

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dra.stock import PoolId, Stock


class _Holding(msgspec.Struct, frozen=True):
    claim: str  # uid
    result: DeviceRequestAllocationResult


_ByDevice = dict[str, list[_Holding]]
_CounterKey = tuple[str, str]  # counter set, counter


class _PublishedPool(msgspec.Struct, frozen=True):
    """The devices and counters of a pool as they are published now, for one node."""

    devices: dict[str, Device]
    counters: dict[_CounterKey, int]  # in nano


def overlaps(stock: Stock, pools: Iterable[PoolId] | None = None) -> tuple[Overlapped, ...]:
    """Return an event for each set of conflicting claims in these pools; by default in all pools.

    Each node is checked by itself, because slices of different nodes may use the same device names with different contents.
    """
    rules = Rules(stock.compatibilities.values())
    overlapping: dict[frozenset[str], None] = {}
    for pool in stock.results if pools is None else pools:
        if len(stock.results.get(pool, ())) < 2 and not rules.about_nodes:
            continue
        for node, holdings_by_device in _holdings_of(stock, pool).items():
            for claims in (
                *_pairs_across(holdings_by_device, stock, pool, node, rules),
                *_overlaps_in_pool(holdings_by_device, stock, pool, node, rules),
            ):
                if len(claims) > 1:
                    overlapping[claims] = None
    return tuple(Overlapped(claims) for claims in overlapping)


def _overlaps_in_pool(
    by_device: _ByDevice, stock: Stock, pool: PoolId, node: str, rules: Rules
) -> Iterator[frozenset[str]]:
    """Yield sets of claims that overlap in one pool of a node."""
    holders = {holding.claim for holdings in by_device.values() for holding in holdings}
    if len(holders) < 2:
        return
    published = _PublishedPool({}, {})
    for page in stock.newest_pages(pool):
        if page.slice.spec.node_name not in (None, "", node):
            continue
        for device in page.devices:
            published.devices[device.name] = device
        for counter_set in page.slice.spec.shared_counters:
            for name, counter in counter_set.counters.items():
                published.counters[counter_set.name, name] = counter.value.nano
    yield from _overused_devices(by_device, published)
    yield from _overdrawn_counters(by_device, published)
    yield from _incompatible_pairs(by_device, stock, pool, node, rules)
    yield from _disjoint_groups(by_device, published, pool, rules)


def _holdings_of(stock: Stock, pool: PoolId) -> dict[str, _ByDevice]:
    """Return the holders of each device of a pool, by the node whose slices publish the device; "" for devices without a node."""
    published = stock.devices(pool)
    by_node: dict[str, _ByDevice] = {}
    results_by_claim = stock.results.get(pool, {})
    nodes = [node_of(stock.claims[key].status.allocation) for key in results_by_claim]
    for (key, results), node in zip(results_by_claim.items(), nodes, strict=True):
        claim = stock.claims[key]
        for result in results:
            publication = published.find(result.device, node)
            publishing_node = node if publication is None else publication[0].slice.spec.node_name or ""
            holdings = by_node.setdefault(publishing_node, {}).setdefault(result.device, [])
            holdings.append(_Holding(claim.metadata.uid, result))
    return by_node


def _overused_devices(by_device: _ByDevice, published: _PublishedPool) -> Iterator[frozenset[str]]:
    """Yield the holders of a device if there are several and one of them holds the whole device, or if together they exceed a capacity."""
    for name, holdings in by_device.items():
        if len(holdings) < 2:
            continue
        if any(holding.result.share_id is None for holding in holdings):
            yield _claims(holdings)
            continue
        device = published.devices.get(name)
        if device is None:
            continue
        for capacity_name, capacity in device.capacity.items():
            takers = [holding for holding in holdings if capacity_name in holding.result.consumed_capacity]
            taken = sum(taker.result.consumed_capacity[capacity_name].nano for taker in takers)
            if taken > capacity.value.nano:
                yield _claims(takers)


def _overdrawn_counters(by_device: _ByDevice, published: _PublishedPool) -> Iterator[frozenset[str]]:
    """Yield the holders of devices that together exceed a counter. A device with several shares counts once."""
    consumed: defaultdict[_CounterKey, int] = defaultdict(int)
    consumers: defaultdict[_CounterKey, list[_Holding]] = defaultdict(list)
    for name, holdings in by_device.items():
        device = published.devices.get(name)
        if device is None:
            continue
        for consumption in device.consumes_counters:
            for counter, amount in consumption.counters.items():
                key = (consumption.counter_set, counter)
                consumed[key] += amount.value.nano
                consumers[key] += holdings
    for key, amount_consumed in consumed.items():
        available = published.counters.get(key)
        if available is not None and amount_consumed > available:
            yield _claims(consumers[key])


def _incompatible_pairs(
    by_device: _ByDevice, stock: Stock, pool: PoolId, node: str, rules: Rules
) -> Iterator[frozenset[str]]:
    """Yield the holders of two incompatible devices of one pool."""
    if not rules.by_driver.get(pool[0]):
        return
    seen_from = node or next(iter(stock.nodes), "")
    if seen_from not in stock.nodes:
        return
    for visible_pool in stock.pools(seen_from):
        if visible_pool.id != pool:
            continue
        for name, others in rules.conflicts(visible_pool).items():
            if name not in by_device:
                continue
            for other in sorted(others):
                if name < other and other in by_device:
                    yield _claims([*by_device[name], *by_device[other]])


def _pairs_across(
    by_device: _ByDevice, stock: Stock, pool: PoolId, node: str, rules: Rules
) -> Iterator[frozenset[str]]:
    """Yield the holders of two incompatible devices, one of this pool and one of another pool of the node."""
    restricted_drivers = {rule.driver for rule in rules.about_nodes}
    if pool[0] not in restricted_drivers:
        return
    nodes = {node}
    if not node:  # slices without a node name: each device selects its nodes
        specs = [(page.slice.spec, page.devices) for page in stock.newest_pages(pool)]
        nodes = {
            spec.node_of(device)
            for spec, devices in specs
            if not spec.node_name
            for device in devices
            if device.name in by_device
        }
    for node_name in sorted(nodes):
        if node_name not in stock.nodes:
            continue
        across = rules.conflicts_across(stock.pools(node_name), node_name)
        rivals = conflicting_elsewhere(across, pool, stock.use)
        for name in sorted(rivals.keys() & by_device.keys()):
            for driver, other_pool, device in rivals[name]:
                holdings_by_node = _holdings_of(stock, (driver, other_pool))
                for publishing_node in (node_name, ""):
                    others = holdings_by_node.get(publishing_node, {}).get(device, [])
                    yield _claims(by_device[name] + others)


def _disjoint_groups(
    by_device: _ByDevice, published: _PublishedPool, pool: PoolId, rules: Rules
) -> Iterator[frozenset[str]]:
    """Yield the holders of devices that draw from one counter set and have no compatibility group in common."""
    states: dict[str, frozenset[str] | None] = {}
    members: defaultdict[str, list[_Holding]] = defaultdict(list)
    incompatible: set[str] = set()
    for name, holdings in by_device.items():
        device = published.devices.get(name)
        if device is None:
            continue
        wild = rules.wild(pool[0], device)
        for consumption in device.consumes_counters:
            counter_set = consumption.counter_set
            own = own_state(consumption.compatibility_groups, wild=wild)
            state = states.get(counter_set)
            if not admits(state, own):
                incompatible.add(counter_set)
            if state is None or own is None:
                states[counter_set] = own if state is None else state
            else:
                states[counter_set] = state & own
            members[counter_set] += holdings
    for counter_set in sorted(incompatible):
        yield _claims(members[counter_set])


def _claims(holdings: Iterable[_Holding]) -> frozenset[str]:
    return frozenset(holding.claim for holding in holdings)
