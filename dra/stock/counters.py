"""Shared counters (KEP-4815): what is left of a pool's counter sets once the devices in use are charged.

Consumption is read from the slices as they are now, not as they were at allocation time; a device that left its slice
charges nothing. A value below zero is possible and simply blocks: one such counter keeps every counter-consuming device
of the pool from being taken, as in-tree (`checkAvailableCounters`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dra.stock.pool import Pool
    from dra.stock.usage import PoolUse

Counters = dict[str, dict[str, int]]  # counter set → counter → nano-units


def available(pool: Pool, use: PoolUse) -> Counters:
    """Compute what is left of every counter of a pool."""
    left = {name: dict(counters) for name, counters in pool.counters.items()}
    if not left or not (use.dedicated or use.shared):
        return left
    for page in pool.pages():
        for device in page.devices:
            if not device.consumes_counters or not use.holds(device.name):
                continue
            for consumption in device.consumes_counters:
                counters = left[consumption.counter_set]
                for name, counter in consumption.counters.items():
                    counters[name] -= counter.value.nano
    return left


def overdrawn(counters: Counters) -> list[tuple[str, str]]:
    """Name the counters that are below zero."""
    return [(name, counter) for name, values in counters.items() for counter, value in values.items() if value < 0]
