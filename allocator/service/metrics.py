"""What the allocator's service counts and shows."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from prometheus_client import Counter, Histogram

from runtime.metrics import MetricsPort

if TYPE_CHECKING:
    from collections.abc import Callable

    from allocator.reports import Drift
    from allocator.service.knowledge import Knowledge
    from allocator.service.ports import Ports

BUCKETS = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0)


class Metrics(MetricsPort):
    """The counters of one process."""

    def __init__(self) -> None:
        super().__init__()
        count = partial(Counter, registry=self.registry)
        self.writes = count(
            "drawbridge_claim_writes",
            "Writes into claims, by what was written and what became of it.",
            ("what", "outcome"),
        )
        self.outlooks = count(
            "drawbridge_outlooks", "Pods that schedulers asked about, by what they were told.", ("outlook",)
        )
        self.outlook_seconds = Histogram(
            "drawbridge_outlook_seconds",
            "How long it took to ask all nodes about a pod.",
            buckets=BUCKETS,
            registry=self.registry,
        )
        self.binds = count(
            "drawbridge_extender_binds", "Pods that stock schedulers had bound, by what became of it.", ("outcome",)
        )
        self.room = count(
            "drawbridge_room",
            "Questions for room on behalf of pods that only devices keep from their nodes, by what became of them.",
            ("outcome",),
        )
        self.evictions = count("drawbridge_evictions", "Preemption victims, by what became of them.", ("outcome",))
        self.reviews = count(
            "drawbridge_quota_reviews",
            "Pods and claims that quotas were asked about at creation, by outcome.",
            ("outcome",),
        )
        self.closed = count(
            "drawbridge_allocator_made_room",
            "Connections closed to make room, by what there was too much of.",
            ("reason",),
        )

    def count_closure(self, reason: str) -> None:
        """Count a connection that was closed to make room."""
        self.closed.labels(reason).inc()

    def follow(self, knowledge: Knowledge, ports: Ports, drift: Callable[[], Drift]) -> None:
        """Show what every allocator knows of its cluster, and go by it in the probes."""

        def readiness() -> tuple[dict[str, str], dict[str, str]]:
            """Say what keeps this process from its work, and what is only worth knowing."""
            problems = {"cluster": knowledge.what_is_unread(), "certificate": ports.what_is_wrong()}
            notes = {"files of TLS": ports.note(), "server": knowledge.server.doubts()}
            if aside := str(knowledge.quarantine):
                notes["objects read"] = f"set aside: {aside}"
            if overlapping := drift().overlapping:
                notes["devices"] = f"held more than once: {', '.join(overlapping[:8])}"
            return problems, notes

        self.readiness = readiness
        self.gauge(
            "drawbridge_allocator_stock_age_seconds", "Seconds since what we know was last current.", knowledge.age
        )
        self.gauge(
            "drawbridge_overlapping_claims",
            "Claims that hold what another holds too.",
            lambda: float(len(drift().overlapping)),
        )
        self.gauge(
            "drawbridge_left_behind",
            "Reservations of pods that are gone, and allocations that no pod needs, found by the last two sweeps.",
            lambda: float(len(drift().left_behind)),
        )
