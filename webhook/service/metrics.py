"""The metrics of the webhook."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from prometheus_client import Gauge

from serving.metrics import MetricsPort

if TYPE_CHECKING:
    from webhook.admission import Record

BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5)


class WebhookMetrics(MetricsPort):
    def __init__(self) -> None:
        super().__init__()
        self._reviews = self.counter(
            "drawbridge_reviews",
            "Admission reviews answered, by outcome: untouched, left, warned, unreadable, undecided, off, out of scope, translated, "
            'cleaned, replayed, refused. If the mode does not allow a change, the outcome is "would translate" and so on.',
            ("path", "mode", "outcome"),
        )
        self._decisions = self.counter(
            "drawbridge_decisions",
            "Decisions about keys by which pods request devices.",
            ("dialect", "outcome", "mode"),
        )
        self._refused = self.counter(
            "drawbridge_refused_requests",
            "HTTP requests answered without a decision about an object, by HTTP status.",
            ("path", "status"),
        )
        self._seconds = self.histogram(
            "drawbridge_review_seconds",
            "Time from the last byte of a review to its answer.",
            ("path",),
            buckets=BUCKETS,
        )
        self._templates = self.counter(
            "drawbridge_template_writes",
            "What the controller did with ResourceClaimTemplates: created, replaced (the content was wrong), swept (deleted, because no pod uses it), "
            "taken (not created, because another owner has the name) or withheld (not created, because the pod may not have it now).",
            ("action",),
        )
        self.missed = Gauge(
            "drawbridge_missed_pods",
            "Pods that were created without claims and request a resource that no node has.",
            registry=self.registry,
        )
        self.closed = self.counter(
            "drawbridge_closed_connections",
            "Connections and large requests refused or ended at a limit or a deadline, by its name.",
            ("reason",),
        )
        self._configuration = Gauge(
            "drawbridge_configuration_info",
            "Always 1, with the SHA-256 of the configuration file in use as label. There is no sample without a file.",
            ("sha256",),
            registry=self.registry,
        )
        # labels() costs more than the increment, so each combination is looked up once.
        self._review = lru_cache(maxsize=512)(self._reviews.labels)
        self._decision = lru_cache(maxsize=2048)(self._decisions.labels)
        self._timer = lru_cache(maxsize=8)(self._seconds.labels)

    def show_configuration(self, digest: str) -> None:
        """Show the digest of the configuration in force. A process without a configuration, such as the authority, shows none."""
        self._configuration.clear()
        if digest:
            self._configuration.labels(digest).set(1)

    def count_decision(self, path: str, record: Record, seconds: float) -> None:
        self._review(path, record.mode, record.outcome).inc()
        self._timer(path).observe(seconds)
        # Most keys of a pod have the same labels, so they are counted together.
        for decision in record.decisions:
            self._decision(decision.dialect, decision.outcome, record.mode).inc()

    def count_refusal(self, path: str, status: int) -> None:
        self._refused.labels(path, str(status)).inc()

    def template(self, action: str) -> None:
        self._templates.labels(action).inc()
