"""The devices in use: devices that a claim holds whole, devices that are shared, and the capacity consumed of these.

They are computed from the allocations of claims only, as in the scheduler's `foreachAllocatedDevice`. A result with
admin access holds nothing. A result with a share ID holds a share, and any other result holds the whole device,
whatever the current slice says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dra.objects import DeviceRequestAllocationResult, ResourceClaim

PoolId = tuple[str, str]  # driver, pool name


class PoolUse(msgspec.Struct, frozen=True):
    """The devices of one pool that are in use, by name. Amounts are in nano-units."""

    dedicated: frozenset[str] = frozenset()
    shared: frozenset[str] = frozenset()
    used: dict[str, dict[str, int]] = {}

    def holds(self, device: str) -> bool:
        """Whether a claim holds the device or a share of it. If so, the device consumes its counters."""
        return device in self.dedicated or device in self.shared


FREE = PoolUse()


def results_by_pool(claim: ResourceClaim) -> dict[PoolId, tuple[DeviceRequestAllocationResult, ...]]:
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
    """Add up what claims hold in one pool.

    If the server does not support `shares`, each share holds the whole device.
    """
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
