"""Attacks on the connections of a live webhook: `python -m bench.webhook.attacks`.

Each attack lasts some seconds. Meanwhile two processes send one small honest review after the other: one process on a persistent
connection, the other on a new connection for each review. For each attack the program prints how many honest reviews were answered and
lost, and how long they were delayed. Its exit code is 1 if a review was lost, if the webhook spent more than a tenth of a CPU second before
it answered a review on the persistent connection, or if the webhook took more than 512 MiB. Delays on new connections are only printed.
"""

from __future__ import annotations

import argparse
import asyncio
import errno
import hmac
import logging
import socket
import ssl
import sys
import time
from collections import deque
from contextlib import ExitStack, suppress
from itertools import cycle, islice
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, NamedTuple

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from bench.webhook.admission import server, trusting
from bench.webhook.soak import beside, honest, sample
from tests.webhook.hostile import REVIEWS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping

    from bench.webhook.admission import Server
    from bench.webhook.soak import Beside

    Attack = Callable[["Target"], Coroutine[None, None, str]]

CROWD = 10_000  # silent connections
HELLOS, OPEN = 2_000, 300  # TLS ClientHellos per second, and connections that stay open after their hello
# Loopback addresses; each is a peer of its own for the webhook.
MANY = tuple(f"127.1.{number // 250}.{1 + number % 250}" for number in range(500))
ONE = ("127.1.9.9",)
HONEST = "127.0.0.1"  # the address of the honest callers
NAMESPACES = 16
HELD = 0.1  # CPU seconds of the webhook before it answers an honest review on the persistent connection
MEMORY = 512  # MiB
HANDSHAKE, DATA = 22, 23  # content types of TLS records
KEY_UPDATE = b"\x18\0\0\1\1"  # update_requested: the peer has to update its keys, too
GROUP = "prime256v1"  # of the accepted groups, the one whose hello costs the webhook most CPU
PATIENCE = 1.0  # seconds that an attacker waits for a read, a write or a handshake
PAUSE = 0.1  # seconds after a refused connection, and between bursts of records


class Target(NamedTuple):
    """The address to attack, the end of the attack, and the addresses of the attackers."""

    address: tuple[str, int]
    until: float
    peers: tuple[str, ...]

    @property
    def is_over(self) -> bool:
        return time.monotonic() > self.until


def knock(target: Target, peer: str) -> socket.socket | None:
    """Begin a connection without waiting for it; return None if no descriptor or port is left."""
    try:
        sock = socket.socket()
    except OSError:
        return None
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # close() resets the connection at once
    try:
        sock.bind((peer, 0))
        if sock.connect_ex(target.address) in (0, errno.EINPROGRESS):
            return sock
    except OSError:
        pass
    sock.close()
    return None


def hello(group: str = GROUP) -> bytes:
    """Return the ClientHello of a peer that offers only this group."""
    said = ssl.MemoryBIO()
    context = trusting()
    context.set_ecdh_curve(group)
    client = context.wrap_bio(ssl.MemoryBIO(), said)
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return said.read()


def is_gone(sock: socket.socket) -> bool:
    """Report whether the server has closed the connection."""
    try:
        return sock.recv(4096, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


async def stand_there(target: Target) -> str:
    """Open connections and send nothing; reconnect those that are closed."""
    opened, peers, held = 0, cycle(target.peers), list[socket.socket]()
    while not target.is_over:
        for peer in islice(peers, 100):
            if len(held) < CROWD and (new := knock(target, peer)):
                held.append(new)
                opened += 1
        await asyncio.sleep(0)
        if len(held) >= CROWD:
            held = without_the_gone(held)
            await asyncio.sleep(0.05)
    left = len(held)
    close(held)
    return f"{opened} connections, {left} at the end"


def without_the_gone(held: list[socket.socket]) -> list[socket.socket]:
    """Close the connections that the server has closed; return the others."""
    gone = [sock for sock in held if is_gone(sock)]
    close(gone)
    return [sock for sock in held if sock.fileno() >= 0]


def close(held: Iterable[socket.socket]) -> None:
    for sock in held:
        sock.close()


async def say_hello_at_once(target: Target) -> str:
    """Open connections, and send a hello on all of them at once. The hellos have the same bytes, so they cost the client no CPU."""
    said, greeted = hello(), 0
    number = 300 if target.peers == ONE else 1_000
    while not target.is_over:
        begun = (knock(target, peer) for peer in islice(cycle(target.peers), number))
        held = [sock for sock in begun if sock]
        await asyncio.sleep(0.3)
        greeted += sum([greet(sock, said) for sock in held])
        await asyncio.sleep(0.3)
        close(held)
    return f"{greeted} hellos"


async def say_hello(target: Target) -> str:
    """Send 2,000 hellos a second, each on a new connection, and close it."""
    said, knocked, greeted = hello(), 0, 0
    peers, begun = cycle(target.peers), time.monotonic()
    silent, open_ = deque[socket.socket](), deque[socket.socket]()
    while not target.is_over:
        due = int((time.monotonic() - begun) * HELLOS) - knocked
        for peer in islice(peers, min(100, due)):
            knocked += 1
            if sock := knock(target, peer):
                silent.append(sock)
        await asyncio.sleep(0.005)
        while len(silent) > 10:  # the newest may not be connected yet
            sock = silent.popleft()
            greeted += greet(sock, said)
            open_.append(sock)
        while len(open_) > OPEN:
            open_.popleft().close()
    close([*silent, *open_])
    return f"{greeted} hellos"


def greet(sock: socket.socket, said: bytes) -> bool:
    """Send a hello; report whether that succeeded."""
    try:
        return sock.send(said) == len(said)
    except OSError:
        return False


class Line(NamedTuple):
    """A connection to the webhook."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


async def lines(target: Target, peer: str, *, tls: bool = True, limit: int = 1 << 16) -> AsyncIterator[Line]:
    """Yield one connection after the other until the attack is over. The connection is aborted before the next one begins."""
    trust = trusting() if tls else None
    while not target.is_over:
        try:
            line = Line(*await asyncio.open_connection(*target.address, ssl=trust, local_addr=(peer, 0), limit=limit))
        except OSError:
            await asyncio.sleep(PAUSE)
            continue
        try:
            yield line
        finally:
            line.writer.transport.abort()


async def trickle(target: Target, said: bytes, *, tls: bool) -> str:
    """Send a byte a second on each of 300 connections."""
    begun = 0

    async def one(peer: str) -> None:
        nonlocal begun
        async for reader, writer in lines(target, peer, tls=tls):
            begun += 1
            for byte in said:
                writer.write(bytes([byte]))
                await asyncio.sleep(1.0)
                if reader.at_eof() or writer.transport.is_closing() or target.is_over:
                    break

    await asyncio.gather(*map(one, islice(cycle(target.peers), 300)))
    return f"{begun} connections"


def request(body: bytes) -> bytes:
    """Return the HTTP request of a review."""
    head = f"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def leave_bodies(target: Target) -> str:
    """Send most of the largest accepted body, and never its end. Close a connection only after the server has closed it."""
    begun, piece = 0, b" " * (1 << 20)
    whole = request(piece * 7)
    part = whole[: -len(piece)]

    async def one(peer: str) -> None:
        nonlocal begun
        async for reader, writer in lines(target, peer):
            begun += 1
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(max(0.1, target.until - time.monotonic())):
                    writer.write(part)
                    await writer.drain()
                    await reader.read()

    await asyncio.gather(*map(one, islice(cycle(target.peers), 150)))
    return f"{begun} bodies"


async def never_read(target: Target) -> str:
    """Send requests without reading the answers."""
    asked, whole = 0, request(honest())

    async def one(peer: str) -> None:
        nonlocal asked
        async for _, writer in lines(target, peer, limit=1):
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            with suppress(OSError, TimeoutError):
                while not target.is_over:
                    writer.write(whole)
                    asked += 1
                    await asyncio.wait_for(writer.drain(), PATIENCE)
                    await asyncio.sleep(0.02)

    await asyncio.gather(*map(one, islice(cycle(target.peers), 32)))
    return f"{asked} reviews whose answer the client never reads"


async def hang_up(target: Target, body: bytes) -> str:
    """Send whole reviews, and close each connection without waiting for the answer."""
    asked, whole = 0, request(body)

    async def one(peer: str) -> None:
        nonlocal asked
        async for _, writer in lines(target, peer):
            with suppress(OSError, TimeoutError):
                writer.write(whole)
                await asyncio.wait_for(writer.drain(), PATIENCE)
                asked += 1

    await asyncio.gather(*map(one, islice(cycle(target.peers), 64)))
    return f"{asked} reviews whose peer hangs up"


async def spread_over_namespaces(target: Target) -> str:
    """Send the review that costs most to decode, in 16 namespaces at once.

    If the attack has one address, it uses the address of the honest callers, as if one API server sent all reviews.
    """
    decided, skipped = 0, 0
    peers = (HONEST,) if target.peers == ONE else target.peers
    body = REVIEWS["millions of nothing"][1]()

    async def one(number: int, peer: str) -> None:
        nonlocal decided, skipped
        whole = request(body.replace(b'"namespace": "default"', b'"namespace": "team-%d"' % number))
        async for reader, writer in lines(target, peer):
            with suppress(OSError, asyncio.IncompleteReadError):
                while not target.is_over:
                    writer.write(whole)
                    status = await reader.readuntil(b"\r\n\r\n")
                    skipped += b" 200 " not in status.partition(b"\r\n")[0]
                    decided += 1
                    await reader.readexactly(int(status.lower().partition(b"content-length: ")[2].split()[0]))

    await asyncio.gather(*map(one, range(NAMESPACES), cycle(peers)))
    return f"{decided} answers, {skipped} of them without a decision"


async def pipeline(target: Target) -> str:
    """Send whole requests behind one another, and a part of one more."""
    asked, whole = 0, request(honest())

    async def one(number: int, peer: str) -> None:
        nonlocal asked
        part = whole[: len(whole) * (number % 7) // 7]
        async for reader, writer in lines(target, peer):
            writer.write(whole * (1 + number % 5) + part)
            asked += 1
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(PATIENCE):
                    await reader.read()

    await asyncio.gather(*map(one, range(64), cycle(target.peers)))
    return f"{asked} times"


class Sealer:
    """Encrypts the TLS records of a connection, because OpenSSL does not let its caller choose their number and types."""

    def __init__(self, secret: bytes) -> None:
        """Begin with the secret of the client's application data."""
        self._use(secret)

    def _use(self, secret: bytes) -> None:
        self._secret, self._number = secret, 0
        self._key, self._nonce = AESGCM(_expand(secret, b"key", 32)), int.from_bytes(_expand(secret, b"iv", 12), "big")

    def seal(self, content: bytes, kind: int = DATA) -> bytes:
        """Return one record of this content."""
        header = b"\x17\x03\x03" + (len(content) + 17).to_bytes(2, "big")
        nonce = (self._nonce ^ self._number).to_bytes(12, "big")
        self._number += 1
        return header + self._key.encrypt(nonce, content + bytes([kind]), header)

    def update_key(self) -> bytes:
        """Return a record after which both sides use new keys."""
        record = self.seal(KEY_UPDATE, HANDSHAKE)
        self._use(_expand(self._secret, b"traffic upd", 48))
        return record


def _expand(secret: bytes, label: bytes, length: int) -> bytes:
    label = b"tls13 " + label
    return hmac.digest(secret, length.to_bytes(2, "big") + bytes([len(label)]) + label + b"\0\1", "sha384")[:length]


async def connect(target: Target, peer: str) -> tuple[socket.socket, Sealer] | None:
    """Return a connection after its TLS handshake; None if the webhook refused it."""
    loop, context = asyncio.get_running_loop(), trusting()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    sock = knock(target, peer)
    if sock is None:
        return None
    with NamedTemporaryFile("r") as log:
        context.keylog_filename = log.name
        client = context.wrap_bio(incoming, outgoing)
        try:
            async with asyncio.timeout(PATIENCE):
                while True:
                    with suppress(ssl.SSLWantReadError):
                        client.do_handshake()
                        break
                    await loop.sock_sendall(sock, outgoing.read())
                    incoming.write(await loop.sock_recv(sock, 1 << 14) or b"-")
                await loop.sock_sendall(sock, outgoing.read())
        except (OSError, TimeoutError):
            sock.close()
            return None
        secret = next(line.split()[2] for line in log if line.startswith("CLIENT_TRAFFIC_SECRET_0"))
    return sock, Sealer(bytes.fromhex(secret))


async def send_records(
    target: Target, record: Callable[[Sealer], bytes], *, number: int = 32, size: int = 128 << 10
) -> str:
    """On `number` connections at once, send the headers of a request with a large body, then `size` bytes of records."""
    sent, loop = 0, asyncio.get_running_loop()

    async def send(line: tuple[socket.socket, Sealer], data: bytes) -> int:
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(max(0.1, target.until - time.monotonic())):
                await loop.sock_sendall(line[0], data)
                return 1
        return 0

    while not target.is_over:
        crowd = await asyncio.gather(*(connect(target, peer) for peer in islice(cycle(target.peers), number)))
        held = [line for line in crowd if line]
        pieces = []
        for _, sealer in held:
            head = sealer.seal(_LARGE_BODY)
            pieces.append(head + b"".join([record(sealer) for _ in range(size // len(record(Sealer(bytes(48)))))]))
            await asyncio.sleep(0)
        sent += sum(await asyncio.gather(*map(send, held, pieces)))
        await asyncio.sleep(PAUSE)
        close(sock for sock, _ in held)
    return f"{sent} times {size >> 10} KiB were taken"


_LARGE_BODY = b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 7000000\r\n\r\n"
_HEADERS = b"POST /mutate HTTP/1.1\r\nHost: x\r\nX-Long: " + b"y" * 60
_BODY = b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 400\r\n\r\n"
IN_NAMESPACES = "large reviews in 16 namespaces"
ATTACKS: dict[str, Attack] = {
    "10,000 connections that say nothing": stand_there,
    "hellos on all connections at once": say_hello_at_once,
    "2,000 hellos a second": say_hello,
    "a byte a second, of a hello": lambda target: trickle(target, hello(), tls=False),
    "a byte a second, of the headers": lambda target: trickle(target, _HEADERS, tls=True),
    "a byte a second, of a body": lambda target: trickle(target, _BODY + b" " * 400, tls=True),
    "bodies of 6 MiB that have no end": leave_bodies,
    "readers that never read": never_read,
    "small reviews, then hanging up": lambda target: hang_up(target, honest()),
    "large reviews, then hanging up": lambda target: hang_up(target, b" " * (6 << 20)),
    "pipelines and half bodies": pipeline,
    IN_NAMESPACES: spread_over_namespaces,
    "records of one byte": lambda target: send_records(target, lambda sealer: sealer.seal(b" ")),
    "key updates": lambda target: send_records(target, Sealer.update_key),
}


def attack(where: Server, name: str, peers: tuple[str, ...], seconds: float) -> tuple[dict[str, Beside], float]:
    """Run one attack and print its result. Return the results of the honest callers, by kind of connection, and the webhook's memory."""
    host, _, port = where.url.removeprefix("https://").partition(":")
    with ExitStack() as stack:
        kept = stack.enter_context(beside(where))
        new = stack.enter_context(beside(where, "--fresh", *["--large"] * (name == IN_NAMESPACES)))
        target = Target((host, int(port)), time.monotonic() + seconds, peers)
        said = asyncio.run(ATTACKS[name](target))
        held = sample(where.pid, 0.0)
        seen = {"kept": kept(), "new": new()}
    print(f"{name}, from {len(peers)} addresses: {said}; {held.memory:.0f} MiB, {held.descriptors} descriptors")
    for what, one in seen.items():
        lost = f"{len(one.lost)} lost {one.lost[:2]}"
        print(f"    {what} connections: {one.asked} honest reviews, {lost}; elapsed time {one.clock}; CPU time of the webhook {one.processor}", flush=True)  # fmt: skip
    return seen, held.memory


def problems_of(name: str, seen: Mapping[str, Beside], memory: float) -> Iterator[str]:
    if memory > MEMORY:
        yield f"{name}: the webhook has {memory:.0f} MiB"
    for one in seen.values():
        if one.lost:
            yield f"{name}: {len(one.lost)} honest reviews were lost"
    longest = seen["kept"].processor.longest
    if longest > HELD * 1e3:
        yield f"{name}: an honest review waited for {longest:.0f} ms of the webhook's CPU time"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="how long each attack lasts")
    parser.add_argument("--only", default="", help="attacks whose name contains this")
    parser.add_argument("--descriptors", type=int, default=0, help="how many descriptors the webhook may have")
    options = parser.parse_args()
    # Attackers keep writing to closed connections; asyncio would log each write.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    problems = list[str]()
    for name in ATTACKS:
        if options.only in name:
            for peers in (ONE, MANY):
                with server("webhook", descriptors=options.descriptors) as where:
                    seen, memory = attack(where, name, peers, options.seconds)
                problems += problems_of(name, seen, memory)
    print("\n".join(problems) or "no honest review was lost or delayed")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
