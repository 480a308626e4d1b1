"""The rim: what schedulers ask, and the writes; an onlooker beside others' schedulers; a small scheduler where there is none."""

from __future__ import annotations

from allocator.service.commits import write
from allocator.service.fairness.pressing import Preempting
from allocator.service.fairness.reviews import Reviewing, Trust
from allocator.service.onlooking.onlooker import Onlooker
from allocator.service.ports import Listening
from allocator.service.process import Service
from allocator.service.settings import Settings
from allocator.service.standalone.scheduler import WITHOUT_CLAIMS, Scheduler

__all__ = [
    "WITHOUT_CLAIMS",
    "Listening",
    "Onlooker",
    "Preempting",
    "Reviewing",
    "Scheduler",
    "Service",
    "Settings",
    "Trust",
    "write",
]
