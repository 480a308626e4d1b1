"""What the allocator's service counts."""

from __future__ import annotations

from prometheus_client import Counter, Histogram

from runtime.metrics import MetricsPort

BUCKETS = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0)


class Metrics(MetricsPort):
    """The counters of one process."""

    def __init__(self) -> None:
        super().__init__()
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
        self._binds = Counter(
            "drawbridge_extender_binds",
            "Pods that stock schedulers had bound, by what became of it.",
            ("outcome",),
            registry=self.registry,
        )
        self._room = Counter(
            "drawbridge_room",
            "Questions for room on behalf of pods that only devices keep from their nodes, by what became of them.",
            ("outcome",),
            registry=self.registry,
        )
        self._evictions = Counter(
            "drawbridge_evictions",
            "Preemption victims, by what became of them.",
            ("outcome",),
            registry=self.registry,
        )
        self._reviews = Counter(
            "drawbridge_quota_reviews",
            "Pods and claims that quotas were asked about at creation, by outcome.",
            ("outcome",),
            registry=self.registry,
        )
        self._closed = Counter(
            "drawbridge_allocator_made_room",
            "Connections closed to make room, by what there was too much of.",
            ("reason",),
            registry=self.registry,
        )

    def count_write(self, what: str, outcome: str) -> None:
        """Count a write into a claim."""
        self._writes.labels(what, outcome).inc()

    def count_bind(self, outcome: str) -> None:
        """Count a binding that an extender was asked for."""
        self._binds.labels(outcome).inc()

    def count_review(self, outcome: str) -> None:
        """Count an answer at the door of quotas."""
        self._reviews.labels(outcome).inc()

    def count_outlook(self, outlook: str, seconds: float) -> None:
        """Count an answer about a pod."""
        self._outlooks.labels(outlook).inc()
        self._seconds.observe(seconds)

    def count_room(self, outcome: str) -> None:
        """Count a question for room."""
        self._room.labels(outcome).inc()

    def count_eviction(self, outcome: str) -> None:
        """Count a pod that was to go."""
        self._evictions.labels(outcome).inc()

    def count_closure(self, reason: str) -> None:
        """Count a connection that had to go."""
        self._closed.labels(reason).inc()
