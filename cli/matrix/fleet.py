"""The matrices of many pools: pools that look alike are judged once and shown once, with who is in use in each. Pure.

What it may cost is bounded: pools beyond that are named as not judged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from allocator.reasons import Matrix, matrix
from dra.budget import Budget
from dra.errors import OutOfBudget
from dra.policy import DeviceId, Rules
from dra.wire import encode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from dra.objects import Device, DeviceRequestAllocationResult, ResourceClaim
    from dra.stock import Pool, PoolId, Stock

_PAIRS = 2_000_000  # of devices that are judged in one run: some seconds
NOT_JUDGED = "not judged: there are too many pairs of devices; choose with --pool, --node or --counter-set"


class InUse(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A device that somebody has, and since when. `share` is what of it is taken; empty if it is held whole."""

    device: str
    claim: str
    pods: tuple[str, ...]
    since: str
    share: dict[str, str] = {}


class PoolMatrix(Matrix, frozen=True, kw_only=True, rename="camel"):
    """Which devices of a pool can be in use together, why a pool cannot be used, and who is in use."""

    status: str
    reason: str
    in_use: tuple[InUse, ...] = ()


class Likeness(msgspec.Struct, frozen=True):
    """Pools that look alike, in order; the first stands for all of them."""

    pools: tuple[PoolMatrix, ...]

    @property
    def first(self) -> PoolMatrix:
        return self.pools[0]

    def used(self, devices: Sequence[str]) -> int:
        """Count in all of the pools which of some devices are in use."""
        names = frozenset(devices)
        taken = 0
        for pool in self.pools:
            taken += len({one.device for one in pool.in_use if one.device in names})
        return taken

    @property
    def is_used(self) -> bool:
        """Whether anybody has one of their devices."""
        return any(pool.in_use for pool in self.pools)


def judge(pools: Iterable[Pool], stock: Stock, only: Sequence[str]) -> list[PoolMatrix]:
    """Judge pools, those that look alike once."""
    rules = Rules(stock.compatibilities.values())
    known: dict[bytes, Matrix] = {}
    left = _PAIRS
    budget = Budget(_PAIRS)
    judged: list[PoolMatrix] = []
    for pool in pools:
        look = _look(pool, rules)
        found = known.get(look) if look else None
        if found is None:
            left -= _pairs(pool, only)
            found = matrix(pool, rules, only=only) if left >= 0 else Matrix(*pool.id, (), (NOT_JUDGED,))
            known[look] = found
        beyond = tuple(_beyond(pool, rules, stock, budget))
        told = _told(pool, found, beyond, stock)
        judged.append(told)
    return judged


def likenesses(pools: Iterable[PoolMatrix]) -> list[Likeness]:
    """Gather pools whose rows and cells are the same."""
    groups: dict[bytes, list[PoolMatrix]] = {}
    for pool in pools:
        look = encode((pool.driver, pool.status, pool.reason, pool.rows, pool.notes))
        alike = groups.setdefault(look, [])
        alike.append(pool)
    return [Likeness(tuple(alike)) for alike in groups.values()]


def _beyond(pool: Pool, rules: Rules, stock: Stock, budget: Budget) -> Iterator[str]:
    """Name the rules that also hold between the pool and others of its nodes, each with an example; equal pools get equal words."""
    if not any(rule.driver == pool.id[0] for rule in rules.about_nodes):
        return
    nodes: set[str] = set()
    for page in pool.pages():
        nodes.update(map(page.slice.spec.node_of, page.devices))
    told: set[str] = set()
    opening = "across the pools of a node"
    try:
        for node in sorted(nodes & stock.nodes.keys()):
            pools = stock.pools(node)
            across = rules.conflicts_across(pools, node, budget)
            for mine, other in _pairs_of(pool.id, across.get(pool.id, {})):
                rule = rules.between(mine, other, pools)
                if rule not in told:
                    told.add(rule)
                    yield f"{opening}: {rule} keeps {mine[2]} apart from {other[2]}, for one"
    except OutOfBudget:
        yield f"{opening}: {NOT_JUDGED}"


def _pairs_of(pool: PoolId, apart: Mapping[str, Iterable[DeviceId]]) -> Iterator[tuple[DeviceId, DeviceId]]:
    for name, others in sorted(apart.items()):
        for other in sorted(others):
            yield (*pool, name), other


def _told(pool: Pool, found: Matrix, beyond: tuple[str, ...], stock: Stock) -> PoolMatrix:
    return PoolMatrix(
        driver=found.driver,
        pool=pool.id[1],
        rows=found.rows,
        notes=found.notes + beyond,
        status=pool.status,
        reason=pool.reason,
        in_use=tuple(_in_use(pool, stock)),
    )


def _look(pool: Pool, rules: Rules) -> bytes:
    """What a matrix is made of, where no rule reads attributes; empty where one does, and each pool is judged by itself."""
    driver = pool.id[0]
    if rules.by_driver.get(driver):
        return b""
    devices = [_sight(device) for device in _devices(pool)]
    return encode((driver, pool.counters, devices))


def _sight(device: Device) -> tuple[object, ...]:
    return device.name, device.allow_multiple_allocations, device.consumes_counters


def _devices(pool: Pool) -> Iterator[Device]:
    for page in pool.pages():
        yield from page.devices


def _pairs(pool: Pool, only: Sequence[str]) -> int:
    """How many pairs there are to judge."""
    chosen = frozenset(only)
    count = 0
    for device in _devices(pool):
        sets = {one.counter_set for one in device.consumes_counters}
        count += not chosen or bool(chosen & sets)
    return count * count


def _in_use(pool: Pool, stock: Stock) -> Iterator[InUse]:
    found: list[InUse] = []
    for key, results in stock.held.get(pool.id, {}).items():
        claim = stock.claims[key]
        found += [_use(result, claim, key) for result in results]
    yield from sorted(found, key=lambda one: (one.device, one.since, one.claim))


def _use(result: DeviceRequestAllocationResult, claim: ResourceClaim, key: str) -> InUse:
    namespace = claim.metadata.namespace or "default"
    allocation = claim.status.allocation
    share = {name: str(amount) for name, amount in result.consumed_capacity.items()}
    return InUse(
        device=result.device,
        claim=key,
        pods=tuple(f"{namespace}/{one.name}" for one in claim.status.reserved_for),
        since=allocation.allocation_timestamp if allocation is not None else "",
        share=share,
    )
