"""Reads from Prometheus the numbers of devices in use and of waiting pods, for more days than this process remembers."""

from __future__ import annotations

import asyncio
import math
import time
from typing import Final

import aiohttp
import msgspec

from analysis.errors import Failed
from dashboard.lines import WAITING, Line

SPANS: Final = (7, 30, 90)  # the spans of history that a page can show, in days
_FRESH = 60.0  # seconds for which an answer is cached
_POINTS, _MAX_BYTES = 500, 1 << 20
_QUESTIONS: Final = {
    "Devices in use": "count(count by (driver, pool, device) (drawbridge_pod_device))",
    WAITING: "max(drawbridge_waiting_pods)",
}
_REMEDY: Final = "check --prometheus, and that Prometheus scrapes the allocator (docs/operating.md)"


class _Series(msgspec.Struct):
    values: list[tuple[float, str]]


class _Data(msgspec.Struct):
    result: list[_Series]


class _Answer(msgspec.Struct):
    data: _Data


class Prometheus:
    def __init__(self, url: str, *, patience: float = 10.0) -> None:
        self._url = url.rstrip("/")
        self._patience = patience
        self._lock = asyncio.Lock()
        self._cached: dict[int, tuple[float, list[Line]]] = {}

    async def lines(self, days: int, *, narrowed: bool) -> list[Line]:
        """Return the lines of the last days; if `narrowed`, without the line of waiting pods. Raises Failed."""
        async with self._lock:  # one request at a time, so that viewers share an answer
            asked_at, cached_lines = self._cached.get(days, (-math.inf, []))
            if time.monotonic() - asked_at > _FRESH:
                timeout = aiohttp.ClientTimeout(total=self._patience)
                try:
                    async with aiohttp.ClientSession(timeout=timeout) as session:
                        queries = [self._points(session, query, days) for query in _QUESTIONS.values()]
                        answers = await asyncio.gather(*queries)
                except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
                    reason = str(error) or "it did not answer in time"
                    raise Failed(f"Prometheus at {self._url} cannot be asked: {reason[:300]}", _REMEDY) from None
                cached_lines = [
                    Line(title, points, 0.0) for title, points in zip(_QUESTIONS, answers, strict=True) if points
                ]
                self._cached[days] = time.monotonic(), cached_lines
        return [drawn for drawn in cached_lines if not (narrowed and drawn.title == WAITING)]

    async def _points(self, session: aiohttp.ClientSession, query: str, days: int) -> list[tuple[float, float]]:
        end, span = time.time(), days * 86400
        parameters: dict[str, str | float] = {"query": query, "start": end - span, "end": end, "step": span / _POINTS}
        async with session.get(f"{self._url}/api/v1/query_range", params=parameters, allow_redirects=False) as answer:
            if answer.status != 200:
                raise ValueError(f"it answers {answer.status}")
            body = bytearray()
            async for part in answer.content.iter_chunked(1 << 16):
                body += part
                if len(body) > _MAX_BYTES:
                    raise ValueError("its answer is too long")
        series = msgspec.json.decode(body, type=_Answer).data.result
        points = [(at, float(value)) for at, value in (series[0].values if series else ())]
        return [(at, value) for at, value in points if math.isfinite(value) and math.isfinite(at)][: _POINTS + 1]
