"""How many calls answer a scheduler, in how many functions and files, and how often the way goes from one file into another.

    python -m bench.allocator.trace [all]     `all` also prints the way itself

From the bytes on a unix socket to the bytes of the answer, a commit with all that its writes bring. Left out are comprehensions, the
standard library, other packages, and what the cluster in this process does, which stands for an API server.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from bench.way import Way
from runtime.controllers import Term
from tests.allocator.service import sidecar

PODS = 8  # of which the last is followed


async def ways() -> dict[str, Way]:
    """Place pods one after the other, and follow the calls of the last."""
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
