"""The HTTP server: connections are accepted, requests are read, answers are written, each within a deadline.

It does not interpret requests: a `Handler` answers them. The webhook and the allocator are such handlers.
"""

from __future__ import annotations

from runtime.http.connection import ConnectionPhase, Limits
from runtime.http.listener import Address, Listener, listens
from runtime.http.messages import Head, Reply, text

__all__ = ["Address", "ConnectionPhase", "Head", "Limits", "Listener", "Reply", "listens", "text"]
