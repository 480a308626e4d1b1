"""What the webhook counts."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from prometheus_client import Counter, Gauge, Histogram

from runtime.metrics import MetricsPort

if TYPE_CHECKING:
    from webhook.admission import Record

BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5)


class WebhookMetrics(MetricsPort):
    """The counters of one process."""

    def __init__(self) -> None:
        super().__init__()
        self._reviews = Counter(
            "drawbridge_reviews",
            "Reviews answered, by what became of the object.",
            ("path", "mode", "outcome"),
            registry=self.registry,
        )
        self._decisions = Counter(
            "drawbridge_decisions",
            "Legacy keys decided on.",
            ("dialect", "action", "mode"),
            registry=self.registry,
        )
        self._refused = Counter(
            "drawbridge_refused_requests",
            "HTTP requests that got no decision, by status.",
            ("path", "status"),
            registry=self.registry,
        )
        self._seconds = Histogram(
            "drawbridge_review_seconds",
            "From the first byte of a review to its answer.",
            ("path",),
            buckets=BUCKETS,
            registry=self.registry,
        )
        self._templates = Counter(
            "drawbridge_template_writes",
            "What the templates controller did.",
            ("action",),
            registry=self.registry,
        )
        self.missed = Gauge(
            "drawbridge_missed_pods",
            "Pods that were created without claims, and ask for what no node hands out.",
            registry=self.registry,
        )
        self._closed = Counter(
            "drawbridge_made_room",
            "Connections closed to make room, and reviews that were interrupted, by what there was too much of.",
            ("reason",),
            registry=self.registry,
        )
        self._configuration = Gauge(
            "drawbridge_configuration_info",
            "The configuration in force, by the SHA-256 of its file's content; none where there is no file.",
            ("sha256",),
            registry=self.registry,
        )
        # labels() costs more than the increment it leads to: bind each combination once.
        self._review = lru_cache(maxsize=512)(self._reviews.labels)
        self._decision = lru_cache(maxsize=2048)(self._decisions.labels)
        self._timer = lru_cache(maxsize=8)(self._seconds.labels)

    def show_configuration(self, digest: str) -> None:
        """Show which configuration is in force."""
        self._configuration.clear()
        self._configuration.labels(digest).set(1)

    def count_decision(self, path: str, record: Record, seconds: float) -> None:
        """Count one answer."""
        self._review(path, record.mode, record.outcome).inc()
        self._timer(path).observe(seconds)
        for decision in record.decisions:
            action = str(decision.action)
            counter = self._decision(decision.dialect, action, record.mode)
            counter.inc()

    def count_refusal(self, path: str, status: int) -> None:
        """Count one request that got no decision."""
        self._refused.labels(path, str(status)).inc()

    def count_closure(self, reason: str) -> None:
        """Count a connection that had to go, or a review that was interrupted."""
        self._closed.labels(reason).inc()

    def template(self, action: str) -> None:
        """Count one write of the templates controller."""
        self._templates.labels(action).inc()
