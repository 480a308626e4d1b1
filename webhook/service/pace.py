"""Fixed intervals and waiting times of the webhook's process, which are neither limits nor settings."""

from __future__ import annotations

from typing import NamedTuple


class Pace(NamedTuple):
    """Intervals in seconds."""

    # Between two reads of Secrets and webhook configurations if no watch shows a change; and between a failed read and the next.
    certificate: float = 10.0
    certificate_retry: float = 1.0
    # Between two states built from a stream of changes.
    refresh: float = 0.25
    # Between two reads of the setup of device plugins and autoscalers, and the limit for one read.
    evidence: float = 15.0
    evidence_timeout: float = 5.0
    # Between two requests to an API server that does not answer, and between two reads of its version and gates.
    retry: float = 1.0
    server: float = 600.0
    # The wait for an optional kind, which an API server that serves its group may lack.
    extra: float = 3.0
    # If the state was last confirmed longer ago than this, the webhook still translates, but refuses nothing.
    fresh: float = 60.0
