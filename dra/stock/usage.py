"""What is in use: devices held whole, shared devices, and their consumed capacity.

Computed from the allocations of claims, as the scheduler's `foreachAllocatedDevice` does. Results with admin access hold
nothing. A result with a share ID holds a share, any other result the whole device; the current slice does not matter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dra.objects import DeviceRequestAllocationResult, ResourceClaim

PoolId = tuple[str, str]  # driver, pool name


class PoolUse(msgspec.Struct, frozen=True):
    """What is in use in one pool, by device name. Amounts are in nano-units."""

    dedicated: frozenset[str] = frozenset()
    shared: frozenset[str] = frozenset()
    used: dict[str, dict[str, int]] = {}

    def holds(self, device: str) -> bool:
        """Whether a claim holds the device or a share of it; counters and groups depend on that."""
        return device in self.dedicated or device in self.shared


FREE = PoolUse()


def results_by_pool(claim: ResourceClaim) -> dict[PoolId, tuple[DeviceRequestAllocationResult, ...]]:
    """Group the results of a claim by pool."""
    allocation = claim.status.allocation
    if allocation is None:
        return {}
    by_pool: dict[PoolId, list[DeviceRequestAllocationResult]] = {}
    for result in allocation.devices.results:
        if not result.admin_access:
            pool = (result.driver, result.pool)
            by_pool.setdefault(pool, []).append(result)
    return {pool: tuple(results) for pool, results in by_pool.items()}


def pool_use(results_of_claims: Iterable[tuple[DeviceRequestAllocationResult, ...]], *, shares: bool = True) -> PoolUse:
    """Add up what claims hold in one pool; without support of `shares`, each share counts as the whole device."""
    dedicated: set[str] = set()
    shared: set[str] = set()
    used: dict[str, dict[str, int]] = {}
    for results in results_of_claims:
        for result in results:
            if result.share_id is None or not shares:
                dedicated.add(result.device)
                continue
            shared.add(result.device)
            if not result.consumed_capacity:
                continue
            amounts = used.setdefault(result.device, {})
            for name, amount in result.consumed_capacity.items():
                amounts[name] = amounts.get(name, 0) + amount.nano
    if not dedicated and not shared:
        return FREE
    return PoolUse(frozenset(dedicated), frozenset(shared), used)
