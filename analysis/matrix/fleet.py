"""Makes the matrices of pools, which show for each pair of devices whether both can be in use. Equal pools are judged and shown once.

The cost is bounded: pools beyond the bound are listed as not judged.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from allocator.reasons import Matrix, matrix
from analysis.capacity import holder_of
from dra import step_limits
from dra.budget import Budget
from dra.errors import NodeSelectorError, OutOfBudget
from dra.policy import Rules
from dra.wire import encode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from dra.stock import Pool, Stock

NOT_JUDGED = "not judged: there are too many pairs of devices; open the page of a node"


class InUse(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A device that a claim holds, and since when. `share` is the part that is held; empty if the device is held whole."""

    device: str
    claim: str
    pods: tuple[str, ...]
    since: str
    share: dict[str, str] = {}


class PoolMatrix(Matrix, frozen=True, kw_only=True, rename="camel"):
    """Which devices of a pool can be in use together, why a pool cannot be used, and which devices are held."""

    status: str
    reason: str
    in_use: tuple[InUse, ...] = ()


class EqualPools(msgspec.Struct, frozen=True):
    """Pools with equal rows and cells, in order; the first stands for all of them."""

    pools: tuple[PoolMatrix, ...]

    @property
    def first(self) -> PoolMatrix:
        return self.pools[0]

    def used(self, devices: Sequence[str]) -> str:
        """Write how many of these devices are held in all pools, and how many there are."""
        taken = 0
        for pool in self.pools:
            taken += len({held.device for held in pool.in_use}.intersection(devices))
        return f"{taken} of {len(devices) * len(self.pools)}"

    @property
    def is_used(self) -> bool:
        """Whether a claim holds one of their devices."""
        return any(pool.in_use for pool in self.pools)


def reachable(stock: Stock, nodes: Iterable[str]) -> dict[str, Pool]:
    """List the pools that these nodes can reach, by driver/pool in order.

    A slice whose node selector cannot be parsed fails every allocation on its nodes, so these nodes have no pools; `check` names the slice.
    """
    pools: dict[str, Pool] = {}
    for node in nodes:
        with suppress(NodeSelectorError):
            for pool in stock.pools(node):
                pools.setdefault("/".join(pool.id), pool)
    return dict(sorted(pools.items()))


def build_matrices(pools: Iterable[Pool], stock: Stock) -> list[PoolMatrix]:
    """Judge pools; of equal pools only the first."""
    rules = Rules(stock.compatibilities.values())
    matrices: dict[bytes, Matrix] = {}
    pairs: int = step_limits.PAIRS
    budget = Budget(step_limits.PAIRS)
    judged: list[PoolMatrix] = []
    for pool in pools:
        driver = pool.id[0]
        devices = [device for page in pool.pages() for device in page.devices]
        names = {device.name for device in devices}
        # Everything that a matrix depends on. If a rule reads attributes, each pool is judged by itself.
        key = b""
        if not rules.by_driver.get(driver):
            described = [
                (device.name, device.allow_multiple_allocations, device.consumes_counters) for device in devices
            ]
            key = encode((driver, pool.counters, described))
        rated = matrices.get(key) if key else None
        if rated is None:
            pairs -= len(devices) ** 2
            rated = matrix(pool, rules) if pairs >= 0 else Matrix(*pool.id, (), (NOT_JUDGED,))
            matrices[key] = rated

        in_use: list[InUse] = []
        for name, results in stock.results.get(pool.id, {}).items():
            for result in results:
                if result.device not in names:  # no longer published: `doctor` names the claim
                    continue
                holder = holder_of(stock.claims[name], result, ())
                use = InUse(device=result.device, claim=name, pods=holder.pods, since=holder.since, share=holder.share)
                in_use.append(use)
        in_use.sort(key=lambda held: (held.device, held.since, held.claim))
        pool_matrix = PoolMatrix(
            driver=rated.driver,
            pool=pool.id[1],
            rows=rated.rows,
            notes=(*rated.notes, *_notes_across(pool, rules, stock, budget)),
            status=pool.status,
            reason=pool.reason,
            in_use=tuple(in_use),
        )
        judged.append(pool_matrix)
    return judged


def group_equal(pools: Iterable[PoolMatrix]) -> list[EqualPools]:
    """Group pools with equal rows and cells."""
    groups: dict[bytes, list[PoolMatrix]] = {}
    for pool in pools:
        key = encode((pool.driver, pool.status, pool.reason, pool.rows, pool.notes))
        groups.setdefault(key, []).append(pool)
    return [EqualPools(tuple(equal)) for equal in groups.values()]


def _notes_across(pool: Pool, rules: Rules, stock: Stock, budget: Budget) -> Iterator[str]:
    """Yield the rules between the pool and other pools of its nodes, each with one example, so that equal pools get equal notes."""
    if not any(rule.driver == pool.id[0] for rule in rules.about_nodes):
        return
    nodes: set[str] = set()
    for page in pool.pages():
        nodes.update(map(page.slice.spec.node_of, page.devices))
    reported_rules: set[str] = set()
    opening = "across the pools of a node"
    try:
        for node in sorted(nodes & stock.nodes.keys()):
            pools = stock.pools(node)
            conflicts = rules.conflicts_across(pools, node, budget).get(pool.id, {})
            for name in sorted(conflicts):
                for other in sorted(conflicts[name]):
                    rule = rules.between((*pool.id, name), other, pools)
                    if rule not in reported_rules:
                        reported_rules.add(rule)
                        yield f"{opening}: {rule} keeps {name} apart from {other[2]}, for example"
    except OutOfBudget:
        yield f"{opening}: {NOT_JUDGED}"
