"""The rim: what schedulers ask, and the writes; a read-only process beside other schedulers; a small scheduler where there is none."""

from __future__ import annotations

from allocator.service.commits import write
from allocator.service.ports import Listening
from allocator.service.preemption.extender_preemption import Preempting
from allocator.service.process import Service
from allocator.service.quota.reviews import Reviewing, Trust
from allocator.service.read_only.allocator import ReadOnlyAllocator
from allocator.service.settings import Settings
from allocator.service.standalone.scheduler import WITHOUT_CLAIMS, Scheduler

__all__ = [
    "WITHOUT_CLAIMS",
    "Listening",
    "Preempting",
    "ReadOnlyAllocator",
    "Reviewing",
    "Scheduler",
    "Service",
    "Settings",
    "Trust",
    "write",
]
