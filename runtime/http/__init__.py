"""The HTTP server: accepts connections, reads requests and writes answers, each step with a deadline.

It does not interpret requests: a `Handler`, such as the webhook or the allocator, answers them.
"""

from runtime.http.connection import Limits
from runtime.http.listener import Address, Listener, listens
from runtime.http.messages import Head, Reply, count_members, text
from runtime.http.site import Refused, Request, Route, Site, html

__all__ = ["Address", "Head", "Limits", "Listener", "Refused", "Reply", "Request", "Route", "Site", "count_members", "html", "listens", "text"]  # fmt: skip
