"""The metrics of the allocator's service."""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from allocator.decisions import Outlook
from allocator.pods import waits
from allocator.reports import devices_by_resource, shares
from dra.objects import asks_for_devices
from dra.stock import Stock
from serving.metrics import POD_DEVICE, DeviceSeries, MetricsPort, SeriesFamily

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from prometheus_client.core import Metric

    from allocator.reports import Drift
    from allocator.service.knowledge import Knowledge
    from dra.objects import Pod
    from dra.quantity import Quantity

# kube-state-metrics replaces these characters in the name of a resource.
_UNSAFE = re.compile(r"[^a-zA-Z0-9_]")
_NOTHING = Stock.of()
MAX_SERIES = 20_000  # for each metric with pods and devices
BUCKETS = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0)


class Metrics(MetricsPort):
    def __init__(self) -> None:
        super().__init__()
        self.writes = self.counter(
            "drawbridge_claim_writes",
            "Writes to claims, by what was written and by outcome.",
            ("what", "outcome"),
        )
        self.outlooks = self.counter("drawbridge_outlooks", "Pods checked for schedulers, by answer.", ("outlook",))
        for outlook in Outlook:  # so that the first answer is an increase, and dashboards have a line before it
            self.outlooks.labels(str(outlook))
        self.outlook_seconds = self.histogram(
            "drawbridge_outlook_seconds", "Time to check all nodes for a pod.", buckets=BUCKETS
        )
        self.preemptions = self.counter(
            "drawbridge_preemptions",
            "Preemptions for pods that would fit a node if devices were free, by outcome.",
            ("outcome",),
        )
        self.evictions = self.counter("drawbridge_evictions", "Preemption victims, by outcome.", ("outcome",))
        self.closed = self.counter(
            "drawbridge_allocator_closed_connections",
            "Connections and large requests refused or ended at a limit or a deadline, by its name.",
            ("reason",),
        )

    def follow(
        self, knowledge: Knowledge, drift: Callable[[], Drift], leads: Callable[[], bool] = lambda: True
    ) -> None:
        """Add the metrics, checks and notes about the cluster.

        Only the leader exports pods and devices, so that a query may sum over the replicas.
        """

        def held_twice() -> str:
            overlapping = drift().overlapping
            return f"held more than once: {', '.join(overlapping[:8])}" if overlapping else ""

        self.checks["cluster"] = knowledge.what_is_unread
        self.notes |= {
            "server": lambda: knowledge.server.doubts(),  # noqa: PLW0108  the server may be replaced later
            "objects read": knowledge.quarantine.note,
            "devices": held_twice,
        }

        def stock() -> Stock:
            return knowledge.stock if leads() else _NOTHING

        def pods() -> Collection[Pod]:
            return knowledge.pods.objects.values() if leads() else ()

        self.registry.register(pod_devices(stock, pods))
        self.registry.register(ResourceSeries(stock, pods))
        self.gauge(
            "drawbridge_waiting_pods", "Pods with claims that wait for a node.", lambda: sum(map(_is_waiting, pods()))
        )
        self.gauge(
            "drawbridge_allocator_stock_age_seconds",
            "Seconds since the copy of the cluster was last current.",
            knowledge.age,
        )
        self.gauge(
            "drawbridge_overlapping_claims",
            "Claims that hold a device that another claim also holds.",
            lambda: len(drift().overlapping),
        )
        self.gauge(
            "drawbridge_orphaned_reservations",
            "Reservations of deleted pods, and allocations that no pod needs, which both of the last two periodic checks found.",
            lambda: len(drift().left_behind),
        )


def _is_waiting(pod: Pod) -> bool:
    """Return whether a pod with claims or extended resources waits for a node."""
    return asks_for_devices(pod) and waits(pod)


class ResourceSeries(Collector):
    """The devices of pods by extended resource, with the labels that kube-state-metrics uses for the requests of containers."""

    def __init__(self, stock: Callable[[], Stock], pods: Callable[[], Iterable[Pod]]) -> None:
        self._stock, self._pods = stock, pods

    def collect(self) -> Iterator[Metric]:
        family = GaugeMetricFamily(
            "drawbridge_pod_extended_resource",
            "Whole devices that a pod has through claims, by the extended resource of their DeviceClass.",
            labels=("namespace", "pod", "node", "resource", "unit"),
        )
        counts = devices_by_resource(self._stock(), self._pods())
        for (namespace, pod, node, resource), number in islice(counts.items(), MAX_SERIES):
            family.add_metric((namespace, pod, node, _UNSAFE.sub("_", resource), "integer"), number)
        yield family


def pod_devices(stock: Callable[[], Stock], pods: Callable[[], Iterable[Pod]]) -> DeviceSeries:
    """Return metrics that show the devices of each pod, and the claims that hold these devices.

    Claims without a pod in reservedFor are left out.
    """

    def rows() -> Iterator[tuple[tuple[str, ...], Mapping[str, Quantity]]]:
        for share in shares(stock(), pods()):
            if share.pod:
                labels = share.namespace, share.pod, share.claim, share.driver, share.pool, share.device
                yield (*labels, share.share_id, share.node, share.uuid), share.amounts

    return DeviceSeries(
        SeriesFamily(
            "drawbridge_pod_device",
            "1 for a device that a pod has through a claim; share is its shareID if the device is shared.",
            POD_DEVICE,
        ),
        SeriesFamily(
            "drawbridge_pod_device_capacity",
            "A pod's share of a capacity of a shared device, in whole units: bytes for memory.",
            (*POD_DEVICE, "capacity"),
        ),
        SeriesFamily(
            "drawbridge_pod_devices_left_out", "Devices of pods that have no series, because the limit is reached."
        ),
        MAX_SERIES,
        rows,
    )
