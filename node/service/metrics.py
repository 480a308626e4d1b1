"""The metrics of a driver and of the audit agent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from runtime.metrics import POD_DEVICE, DeviceSeries, MetricsPort

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from prometheus_client.core import Metric

    from node.audit import ContainerDevice

MOST_SERIES = 2048  # series of each metric: a node has a few hundred devices at most
LONGEST_LABEL = 256
LABELS = (*POD_DEVICE, "container", "resource", "card", "pci")
# The kubelet waits for 45 seconds.
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0, 45.0)


class DriverMetrics(MetricsPort):
    def __init__(self) -> None:
        super().__init__()
        self._claims = Counter(
            "drawbridge_driver_claims",
            "Claims that the kubelet asked about, by what it asked for and what became of it.",
            ("call", "outcome"),
            registry=self.registry,
        )
        self._seconds = Histogram(
            "drawbridge_driver_call_seconds",
            "From the kubelet's question to the answer.",
            ("call",),
            buckets=BUCKETS,
            registry=self.registry,
        )
        self._rounds = Counter(
            "drawbridge_driver_publications",
            "Times that slices were written, by what became of it.",
            ("outcome",),
            registry=self.registry,
        )
        self._closed = Counter(
            "drawbridge_driver_made_room",
            "Connections closed to make room, by what there was too much of.",
            ("reason",),
            registry=self.registry,
        )

    def count_call(self, call: str, errors: Iterable[str], seconds: float) -> None:
        """Count a call of the kubelet by its claims: what is wrong with each, "" if nothing is."""
        self._seconds.labels(call).observe(seconds)
        for error in errors:
            outcome = "refused" if error else "done"
            self._claims.labels(call, outcome).inc()

    def count_publication(self, outcome: str) -> None:
        self._rounds.labels(outcome).inc()

    def count_closure(self, reason: str) -> None:
        self._closed.labels(reason).inc()


class ContainerDevices(Collector):
    """One series for each container and each device that it has, from the last snapshot when metrics are read.

    Labels are names that users and drivers chose, so each is cut and their number is bounded: beyond it series are left out, and counted.
    """

    def __init__(self, node: str, holders: Callable[[], Iterable[ContainerDevice]]) -> None:
        self._node = node
        self._holders = holders

    def collect(self) -> Iterator[Metric]:
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
        series = DeviceSeries(devices, amounts, MOST_SERIES)
        shown: set[tuple[str, ...]] = set()
        for one in self._holders():
            exporter_ids = one.exporter_ids
            labels = (
                *(one.namespace, one.pod, one.claim, one.driver, one.pool, one.device, one.share, self._node),
                *(exporter_ids.uuid, one.container, one.resource, exporter_ids.card, exporter_ids.pci),
            )
            names = tuple(label[:LONGEST_LABEL] for label in labels)
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
