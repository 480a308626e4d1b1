"""The allocator's processes: the allocator for schedulers, the read-only allocator, and the scheduler of `drawbridge standalone`.

A module is imported when one of its names is first used, because the help of a command needs only the settings.
"""

from typing import TYPE_CHECKING

from serving.lazy import lazily

if TYPE_CHECKING:
    from allocator.service.commits import write
    from allocator.service.ports import Listening
    from allocator.service.process import Service
    from allocator.service.read_only.allocator import ReadOnlyAllocator
    from allocator.service.settings import Settings
    from allocator.service.standalone.scheduler import WITHOUT_CLAIMS, Scheduler

__all__ = [
    "WITHOUT_CLAIMS",
    "Listening",
    "ReadOnlyAllocator",
    "Scheduler",
    "Service",
    "Settings",
    "write",
]

__getattr__ = lazily(
    __name__,
    {
        "commits": ("write",),
        "ports": ("Listening",),
        "process": ("Service",),
        "read_only.allocator": ("ReadOnlyAllocator",),
        "settings": ("Settings",),
        "standalone.scheduler": ("WITHOUT_CLAIMS", "Scheduler"),
    },
)
