"""Shared counters (KEP-4815): the amounts of a pool's counters that the devices in use do not consume.

The consumption of a device is read from the current slices, not from the slices at allocation time, so a device that is
no longer published consumes nothing. The remaining value of a counter may be negative. Then, as in Kubernetes
(`checkAvailableCounters`), no device of the pool that consumes counters can be allocated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dra.stock.pool import Pool
    from dra.stock.usage import PoolUse

Counters = dict[str, dict[str, int]]  # counter set → counter → nano-units


def available(pool: Pool, use: PoolUse) -> Counters:
    """Return the remaining value of every counter of a pool."""
    remaining = {name: dict(counters) for name, counters in pool.counters.items()}
    if not remaining or not (use.dedicated or use.shared):
        return remaining
    for page in pool.pages():
        for device in page.devices:
            if not device.consumes_counters or not use.holds(device.name):
                continue
            for consumption in device.consumes_counters:
                counters = remaining[consumption.counter_set]
                for name, counter in consumption.counters.items():
                    counters[name] -= counter.value.nano
    return remaining


def overdrawn(counters: Counters) -> list[tuple[str, str]]:
    """List the counters whose remaining value is negative, as counter set and counter."""
    return [(name, counter) for name, values in counters.items() for counter, value in values.items() if value < 0]
