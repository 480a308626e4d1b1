"""The HTTP server: accepts connections, reads requests and writes answers, each step with a deadline.

It does not interpret requests: a `Handler`, such as the webhook or the allocator, answers them.
"""

from runtime.http.connection import Limits
from runtime.http.listener import Address, Listener, listens
from runtime.http.messages import Head, Reply, count_members, text

__all__ = ["Address", "Head", "Limits", "Listener", "Reply", "count_members", "listens", "text"]
