"""The rim: what places pods on a cluster that has no scheduler, and what schedulers ask where there are some."""

from __future__ import annotations

from allocator.service.commits import write
from allocator.service.onlooking.onlooker import Onlooker
from allocator.service.process import Listening, Service, Settings
from allocator.service.standalone.scheduler import WITHOUT_CLAIMS, Scheduler

__all__ = ["WITHOUT_CLAIMS", "Listening", "Onlooker", "Scheduler", "Service", "Settings", "write"]
