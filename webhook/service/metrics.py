"""What the webhook counts, and the plain HTTP port that shows it to Prometheus.

Labels have few values by construction: dialects and actions come from tables, paths and outcomes from code. Nothing a pod
author writes ever becomes a label.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from cluster.serving import Reply, readiness, text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cluster.serving import Head
    from webhook.admission import Record

BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5)


class Metrics:
    """One registry a process, so that two in one process (tests, standalone) do not meet."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        # What keeps the process from its work, and what is only worth knowing; said by whoever puts it together.
        self.readiness: Callable[[], tuple[Mapping[str, str], Mapping[str, str]]] = lambda: ({}, {})
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
        self._closed = Counter(
            "drawbridge_made_room",
            "Connections that had to go and reviews that were interrupted, by what there was too much of.",
            ("reason",),
            registry=self.registry,
        )
        # labels() costs more than the increment it leads to: bind each combination once.
        self._review = lru_cache(maxsize=512)(self._reviews.labels)
        self._decision = lru_cache(maxsize=2048)(self._decisions.labels)
        self._timer = lru_cache(maxsize=8)(self._seconds.labels)

    def decided(self, path: str, record: Record, seconds: float) -> None:
        """Count one answer."""
        self._review(path, record.mode, record.outcome).inc()
        self._timer(path).observe(seconds)
        for decision in record.decisions:
            self._decision(decision.dialect, str(decision.action), record.mode).inc()

    def refused(self, path: str, status: int) -> None:
        """Count one request that got no decision."""
        self._refused.labels(path, str(status)).inc()

    def closed(self, reason: str) -> None:
        """Count a connection that had to go, or a review that was interrupted."""
        self._closed.labels(reason).inc()

    def template(self, action: str) -> None:
        """Count one write of the templates controller."""
        self._templates.labels(action).inc()

    def gauge(self, name: str, text: str, value: Callable[[], float]) -> None:
        """Show a value that is computed when somebody looks."""
        Gauge(name, text, registry=self.registry).set_function(value)

    def refuse(self, head: Head) -> Reply | None:
        """Take no body."""
        return text(413, "no body is read here", close=True) if head.length else None

    def answer(self, head: Head, body: bytes) -> Reply:
        """Answer GET /metrics, and /livez and /readyz for a process that has no other port."""
        del body
        if head.method != "GET":
            return text(405, "GET is all there is here", ("Allow", "GET"))
        if head.path == "/livez":
            return text(200, "ok")
        if head.path == "/readyz":
            return readiness(*self.readiness(), verbose="verbose" in head.query)
        if head.path != "/metrics":
            return text(404, "there are /metrics, /livez and /readyz here")
        return Reply(200, generate_latest(self.registry), CONTENT_TYPE_LATEST)
