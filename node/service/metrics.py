"""What a driver counts, and the port that shows it and answers probes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import Counter, Histogram

from runtime.metrics import MetricsPort

if TYPE_CHECKING:
    from collections.abc import Iterable


# The kubelet waits for 45 seconds.
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0, 45.0)


class DriverMetrics(MetricsPort):
    """The counters of one process."""

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
        """Count that slices were written, or should have been."""
        self._rounds.labels(outcome).inc()

    def count_closure(self, reason: str) -> None:
        """Count a connection that was closed to make room."""
        self._closed.labels(reason).inc()
