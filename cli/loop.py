"""The event loop that long-running commands use: uvloop where it is installed (extra `fast`), else asyncio's own."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")


def run(main: Coroutine[object, object, T]) -> T:
    """Run a program to its end."""
    try:
        from uvloop import new_event_loop
    except ImportError:  # an optional extra; a fifth slower without it
        return asyncio.run(main)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)
