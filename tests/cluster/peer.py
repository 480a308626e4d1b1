"""A peer: an HTTP server on a real socket whose answers a test writes byte by byte, for tests of hostile servers."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import yaml

_PIECE_BYTES = 1 << 20
Answer = Callable[["Exchange"], Awaitable[None]]


class Exchange:
    """One request, with methods that send the parts of its answer."""

    def __init__(self, head: bytes, body: bytes, writer: asyncio.StreamWriter) -> None:
        self.request, *lines = head.decode().split("\r\n")
        self.headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        self.body = body
        self.writer = writer

    async def send(self, data: bytes) -> None:
        for start in range(0, len(data), _PIECE_BYTES):  # a write of 60 MB at once would block the loop
            self.writer.write(data[start : start + _PIECE_BYTES])
            await self.writer.drain()
            await asyncio.sleep(0)  # `drain` returns at once if all bytes were sent, without a turn of the loop

    async def reply(self, status: str = "200 OK", body: bytes = b"{}", **headers: str) -> None:
        lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        await self.send("\r\n".join([*lines, "", ""]).encode())
        await self.send(body)  # sent separately, because a copy of 60 MB would block the loop

    async def reply_in_pieces(self, status: str, body: bytes) -> None:
        """Send the head with half of the body, and the other half after a hundred turns of the loop, so that the client reads twice."""
        half = len(body) // 2
        await self.send(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body[:half])
        for _ in range(100):
            await asyncio.sleep(0)
        await self.send(body[half:])

    async def begin(self) -> None:
        """Begin an answer that is sent in chunks of unknown number."""
        await self.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")

    async def chunk(self, data: bytes) -> None:
        await self.send(b"%x\r\n%s\r\n" % (len(data), data))

    async def end(self) -> None:
        await self.send(b"0\r\n\r\n")

    def hang_up(self) -> None:
        self.writer.transport.abort()


class Peer:
    """A server that calls `answer` for each request and keeps all requests in `exchanges`."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.url = ""
        self.exchanges: list[Exchange] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError), contextlib.closing(writer):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n"))[:-4]
                exchange = Exchange(head, b"", writer)
                exchange.body = await reader.readexactly(int(exchange.headers.get("content-length", "0")))
                self.exchanges.append(exchange)
                await self._answer(exchange)


@asynccontextmanager
async def peer(answer: Answer) -> AsyncIterator[Peer]:
    new_peer = Peer(answer)
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.ensure_future(new_peer.serve(reader, writer)))

    listener = await asyncio.start_server(accept, "127.0.0.1", 0)
    new_peer.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    try:
        yield new_peer
    finally:
        listener.close()
        for task in tasks:
            task.cancel()
        for error in await asyncio.gather(*tasks, return_exceptions=True):
            if error is not None and not isinstance(error, asyncio.CancelledError):
                raise error


def kubeconfig(url: str, **user: object) -> str:
    """Return the text of a kubeconfig for this server. Without fields of a user, the user has a token."""
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "here",
            "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": url}}],
            "users": [{"name": "u", "user": user or {"token": "secret"}}],
        }
    )
