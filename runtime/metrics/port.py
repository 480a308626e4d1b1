"""The plain HTTP port of a process: /metrics for Prometheus, /livez and /readyz for the kubelet.

Labels have few values by construction: they come from tables and from code. Nothing that a pod's author writes becomes one,
except where a bounded collector of its own says who has which device (`runtime.metrics.device_series`).
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from runtime.http import Limits, Listener, Reply, text

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from runtime.http import Address, Head

# One or two programs collect metrics, and this port is as open to many connections as any other.
LIMITS = Limits(body=0, connections=32, peer=16)
GRACE = 1.0


def readiness(problems: Mapping[str, str], notes: Mapping[str, str], *, verbose: bool) -> Reply:
    """Answer with one line a check; an empty reason is fine, and a note takes no pod off a Service."""
    lines: list[str] = []
    status = 200
    for name, problem in problems.items():
        if problem:
            status = 503
            lines.append(f"[-]{name}: {problem}")
        else:
            lines.append(f"[+]{name} ok")
    if verbose:
        lines += [f"[!]{name}: {note}" for name, note in notes.items() if note]
    body = "\n".join(lines)
    return text(status, f"{body}\n")


class MetricsPort:
    """One registry a process, so that two in one process (tests, standalone) do not meet; a `Handler` of a listener."""

    limits = LIMITS
    closed: Counter | None = None  # connections closed to make room, where a program counts them

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.address: Address | None = None  # where it is shown, from when it is
        self.draining = False
        # What keeps the process from its work, and what is only worth knowing, each by the part that can say it; "" if all is well.
        self.checks: dict[str, Callable[[], str]] = {}
        self.notes: dict[str, Callable[[], str]] = {}
        self.more_notes: Callable[[], Mapping[str, str]] = dict  # by names that are not known before

    def readiness(self) -> tuple[dict[str, str], dict[str, str]]:
        """Ask each part."""
        problems = {name: problem() for name, problem in self.checks.items()}
        if self.draining:
            problems["serving"] = "shutting down"
        return problems, {name: note() for name, note in self.notes.items()} | dict(self.more_notes())

    def counter(self, name: str, text: str, labels: Sequence[str] = ()) -> Counter:
        """Count something, by labels."""
        return Counter(name, text, labels, registry=self.registry)

    def histogram(self, name: str, text: str, labels: Sequence[str] = (), *, buckets: Sequence[float]) -> Histogram:
        """Observe how long something takes."""
        return Histogram(name, text, labels, buckets=buckets, registry=self.registry)

    def gauge(self, name: str, text: str, value: Callable[[], float]) -> None:
        """Show a value that is computed at each look."""
        Gauge(name, text, registry=self.registry).set_function(value)

    @asynccontextmanager
    async def shown(self, where: Address | None) -> AsyncIterator[Address | None]:
        """Show it all, and say where; nowhere if that is wanted."""
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
        """Count a connection that was closed to make room."""
        if self.closed is not None:
            self.closed.labels(reason).inc()

    def refuse(self, head: Head) -> Reply | None:
        """Take no body."""
        return text(413, "no body is expected here", close=True) if head.length else None

    def answer(self, head: Head, body: bytes) -> Reply:
        """Answer GET /metrics, /livez and /readyz."""
        del body
        if head.method != "GET":
            return text(405, "only GET is supported here", ("Allow", "GET"))
        if head.path == "/livez":
            return text(200, "ok")
        if head.path == "/readyz":
            return readiness(*self.readiness(), verbose="verbose" in head.query)
        if head.path != "/metrics":
            return text(404, "not found: this port serves /metrics, /livez and /readyz")
        return Reply(200, generate_latest(self.registry), CONTENT_TYPE_LATEST)
