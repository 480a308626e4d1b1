"""The devices of a node: the state, capacity and free capacity of each, and totals.

A device is blocked if no claim holds it but other devices have consumed its counters. A held or blocked device has nothing free.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from dra.quantity import Quantity
from dra.stock import available

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dra.stock import Stock

_MODEL = ("productName", "model")

Amounts = dict[str, Quantity]


class DeviceState(StrEnum):
    """Whether a device can be allocated."""

    FREE = "free"
    SHARED = "shared"  # in part
    HELD = "held"
    BLOCKED = "blocked"


class DeviceReport(msgspec.Struct, frozen=True):
    """One device of a node."""

    driver: str
    pool: str
    device: str
    state: DeviceState
    model: str = ""
    capacity: Amounts = {}
    available: Amounts = {}
    taints: tuple[str, ...] = ()


class NodeReport(msgspec.Struct, frozen=True):
    """All devices that a node can reach."""

    node: str
    devices: tuple[DeviceReport, ...]

    def count(self, *states: DeviceState) -> int:
        """Count the devices in some states."""
        return sum(device.state in states for device in self.devices)

    @property
    def is_idle(self) -> bool:
        """Whether the node has devices, and no claim holds one."""
        return bool(self.devices) and not self.count(DeviceState.HELD, DeviceState.SHARED)

    @property
    def models(self) -> tuple[str, ...]:
        """The models of the devices, as their drivers name them."""
        return tuple(sorted({device.model for device in self.devices if device.model}))

    @property
    def capacity(self) -> Amounts:
        """The total capacity of the devices."""
        return _sum(device.capacity for device in self.devices)

    @property
    def available(self) -> Amounts:
        """The total free capacity."""
        return _sum(device.available for device in self.devices)


def node_report(stock: Stock, node: str) -> NodeReport:
    """Report the devices of one node. A device that several nodes can use is reported on each of them."""
    devices: list[DeviceReport] = []
    for pool in stock.pools(node):
        driver, pool_name = pool.id
        use = stock.use(pool.id)
        counters = available(pool, use)
        for device in (device for page in pool.accessible for device in page.devices):
            if device.name in use.dedicated:
                state = DeviceState.HELD
            elif device.name in use.shared:
                state = DeviceState.SHARED
            elif any(
                amount.value.nano > counters.get(consumes_counter.counter_set, {}).get(counter, 0)
                for consumes_counter in device.consumes_counters
                for counter, amount in consumes_counter.counters.items()
            ):
                state = DeviceState.BLOCKED
            else:
                state = DeviceState.FREE
            used = use.used.get(device.name, {})
            capacity = {name: one.value for name, one in device.capacity.items()}
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
                capacity=capacity,
                available=left,
                taints=tuple(f"{taint.key}:{taint.effect}" for taint in device.taints),
            )
            devices.append(report)
    return NodeReport(node, tuple(devices))


def _sum(several: Iterable[Amounts]) -> Amounts:
    total: Amounts = {}
    for amounts in several:
        for name, amount in amounts.items():
            total[name] = total[name] + amount if name in total else amount
    return total
