"""Attacks of a pod that can reach the webhook's port (docs/security.md): `python -m bench.webhook.attacks`.

Each attack lasts some seconds. Meanwhile two processes send one small honest review after the other: one process on a persistent
connection, the other on a new connection for each review. For each attack the program prints how many honest reviews were answered and
lost, and how long they were delayed. Its exit code is 1 if a review was lost, if the webhook spent more than a tenth of a CPU second before
it answered a review on the persistent connection, or if the webhook took more than 512 MiB. Reviews on new connections are only printed.
"""

from __future__ import annotations

import argparse
import asyncio
import errno
import hmac
import logging
import random
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

from bench.webhook.admission import insecure_tls_context, server
from bench.webhook.soak import beside, honest, sample
from tests.webhook.hostile import crowded_pod, review

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping

    from bench.webhook.admission import Server
    from bench.webhook.soak import HonestResults

    Attack = Callable[["Target"], Coroutine[None, None, str]]

CROWD = 2_000  # silent connections: more than the webhook accepts
HELLOS, OPEN = 1_000, 300  # TLS ClientHellos per second, and connections that stay open after their hello
# Loopback addresses; each is a peer of its own for the webhook.
MANY_PEERS = tuple(f"127.1.0.{1 + number}" for number in range(8))
ONE_PEER = ("127.1.9.9",)
MAX_DELAY = 0.1  # CPU seconds of the webhook before it answers an honest review on the persistent connection
MAX_MEMORY = 512  # MiB
NAMESPACES, BURST = 32, 32 / 18  # seconds between two bursts of reviews
HANDSHAKE, DATA = 22, 23  # content types of TLS records
KEY_UPDATE = b"\x18\0\0\1\1"  # update_requested: the peer has to update its keys, too
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


def begin_connection(target: Target, peer: str) -> socket.socket | None:
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


def client_hello() -> bytes:
    outgoing = ssl.MemoryBIO()
    client = insecure_tls_context().wrap_bio(ssl.MemoryBIO(), outgoing)
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def is_gone(sock: socket.socket) -> bool:
    """Report whether the server has closed the connection."""
    try:
        return sock.recv(4096, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


async def open_silent_connections(target: Target) -> str:
    """Open connections and send nothing; reconnect those that are closed."""
    opened, peers, sockets = 0, cycle(target.peers), list[socket.socket]()
    while not target.is_over:
        for peer in islice(peers, 100):
            if len(sockets) < CROWD and (sock := begin_connection(target, peer)):
                sockets.append(sock)
                opened += 1
        await asyncio.sleep(0)
        if len(sockets) >= CROWD:
            sockets = drop_closed(sockets)
            await asyncio.sleep(0.05)
    open_at_end = len(sockets)
    close(sockets)
    return f"{opened} connections, {open_at_end} at the end"


def drop_closed(sockets: list[socket.socket]) -> list[socket.socket]:
    """Close the connections that the server has closed; return the others."""
    closed = [sock for sock in sockets if is_gone(sock)]
    close(closed)
    return [sock for sock in sockets if sock.fileno() >= 0]


def close(sockets: Iterable[socket.socket]) -> None:
    for sock in sockets:
        sock.close()


async def send_hellos_at_once(target: Target) -> str:
    """Open connections, and send a hello on all of them at once. The hellos have the same bytes, so they cost the client no CPU."""
    hello_bytes, sent = client_hello(), 0
    number = 300 if target.peers == ONE_PEER else 1_000
    while not target.is_over:
        attempts = (begin_connection(target, peer) for peer in islice(cycle(target.peers), number))
        sockets = [sock for sock in attempts if sock]
        await asyncio.sleep(0.3)
        sent += sum([send_hello(sock, hello_bytes) for sock in sockets])
        await asyncio.sleep(0.3)
        close(sockets)
    return f"{sent} hellos"


async def send_hellos(target: Target) -> str:
    """Send hellos, each on a new connection, and close it."""
    hello_bytes, attempted, sent = client_hello(), 0, 0
    peers, started = cycle(target.peers), time.monotonic()
    silent, open_ = deque[socket.socket](), deque[socket.socket]()
    while not target.is_over:
        due = int((time.monotonic() - started) * HELLOS) - attempted
        for peer in islice(peers, min(100, due)):
            attempted += 1
            if sock := begin_connection(target, peer):
                silent.append(sock)
        await asyncio.sleep(0.005)
        while len(silent) > 10:  # the newest may not be connected yet
            sock = silent.popleft()
            sent += send_hello(sock, hello_bytes)
            open_.append(sock)
        while len(open_) > OPEN:
            open_.popleft().close()
    close([*silent, *open_])
    return f"{sent} hellos"


def send_hello(sock: socket.socket, hello_bytes: bytes) -> bool:
    """Send a hello; report whether that succeeded."""
    try:
        return sock.send(hello_bytes) == len(hello_bytes)
    except OSError:
        return False


class Connection(NamedTuple):
    """A connection to the webhook."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


async def connections(
    target: Target, peer: str, *, tls: bool = True, limit: int = 1 << 16
) -> AsyncIterator[Connection]:
    """Yield one connection after the other until the attack is over. The connection is aborted before the next one begins."""
    tls_context = insecure_tls_context() if tls else None
    while not target.is_over:
        try:
            connection = Connection(
                *await asyncio.open_connection(*target.address, ssl=tls_context, local_addr=(peer, 0), limit=limit)
            )
        except OSError:
            await asyncio.sleep(PAUSE)
            continue
        try:
            yield connection
        finally:
            connection.writer.transport.abort()


async def send_slowly(target: Target, data: bytes, *, tls: bool) -> str:
    """Send a byte a second on each of 300 connections."""
    opened = 0

    async def attack_from(peer: str) -> None:
        nonlocal opened
        async for reader, writer in connections(target, peer, tls=tls):
            opened += 1
            for byte in data:
                writer.write(bytes([byte]))
                await asyncio.sleep(1.0)
                if reader.at_eof() or writer.transport.is_closing() or target.is_over:
                    break

    await asyncio.gather(*map(attack_from, islice(cycle(target.peers), 300)))
    return f"{opened} connections"


def request(body: bytes) -> bytes:
    """Return the HTTP request of a review."""
    head = f"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def send_unfinished_bodies(target: Target) -> str:
    """Send most of the largest accepted body, and never its end. Close a connection only after the server has closed it."""
    opened, piece = 0, b" " * (1 << 20)
    unfinished_request = request(piece * 3)[:-1]

    async def attack_from(peer: str) -> None:
        nonlocal opened
        async for reader, writer in connections(target, peer):
            opened += 1
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(max(0.1, target.until - time.monotonic())):
                    writer.write(unfinished_request)
                    await writer.drain()
                    await reader.read()

    await asyncio.gather(*map(attack_from, islice(cycle(target.peers), 150)))
    return f"{opened} bodies"


async def send_without_reading(target: Target) -> str:
    """Send requests without reading the answers."""
    sent, full_request = 0, request(honest())

    async def attack_from(peer: str) -> None:
        nonlocal sent
        async for _, writer in connections(target, peer, limit=1):
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            with suppress(OSError, TimeoutError):
                while not target.is_over:
                    writer.write(full_request)
                    sent += 1
                    await asyncio.wait_for(writer.drain(), PATIENCE)
                    await asyncio.sleep(0.02)

    await asyncio.gather(*map(attack_from, islice(cycle(target.peers), 32)))
    return f"{sent} reviews whose answer the client never reads"


async def disconnect_after_request(target: Target, body: bytes) -> str:
    """Send whole reviews, and close each connection without waiting for the answer."""
    sent, full_request = 0, request(body)

    async def attack_from(peer: str) -> None:
        nonlocal sent
        async for _, writer in connections(target, peer):
            with suppress(OSError, TimeoutError):
                writer.write(full_request)
                await asyncio.wait_for(writer.drain(), PATIENCE)
                sent += 1

    await asyncio.gather(*map(attack_from, islice(cycle(target.peers), 64)))
    return f"{sent} reviews whose peer hangs up"


async def send_pipelined(target: Target) -> str:
    """Send whole requests behind one another, and a part of one more."""
    rounds, full_request = 0, request(honest())

    async def attack_from(number: int, peer: str) -> None:
        nonlocal rounds
        partial_request = full_request[: len(full_request) * (number % 7) // 7]
        async for reader, writer in connections(target, peer):
            writer.write(full_request * (1 + number % 5) + partial_request)
            rounds += 1
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(PATIENCE):
                    await reader.read()

    await asyncio.gather(*map(attack_from, range(64), cycle(target.peers)))
    return f"{rounds} times"


async def send_garbage(target: Target) -> str:
    """Send random bytes instead of a handshake or of a request."""
    sent, garbage = 0, random.Random(1).randbytes(1 << 14)

    async def attack_from(number: int, peer: str) -> None:
        nonlocal sent
        async for reader, writer in connections(target, peer, tls=bool(number % 2)):
            with suppress(OSError, TimeoutError):
                writer.write(garbage[number:])
                sent += 1
                async with asyncio.timeout(PATIENCE):
                    await reader.read()

    await asyncio.gather(*map(attack_from, range(32), cycle(target.peers)))
    return f"{sent} times"


async def send_dear_reviews(target: Target) -> str:
    """Send small reviews that need much CPU, each another one: 18 a second, from 32 namespaces at once."""
    answered = 0
    body = review(crowded_pod(limits={f"nvidia.com/mig-{i % 7 + 1}g.{i}gb": "1" for i in range(1_500)}))
    started = time.monotonic()

    async def attack_from(number: int, peer: str) -> None:
        nonlocal answered
        own_body = body.replace(b'"namespace": "default"', b'"namespace": "team-%d"' % number)
        async for reader, writer in connections(target, peer):
            with suppress(OSError, asyncio.IncompleteReadError):
                while not target.is_over:
                    answered += 1
                    writer.write(request(own_body.replace(b"hostile", b"%07d" % answered)))
                    head = await reader.readuntil(b"\r\n\r\n")
                    await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].split()[0]))
                    await asyncio.sleep(BURST - (time.monotonic() - started) % BURST)

    await asyncio.gather(*map(attack_from, range(NAMESPACES), cycle(target.peers)))
    return f"{answered} reviews"


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
    loop, context = asyncio.get_running_loop(), insecure_tls_context()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    sock = begin_connection(target, peer)
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
    target: Target, record: Callable[[Sealer], bytes], *, number: int = 64, size: int = 64 << 10
) -> str:
    """On `number` connections at once, send the headers of a request with a large body, then `size` bytes of records."""
    sent, loop = 0, asyncio.get_running_loop()

    async def send_to(connection: tuple[socket.socket, Sealer], data: bytes) -> int:
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(max(0.1, target.until - time.monotonic())):
                await loop.sock_sendall(connection[0], data)
                return 1
        return 0

    while not target.is_over:
        attempts = await asyncio.gather(*(connect(target, peer) for peer in islice(cycle(target.peers), number)))
        established = [connection for connection in attempts if connection]
        pieces = []
        for _, sealer in established:
            head = sealer.seal(_LARGE_BODY)
            pieces.append(head + b"".join([record(sealer) for _ in range(size // len(record(Sealer(bytes(48)))))]))
            await asyncio.sleep(0)
        sent += sum(await asyncio.gather(*map(send_to, established, pieces)))
        await asyncio.sleep(PAUSE)
        close(sock for sock, _ in established)
    return f"{sent} times {size >> 10} KiB were taken"


def body_with_key_updates(sealer: Sealer) -> bytes:
    """Return a record of 1 KiB and fifteen key updates: on average, these records are not small."""
    return sealer.seal(b" " * 1024) + b"".join([sealer.update_key() for _ in range(15)])


_LARGE_BODY = b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 3000000\r\n\r\n"
_HEADERS = b"POST /mutate HTTP/1.1\r\nHost: x\r\nX-Long: " + b"y" * 60
_BODY = b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 400\r\n\r\n"
IN_NAMESPACES = "dear reviews in 32 namespaces"
ATTACKS: dict[str, Attack] = {
    "2,000 connections that say nothing": open_silent_connections,
    "a byte a second, of a hello": lambda target: send_slowly(target, client_hello(), tls=False),
    "a byte a second, of the headers": lambda target: send_slowly(target, _HEADERS, tls=True),
    "a byte a second, of a body": lambda target: send_slowly(target, _BODY + b" " * 400, tls=True),
    "bodies of 3 MiB that have no end": send_unfinished_bodies,
    "readers that never read": send_without_reading,
    "small reviews, then hanging up": lambda target: disconnect_after_request(target, honest()),
    "large reviews, then hanging up": lambda target: disconnect_after_request(target, b" " * (3 << 20)),
    "pipelines and half bodies": send_pipelined,
    "garbage": send_garbage,
    "hellos on all connections at once": send_hellos_at_once,
    "1,000 hellos a second": send_hellos,
    "records of one byte": lambda target: send_records(target, lambda sealer: sealer.seal(b" ")),
    "key updates": lambda target: send_records(target, Sealer.update_key),
    "key updates in a body": lambda target: send_records(target, body_with_key_updates),
    IN_NAMESPACES: send_dear_reviews,
}


def attack(
    webhook: Server, name: str, peers: tuple[str, ...], seconds: float
) -> tuple[dict[str, HonestResults], float]:
    """Run one attack and print its result. Return the results of the honest callers, by kind of connection, and the webhook's memory."""
    host, _, port = webhook.url.removeprefix("https://").partition(":")
    with ExitStack() as stack:
        stop_kept = stack.enter_context(beside(webhook))
        stop_new = stack.enter_context(beside(webhook, "--fresh", *["--large"] * (name == IN_NAMESPACES)))
        target = Target((host, int(port)), time.monotonic() + seconds, peers)
        attack_summary = asyncio.run(ATTACKS[name](target))
        webhook_sample = sample(webhook.pid, 0.0)
        results = {"kept": stop_kept(), "new": stop_new()}
    print(
        f"{name}, from {len(peers)} addresses: {attack_summary}; {webhook_sample.memory:.0f} MiB, {webhook_sample.descriptors} descriptors"
    )
    for connection_kind, result in results.items():
        lost = f"{len(result.lost)} lost {result.lost[:2]}"
        print(f"    {connection_kind} connections: {result.answered} honest reviews, {lost}; elapsed time {result.elapsed}; CPU time of the webhook {result.cpu_time}", flush=True)  # fmt: skip
    return results, webhook_sample.memory


def problems_of(name: str, results: Mapping[str, HonestResults], memory: float) -> Iterator[str]:
    if memory > MAX_MEMORY:
        yield f"{name}: the webhook has {memory:.0f} MiB"
    lost = results["kept"].lost + (results["new"].lost if name == IN_NAMESPACES else [])
    if lost:
        yield f"{name}: {len(lost)} honest reviews were lost"
    longest = results["kept"].cpu_time.longest
    if longest > MAX_DELAY * 1e3:
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
            for peers in (ONE_PEER, MANY_PEERS):
                with server("webhook", descriptors=options.descriptors) as webhook:
                    results, memory = attack(webhook, name, peers, options.seconds)
                problems += problems_of(name, results, memory)
    print("\n".join(problems) or "no honest review was lost or delayed")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
