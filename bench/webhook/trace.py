"""Counts the calls that answer one review, their functions and files, and how often consecutive calls are in different files.

    python -m bench.webhook.trace [all]     `all` also prints the calls

The trace starts with the bytes on a TLS connection and ends with the bytes of the answer. Comprehensions, the standard library and other
packages do not count.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from bench.way import CallTrace
from bench.webhook.admission import LIMITS, _certificate, insecure_tls_context, large_state_builder, pod, review
from webhook.service.app import WebhookApp
from webhook.service.decider import ReviewDecider
from webhook.service.log import Decisions
from webhook.service.metrics import WebhookMetrics

if TYPE_CHECKING:
    from collections.abc import Callable

REVIEWS = 30  # reviews of each case; only the trace of the last review is kept
CASES: dict[str, Callable[[int], dict[str, str]]] = {
    "TLS bytes -> patch, new GPU pod": lambda number: LIMITS | {"memory": str(number)},
    "the same, with a new size of the share": lambda number: LIMITS | {"nvidia.com/gpumem": str(3000 + number)},
    "pod without devices": lambda number: {"cpu": str(1 + number)},
}  # fmt: skip


async def traces_by_case() -> dict[str, CallTrace]:
    """Answer reviews of each case; return the trace of the last review, by case."""
    builder, _ = large_state_builder(20)
    state = builder.state(fresh=True)
    follower: Any = SimpleNamespace(state=lambda: state, fresh=lambda: True)
    webhook = ReviewDecider(builder, follower)
    app = WebhookApp(webhook, WebhookMetrics(), decisions=Decisions(Path(os.devnull).open("wb")))  # noqa: SIM115, ASYNC230
    port = await app.start("127.0.0.1", 0, _certificate())
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=insecure_tls_context())
    traces: dict[str, CallTrace] = {}
    for name, limits in CASES.items():
        for number in range(REVIEWS):
            body = review(pod(limits(number)))
            head = f"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            trace = traces[name] = CallTrace()
            with trace.recording():
                writer.write(head.encode() + body)
                answered = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(int(answered.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]))
    writer.close()
    app.close()
    return traces


for case, trace in asyncio.run(traces_by_case()).items():
    print(f"{case}: {trace}")
    if "all" in sys.argv:
        print(trace.listing())
