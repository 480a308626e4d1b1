"""Announces each new reading of the cluster to open pages, which then fetch their content again.

An event has only the name of the reading. To get the content, the page sends a request of its own, which requires the login.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from http import HTTPStatus
from typing import TYPE_CHECKING

from serving.http import Reply, StatusError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

MAX_LISTENERS = 100
# Seconds after which a stream ends. The page then opens another stream, for which it sends its token again.
LASTS = 300.0


class Live:
    """The open pages that listen for new readings."""

    def __init__(self, lasts: float) -> None:
        self._lasts = lasts
        self._listeners = 0
        self._is_over = False
        self._changed = asyncio.Event()

    def wake(self) -> None:
        """Let each stream check for a new reading."""
        self._changed.set()
        self._changed = asyncio.Event()

    def end(self) -> None:
        """End all streams, so that the server can end."""
        self._is_over = True
        self.wake()

    async def answer(self, poll: Callable[[], Awaitable[tuple[str, float]]]) -> Reply:
        """Stream the name of each new reading. `poll` returns the name of the last reading, and the seconds until the next call of `poll`."""
        if self._listeners >= MAX_LISTENERS:
            raise StatusError(HTTPStatus.SERVICE_UNAVAILABLE, ("Retry-After", "30"))
        parts = self._versions(poll)
        return Reply(200, await anext(parts), "text/event-stream", parts=parts)

    async def _versions(self, poll: Callable[[], Awaitable[tuple[str, float]]]) -> AsyncGenerator[bytes, None]:
        self._listeners += 1
        try:
            yield b"retry: 5000\n\n"
            end, sent = time.monotonic() + self._lasts, ""
            while not self._is_over and time.monotonic() < end:
                changed = self._changed
                reading, pause = await poll()
                # Writing a comment detects a listener that has disconnected.
                yield b":\n\n" if reading == sent else f"data: {reading}\n\n".encode()
                sent = reading
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), pause)
        finally:
            self._listeners -= 1
