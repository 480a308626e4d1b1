"""One connection: HTTP/1.1 as aiohttp's parser reads it, one request at a time, and a deadline for each step.

It is not a web framework: no routes, no streams, no upgrades, no chunks, no pipelining. API servers, and schedulers that ask
extenders, speak plain HTTP/1.1 with a length; anything else is refused.

    phase      begins with                ends, at the latest, after   and then
    HANDSHAKE  the connection is taken    handshake                    it is cut
    QUIET      the handshake is done      quiet                        it is cut
    HEAD       first byte of a request    head                         408, closed
    BODY       end of the head            deadline                     408, closed
    ANSWER     end of the body            (the handler)                -
    IDLE       the answer is written      idle                         it is cut
    CLOSED     the last answer is written flush                        it is cut

A request that is whole waits in a queue (`fair_queue`) before it is answered. A peer whose body was not read to its end
closes the connection itself: closing under it would reset the connection, and the answer could be lost.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from email.utils import formatdate
from enum import IntEnum
from functools import lru_cache
from http import HTTPStatus
from socket import MSG_DONTWAIT, MSG_PEEK, SHUT_RDWR
from time import time
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from aiohttp.base_protocol import BaseProtocol
from aiohttp.http import HttpProcessingError, HttpRequestParser
from aiohttp.http_exceptions import LineTooLong

from runtime.http.fair_queue import STRANGER
from runtime.http.messages import Head, Reply, text

if TYPE_CHECKING:
    import socket
    from collections.abc import Coroutine, Mapping


MIB = 1 << 20
MAX_LINE = 4096
MAX_HEADERS = 64
# What does not fit into the kernel's buffers waits for the peer to read it. A loop does not tell whether it does, but
# a connection that is being closed has a deadline.
LARGE = 64 * 1024


class Limits(NamedTuple):
    """What one process takes on at a time, and how long each step may take."""

    # An update carries two objects, and the API server takes requests up to 3 MiB.
    body: int = 7 * MIB
    # Bodies on their way, all together.
    bytes: int = 128 * MIB
    connections: int = 1024
    # An API server opens as many connections as it has reviews in flight, and several may come from one address.
    peer: int = 320
    # Below the 3 s that the webhook configuration gives us, so that the answer is ours.
    deadline: float = 2.5
    handshake: float = 5.0
    head: float = 2.5
    # An API server may open a connection and then use another that came free: it is kept for a while.
    quiet: float = 15.0
    # Longer than the API server keeps an idle connection, so that no review meets a connection that is being closed.
    idle: float = 180.0
    # Where room has to be made, connections that have waited or been idle for this long go before new ones.
    settled: float = 2.0
    flush: float = 5.0


class ConnectionPhase(IntEnum):
    """Where a connection is in its life; see the table above."""

    HANDSHAKE = 0
    QUIET = 1
    HEAD = 2
    BODY = 3
    ANSWER = 4
    IDLE = 5
    CLOSED = 6


class Handler(Protocol):
    """What a connection asks about each request: first whether to read its body, then for the answer."""

    def refuse(self, head: Head) -> Reply | None:
        """Refuse a request before its body is read, or not."""
        ...

    def answer(self, head: Head, body: bytes) -> Reply | Coroutine[None, None, Reply]:
        """Answer a request, at once or later."""
        ...


class Owner(Protocol):
    """The listener, which keeps order among connections."""

    limits: Limits
    draining: bool
    body_bytes: int  # that wait

    def forget(self, connection: PeerConnection) -> None:
        """Take notice that a connection is over."""
        ...

    def free_bytes(self) -> None:
        """Make room, because more bytes of bodies wait than may."""
        ...

    def whole(self, connection: PeerConnection, head: Head, body: bytes) -> None:
        """Have a request answered when it is its turn."""
        ...

    def later(self, work: Coroutine[None, None, None]) -> object:
        """Do something that is not finished now."""
        ...


class KnownHead(NamedTuple):
    """A head that the parser has read on this connection: an API server repeats it with each review, but for the length.

    Equal bytes mean equal requests, so they are compared and not parsed. Only the length is read.
    """

    before: bytes
    after: bytes
    head: Head

    @classmethod
    def of(cls, data: bytes, head: Head) -> KnownHead | None:
        """Keep the head that this begins with; None if it has no length, or is too large to be kept."""
        end = data.find(b"\r\n\r\n", 0, MAX_LINE) + 4
        lengths = [*_CONTENT_LENGTH.finditer(data, 0, end)]
        if len(lengths) != 1:
            return None
        first, last = lengths[0].span(1)
        return cls(data[:first], data[last:end], head)

    def read(self, data: bytes) -> tuple[Head, int] | None:
        """Read a request that begins alike: its head, and where its body begins. None if it is another, or more than one."""
        before, after, head = self
        first = len(before)
        last = data.find(b"\r", first, first + _DIGITS)
        if not (data.startswith(before) and data.startswith(after, last) and data[first:last].isdigit()):
            return None
        length, start = int(data[first:last]), last + len(after)
        if len(data) - start > length:
            return None
        method, path, query, headers, _, certified, name, peer = head
        return Head(method, path, query, headers, length, certified, name, peer), start


_DIGITS = 10
_CONTENT_LENGTH = re.compile(rb"\r\ncontent-length: ([0-9]{1,9})\r\n", re.IGNORECASE)


class PeerConnection(BaseProtocol):
    """A connection, from the moment it is accepted."""

    def __init__(self, owner: Owner, handler: Handler, peer: str, sock: socket.socket) -> None:
        self._owner = owner
        self._handler = handler
        self._sock = sock
        loop = asyncio.get_running_loop()
        super().__init__(loop)
        self.peer = peer
        self.phase = ConnectionPhase.HANDSHAKE
        self.since = loop.time()
        # What the peer has shown of itself decides who goes first when there is no room.
        self.certified = False
        self.has_posted = False
        # The task that waits for the handshake's turn.
        self.waits: asyncio.Task[None] | None = None
        self.cost = STRANGER
        self._name = ""
        self._head: Head | None = None
        # Of a request whose body is not all there: what there is of it, and whether the peer may still be sending.
        self._body = bytearray()
        self._unread = False
        self._parser: HttpRequestParser | None = None
        self._known: KnownHead | None = None
        self._counted = 0
        self._close = False
        self._leaves = False

    # ---- what the loop says

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, after the handshake."""
        super().connection_made(transport)
        shown: Mapping[str, Any] = transport.get_extra_info("peercert") or {}
        self.certified = bool(shown)
        names = [value for part in shown.get("subject", ()) for key, value in part if key == "commonName"]
        self._name = str(names[0]) if names else ""
        self._enter(ConnectionPhase.QUIET)

    def connection_lost(self, exc: BaseException | None) -> None:
        """End, whichever side ended it."""
        super().connection_lost(exc)
        self._count(0)
        self.phase = ConnectionPhase.CLOSED
        self._owner.forget(self)

    def data_received(self, data: bytes) -> None:
        """Take in what has arrived, as far as the phase allows."""
        match self.phase:
            case ConnectionPhase.ANSWER | ConnectionPhase.CLOSED:
                # A client that sends more before the answer is not the API server: this answer is the last one.
                self._close = True
            case ConnectionPhase.BODY:
                self._body += data
                received, head = len(self._body), self._head
                assert head is not None
                if received < head.length:
                    self._count(received)
                else:
                    self._close = self._close or received > head.length  # nothing may be sent before the answer
                    body = bytes(memoryview(self._body)[: head.length])
                    self._unread, self._head, self._body = False, None, bytearray()
                    self._begin(head, body, None, is_whole=True)
                if self._unread and len(data) >= LARGE and self.transport is not None:
                    # All that a fast peer has sent would be read at once. Others come between.
                    self.transport.pause_reading()
                    self._loop.call_soon(self.transport.resume_reading)
            case ConnectionPhase.HEAD:
                self._parse(data, is_first=False)
            case _:
                known = None if self._known is None else self._known.read(data)
                if known is not None:
                    head, start = known
                    self._close = False
                    self._begin(
                        head, data[start:], self._handler.refuse(head), is_whole=len(data) - start == head.length
                    )
                    return
                self._enter(ConnectionPhase.HEAD)
                # Bodies are bounded before they are read, so the parser never has to wait.
                limit = 2 * self._owner.limits.body
                self._parser = HttpRequestParser(
                    self, self._loop, limit, max_line_size=MAX_LINE, max_field_size=MAX_LINE, max_headers=MAX_HEADERS, auto_decompress=False
                )  # fmt: skip
                self._parse(data, is_first=True)

    def pause_reading(self) -> None:
        """Never wait: a body is bounded before it is read, and taken whole."""

    def resume_reading(self, resume_parser: bool = True) -> None:
        """See pause_reading."""

    # ---- one request

    def _parse(self, data: bytes, *, is_first: bool) -> None:
        """Read a head, of which this is a part. The rest of the body after it does not pass through the parser."""
        assert self._parser is not None
        try:
            messages, upgraded, rest = self._parser.feed_data(data)
        except LineTooLong:
            self._reply(text(431, f"a line may have at most {MAX_LINE} bytes", close=True))
            return
        except (HttpProcessingError, ValueError):
            self._reply(text(400, "this is not a request of HTTP/1.1", close=True))
            return
        if not messages:
            return
        self._parser = None
        message, payload = messages[0]
        path, _, query = message.path.partition("?")
        length = message.headers.get("Content-Length", "0")
        head = Head(
            message.method,
            path,
            query,
            headers=message.headers,
            length=int(length) if length.isdigit() and len(length) < 19 else 1 << 62,
            certified=self.certified,
            name=self._name,
            peer=self.peer,
        )
        self._close = bool(upgraded or rest or len(messages) > 1 or message.should_close)
        if message.chunked or "Transfer-Encoding" in message.headers:
            refused: Reply | None = text(411, "send Content-Length: chunked bodies are not supported", close=True)
        elif message.upgrade or message.method == "CONNECT":
            refused = text(400, "only HTTP/1.1 is supported", close=True)
        else:
            refused = self._handler.refuse(head)
        is_whole = payload.is_eof()
        if refused is None and "Expect" in message.headers:
            if not is_whole and message.headers["Expect"].lower() == "100-continue":
                assert self.transport is not None
                self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        elif is_first and refused is None and not self._close:
            self._known = KnownHead.of(data, head)
        self._begin(head, payload.read_nowait(), refused, is_whole=is_whole)

    def _begin(self, head: Head, body: bytes, refused: Reply | None, *, is_whole: bool) -> None:
        """Have a request answered, refuse it, or read on."""
        if refused is not None:
            # What was not read is not skipped either: the connection ends with this answer.
            self._unread = not is_whole
            self._reply(refused if is_whole else refused._replace(close=True))
        elif is_whole:
            self._count(len(body))
            self._enter(ConnectionPhase.ANSWER)
            self._owner.whole(self, head, body)
        else:
            self._enter(ConnectionPhase.BODY)
            self._unread, self._head, self._body = True, head, bytearray(body)
            self._count(len(body))

    def answer(self, head: Head, body: bytes) -> None:
        """Have the request answered, unless the peer has gone meanwhile."""
        self._count(0)
        if self.phase is not ConnectionPhase.ANSWER:
            return
        self.has_posted = head.method == "POST"
        answer = self._handler.answer(head, body)
        if isinstance(answer, Reply):
            self._reply(answer)
            return

        async def wait() -> None:
            reply = await answer
            if self.phase is ConnectionPhase.ANSWER:
                self._reply(reply)

        self._owner.later(wait())

    def _reply(self, reply: Reply) -> None:
        transport = self.transport
        if transport is None or self.phase is ConnectionPhase.CLOSED:
            return
        self._count(0)
        # A peer that does not read gets this answer and no more: what the kernel does not take is in our memory.
        close = (
            reply.close
            or self._close
            or self._leaves
            or self._owner.draining
            or len(reply.body) > LARGE
            or self._paused
        )
        extra = "".join([f"{name}: {value}\r\n" for name, value in reply.headers])
        head = (
            f"HTTP/1.1 {reply.status} {_PHRASES[reply.status]}\r\n"
            f"Content-Type: {reply.kind}\r\nContent-Length: {len(reply.body)}\r\nDate: {_date(int(time()))}\r\n"
            f"{extra}{'Connection: close' if close else 'Connection: keep-alive'}\r\n\r\n"
        )
        transport.write(head.encode("latin-1", "replace") + reply.body)
        if not close:
            self._enter(ConnectionPhase.IDLE)
            return
        self._enter(ConnectionPhase.CLOSED)
        # Nothing is read any more, and a peer that is let go has seconds to go.
        self._parser, self._head, self._body = None, None, bytearray()
        if not self._unread:
            transport.close()

    # ---- the end

    def sweep(self, now: float) -> None:
        """End what takes too long."""
        limits, took = self._owner.limits, now - self.since
        match self.phase:
            case ConnectionPhase.HANDSHAKE if took > limits.handshake:
                self.cut()
            case ConnectionPhase.QUIET if took > limits.quiet:
                self.cut()
            case ConnectionPhase.HEAD if took > limits.head:
                self._reply(text(408, "the request did not arrive in time", close=True))
            case ConnectionPhase.BODY if took > limits.deadline:
                self._reply(text(408, "the body did not arrive in time", close=True))
            case ConnectionPhase.IDLE if took > limits.idle:
                self.cut()
            case ConnectionPhase.CLOSED if took > limits.flush:
                self.cut()
            case _:
                pass

    def give_way(self) -> None:
        """Make room for another connection."""
        if self.phase in (ConnectionPhase.HEAD, ConnectionPhase.BODY):
            self._reply(text(503, "too many requests on their way", ("Retry-After", "1"), close=True))
        else:
            self.cut()

    def cut(self) -> None:
        """End at once, whatever the phase."""
        if self.transport is not None:
            self.transport.abort()
        elif self.waits is not None:
            self.waits.cancel()
        else:
            # The handshake holds the socket; it ends as it would if the peer had gone.
            with suppress(OSError):  # gone already
                self._sock.shutdown(SHUT_RDWR)

    def close(self) -> None:
        """End, if no request has arrived, seen by the loop or still held by the kernel.

        A client repeats by itself what it sends on a connection that is closed, but not a POST, and each review is one.
        """
        idle = self.phase in (ConnectionPhase.QUIET, ConnectionPhase.IDLE)
        if idle and self.transport is not None and not _has_unread(self._sock):
            self.transport.close()

    def has_asked(self) -> bool:
        """Whether bytes of a request have arrived that are not read yet. What comes before a handshake does not count."""
        return self.phase is ConnectionPhase.IDLE and self.transport is not None and _has_unread(self._sock)

    def leave(self) -> None:
        """End with the next answer; at once if it showed a certificate, whose authority may be believed no longer.

        An API server shows none: a review that it sends at the moment of a close would be lost, and what was to be made refused.
        """
        self._leaves = True
        if self.certified:
            self.close()

    @property
    def received(self) -> int:
        """How many bytes of a body are there that has not been answered."""
        return self._counted

    def _enter(self, phase: ConnectionPhase) -> None:
        self.phase = phase
        self.since = self._loop.time()

    def _count(self, received: int) -> None:
        if received != self._counted:
            change, self._counted = received - self._counted, received
            self._owner.body_bytes += change
            if self._owner.body_bytes > self._owner.limits.bytes:
                self._owner.free_bytes()


def _has_unread(sock: socket.socket) -> bool:
    """Whether bytes have arrived that are not read. The end of the stream does not count."""
    try:
        return bool(sock.recv(1, MSG_PEEK | MSG_DONTWAIT))
    except OSError:
        return False


_PHRASES = {status.value: status.phrase for status in HTTPStatus}


@lru_cache(maxsize=1)
def _date(second: int) -> str:
    """The Date of answers, which changes once a second."""
    return formatdate(second, usegmt=True)
