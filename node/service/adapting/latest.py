"""The last message of a stream, for a reader that is slower than the stream."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Generic, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

T = TypeVar("T")

# Between two messages that are read. A faster sender waits: gRPC takes only so many bytes that were not read.
BREATH = 0.01


class Latest(Generic[T]):
    """Iterate over a stream, without messages that were overtaken before they were read."""

    def __init__(self, stream: AsyncIterator[T], breath: float = BREATH) -> None:
        self._said: deque[T] = deque(maxlen=1)
        self._news = asyncio.Event()
        self._reading = asyncio.create_task(self._read(stream, breath))
        # However the stream ends, the waiting reader is woken.
        self._reading.add_done_callback(lambda _: self._news.set())

    async def close(self) -> None:
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        """Wait for something new; raise what ended the stream when its last word was heard."""
        await self._news.wait()
        if self._said:
            if not self._reading.done():
                self._news.clear()
            return self._said.pop()
        await self._reading
        raise StopAsyncIteration

    async def _read(self, stream: AsyncIterator[T], breath: float) -> None:
        async for said in stream:
            self._said.append(said)
            self._news.set()
            await asyncio.sleep(breath)
