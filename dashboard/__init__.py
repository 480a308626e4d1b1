"""`drawbridge dashboard`: pages and JSON about the devices of a cluster or a dump, their holders, and waiting pods. It only reads."""

from dashboard.event_reader import read_events
from dashboard.login import Login, certificate
from dashboard.prometheus import Prometheus
from dashboard.server import Dashboard, ReadingSource
from dashboard.waiting import waits_for_node
from dashboard.whatif import Unanswerable, WhatIfQuestion, what_if

__all__ = [
    "Dashboard",
    "Login",
    "Prometheus",
    "ReadingSource",
    "Unanswerable",
    "WhatIfQuestion",
    "certificate",
    "read_events",
    "waits_for_node",
    "what_if",
]
