"""The allocator's processes: the allocator for schedulers, the read-only allocator, and the scheduler of `drawbridge standalone`.

A module is imported when one of its names is first used, because the help of a command needs only the settings.
"""

from typing import TYPE_CHECKING

from serving.lazy import lazily

if TYPE_CHECKING:
    from allocator.service.commits import write
    from allocator.service.ports import Listening
    from allocator.service.process import AllocatorServer
    from allocator.service.read_only.allocator import ReadOnlyAllocator
    from allocator.service.settings import AllocatorSettings
    from allocator.service.standalone.scheduler import WITHOUT_CLAIMS, StandaloneScheduler

__all__ = [
    "WITHOUT_CLAIMS",
    "AllocatorServer",
    "AllocatorSettings",
    "Listening",
    "ReadOnlyAllocator",
    "StandaloneScheduler",
    "write",
]

__getattr__ = lazily(
    __name__,
    {
        "commits": ("write",),
        "ports": ("Listening",),
        "process": ("AllocatorServer",),
        "read_only.allocator": ("ReadOnlyAllocator",),
        "settings": ("AllocatorSettings",),
        "standalone.scheduler": ("WITHOUT_CLAIMS", "StandaloneScheduler"),
    },
)
