"""One HTTP/1.1 connection, parsed by aiohttp: one request at a time, and a deadline for each step.

No upgrades, chunked bodies or pipelining: API servers, our scheduler, and browsers send plain HTTP/1.1 with a
Content-Length; anything else is refused.

    phase      begins with                time limit      and then
    HANDSHAKE  accepting the connection   handshake       aborted
    QUIET      end of the handshake       quiet           aborted
    HEAD       first byte of a request    head            408, closed
    BODY       end of the head            deadline        408, closed
    ANSWER     end of the body            (the handler)   -
    IDLE       the answer is written      idle            aborted
    CLOSED     the last answer is written flush           aborted

An answer in parts (server-sent events) has no time limit; its peer has `flush` seconds to read each part.

A request passes through `data_received`, `_read_head`, `_queue_if_complete`, the queue of complete requests (`fair_queue`), `answer` and
`_reply`.

If a body was not read to its end, the peer has to close the connection after the answer. If this side closed it, the kernel would reset the
connection, and the peer could lose the answer.

aiohttp's own server, which has none of these limits, used 1.22 times the CPU per review (1.14 to 1.33 in eight alternating rounds, with
eight connections and GPU pods that all differ), and reached 0.84 times the rate with the client on the same two cores.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing, suppress
from email.utils import formatdate
from enum import IntEnum
from functools import lru_cache
from http import HTTPStatus
from socket import SHUT_RDWR
from time import time
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from aiohttp.base_protocol import BaseProtocol
from aiohttp.http import HttpProcessingError, HttpRequestParser

from runtime.http.fair_queue import UNKNOWN_COST
from runtime.http.messages import Head, Reply, text

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncGenerator, Coroutine, Mapping

    from aiohttp.http import RawRequestMessage

    from runtime.http.listener import Listener
    from runtime.http.reading import PeerTransport


logger = logging.getLogger("drawbridge.listener")

MIB = 1 << 20
MAX_HEADERS = 64
END_OF_HEAD = b"\r\n\r\n"
# After an answer with more bytes than this, the connection is closed. The part that the kernel does not buffer stays in memory until the peer
# reads it, and only the CLOSED phase has a time limit for that.
LARGE = 64 * 1024


class Limits(NamedTuple):
    """Bounds for one process: sizes in bytes, numbers of connections, and time limits in seconds."""

    # An update carries two objects, and the API server takes requests up to 3 MiB.
    body: int = 7 * MIB
    # The request line and the headers. A bearer token of an API server has one to two KiB.
    head_bytes: int = 16 * 1024
    # All bodies that are being received or wait for an answer.
    bytes: int = 128 * MIB
    connections: int = 1024
    # Connections of one address. An API server opens one for each review in flight, and several can share an address.
    peer: int = 320
    # Below the 3 s of the webhook configuration, so that drawbridge answers before the API server gives up.
    deadline: float = 2.5
    handshake: float = 5.0
    head: float = 2.5
    # An API server may open a connection, use another that became free, and return to this one later.
    quiet: float = 15.0
    # Longer than the API server keeps an idle connection, so that it never sends a review on one that is being closed.
    idle: float = 180.0
    # To make room, connections that have had no request or have been idle for this long are closed before others.
    settled: float = 2.0
    flush: float = 5.0
    # Whether the handler is cancelled when its peer disconnects.
    cancels_on_close: bool = False


class ConnectionPhase(IntEnum):
    """The phases of a connection; see the table above."""

    HANDSHAKE = 0
    QUIET = 1
    HEAD = 2
    BODY = 3
    ANSWER = 4
    IDLE = 5
    CLOSED = 6


class Handler(Protocol):
    """Answers requests. The connection calls `refuse` after the head, and `answer` after the body."""

    def refuse(self, head: Head) -> Reply | None:
        """Return a reply to refuse a request before its body is read."""
        ...

    def answer(self, head: Head, body: bytes) -> Reply | Coroutine[None, None, Reply]:
        """Return the answer to a request, now or later."""
        ...


class PeerConnection(BaseProtocol):
    """A connection, from the time it is accepted."""

    transport: PeerTransport | None

    def __init__(self, listener: Listener, handler: Handler, peer: str, sock: socket.socket) -> None:
        self._listener = listener
        self._handler = handler
        self._sock = sock
        loop = asyncio.get_running_loop()
        super().__init__(loop)
        self.peer = peer
        self.phase = ConnectionPhase.HANDSHAKE
        self.since = loop.time()
        # `certified` and `has_posted` decide which connections are closed first to make room.
        self.certified = False
        self.has_posted = False
        self.handshake_task: asyncio.Task[None] | None = None  # the task that waits to begin the handshake
        self.cost = UNKNOWN_COST  # CPU seconds that its requests have cost recently
        self._common_name = ""
        self._head: Head | None = None
        # The received part of an incomplete head or body, and whether the peer may still send more of the body.
        self._buffer = bytearray()
        self._is_body_unread = False
        self.received = 0  # bytes of a body that is not answered yet, counted in `Listener.body_bytes`
        self._closes_after_answer = False
        self._answer_task: asyncio.Task[None] | None = None  # cancelled when the peer disconnects
        self._is_outdated = False  # whether the listener has a new TLS context

    # ---- callbacks of the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Read the peer's certificate after the handshake."""
        super().connection_made(transport)
        shown: Mapping[str, Any] = transport.get_extra_info("peercert") or {}
        self.certified = bool(shown)
        names = [value for part in shown.get("subject", ()) for key, value in part if key == "commonName"]
        self._common_name = str(names[0]) if names else ""
        self._enter(ConnectionPhase.QUIET)

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        if self.phase is not ConnectionPhase.ANSWER:  # else the queue or the handler still has the body
            self._count_body(0)
        self.phase = ConnectionPhase.CLOSED
        if self._answer_task is not None:
            self._answer_task.cancel()
        self._listener.forget(self)

    def data_received(self, data: bytes) -> None:
        match self.phase:
            case ConnectionPhase.ANSWER | ConnectionPhase.CLOSED:
                # Pipelining is not supported, and API servers do not use it: this answer is the last one.
                self._closes_after_answer = True
            case ConnectionPhase.BODY:
                self._buffer += data
                self._queue_if_complete()
            case ConnectionPhase.HEAD:
                self._read_head(data)
            case _:
                self._enter(ConnectionPhase.HEAD)
                self._read_head(data)

    # ---- one request

    def _read_head(self, data: bytes) -> None:
        """Keep a part of a head. Once the head is complete, refuse the request or wait for the body."""
        buffer, max_bytes = self._buffer, self._listener.limits.head_bytes
        search_start = max(0, len(buffer) - len(END_OF_HEAD))
        buffer += data
        end = buffer.find(END_OF_HEAD, search_start, max_bytes)
        if end < 0:
            if len(buffer) >= max_bytes:
                self._reply(text(431, f"the head of a request may have at most {max_bytes} bytes", close=True))
            return
        end += len(END_OF_HEAD)
        message = self._parse_head(bytes(buffer[:end]))
        del buffer[:end]
        if message is None:
            self._reply(text(400, "this is not a valid HTTP/1.1 request", close=True))
            return
        path, _, query = message.path.partition("?")
        length = message.headers.get("Content-Length", "0")
        head = Head(
            message.method,
            path,
            query,
            headers=message.headers,
            length=int(length) if length.isdigit() and len(length) < 19 else 1 << 62,
            certified=self.certified,
            name=self._common_name,
            peer=self.peer,
        )
        self._closes_after_answer = message.should_close
        if message.chunked or "Transfer-Encoding" in message.headers:
            refusal: Reply | None = text(
                411, "chunked bodies are not supported; send a Content-Length header", close=True
            )
        elif message.upgrade or message.method == "CONNECT":
            refusal = text(400, "only HTTP/1.1 is supported", close=True)
        else:
            refusal = self._handler.refuse(head)
        is_whole = len(buffer) >= head.length
        if refusal is not None:
            # The rest of the body is not read, so the connection ends with this answer.
            self._is_body_unread = not is_whole
            may_stay = len(buffer) == head.length
            buffer.clear()
            self._reply(refusal if may_stay else refusal._replace(close=True))
            return
        if not is_whole and message.headers.get("Expect", "").lower() == "100-continue":
            assert self.transport is not None
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._enter(ConnectionPhase.BODY)
        self._is_body_unread, self._head = True, head
        self._queue_if_complete()

    def _parse_head(self, data: bytes) -> RawRequestMessage | None:
        """Parse a complete head; return None if it is not valid."""
        max_bytes = self._listener.limits.head_bytes
        parser = HttpRequestParser(
            self, self._loop, 1, max_line_size=max_bytes, max_field_size=max_bytes, max_headers=MAX_HEADERS, auto_decompress=False
        )  # fmt: skip
        try:
            messages, _, _ = parser.feed_data(data)
        except (HttpProcessingError, ValueError):
            return None
        return messages[0][0] if len(messages) == 1 else None

    def _queue_if_complete(self) -> None:
        head, received = self._head, len(self._buffer)
        assert head is not None
        if received < head.length:
            self._count_body(received)
            return
        if received > head.length:  # nothing may be sent before the answer
            self._closes_after_answer = True
        body = bytes(memoryview(self._buffer)[: head.length])
        self._is_body_unread, self._head, self._buffer = False, None, bytearray()
        self._count_body(len(body))
        self._enter(ConnectionPhase.ANSWER)
        self._listener.queue_request(self, head, body)

    def answer(self, head: Head, body: bytes) -> None:
        """Let the handler answer the request, now or in a task, unless the peer has disconnected. Called by the queue.

        The body counts until the handler has answered, even if the peer disconnects: until then it is in memory.
        """
        if self.phase is not ConnectionPhase.ANSWER:
            self._count_body(0)
            return
        self.has_posted = head.method == "POST"
        try:
            answer = self._handler.answer(head, body)
        except Exception:
            self._count_body(0)  # the queue logs the error and cuts the connection
            raise
        if isinstance(answer, Reply):
            self._reply(answer)
            return

        async def wait() -> None:
            reply = None
            try:
                reply = await answer
            except Exception:
                logger.exception("a bug while answering; please report it")
            finally:
                self._count_body(0)
                if reply is None:
                    self.cut()
            if reply is not None and self.phase is ConnectionPhase.ANSWER:
                self._reply(reply)

        task = self._listener.run_task(wait())
        self._answer_task = task if self._listener.limits.cancels_on_close else None

    def _reply(self, reply: Reply) -> None:
        """Write a reply, and wait for the next request or close."""
        self._count_body(0)
        transport = self.transport
        if transport is None or self.phase is ConnectionPhase.CLOSED:
            return
        # If `_paused`, the peer does not read. It gets no further answers, because unsent bytes take memory.
        close = (
            reply.close
            or reply.parts is not None
            or self._closes_after_answer
            or self._is_outdated
            or self._listener.draining
            or len(reply.body) > LARGE
            or self._paused
        )
        header_lines = "".join([f"{name}: {value}\r\n" for name, value in reply.headers])
        length = f"Content-Length: {len(reply.body)}\r\n" if reply.parts is None else ""
        head = (
            f"HTTP/1.1 {reply.status} {_PHRASES[reply.status]}\r\n"
            f"Content-Type: {reply.kind}\r\n{length}Date: {_date(int(time()))}\r\n"
            f"{header_lines}{'Connection: close' if close else 'Connection: keep-alive'}\r\n\r\n"
        )
        transport.write(head.encode("latin-1", "replace") + reply.body)
        if reply.parts is not None:
            self._listener.run_task(self._send_parts(reply.parts))
        elif close:
            self._close_after_last()
        else:
            self._enter(ConnectionPhase.IDLE)

    def _close_after_last(self) -> None:
        """Close after the last answer; the peer closes if it may still be sending the body."""
        self._enter(ConnectionPhase.CLOSED)
        self._head, self._buffer = None, bytearray()
        if self.transport is not None and not self._is_body_unread:
            self.transport.close()

    async def _send_parts(self, parts: AsyncGenerator[bytes, None]) -> None:
        """Send an answer in parts, and close. A peer that does not read is cut."""
        try:
            async with aclosing(parts):
                async for part in parts:
                    if self.transport is None:
                        return
                    self.transport.write(part)
                    async with asyncio.timeout(self._listener.limits.flush):
                        await self._drain_helper()
            self._close_after_last()
        except (ConnectionError, TimeoutError):
            self.cut()
        except Exception:
            logger.exception("a bug while answering; please report it")
            self.cut()

    # ---- the end

    def sweep(self, now: float) -> None:
        """Enforce the time limit of the current phase."""
        limits, seconds = self._listener.limits, now - self.since
        match self.phase:
            case ConnectionPhase.HANDSHAKE if seconds > limits.handshake:
                self.cut()
            case ConnectionPhase.QUIET if seconds > limits.quiet:
                self.cut()
            case ConnectionPhase.HEAD if seconds > limits.head:
                self._reply(text(408, "the request did not arrive in time", close=True))
            case ConnectionPhase.BODY if seconds > limits.deadline:
                self._reply(text(408, "the body did not arrive in time", close=True))
            case ConnectionPhase.IDLE if seconds > limits.idle:
                self.cut()
            case ConnectionPhase.CLOSED if seconds > limits.flush:
                self.cut()
            case _:
                pass

    def give_way(self) -> None:
        """Close to make room for another connection; reply 503 if a request has begun."""
        if self.phase in (ConnectionPhase.HEAD, ConnectionPhase.BODY):
            self._reply(text(503, "too many requests at a time", ("Retry-After", "1"), close=True))
        else:
            self.cut()

    def cut(self) -> None:
        """Abort at once, in any phase."""
        if self.transport is not None:
            self.transport.abort()
        elif self.handshake_task is not None:
            self.handshake_task.cancel()
        else:
            # During the handshake asyncio owns the socket, so it is not closed here. After a shutdown the handshake fails.
            with suppress(OSError):  # closed already
                self._sock.shutdown(SHUT_RDWR)

    def close(self) -> None:
        """Close if no request has arrived, neither here nor in the kernel's buffer.

        If a connection is closed while a client sends a request, the client retries it unless it is a POST. Every review is a POST.
        """
        idle = self.phase in (ConnectionPhase.QUIET, ConnectionPhase.IDLE)
        if idle and self.transport is not None and not self.transport.has_unread:
            self.transport.close()

    def has_unread_request(self) -> bool:
        """Report whether an idle connection has received bytes that are not read yet."""
        return self.phase is ConnectionPhase.IDLE and self.transport is not None and self.transport.has_unread

    def retire(self) -> None:
        """Close after the next answer, because the listener has a new TLS context.

        Close at once if the peer showed a certificate, because its CA may no longer be trusted. Other connections, such as most of API servers,
        are not closed at once, because a review that is sent at that moment would fail.
        """
        self._is_outdated = True
        if self.certified:
            self.close()

    def _enter(self, phase: ConnectionPhase) -> None:
        self.phase = phase
        self.since = self._loop.time()

    def _count_body(self, received: int) -> None:
        """Count the received bytes of a body in `Listener.body_bytes`, and make room if there are too many."""
        if received != self.received:
            self._listener.body_bytes += received - self.received
            self.received = received
            if self._listener.body_bytes > self._listener.limits.bytes:
                self._listener.free_bytes()


_PHRASES = {status.value: status.phrase for status in HTTPStatus}


@lru_cache(maxsize=1)
def _date(second: int) -> str:
    """Return the Date header, cached for a second."""
    return formatdate(second, usegmt=True)
