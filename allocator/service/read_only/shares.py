"""The metric of who has what: `drawbridge_pod_device`, one series for each pod, claim and device, and what it has of it.

Its labels are names that others chose, so their number is bounded: beyond it series are left out, and counted. A claim that
no pod has reserved yet is not shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from allocator.reports import shares
from runtime.metrics import POD_DEVICE, DeviceSeries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from prometheus_client.core import Metric

    from dra.objects import Pod
    from dra.stock import Stock

MOST = 20_000  # series of each metric


class Shares(Collector):
    """Reads the stock when metrics are read."""

    def __init__(self, stock: Callable[[], Stock], pods: Callable[[], Iterable[Pod]]) -> None:
        self._stock = stock
        self._pods = pods

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        devices = GaugeMetricFamily(
            "drawbridge_pod_device",
            "1 for a device that a pod has through a claim; share is its shareID if the device is shared.",
            labels=POD_DEVICE,
        )
        amounts = GaugeMetricFamily(
            "drawbridge_pod_device_capacity",
            "What a pod has of a capacity of a shared device, in whole units: bytes for memory.",
            labels=(*POD_DEVICE, "capacity"),
        )
        series = DeviceSeries(devices, amounts, MOST)
        for one in shares(self._stock(), self._pods()):
            if one.pod:
                held = [one.namespace, one.pod, one.claim, one.driver, one.pool, one.device]
                series.add([*held, one.share_id, one.node, one.uuid], one.amounts)
        yield devices
        yield amounts
        yield GaugeMetricFamily(
            "drawbridge_pod_devices_left_out",
            "Devices of pods for which there was no series left.",
            value=series.left_out,
        )
