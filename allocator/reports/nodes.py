"""The devices of a node: the state, capacity and free capacity of each.

A device is blocked if no claim holds it, but it cannot be allocated: other devices have consumed its counters, or its pool cannot be used.
Held and blocked devices have no free capacity.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from dra.quantity import Quantity
from dra.stock import available, targets

if TYPE_CHECKING:
    from dra.stock import Stock

_MODEL = ("productName", "model")

Amounts = dict[str, Quantity]


class DeviceState(StrEnum):
    """Whether a device can be allocated."""

    FREE = "free"
    SHARED = "shared"  # a share is in use
    HELD = "held"
    BLOCKED = "blocked"


class DeviceReport(msgspec.Struct, frozen=True):
    """One device of a node."""

    driver: str
    pool: str
    device: str
    state: DeviceState
    model: str = ""
    # The card that the device is a part of, by its first counter set; "" without counters.
    card: str = ""
    capacity: Amounts = {}
    available: Amounts = {}
    taints: tuple[str, ...] = ()


def device_reports(stock: Stock, node: str) -> tuple[DeviceReport, ...]:
    """Report the devices that a node can use. A device that several nodes can use is reported for each of them."""
    devices: list[DeviceReport] = []
    for pool in stock.pools(node):
        driver, pool_name = pool.id
        use = stock.use(pool.id)
        counters = available(pool, use)
        # Report the devices of a pool that cannot be used, too, because claims keep the devices that they hold.
        pages = pool.accessible or [page for page in stock.newest_pages(pool.id) if targets(page, stock.nodes[node])]
        for device in (device for page in pages for device in page.devices):
            if device.name in use.dedicated:
                state = DeviceState.HELD
            elif device.name in use.shared:
                state = DeviceState.SHARED
            elif not pool.accessible or any(
                amount.value.nano > counters.get(consumes_counter.counter_set, {}).get(counter, 0)
                for consumes_counter in device.consumes_counters
                for counter, amount in consumes_counter.counters.items()
            ):
                state = DeviceState.BLOCKED
            else:
                state = DeviceState.FREE
            used = use.used.get(device.name, {})
            capacity = {name: capacity.value for name, capacity in device.capacity.items()}
            left: dict[str, Quantity] = {}
            for name, amount in capacity.items():
                free = amount.nano - used.get(name, 0) if state in (DeviceState.FREE, DeviceState.SHARED) else 0
                left[name] = Quantity.from_nano(free, amount.format)
            report = DeviceReport(
                driver=driver,
                pool=pool_name,
                device=device.name,
                state=state,
                model=next((text for key in _MODEL if (text := device.own_text(driver, key))), ""),
                card=next((f"{driver}/{pool_name}/{part.counter_set}" for part in device.consumes_counters), ""),
                capacity=capacity,
                available=left,
                taints=tuple(f"{taint.key}:{taint.effect}" for taint in device.taints),
            )
            devices.append(report)
    return tuple(devices)
