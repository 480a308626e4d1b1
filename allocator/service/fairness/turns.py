"""Turns of the loop for who has more to do than one turn holds: one piece a turn, and namespaces after each other.

Nobody's crowd stands before somebody else: of two namespaces each has every second turn, however many wait in one of them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TypeAlias

_Line: TypeAlias = "deque[asyncio.Future[None]]"


class Turns:
    """Who waits for a turn, by namespace."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._lines: dict[str, _Line] = {}  # whose turn it is comes first
        self._called = False

    async def wait(self, namespace: str) -> None:
        """Wait until it is our turn."""
        future = self._loop.create_future()
        self._lines.setdefault(namespace, deque()).append(future)
        self._call()
        await future

    def _call(self) -> None:
        if not self._called and self._lines:
            self._called = True
            self._loop.call_soon(self._give)

    def _give(self) -> None:
        """Give the turn to the next namespace that has somebody. Who has gone meanwhile takes nobody's place."""
        self._called = False
        while self._lines:
            namespace = next(iter(self._lines))
            line = self._lines.pop(namespace)
            future = line.popleft()
            if line:
                self._lines[namespace] = line
            if not future.done():
                future.set_result(None)
                break
        self._call()
