"""The rim: what places pods on a cluster."""

from __future__ import annotations

from allocator.service.scheduler import Scheduler

__all__ = ["Scheduler"]
