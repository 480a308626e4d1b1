"""The metric of the devices of containers: `drawbridge_node_container_device`, one series for each container and each device that it has.

Labels are names that users and drivers chose, so each is cut and their number is bounded: beyond it series are left out, and counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from runtime.metrics import POD_DEVICE, DeviceSeries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from prometheus_client.core import Metric

    from node.audit import ContainerDevice

MOST = 2048  # series of each metric: a node has a few hundred devices at most
LONGEST = 256
LABELS = (*POD_DEVICE, "container", "resource", "card", "pci")


class Devices(Collector):
    """Yields the last snapshot when metrics are read."""

    def __init__(self, node: str, there: Callable[[], Iterable[ContainerDevice]]) -> None:
        self._node = node
        self._there = there

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        devices = GaugeMetricFamily(
            "drawbridge_node_container_device",
            "1 for a device that a container has: through a claim, or of a device plugin, which has a resource and no claim.",
            labels=LABELS,
        )
        amounts = GaugeMetricFamily(
            "drawbridge_node_container_device_capacity",
            "What a container has of a capacity of a shared device, in whole units: bytes for memory.",
            labels=(*LABELS, "capacity"),
        )
        series = DeviceSeries(devices, amounts, MOST)
        shown: set[tuple[str, ...]] = set()
        for one in self._there():
            plate = one.plate
            labels = (
                *(one.namespace, one.pod, one.claim, one.driver, one.pool, one.device, one.share, self._node),
                *(plate.uuid, one.container, one.resource, plate.card, plate.pci),
            )
            names = tuple(label[:LONGEST] for label in labels)
            if names not in shown:
                shown.add(names)
                series.add(names, one.amounts)
        yield devices
        yield amounts
        yield GaugeMetricFamily(
            "drawbridge_node_container_devices_left_out",
            "Devices of containers for which there was no series left.",
            value=series.left_out,
        )
