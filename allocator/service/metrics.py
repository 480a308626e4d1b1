"""What the allocator's service counts, and the plain HTTP port that shows it, with liveness and readiness.

Labels come from code only: nothing that a pod's author writes becomes one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from cluster.serving import Reply, readiness, text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cluster.serving import Head

BUCKETS = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0)


class Metrics:
    """One registry a process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        # What keeps the process from its work, and what is only worth knowing; said by whoever puts it together.
        self.readiness: Callable[[], tuple[Mapping[str, str], Mapping[str, str]]] = lambda: ({}, {})
        self._writes = Counter(
            "drawbridge_claim_writes",
            "Writes into claims, by what was written and what became of it.",
            ("what", "outcome"),
            registry=self.registry,
        )
        self._outlooks = Counter(
            "drawbridge_outlooks",
            "Pods that schedulers asked about, by what they were told.",
            ("outlook",),
            registry=self.registry,
        )
        self._seconds = Histogram(
            "drawbridge_outlook_seconds",
            "How long it took to ask all nodes about a pod.",
            buckets=BUCKETS,
            registry=self.registry,
        )
        self._closed = Counter(
            "drawbridge_allocator_made_room",
            "Connections that had to go, by what there was too much of.",
            ("reason",),
            registry=self.registry,
        )

    def wrote(self, what: str, outcome: str) -> None:
        """Count a write into a claim."""
        self._writes.labels(what, outcome).inc()

    def told(self, outlook: str, seconds: float) -> None:
        """Count an answer about a pod."""
        self._outlooks.labels(outlook).inc()
        self._seconds.observe(seconds)

    def closed(self, reason: str) -> None:
        """Count a connection that had to go."""
        self._closed.labels(reason).inc()

    def gauge(self, name: str, text: str, value: Callable[[], float]) -> None:
        """Show a value that is computed when somebody looks."""
        Gauge(name, text, registry=self.registry).set_function(value)

    def refuse(self, head: Head) -> Reply | None:
        """Take no body."""
        return text(413, "no body is read here", close=True) if head.length else None

    def answer(self, head: Head, body: bytes) -> Reply:
        """Answer GET /metrics, /livez and /readyz."""
        del body
        if head.method != "GET":
            return text(405, "GET is all there is here", ("Allow", "GET"))
        if head.path == "/livez":
            return text(200, "ok")
        if head.path in ("/readyz", "/healthz"):
            return readiness(*self.readiness(), verbose="verbose" in head.query)
        if head.path != "/metrics":
            return text(404, "there are /metrics, /livez and /readyz here")
        return Reply(200, generate_latest(self.registry), CONTENT_TYPE_LATEST)
