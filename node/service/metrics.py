"""The metrics of a driver and of the audit agent."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from prometheus_client import Gauge

from node.audit import FindingKind
from serving.metrics import POD_DEVICE, DeviceSeries, MetricsPort, SeriesFamily

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from dra.quantity import Quantity
    from node.audit import ContainerDevice, NodeFinding

MAX_SERIES = 2048  # series of each metric; a node has a few hundred devices at most
LONGEST_LABEL = 256  # characters
LABELS = (*POD_DEVICE, "container", "resource", "card", "pci")
# Seconds; the kubelet waits up to 45.
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0, 45.0)


class DriverMetrics(MetricsPort):
    def __init__(self) -> None:
        super().__init__()
        self._claims = self.counter(
            "drawbridge_driver_claims",
            "Claims in the kubelet's calls, by call and outcome.",
            ("call", "outcome"),
        )
        self._seconds = self.histogram(
            "drawbridge_driver_call_seconds", "Duration of the kubelet's calls.", ("call",), buckets=BUCKETS
        )
        self.publications = self.counter(
            "drawbridge_driver_publications", "Attempts to publish slices, by outcome.", ("outcome",)
        )
        self.failed_discoveries = self.counter(
            "drawbridge_driver_failed_discoveries", "Attempts to discover the devices again that failed."
        )
        self.closed = self.counter(
            "drawbridge_driver_closed_connections",
            "Connections and large requests refused or ended at a limit or a deadline, by its name.",
            ("reason",),
        )

    def count_call(self, call: str, errors: Iterable[str], seconds: float) -> None:
        """Count a kubelet's call and its claims; `errors` has one entry per claim, "" if it succeeded."""
        self._seconds.labels(call).observe(seconds)
        for error in errors:
            self._claims.labels(call, "refused" if error else "done").inc()


class AgentMetrics(MetricsPort):
    def __init__(self) -> None:
        super().__init__()
        self._findings = Gauge(
            "drawbridge_node_findings", "Contradictions found, by kind.", ("what",), registry=self.registry
        )
        self.show_findings(())

    def show_findings(self, findings: Iterable[NodeFinding]) -> None:
        """Show how many contradictions there are of each kind."""
        counts = Counter(finding.kind for finding in findings)
        for kind in FindingKind:
            self._findings.labels(kind.value).set(counts[kind])


def container_devices(node: str, holders: Callable[[], Iterable[ContainerDevice]]) -> DeviceSeries:
    """Return the series of containers and their devices in the last snapshot; long labels are cut."""

    def rows() -> Iterator[tuple[tuple[str, ...], Mapping[str, Quantity]]]:
        shown: set[tuple[str, ...]] = set()
        for holder in holders():
            ids = holder.exporter_ids
            labels = (
                *(
                    holder.namespace,
                    holder.pod,
                    holder.claim,
                    holder.driver,
                    holder.pool,
                    holder.device,
                    holder.share,
                    node,
                ),
                *(ids.uuid, holder.container, holder.resource, ids.card, ids.pci),
            )
            names = tuple(label[:LONGEST_LABEL] for label in labels)
            if names not in shown:
                shown.add(names)
                yield names, holder.amounts

    return DeviceSeries(
        SeriesFamily(
            "drawbridge_node_container_device",
            "1 for each device of a container. `claim` is empty for devices of device plugins, and `resource` for devices of claims.",
            LABELS,
        ),
        SeriesFamily(
            "drawbridge_node_container_device_capacity",
            "A container's share of a capacity of a shared device, in whole units: bytes for memory.",
            (*LABELS, "capacity"),
        ),
        SeriesFamily(
            "drawbridge_node_container_devices_left_out",
            "Devices of containers that have no series, because the limit is reached.",
        ),
        MAX_SERIES,
        rows,
    )
