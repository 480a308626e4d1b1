"""A live webhook while somebody wants to close it without asking it anything: `python -m bench.webhook.attacks`.

Each attack lasts some seconds and stops by itself. Beside it two processes ask for one small honest review after the other, one on a connection
that it keeps, one on a new connection each time. A line an attack says how many honest reviews were answered, how many were lost, and
how long they were held; it ends with 1 if one was lost, or held for longer than a tenth of a second of the gate's processor.
"""

from __future__ import annotations

import argparse
import asyncio
import errno
import socket
import ssl
import sys
import time
from contextlib import ExitStack, suppress
from itertools import cycle, islice
from typing import TYPE_CHECKING, NamedTuple

from bench.webhook.admission import _trusting, server
from bench.webhook.soak import beside, honest, sample

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from bench.webhook.admission import Server

CROWD = 10_000
# Loopback addresses, each of which is a peer of its own.
MANY = tuple(f"127.1.{number // 250}.{1 + number % 250}" for number in range(500))
ONE = ("127.1.9.9",)
HELD = 0.1


class Target(NamedTuple):
    """Whom to attack, until when, and from where."""

    address: tuple[str, int]
    until: float
    peers: tuple[str, ...]

    @property
    def is_over(self) -> bool:
        """Whether it is time to stop."""
        return time.monotonic() > self.until


def knock(target: Target, peer: str) -> socket.socket | None:
    """Begin a connection, and wait for nothing; None where there is no descriptor or no port left."""
    try:
        sock = socket.socket()
    except OSError:
        return None
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # gone at once when it is closed
    try:
        sock.bind((peer, 0))
        if sock.connect_ex(target.address) in (0, errno.EINPROGRESS):
            return sock
    except OSError:
        pass
    sock.close()
    return None


def hello() -> bytes:
    """What a peer says first."""
    said = ssl.MemoryBIO()
    client = _trusting().wrap_bio(ssl.MemoryBIO(), said)
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return said.read()


def is_gone(sock: socket.socket) -> bool:
    """Whether the other side has closed."""
    try:
        return sock.recv(4096, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


async def stand_there(target: Target) -> str:
    """Open connections and say nothing; who is sent away comes again."""
    opened, peers, held = 0, cycle(target.peers), list[socket.socket]()
    while not target.is_over:
        for peer in islice(peers, 100):
            if len(held) < CROWD and (new := knock(target, peer)):
                held.append(new)
                opened += 1
        await asyncio.sleep(0)
        if len(held) >= CROWD:
            for sock in held:
                if is_gone(sock):
                    sock.close()
            held = [sock for sock in held if sock.fileno() >= 0]
            await asyncio.sleep(0.05)
    most = len(held)
    for sock in held:
        sock.close()
    return f"{opened} connections, {most} at the end"


async def say_hello_at_once(target: Target) -> str:
    """Open as many as are let in, and say hello on all of them in one moment. No step of a handshake costs who sends the same again."""
    said, greeted = hello(), 0
    while not target.is_over:
        held = [sock for peer in islice(cycle(target.peers), 300 if target.peers == ONE else 1_000) if (sock := knock(target, peer))]  # fmt: skip
        await asyncio.sleep(0.3)
        for sock in held:
            with suppress(OSError):
                sock.send(said)
                greeted += 1
        await asyncio.sleep(0.3)
        for sock in held:
            sock.close()
    return f"{greeted} hellos"


async def say_hello(target: Target) -> str:
    """Say hello 2,000 times a second and go."""
    said, greeted, peers = hello(), 0, cycle(target.peers)
    begun = time.monotonic()
    held = list[socket.socket]()
    while not target.is_over:
        due = int((time.monotonic() - begun) * 2_000)
        for peer in islice(peers, min(100, max(0, due - greeted))):
            if sock := knock(target, peer):
                held.append(sock)
            greeted += 1
        await asyncio.sleep(0.005)
        for sock in held[:-10]:
            with suppress(OSError):
                sock.send(said)
        while len(held) > 300:
            held.pop(0).close()
    for sock in held:
        sock.close()
    return f"{greeted} hellos"


async def trickle(target: Target, said: bytes, *, tls: bool) -> str:
    """Send a byte a second on each of 300 connections."""
    begun = 0

    async def one(peer: str) -> None:
        nonlocal begun
        while not target.is_over:
            try:
                reader, writer = await asyncio.open_connection(*target.address, ssl=_trusting() if tls else None, local_addr=(peer, 0))  # fmt: skip
            except OSError:
                await asyncio.sleep(0.1)
                continue
            begun += 1
            try:
                for byte in said:
                    writer.write(bytes([byte]))
                    await asyncio.sleep(1.0)
                    if reader.at_eof() or time.monotonic() > target.until:
                        break
            finally:
                writer.transport.abort()

    await asyncio.gather(*(one(peer) for peer in islice(cycle(target.peers), 300)))
    return f"{begun} connections"


def request(body: bytes) -> bytes:
    """A review as it goes over the wire."""
    head = f"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def never_read(target: Target) -> str:
    """Ask again and again, and read no answer."""
    asked = 0
    whole = request(honest())

    async def one(peer: str) -> None:
        nonlocal asked
        while not target.is_over:
            try:
                reader, writer = await asyncio.open_connection(*target.address, ssl=_trusting(), limit=1, local_addr=(peer, 0))  # fmt: skip
                reader._transport.pause_reading()  # type: ignore[attr-defined]  # noqa: SLF001
            except OSError:
                await asyncio.sleep(0.1)
                continue
            try:
                while not target.is_over:
                    writer.write(whole)
                    asked += 1
                    await asyncio.wait_for(writer.drain(), 1.0)
                    await asyncio.sleep(0.02)
            except (OSError, TimeoutError):
                pass
            finally:
                writer.transport.abort()

    await asyncio.gather(*(one(peer) for peer in islice(cycle(target.peers), 32)))
    return f"{asked} reviews whose answer nobody reads"


async def pipeline(target: Target) -> str:
    """Send whole requests behind one another, and half of one more."""
    asked, whole = 0, request(honest())

    async def one(number: int, peer: str) -> None:
        nonlocal asked
        while not target.is_over:
            try:
                reader, writer = await asyncio.open_connection(*target.address, ssl=_trusting(), local_addr=(peer, 0))
            except OSError:
                await asyncio.sleep(0.1)
                continue
            try:
                writer.write(whole * (1 + number % 5) + whole[: len(whole) * (number % 7) // 7])
                asked += 1
                async with asyncio.timeout(1.0):
                    await reader.read()
            except (OSError, TimeoutError):
                pass
            finally:
                writer.transport.abort()

    await asyncio.gather(*(one(number, peer) for number, peer in enumerate(islice(cycle(target.peers), 64))))
    return f"{asked} times"


_HEADERS = b"POST /mutate HTTP/1.1\r\nHost: x\r\nX-Long: " + b"y" * 60
_BODY = b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 400\r\n\r\n"
ATTACKS: dict[str, Callable[[Target], Awaitable[str]]] = {
    "10,000 connections that say nothing": stand_there,
    "hellos on all connections at once": say_hello_at_once,
    "2,000 hellos a second": say_hello,
    "a byte a second, of a hello": lambda target: trickle(target, hello(), tls=False),
    "a byte a second, of the headers": lambda target: trickle(target, _HEADERS, tls=True),
    "a byte a second, of a body": lambda target: trickle(target, _BODY + b" " * 400, tls=True),
    "readers that never read": never_read,
    "pipelines and half bodies": pipeline,
}


def attack(where: Server, name: str, peers: tuple[str, ...], seconds: float) -> Iterator[str]:
    """Run one attack, print what came of it, and yield what must not be."""
    host, _, port = where.url.removeprefix("https://").partition(":")
    with ExitStack() as stack:
        kept = stack.enter_context(beside(where))
        fresh = stack.enter_context(beside(where, fresh=True))
        target = Target((host, int(port)), time.monotonic() + seconds, peers)
        said = asyncio.run(_run(ATTACKS[name], target))
        held = sample(where.pid, 0.0)
        seen = {"kept": kept(), "new": fresh()}
    print(f"{name}, from {len(peers)}: {said}; {held.memory:.0f} MiB, {held.descriptors} descriptors")
    for what, one in seen.items():
        print(f"    {what} connections: {one.asked} honest reviews, {len(one.lost)} lost {one.lost[:2]}; by the clock {one.clock}; by the gate's processor {one.processor}", flush=True)  # fmt: skip
        if one.lost:
            yield f"{name}: {len(one.lost)} honest reviews were lost"
    if seen["kept"].processor.longest > HELD * 1e3:
        yield f"{name}: an honest review was held for {seen['kept'].processor.longest:.0f} ms"


async def _run(work: Callable[[Target], Awaitable[str]], target: Target) -> str:
    return await work(target)


def main() -> int:
    """Run; the arguments say which attacks and how long."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="how long each attack lasts")
    parser.add_argument("--only", default="", help="attacks whose name contains this")
    parser.add_argument("--descriptors", type=int, default=0, help="how many descriptors the gate may have")
    options = parser.parse_args()
    problems = list[str]()
    for name in ATTACKS:
        if options.only in name:
            for peers in (ONE, MANY):
                with server("gate", descriptors=options.descriptors) as where:
                    problems += attack(where, name, peers, options.seconds)
    print("\n".join(problems) or "nobody honest was lost or held")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
