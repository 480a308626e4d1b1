"""`make soak`: a live webhook between honest and hostile reviews for minutes or an hour; memory and descriptors must stay flat.

Every review is a new one: what could be remembered of it is different each time. A tenth of the connections is half a
request and nothing more. It prints what it saw, a line a sample, and ends with 1 if something was lost or has grown.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
import time
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import aiohttp

from bench.admission import Server, _trusting, pod, review, server
from tests.webhook.hostile import REVIEWS

if TYPE_CHECKING:
    from collections.abc import Iterator

MIB = 1 << 20
CEILING = 512  # MiB, workers included
CLIENTS = 6
# Growth that says nothing: allocators keep what they had, and caches fill up to their bounds.
SLACK = 1.15


class Sample(NamedTuple):
    """What the server's processes hold, at some second."""

    second: float
    memory: float  # MiB: the process itself and what its workers hold beside it
    descriptors: int


class Seen(NamedTuple):
    """What came of it."""

    answers: dict[int, int]
    lost: int
    samples: list[Sample]

    @property
    def problems(self) -> list[str]:
        """What must not be."""
        settled = self.samples[len(self.samples) // 3 :]
        early, late = settled[: len(settled) // 2], settled[len(settled) // 2 :]
        found = [f"{self.lost} reviews were lost"] if self.lost else []
        if max(one.memory for one in self.samples) > CEILING:
            found.append(f"more than {CEILING} MiB")
        for what in ("memory", "descriptors"):
            before, after = (max(getattr(one, what) for one in part) for part in (early, late))
            if after > before * SLACK + 8:
                found.append(f"{what} grew from {before:.0f} to {after:.0f}")
        return found


def processes(pid: int) -> Iterator[int]:
    """A process and its children."""
    yield pid
    for task in Path(f"/proc/{pid}/task").iterdir():
        yield from map(int, (task / "children").read_text().split())


def sample(pid: int, second: float) -> Sample:
    """Look at the server; what is shared by a worker and its parent counts once."""
    memory = 0.0
    for one in processes(pid):
        try:
            lines = Path(f"/proc/{one}/smaps_rollup").read_text().splitlines()[1:]
        except OSError:
            continue  # a worker that is gone
        memory += next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024
    return Sample(second, memory, len(os.listdir(f"/proc/{pid}/fd")))  # noqa: PTH208  as cheap as it gets


async def soak(where: Server, *, seconds: float, reviews: int, hostile: float) -> Seen:
    """Ask until the time is over or so many reviews were asked."""
    answers: dict[int, int] = {}
    lost, asked, samples, started = 0, 0, list[Sample](), time.monotonic()
    bad = [(path, make()) for path, make in REVIEWS.values()]
    good = review(pod({"cpu": "1", "nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000"}))
    address = where.url.removeprefix("https://").split(":")

    async def client(number: int, session: aiohttp.ClientSession) -> None:
        nonlocal lost, asked
        dice = random.Random(number)
        while asked < reviews and time.monotonic() - started < seconds:
            asked += 1
            path, body = dice.choice(bad) if dice.random() < hostile else ("mutate", good)
            new = body.replace(b"registry.example.com", b"r%d.example.com" % asked).replace(b"device.driver", b"device.driver" + b" " * (asked % 900))  # fmt: skip
            try:
                async with session.post(f"{where.url}/{path}", data=BytesIO(new), headers={"Content-Type": "application/json"}) as answer:  # fmt: skip
                    await answer.read()
                    answers[answer.status] = answers.get(answer.status, 0) + 1
            except aiohttp.ClientError:
                lost += 1

    async def half() -> None:
        while True:
            _, writer = await asyncio.open_connection(address[0], int(address[1]), ssl=_trusting())
            writer.write(
                b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\nContent-Type: application/json\r\n\r\n{"
            )
            try:
                await asyncio.sleep(0.2)
            finally:
                writer.transport.abort()

    async def watch() -> None:
        while True:
            samples.append(sample(where.pid, time.monotonic() - started))
            await asyncio.sleep(min(5.0, seconds / 40))

    connector = aiohttp.TCPConnector(ssl=_trusting(), limit=CLIENTS)
    async with aiohttp.ClientSession(connector=connector) as session:
        beside = [asyncio.create_task(half()), asyncio.create_task(watch())]
        await asyncio.gather(*(client(number, session) for number in range(CLIENTS)))
        for task in beside:
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)
    samples.append(sample(where.pid, time.monotonic() - started))
    return Seen(answers, lost, samples)


def main() -> int:
    """Run; the arguments say how long."""
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--reviews", type=int, default=1 << 40)
    parser.add_argument("--hostile", type=float, default=0.5, help="the share of hostile reviews")
    options = parser.parse_args()
    with server("gate") as where:
        seen = asyncio.run(soak(where, seconds=options.minutes * 60, reviews=options.reviews, hostile=options.hostile))
    for one in seen.samples:
        print(f"{one.second:7.0f} s {one.memory:7.1f} MiB {one.descriptors:4} descriptors")
    print(f"{sum(seen.answers.values())} answers, by status {dict(sorted(seen.answers.items()))}")
    problems = seen.problems
    print("flat" if not problems else "; ".join(problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
