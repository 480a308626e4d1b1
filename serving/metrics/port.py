"""The plain HTTP port of a process: /metrics for Prometheus, /livez and /readyz for the kubelet.

Labels have few values, which come from tables and code and not from users' objects, except in the bounded metrics of pods' devices
(`serving.metrics.device_series`).
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from serving.http import Limits, Listener, Reply, text

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from serving.http import Address, Head

LIMITS = Limits(body=0, connections=32, peer=16)  # only kubelet and Prometheus are expected
GRACE = 1.0  # seconds


class MetricsPort:
    """The metrics, checks and notes of a process, as a `Handler`. Its own registry allows several in one process (tests, standalone)."""

    limits = LIMITS
    closed: Counter | None = None  # connections closed to make room, if the process counts them

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.address: Address | None = None  # once it listens
        self.draining = False
        # By name: functions that return a problem, or "". A problem in `checks` makes the process unready, one in `notes` does not.
        self.checks: dict[str, Callable[[], str]] = {}
        self.notes: dict[str, Callable[[], str]] = {}
        self.more_notes: Callable[[], Mapping[str, str]] = dict  # further notes, whose names vary

    def readiness(self) -> tuple[dict[str, str], dict[str, str]]:
        """Return the problems of all checks, and the notes."""
        problems = {name: problem() for name, problem in self.checks.items()}
        if self.draining:
            problems["serving"] = "shutting down"
        return problems, {name: note() for name, note in self.notes.items()} | dict(self.more_notes())

    def counter(self, name: str, text: str, labels: Sequence[str] = ()) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def histogram(self, name: str, text: str, labels: Sequence[str] = (), *, buckets: Sequence[float]) -> Histogram:
        return Histogram(name, text, labels, buckets=buckets, registry=self.registry)

    def gauge(self, name: str, text: str, value: Callable[[], float]) -> None:
        """Create a gauge whose value is computed when it is read."""
        Gauge(name, text, registry=self.registry).set_function(value)

    @asynccontextmanager
    async def serving(self, where: Address | None) -> AsyncIterator[Address | None]:
        """Serve at an address, and yield the bound address; None serves nothing."""
        if where is None:
            yield None
            return
        listener = Listener(self, LIMITS, self.count_closure)
        try:
            self.address = where._replace(port=listener.open(where.host, where.port))
            yield self.address
        finally:
            await listener.end(GRACE)

    def count_closure(self, reason: str) -> None:
        if self.closed is not None:
            self.closed.labels(reason).inc()

    def refuse(self, head: Head) -> Reply | None:
        return text(413, "no body is expected here", close=True) if head.length else None

    def answer(self, head: Head, body: bytes) -> Reply:
        del body
        if head.path == "/metrics" and head.method == "GET":
            return Reply(200, generate_latest(self.registry), CONTENT_TYPE_LATEST)
        return self.probe(head) or text(404, "not found: this port serves GET /metrics, /livez and /readyz")

    def probe(self, head: Head) -> Reply | None:
        """Answer a request for /livez or /readyz; return None for another path.

        /readyz has a line for each check, and fails if a check has a problem. With `verbose` it also has the notes.
        """
        if head.path not in ("/livez", "/readyz"):
            return None
        if head.method not in ("GET", "HEAD"):
            return text(405, f"{head.path} takes GET, HEAD only", ("Allow", "GET, HEAD"))
        status, body = 200, "ok"
        if head.path == "/readyz":
            problems, notes = self.readiness()
            status = 503 if any(problems.values()) else 200
            lines = [f"[-]{name}: {problem}" if problem else f"[+]{name} ok" for name, problem in problems.items()]
            if "verbose" in head.query:
                lines += [f"[!]{name}: {note}" for name, note in notes.items() if note]
            body = "".join([f"{line}\n" for line in lines])
        return text(status, body if head.method == "GET" else "")
