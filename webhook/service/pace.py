"""How often a process looks, and how long it waits: the durations of this room that are neither limits nor an admin's choice."""

from __future__ import annotations

from typing import NamedTuple


class Pace(NamedTuple):
    """How often things are looked at and tried again, in seconds."""

    # Between looks at Secrets and webhook configurations while no watch says that they changed; and while something fails.
    certificate: float = 10.0
    certificate_retry: float = 1.0
    # Between two views made from a stream of changes.
    refresh: float = 0.25
    # Between looks at how device plugins and autoscalers are set up, and how long one may take.
    evidence: float = 15.0
    evidence_look: float = 5.0
    # Between questions to an API server that does not answer, and between looks at its version and gates.
    retry: float = 1.0
    server: float = 600.0
    # A server of the right group may still lack a kind; it is not waited for longer.
    extra: float = 3.0
    # A state that was confirmed longer ago is good enough to translate by, but not to refuse by.
    fresh: float = 60.0
