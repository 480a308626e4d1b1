"""`make soak`: a live webhook under honest and hostile reviews, for minutes and for at least 10,000 hostile reviews.

Memory and descriptors must not grow, and no honest review may be lost or delayed. Every review is different, so that no cache helps.
One more client opens connections, sends half a request on each, and closes it. A separate process sends one small honest review after
the other and measures each delay in two ways. Elapsed time includes waiting for a processor on a busy machine. The CPU time of the
webhook between request and answer shows how much other work came first. The program prints a line per sample. Its exit code is 1 if a
review was lost or delayed, or if memory or descriptors have grown.

After that, each process that follows a cluster starts twice in a cluster with 1 GiB of hostile objects (`bench.hostile_store`). The process
has to become ready, and to stay below the same memory limit.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import select
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from http.client import HTTPException, HTTPResponse, HTTPSConnection
from io import BytesIO
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import aiohttp

from bench import hostile_store
from bench.meter import cpu_of
from bench.webhook.admission import ROOT, Server, insecure_tls_context, pod, review, server
from tests.webhook.hostile import CORPUS, REVIEWS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

MIB = 1 << 20
MAX_MEMORY = 512  # MiB
CLIENTS = 32
HOSTILE = 10_000
# The most CPU seconds of the webhook by which hostile clients may delay an honest review: for 99 of 100 reviews, and for all reviews.
MAX_DELAY_OF_99_PERCENT, MAX_DELAY = 0.075, 0.1
PAUSE = 0.005
# Growth by this factor is not a leak: allocators of memory keep freed memory, and caches fill up to their bounds.
SLACK = 1.15


class Sample(NamedTuple):
    """The memory and descriptors of the server's processes at a time."""

    second: float
    memory: float  # MiB
    descriptors: int


class DelayFigures(NamedTuple):
    """How long honest reviews took, in milliseconds: the median, the 99th percentile, and the longest."""

    p50: float
    p99: float
    longest: float

    @classmethod
    def of(cls, seconds: Iterable[float]) -> DelayFigures:
        """Return the figures of the measured times."""
        sorted_seconds = sorted(seconds) or [0.0]
        return cls(
            *(
                1e3 * sorted_seconds[min(len(sorted_seconds) - 1, int(share * len(sorted_seconds)))]
                for share in (0.5, 0.99, 1.0)
            )
        )

    def __str__(self) -> str:
        return f"p50 {self.p50:.1f} ms, p99 {self.p99:.1f} ms, longest {self.longest:.1f} ms"


class HonestResults(NamedTuple):
    """The result of the process that sends honest reviews."""

    answered: int
    lost: list[str]  # for each lost review: the error or the answer
    elapsed: DelayFigures
    cpu_time: DelayFigures  # in CPU time of the webhook


NO_HONEST_REVIEWS = HonestResults(0, [], DelayFigures(0, 0, 0), DelayFigures(0, 0, 0))


class SoakResult(NamedTuple):
    """The result of a run."""

    answers: dict[int, int]
    lost: int
    samples: list[Sample]
    hostile: int = 0
    honest_results: HonestResults = NO_HONEST_REVIEWS

    @property
    def problems(self) -> list[str]:
        settled = self.samples[len(self.samples) // 3 :]
        early, late = settled[: len(settled) // 2], settled[len(settled) // 2 :]
        violations = [f"{self.lost} reviews were lost"] if self.lost else []
        if self.honest_results.lost:
            violations.append(
                f"{len(self.honest_results.lost)} honest reviews were lost, the first: {self.honest_results.lost[0]}"
            )
        delays = self.honest_results.cpu_time
        if delays.longest > MAX_DELAY * 1e3:
            violations.append(f"an honest review waited for {delays.longest:.0f} ms of the webhook's CPU time")
        if delays.p99 > MAX_DELAY_OF_99_PERCENT * 1e3:
            violations.append(
                f"one honest review of a hundred waited for {delays.p99:.0f} ms of the webhook's CPU time"
            )
        if max(sample.memory for sample in self.samples) > MAX_MEMORY:
            violations.append(f"the webhook took more than {MAX_MEMORY} MiB")
        for quantity in ("memory", "descriptors"):
            before, after = (median(getattr(sample_, quantity) for sample_ in part) for part in (early, late))
            if after > before * SLACK + 8:
                violations.append(f"{quantity} grew from {before:.0f} to {after:.0f}")
        return violations


def sample(pid: int, second: float) -> Sample:
    """Measure the server."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    memory = next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1024
    return Sample(second, memory, len(os.listdir(f"/proc/{pid}/fd")))  # noqa: PTH208  as cheap as it gets


def honest(*, large: bool = False) -> bytes:
    """Return an honest review; a `large` one has 70 KiB, so that it is decided in its turn."""
    honest_pod = pod({"cpu": "1", "nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000"})
    honest_pod["metadata"]["annotations"]["note"] = "x" * (70 << 10 if large else 200)
    return review(honest_pod)


def send_honest_reviews(url: str, pid: int, *, fresh: bool = False, large: bool = False) -> HonestResults:
    """Send one honest review after the other until standard input ends. With `fresh` each review has a new connection."""
    host, _, port = url.removeprefix("https://").partition(":")
    connection = HTTPSConnection(host, int(port), timeout=30, context=insecure_tls_context())
    connection.connect()
    clock, cpu_times, lost, started = list[float](), list[float](), list[str](), time.monotonic()
    body = honest(large=large)
    # The request is sent in one piece, as API servers send it. This process has a high priority, so that it adds no delay of its own.
    request_bytes = b"POST /mutate HTTP/1.1\r\nHost: webhook\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body  # fmt: skip
    with suppress(PermissionError):
        os.nice(-10)
    print("connected", flush=True)
    while not select.select([sys.stdin], [], [], PAUSE)[0]:
        started_at, before = time.monotonic(), cpu_of(pid)
        try:
            if fresh:
                connection.close()
            if connection.sock is None:
                connection.connect()
            connection.sock.sendall(request_bytes)
            answer = HTTPResponse(connection.sock, method="POST")
            answer.begin()
            text = answer.read()
            if answer.will_close:
                connection.close()
        except (OSError, HTTPException) as error:
            connection.close()
            lost.append(f"{time.monotonic() - started:.1f} s: {error!r}")
            continue
        cpu_seconds, elapsed = cpu_of(pid) - before, time.monotonic() - started_at
        cpu_times.append(cpu_seconds)
        clock.append(elapsed)
        if loss := why_lost(answer.status, text):
            lost.append(
                f"{time.monotonic() - started:.1f} s: after {elapsed:.2f} s and {cpu_seconds:.2f} CPU seconds of the webhook: {loss}"
            )
    return HonestResults(len(clock), lost, DelayFigures.of(clock), DelayFigures.of(cpu_times))


def why_lost(status: int, text: bytes) -> str:
    """Return the answer to an honest review whose pod was not translated; "" if it was translated."""
    if status != 200:
        return f"{status}: {text[:200].decode(errors='replace')}"
    response = json.loads(text)["response"]
    if response["allowed"] and "patch" in response:
        return ""
    return "; ".join(response.get("warnings", ())) or json.dumps(response)


@contextmanager
def beside(webhook: Server, *options: str) -> Iterator[Callable[[], HonestResults]]:
    """Run a process that sends honest reviews. The yielded function stops the process and returns its result."""
    command = [sys.executable, "-m", "bench.webhook.soak", "--beside", webhook.url, str(webhook.pid), *options]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout is not None
    process.stdout.readline()

    def stop() -> HonestResults:
        asked, lost, clock, processor = json.loads(process.communicate(timeout=60)[0])
        return HonestResults(asked, lost, DelayFigures(*clock), DelayFigures(*processor))

    try:
        yield stop
    finally:
        process.kill()
        process.communicate()


async def soak(webhook: Server, *, seconds: float, reviews: int, share: float, hostile: int = 0) -> SoakResult:
    """Send reviews until the time is over or `reviews` reviews are sent, but at least `hostile` hostile reviews."""
    with beside(webhook) as stop_honest:
        result = await _send_reviews(webhook, seconds=seconds, reviews=reviews, share=share, hostile=hostile)
        return result._replace(honest_results=await asyncio.to_thread(stop_honest))


async def _send_reviews(webhook: Server, *, seconds: float, reviews: int, share: float, hostile: int) -> SoakResult:
    answers: dict[int, int] = {}
    lost, sent_reviews, sent_hostile, samples, started = 0, 0, 0, list[Sample](), time.monotonic()
    # In a thread, because making the hostile reviews takes half a second, which would block the event loop.
    hostile_reviews = [(path, await asyncio.to_thread(make)) for path, make in (REVIEWS | CORPUS).values()]
    honest_review = honest()
    address = webhook.url.removeprefix("https://").split(":")

    async def client(number: int, session: aiohttp.ClientSession) -> None:
        nonlocal lost, sent_reviews, sent_hostile
        random_ = random.Random(number)
        while (sent_reviews < reviews and time.monotonic() - started < seconds) or sent_hostile < hostile:
            sent_reviews += 1
            path, body = "mutate", honest_review
            if random_.random() < share:
                sent_hostile += 1
                path, body = random_.choice(hostile_reviews)
            different_body = body.replace(b"registry.example.com", b"r%d.example.com" % sent_reviews).replace(b"device.driver", b"device.driver" + b" " * (sent_reviews % 900))  # fmt: skip
            try:
                async with session.post(f"{webhook.url}/{path}", data=BytesIO(different_body), headers={"Content-Type": "application/json"}) as answer:  # fmt: skip
                    await answer.read()
                    answers[answer.status] = answers.get(answer.status, 0) + 1
            except aiohttp.ClientError as error:
                lost += 1
                print(f"lost: {len(different_body)} bytes to {path}: {error!r}", file=sys.stderr)

    async def send_half_requests() -> None:
        while True:
            _, writer = await asyncio.open_connection(address[0], int(address[1]), ssl=insecure_tls_context())
            writer.write(
                b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\nContent-Type: application/json\r\n\r\n{"
            )
            try:
                await asyncio.sleep(0.2)
            finally:
                writer.transport.abort()

    async def take_samples() -> None:
        while True:
            samples.append(sample(webhook.pid, time.monotonic() - started))
            await asyncio.sleep(min(5.0, seconds / 40))

    connector = aiohttp.TCPConnector(ssl=insecure_tls_context(), limit=CLIENTS)
    async with aiohttp.ClientSession(connector=connector) as session:
        background_tasks = [asyncio.create_task(send_half_requests()), asyncio.create_task(take_samples())]
        await asyncio.gather(*(client(number, session) for number in range(CLIENTS)))
        for task in background_tasks:
            task.cancel()
        await asyncio.gather(*background_tasks, return_exceptions=True)
    samples.append(sample(webhook.pid, time.monotonic() - started))
    return SoakResult(answers, lost, samples, sent_hostile)


def start_beside_hostile_objects(size: int) -> Iterator[str]:
    """Start each process in a cluster with `size` MiB of hostile objects; yield the violations."""
    with hostile_store.stored(size * MIB) as directory:
        for name in (*hostile_store.PROCESSES, *hostile_store.PROCESSES):
            try:
                measurement = hostile_store.run(directory, name)
            except RuntimeError as error:
                yield str(error)
                continue
            print(f"{name} beside {size} MiB of hostile objects: ready after {measurement.seconds:.0f} s, {measurement.peak:.0f} MiB at most")  # fmt: skip
            if measurement.peak > MAX_MEMORY:
                yield f"{name} took {measurement.peak:.0f} MiB"


def main() -> int:
    """Run the soak, or with --beside the process that sends honest reviews."""
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--reviews", type=int, default=1 << 40)
    parser.add_argument("--share", type=float, default=0.8, help="the share of hostile reviews")
    parser.add_argument("--hostile", type=int, default=HOSTILE, help="send at least so many hostile reviews")
    parser.add_argument("--objects", type=int, default=1024, help="store so many MiB of hostile objects; 0 for none")
    parser.add_argument("--beside", nargs=2, metavar=("URL", "PID"), help="only send honest reviews to this webhook")
    parser.add_argument("--fresh", action="store_true", help="with --beside: on a new connection for each review")
    parser.add_argument("--large", action="store_true", help="with --beside: send reviews of 70 KiB")
    options = parser.parse_args()
    if options.beside:
        url, pid = options.beside
        print(json.dumps(send_honest_reviews(url, int(pid), fresh=options.fresh, large=options.large)))
        return 0
    with server("webhook") as webhook:
        run = soak(webhook, seconds=options.minutes * 60, reviews=options.reviews, share=options.share, hostile=options.hostile)  # fmt: skip
        result = asyncio.run(run)
    for sample in result.samples:
        print(f"{sample.second:7.0f} s {sample.memory:7.1f} MiB {sample.descriptors:4} descriptors")
    print(
        f"{sum(result.answers.values())} answers, by status {dict(sorted(result.answers.items()))}; {result.hostile} hostile"
    )
    print(f"{result.honest_results.answered} honest reviews beside them; elapsed time {result.honest_results.elapsed}")
    print(f"    CPU time of the webhook {result.honest_results.cpu_time}")
    for lost in result.honest_results.lost:
        print(f"    lost at {lost}")
    problems = result.problems + (list(start_beside_hostile_objects(options.objects)) if options.objects else [])
    print("flat" if not problems else "; ".join(problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
