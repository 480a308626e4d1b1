"""Counts the calls that answer a scheduler, their functions and files, and how often consecutive calls are in different files.

    python -m bench.allocator.trace [all]     `all` also prints the calls

The trace starts with the bytes on a unix socket and ends with the bytes of the answer; that of a commit includes the events of its writes.
Comprehensions, the standard library and other packages do not count. Nor do calls in the embedded cluster, which replaces an API server.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from bench.way import Way
from runtime.controllers import Term
from tests.allocator.service import sidecar

PODS = 8  # only the calls for the last pod are kept


async def ways() -> dict[str, Way]:
    """Place pods one after the other; return the calls for the last pod, by the scheduler's call."""
    stand: Any = sidecar
    cluster = stand.loaded(*stand.fleet(nodes=20, each=8))
    found: dict[str, Way] = {}
    async with stand.running(cluster, tick=60.0, term=Term(retry=30.0)) as asked:
        for number in range(PODS):
            name = f"p{number}"
            cluster.load([stand.claim(name), stand.pod(name, name)])
            await asyncio.sleep(0.3)
            found["prefilter"] = way = Way()
            with way.followed():
                _, outlook = await asked.plugin("prefilter", {"pod": await asked.pod(name)})
            found["reserve"] = way = Way()
            with way.followed():
                _, reserved = await asked.plugin("reserve", {"token": outlook["token"], "node": "n7"})
            found["commit"] = way = Way()
            with way.followed():
                await asked.plugin("commit", {"reservation": reserved["reservation"]})
    return found


for question, followed in asyncio.run(ways()).items():
    print(f"{question}: {followed}")
    if "all" in sys.argv:
        print(followed.steps())
