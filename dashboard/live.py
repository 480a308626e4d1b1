"""Pages that change under the eyes of a reader: an open page learns of a new reading, and fetches itself again. The rim.

A server-sent event names the reading, without its content: the page has the content, after the login.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Final

from runtime.http import Refused, Reply

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

MOST_LISTENERS = 100
LASTS = 300.0  # seconds after which a page has to ask anew, and to show its token again

# Focus, scroll and what is selected stay; a form that is being filled is left alone until it is left.
SCRIPT: Final = Path(__file__).with_name("script.js").read_text(encoding="utf-8")


class Live:
    """Those who listen, and what they are told."""

    def __init__(self, lasts: float) -> None:
        self._lasts = lasts
        self._listeners = 0
        self._is_over = False
        self._changed = asyncio.Event()

    def wake(self) -> None:
        """Wake the open pages: there may be something new."""
        self._changed.set()
        self._changed = asyncio.Event()

    def end(self) -> None:
        """Let all go, so that the server can end."""
        self._is_over = True
        self.wake()

    async def answer(self, look: Callable[[], Awaitable[tuple[str, float]]]) -> Reply:
        """Stream a version for each new reading; `look` returns it, and after how many seconds to look again."""
        if self._listeners >= MOST_LISTENERS:
            raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, ("Retry-After", "30"))
        parts = self._versions(look)
        return Reply(200, await anext(parts), "text/event-stream", parts=parts)

    async def _versions(self, look: Callable[[], Awaitable[tuple[str, float]]]) -> AsyncGenerator[bytes, None]:
        self._listeners += 1
        try:
            yield b"retry: 5000\n\n"
            end, sent = time.monotonic() + self._lasts, ""
            while not self._is_over and time.monotonic() < end:
                changed = self._changed
                reading, pause = await look()
                # A comment tells a listener that has gone from one that is there.
                yield b":\n\n" if reading == sent else f"data: {reading}\n\n".encode()
                sent = reading
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), pause)
        finally:
            self._listeners -= 1
