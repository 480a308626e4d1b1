"""`drawbridge dashboard`: what a cluster or a dump has, who holds it and who waits, as pages and as JSON. It only reads."""

from cli.dashboard.events import read_events
from cli.dashboard.login import Login, certificate
from cli.dashboard.prometheus import Prometheus
from cli.dashboard.server import Dashboard, PictureSource
from cli.dashboard.waiting import waits_for_node

__all__ = ["Dashboard", "Login", "PictureSource", "Prometheus", "certificate", "read_events", "waits_for_node"]
