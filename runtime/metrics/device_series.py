"""Series about which pod has which device, for all processes that show them: what they are known by, and how many there may be.

Their labels are names that others chose, so their number is bounded: beyond it series are left out, and counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dra.quantity import NANO

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from prometheus_client.core import GaugeMetricFamily

    from dra.quantity import Quantity

# Queries join by these.
POD_DEVICE = ("namespace", "pod", "claim", "driver", "pool", "device", "share", "node", "uuid")


class DeviceSeries:
    """Two families, of devices and of what is had of their capacities, with so many series each at most."""

    def __init__(self, devices: GaugeMetricFamily, amounts: GaugeMetricFamily, most: int) -> None:
        self._devices = devices
        self._amounts = amounts
        self._most = most
        self.left_out = 0

    def add(self, labels: Sequence[str], amounts: Mapping[str, Quantity]) -> None:
        """Show a device that a pod has, with all that it has of it; or nothing of it, if there is no room."""
        devices = len(self._devices.samples)
        parts = len(self._amounts.samples) + len(amounts)
        if max(devices, parts) >= self._most:
            self.left_out += 1
            return
        self._devices.add_metric(labels, 1)
        for capacity in sorted(amounts):
            value = amounts[capacity].nano / NANO
            self._amounts.add_metric([*labels, capacity], value)
