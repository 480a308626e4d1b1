"""Accepts connections, limits them, and answers their requests with a `Handler`. aiohttp does HTTP, `serving.http.tls` does TLS.

The listener accepts connections itself, so that it counts a connection before the handshake costs CPU. To make room for a new connection, it
aborts the one that has waited longest for a request. A connection that exceeds a deadline is aborted, too (`serving.http.connection`).
docs/security.md says what these limits leave to a NetworkPolicy.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import socket
from collections import Counter
from contextlib import aclosing
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from math import inf
from time import thread_time, time
from typing import TYPE_CHECKING, Any, Protocol

from aiohttp import web

from serving.http.connection import GuardedConnection
from serving.http.limits import Limits, listens
from serving.http.messages import Head, Reply, text
from serving.http.tls import READ, TlsTransport

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncGenerator, Callable, Coroutine
    from pathlib import Path

logger = logging.getLogger("drawbridge.listener")

SWEEP_INTERVAL = 0.25  # seconds between two checks of the connections' deadlines
RESERVED = 128  # descriptors for other uses, such as watches and files
ACCEPT_PAUSE = 0.05  # seconds without accepting after a failure; the kernel queues new connections
ACCEPT_BATCH = 32  # connections accepted in one turn of the loop, at most
BACKLOG = 1024
# After an answer with more bytes, the connection closes: its peer may send the next request before aiohttp has written the whole answer.
LARGE = 64 * 1024
CLOSE = "Connection: close\r\n"
_PHRASES = {status.value: status.phrase for status in HTTPStatus}
ONLY_HTTP_1 = "only HTTP/1.1 is supported"
LOCAL = "local"  # the address of connections through a unix socket


class _Written(web.StreamResponse):
    """An answer that was written without aiohttp."""

    def __init__(self, *, stays: bool) -> None:
        super().__init__()
        self._stays = stays

    @property
    def keep_alive(self) -> bool:
        return self._stays

    async def prepare(self, request: web.BaseRequest) -> None:
        del request

    async def write_eof(self, data: bytes = b"") -> None:
        del data


class Handler(Protocol):
    """Answers requests: `refuse` is called after the head of a request, and `answer` after its body."""

    def refuse(self, head: Head) -> Reply | None:
        """Return a reply to refuse a request before its body is read."""
        ...

    def answer(self, head: Head, body: bytes) -> Reply | Coroutine[None, None, Reply]:
        """Return the answer to a request, now or later."""
        ...


class Listener:
    """One listening socket and its connections."""

    def __init__(self, handler: Handler, limits: Limits, count_closure: Callable[[str], None]) -> None:
        """`count_closure` is called with the name of the limit for which a connection was closed."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        descriptors = 1 << 20 if soft == resource.RLIM_INFINITY else max(16, soft - RESERVED)
        self.limits = limits._replace(connections=min(limits.connections, descriptors))
        self.draining = False
        # With the task that ends when a connection is lost. The connection that has waited longest for a request comes first.
        self.connections: dict[GuardedConnection, asyncio.Task[None]] = {}
        self._by_peer = Counter[str]()
        self._body_bytes = 0
        self._handler = handler
        self._count_closure = count_closure
        self._socket: socket.socket | None = None
        self._tls: ssl.SSLContext | None = None
        self._buffer = memoryview(bytearray(READ))
        self._server = web.Server(
            self._answer,
            request_factory=self._request,
            handler_cancellation=limits.cancels_on_close,
        )
        self._loop = asyncio.get_running_loop()
        self._tasks = set[asyncio.Task[None]]()

    def open(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> int:
        """Listen, with or without TLS; return the port."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
        self._tls = tls
        self._listen(listener)
        bound: int = listener.getsockname()[1]
        return bound

    def open_socket(self, path: Path) -> None:
        """Listen on a unix socket, which only its owner can use. The socket of an ended process is removed.

        Raises OSError if another process listens there.
        """
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if path.is_socket():
            if listens(path):
                raise OSError(errno.EADDRINUSE, "another process listens there already", str(path))
            path.unlink()
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(path))
        path.chmod(0o600)
        listener.listen(BACKLOG)
        self._listen(listener)

    def _listen(self, listener: socket.socket) -> None:
        listener.setblocking(False)
        self._socket = listener
        self._run(self._sweep())
        self._loop.add_reader(listener, self._accept, listener)

    @property
    def is_open(self) -> bool:
        """Whether new connections are accepted."""
        return self._socket is not None

    # ---- connections

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(ACCEPT_BATCH):
            try:
                sock, address = listener.accept()
            except BlockingIOError:
                return
            except OSError as error:  # no descriptor or memory, or the peer has disconnected
                logger.warning("cannot accept a connection", extra={"problem": str(error)})
                self._loop.remove_reader(listener)
                self._loop.call_later(ACCEPT_PAUSE, self._resume_accepting, listener)
                return
            sock.setblocking(False)
            self._add(sock, address[0] if address else LOCAL)

    def _add(self, sock: socket.socket, peer: str) -> None:
        """Serve a connection if there is room, or if another one can make room."""
        limit = ""
        if self._by_peer[peer] >= self.limits.peer:
            limit = "peer"
        elif len(self.connections) >= self.limits.connections:
            limit = "connections"
        if limit:
            self._count_closure(limit)
            others = (other for other in self.connections if limit == "connections" or other.peer == peer)
            victim = next((other for other in others if not other.is_answering), None)
            if victim is None:
                sock.close()
                return
            self.connections[victim].cancel()
            self._forget(victim)
        connection = GuardedConnection(self._server, self.limits, peer)
        self._by_peer[peer] += 1
        self.connections[connection] = task = self._run(self._serve(connection, sock))

        def end_unserved(_: object) -> None:
            # A task that is cancelled before it starts does not run its `finally`.
            if not connection.is_served:
                sock.close()
                self._forget(connection)

        task.add_done_callback(end_unserved)

    def _forget(self, connection: GuardedConnection) -> None:
        if self.connections.pop(connection, None) is not None:
            self._by_peer[connection.peer] -= 1
            if not self._by_peer[connection.peer]:
                del self._by_peer[connection.peer]

    def _resume_accepting(self, listener: socket.socket) -> None:
        if self._socket is listener:  # not closed meanwhile
            self._loop.add_reader(listener, self._accept, listener)

    async def _serve(self, connection: GuardedConnection, sock: socket.socket) -> None:
        """Serve a connection until it is lost. Cancelling this task aborts the connection."""
        protocol: asyncio.BaseProtocol = connection
        if self._tls is not None:
            protocol = TlsTransport(connection, self._tls, self._buffer, self._count_closure)
        try:
            connection.is_served = True
            connection.wire, _ = await self._loop.connect_accepted_socket(lambda: protocol, sock)
            await connection.lost
            if not connection.is_made:
                raise ConnectionAbortedError("no handshake")
        except OSError:
            # Counted, not logged: port scanners would fill the log.
            self._count_closure("handshake")
        finally:
            connection.abort()
            self._forget(connection)

    async def _sweep(self) -> None:
        """Abort connections whose deadline has passed."""
        now = self._loop.time()
        while True:
            expected, used = now + SWEEP_INTERVAL, thread_time()
            await asyncio.sleep(SWEEP_INTERVAL)
            now = self._loop.time()
            # Time in which this process was stopped or had no CPU does not count against its peers. Time in which their data kept it busy does.
            blocked = now - expected - (thread_time() - used)
            blocked = blocked if blocked > SWEEP_INTERVAL else 0.0
            for connection in tuple(self.connections):
                connection.due += blocked
                if connection.due < now:
                    if connection.is_made:
                        self._count_closure("deadline")
                    connection.abort()

    # ---- requests

    def _request(self, message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
        """Return a request without aiohttp's limit of the body, which is checked only after the body was read."""
        return web.BaseRequest(message, payload, protocol, writer, task, self._loop, client_max_size=0)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Read a request and write its answer."""
        connection = request.protocol
        assert isinstance(connection, GuardedConnection)
        connection.begin_request()
        path, _, query = request.raw_path.partition("?")
        head = Head(
            request.method,
            path,
            query,
            headers=request.headers,
            length=request.content_length or 0,
            certified=connection.certified,
            name=connection.common_name,
            peer=connection.peer,
        )
        announced = head.length if head.length > self.limits.small_body else 0
        self._body_bytes += announced
        try:
            reply = await self._reply(request, connection, head)
        except ConnectionError:  # the peer has disconnected
            raise
        except Exception:
            logger.exception("a bug while answering; please report it")
            reply = text(500, "internal error, see the log", close=True)
        finally:
            self._body_bytes -= announced
        if reply.parts is not None:
            return await self._write_parts(request, connection, reply, reply.parts)
        return self._write(request, connection, reply)

    async def _reply(self, request: web.BaseRequest, connection: GuardedConnection, head: Head) -> Reply:
        """Refuse a request, or read its body and answer it."""
        if request.version.major != 1:
            return text(505, ONLY_HTTP_1, close=True)
        if request.headers.get("Upgrade") or head.method == "CONNECT":
            return text(400, ONLY_HTTP_1, close=True)
        if request.content_length is None and request.body_exists:
            return text(411, "chunked bodies are not supported; send a Content-Length header", close=True)
        if refusal := self._handler.refuse(head):
            return refusal
        if head.length > self.limits.small_body and self._body_bytes > self.limits.bytes:
            self._count_closure("bytes")
            return text(503, "too many large requests at a time", ("Retry-After", "1"), close=True)
        if not (request.content.is_eof() or connection.connected):
            raise ConnectionResetError("the peer has disconnected before its body was read")
        body = request.content.read_nowait() if request.content.is_eof() else await request.read()
        connection.is_answering, connection.due = True, inf
        answer = self._handler.answer(head, body)
        return answer if isinstance(answer, Reply) else await answer

    def _write(self, request: web.BaseRequest, connection: GuardedConnection, reply: Reply) -> web.StreamResponse:
        """Write an answer in one piece; `web.Response` takes 30 microseconds longer."""
        stays = not (reply.close or self.draining or connection.is_outdated or len(reply.body) > LARGE)
        stays = stays and request.keep_alive and request.content.is_eof()
        lines = "".join([f"{name}: {value}\r\n" for name, value in reply.headers])
        head = (
            f"HTTP/1.1 {reply.status} {_PHRASES[reply.status]}\r\nContent-Type: {reply.kind}\r\n"
            f"Content-Length: {len(reply.body)}\r\nDate: {_date(int(time()))}\r\n"
            f"{lines}{'' if stays else CLOSE}\r\n"
        )
        connection.begin_writing()
        if request.transport is not None:
            body = b"" if request.method == "HEAD" else reply.body
            request.transport.write(head.encode("latin-1", "replace") + body)
        if stays:
            connection.wait_for_request()
            if task := self.connections.pop(connection, None):
                self.connections[connection] = task  # now the last one
        return _Written(stays=stays)

    async def _write_parts(
        self, request: web.BaseRequest, connection: GuardedConnection, reply: Reply, parts: AsyncGenerator[bytes, None]
    ) -> web.StreamResponse:
        response = web.StreamResponse(status=reply.status, headers={"Content-Type": reply.kind})
        response.headers.extend(reply.headers)
        response.force_close()
        connection.begin_writing()
        try:
            async with aclosing(parts):
                await response.prepare(request)
                await response.write(reply.body)
                connection.due = inf
                async for part in parts:
                    connection.begin_writing()
                    await response.write(part)
                    connection.due = inf
                await response.write_eof()
        except ConnectionError:
            raise
        except Exception:
            logger.exception("a bug while answering; please report it")
            connection.abort()
        return response

    # ---- the end

    def renew(self, tls: ssl.SSLContext) -> None:
        """Use this context for new connections. Existing connections close after their next answer.

        Connections of peers with a certificate close at once if they are idle, because the CA of the certificate may no longer be trusted.
        Others, such as most of API servers, do not, because a review that is sent at that moment would fail.
        """
        self._tls = tls
        for connection in tuple(self.connections):
            connection.is_outdated = True
            if connection.certified:
                connection.close_if_idle()

    def close(self) -> None:
        if self._socket is None:
            return
        listener, self._socket = self._socket, None
        self._loop.remove_reader(listener)
        listener.close()

    async def end(self, grace: float, linger: float = 0.0) -> None:
        """End all connections: idle ones after `linger` seconds, others after their answer, at most `grace` seconds later.

        During `linger` clients can still send requests or close their connections: a review sent while its connection is being closed fails.
        """
        self.draining = True
        self.close()
        idle_end = self._loop.time() + linger
        while self.connections and self._loop.time() < idle_end + grace:
            if self._loop.time() >= idle_end:
                for connection in tuple(self.connections):
                    connection.close_if_idle()
            await asyncio.sleep(SWEEP_INTERVAL / 10)
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _run(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Run work in a task that `end` cancels."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


@lru_cache(maxsize=1)
def _date(second: int) -> str:
    """Return the Date header, cached for a second."""
    return formatdate(second, usegmt=True)
