"""Counts the calls that answer a scheduler, their functions and files, and how often consecutive calls are in different files.

    python -m bench.allocator.trace [all]     `all` also prints the calls

The trace starts with the bytes on a unix socket and ends with the bytes of the answer; that of a commit includes the events of its writes.
Comprehensions, the standard library and other packages do not count. Nor do calls in the embedded cluster, which replaces an API server.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from bench.way import CallTrace
from cluster.controllers import Term
from tests.allocator.service import sidecar

PODS = 8  # only the calls for the last pod are kept


async def traces_by_call() -> dict[str, CallTrace]:
    """Place pods one after the other; return the calls for the last pod, by the scheduler's call."""
    sidecar_module: Any = sidecar
    cluster = sidecar_module.loaded(*sidecar_module.fleet(nodes=20, each=8))
    traces: dict[str, CallTrace] = {}
    async with sidecar_module.running(cluster, tick=60.0, term=Term(retry=30.0)) as client:
        for number in range(PODS):
            name = f"p{number}"
            cluster.load([sidecar_module.claim(name), sidecar_module.pod(name, name)])
            await asyncio.sleep(0.3)
            traces["prefilter"] = trace = CallTrace()
            with trace.recording():
                _, outlook = await client.plugin("prefilter", {"pod": await client.pod(name)})
            traces["reserve"] = trace = CallTrace()
            with trace.recording():
                _, reserved = await client.plugin("reserve", {"token": outlook["token"], "node": "n7"})
            traces["commit"] = trace = CallTrace()
            with trace.recording():
                await client.plugin("commit", {"reservation": reserved["reservation"]})
    return traces


for question, trace in asyncio.run(traces_by_call()).items():
    print(f"{question}: {trace}")
    if "all" in sys.argv:
        print(trace.listing())
