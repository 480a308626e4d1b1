"""Reads from connections in turns, so that a peer that sends many tiny TLS records delays no other connection.

Even the smallest record costs 9 µs of CPU, and OpenSSL decrypts in one call all bytes that it was given. So each connection keeps its received
bytes encrypted. `ReadQueue` takes the connections in turns and decrypts up to RECORDS records of each, until one turn of the event loop has used
READ_TURN_SECONDS of CPU time.

A connection is wasteful if its current request has more than FREE_RECORDS records that are small on average. One turn of the loop reads
from at most one wasteful connection. After MAX_SMALL records, a wasteful connection is closed. Usual clients do not send such records: those of
Go begin with 1 KiB and grow to 16 KiB.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from contextlib import suppress
from socket import MSG_DONTWAIT, MSG_PEEK
from time import thread_time
from typing import TYPE_CHECKING, Any, cast

from runtime.http.turns import Turns

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Collection

    from runtime.http.connection import PeerConnection

READ_TURN_SECONDS = 0.005  # CPU seconds of reading in one turn of the loop
RECORDS = 8  # records of one connection that are decrypted in its turn
FREE_RECORDS = 16  # a request with at most this number of records is never wasteful
SMALL = 256  # bytes; records that have fewer on average are small
MAX_SMALL = 512  # records of one request; a wasteful connection that sends more is closed
HANDSHAKE = 1 << 14  # bytes that a peer may send in a handshake; each certificate costs 0.12 ms of CPU
LINGER = 1.0  # seconds for which a closed connection waits for its peer to close
_HEADER, _LARGEST = 5, (1 << 14) + 256  # bytes of a TLS record's header, and the most bytes that may follow the header
READ = 1 << 15  # bytes that are read from the kernel at once; more than a record


logger = logging.getLogger("drawbridge.listener")


class ReadQueue:
    """Connections whose received bytes wait to be read."""

    def __init__(self, known: Collection[str], count_closure: Callable[[str], None]) -> None:
        """`known` are the known addresses; `count_closure` is called with the reason why a connection was closed."""
        self.loop = asyncio.get_running_loop()
        self.count_closure = count_closure
        self.buffer = memoryview(bytearray(READ))  # the kernel's bytes on their way to a connection
        self._known = known
        self._waiting = Turns[PeerTransport]()
        self._wasteful = Turns[PeerTransport]()
        self._is_scheduled = False

    def join(self, transport: PeerTransport) -> None:
        """Call the connection's `read_on` when its turn comes."""
        turns = self._wasteful if transport.is_wasteful else self._waiting
        turns.add(transport, transport.peer, is_known=transport.peer in self._known)
        if not self._is_scheduled:
            self._is_scheduled = True
            self.loop.call_soon(self._serve)

    def _serve(self) -> None:
        """Run one turn: read from at most one wasteful connection, then from others until the turn's CPU time is used."""
        until = thread_time() + READ_TURN_SECONDS
        transport = self._wasteful.pop() or self._waiting.pop()
        while transport is not None:
            try:
                if transport.read_on():
                    self.join(transport)
            except Exception:
                # The other connections must still be read from.
                logger.exception("a bug while reading; please report it")
                transport.abort()
            transport = self._waiting.pop() if self._waiting and thread_time() < until else None
        self._is_scheduled = bool(self._waiting or self._wasteful)
        if self._is_scheduled:
            # A callback of `call_soon` runs before new I/O is handled. So this one only starts a timer, which ends after that I/O.
            self.loop.call_soon(self.loop.call_later, 0, self._serve)


class PeerTransport(asyncio.Transport, asyncio.BufferedProtocol):
    """The transport of a connection, with or without TLS, which reads in turns.

    For its `PeerConnection` it is a transport. For asyncio's raw transport, which calls `buffer_updated` with new bytes, it is a protocol.
    """

    def __init__(
        self, connection: PeerConnection, sock: socket.socket, queue: ReadQueue, context: ssl.SSLContext | None
    ) -> None:
        super().__init__()
        self._sock = sock
        self.peer = connection.peer
        self._connection = connection
        self._queue = queue
        self._raw: asyncio.Transport | None = None
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls: ssl.SSLObject | None = None
        if context is not None:
            self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._established: asyncio.Future[bool] = queue.loop.create_future()  # whether the handshake succeeded
        self._received = bytearray()  # not decrypted yet
        self._is_queued = False
        self._is_paused = False
        self._is_closing = False
        # Records since the last answer, and their bytes.
        self._record_count = 0
        self._record_bytes = 0

    # ---- the raw transport's protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the raw transport; without TLS, the connection is established now."""
        self._raw = cast("asyncio.Transport", transport)
        if self._tls is None:
            self._finish_handshake()

    def connection_lost(self, exc: Exception | None) -> None:
        """Drop unread bytes, and notify the connection if it was established."""
        self._is_closing = True
        self._received.clear()
        if not self._established.done():
            self._established.set_result(False)
        elif not self._established.cancelled() and self._established.result():
            self._connection.connection_lost(exc)
        self._raw = None

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the shared buffer into which asyncio copies received bytes."""
        del sizehint
        return self._queue.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Keep the received bytes, and join the queue once a record is complete."""
        if self._is_closing:  # no request is answered any more
            return
        self._received += self._queue.buffer[:nbytes]
        if len(self._received) >= READ and not self._is_paused and self._raw is not None:
            self._is_paused = True
            self._raw.pause_reading()
        if not self._is_queued and self._record_end(0):
            self._is_queued = True
            self._queue.join(self)

    def eof_received(self) -> None:
        """Ignore further bytes; the raw transport closes."""
        self._is_closing = True

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()

    # ---- reading

    @property
    def is_wasteful(self) -> bool:
        """Whether the records of this request have been small."""
        return self._record_count > FREE_RECORDS and self._record_bytes < SMALL * self._record_count

    @property
    def has_unread(self) -> bool:
        """Whether bytes have arrived, here or in the kernel, that are not read yet. The end of the stream does not count."""
        try:
            return bool(self._received or self._sock.recv(1, MSG_PEEK | MSG_DONTWAIT))
        except OSError:
            return False

    async def established(self) -> None:
        """Wait for the end of the handshake. Raises ConnectionAbortedError if it fails."""
        # The future has a result instead of an exception: a traceback would keep all these objects until the garbage collector runs.
        if not await self._established:
            raise ConnectionAbortedError("no handshake")

    def read_on(self) -> bool:
        """Decrypt some records and pass the plaintext to the connection; report whether another complete record waits."""
        self._is_queued = False
        if self._is_closing:
            return False
        has_ended = False
        if self._tls is None:
            data = bytes(self._received)
            self._received.clear()
        else:
            try:
                self._feed_openssl()
                data, has_ended = self._decrypt(self._tls)
            except OSError:  # an SSLError is one
                self._fail_tls()
                return False
        if data:
            self._connection.data_received(data)
        if has_ended:
            self.close()
        # If `data_received` has closed the connection, `_received` is empty.
        self._is_queued = self._record_end(0) > 0
        if not self._is_queued:
            self._resume_reading()
        return self._is_queued

    def _record_end(self, start: int) -> int:
        """Return the end of the record that begins at `start`; 0 if it is incomplete. Without TLS, all received bytes are one record."""
        received = self._received
        if self._tls is None:
            return len(received)
        if len(received) < start + _HEADER:
            return 0
        length = int.from_bytes(received[start + 3 : start + _HEADER], "big")
        # If a record is too long, only its header is passed on, which is enough for OpenSSL to refuse the record.
        end = start + _HEADER + (length if length <= _LARGEST else 0)
        return end if len(received) >= end else 0

    def _feed_openssl(self) -> None:
        """Move a few complete records to OpenSSL. Raises ConnectionAbortedError if the peer has sent too many small ones."""
        fed_end, is_established = 0, self._established.done()
        # During a handshake, feed one record at a time, so that application data after the handshake does not count as part of it.
        for _ in range(RECORDS if is_established else 1):
            end = self._record_end(fed_end)
            if not end:
                break
            fed_end = end
            self._record_count += 1
        self._record_bytes += fed_end
        if self._record_count > MAX_SMALL and self.is_wasteful:
            self._queue.count_closure("records")
            raise ConnectionAbortedError("too many small records")
        if not is_established and self._record_bytes > HANDSHAKE:
            raise ConnectionAbortedError("the handshake is too long")
        self._incoming.write(self._received[:fed_end])
        del self._received[:fed_end]

    def _decrypt(self, tls: ssl.SSLObject) -> tuple[bytes, bool]:
        """Return the plaintext of these records, and whether the peer has ended the TLS connection."""
        pieces, has_ended = list[bytes](), False
        try:
            if not self._established.done():
                tls.do_handshake()
                self._send_encrypted()
                self._finish_handshake()
            while not has_ended and self._incoming.pending:
                piece = tls.read(_LARGEST)
                pieces.append(piece)
                has_ended = not piece
        except ssl.SSLWantReadError:
            pass
        finally:
            self._send_encrypted()  # also sends alerts and answers to key updates
        return b"".join(pieces), has_ended

    def _finish_handshake(self) -> None:
        self._record_count = self._record_bytes = 0
        self._established.set_result(True)
        self._connection.connection_made(self)

    def _fail_tls(self) -> None:
        if not self._established.done():
            self._established.set_result(False)
        # `close` first sends the bytes written so far, such as OpenSSL's alert with the reason.
        self._is_closing = True
        if self._raw is not None:
            self._raw.close()

    def _resume_reading(self) -> None:
        if self._is_paused and self._raw is not None:
            self._is_paused = False
            self._raw.resume_reading()

    # ---- the connection's transport

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        """Send an answer, and start counting the records of the next request."""
        if self._is_closing or self._raw is None:
            return
        self._record_count = self._record_bytes = 0
        if self._tls is None:
            self._raw.write(data)
            return
        self._tls.write(data)
        self._send_encrypted()

    def _send_encrypted(self) -> None:
        if self._outgoing.pending and self._raw is not None:
            self._raw.write(self._outgoing.read())

    def close(self) -> None:
        """End the connection after the bytes written so far.

        Until the peer closes too, its bytes are read and dropped: unread bytes would cause a reset, which could overtake the answer.
        """
        if self._is_closing or self._raw is None:
            return
        self._is_closing = True
        self._received.clear()
        if self._tls is not None:
            with suppress(ssl.SSLError):  # the peer's close_notify is not awaited
                self._tls.unwrap()
            self._send_encrypted()
        try:
            self._raw.write_eof()
        except OSError:  # the peer has reset the connection
            self._raw.abort()
            return
        self._resume_reading()
        self._queue.loop.call_later(LINGER, self._abort_if_sent)

    def _abort_if_sent(self) -> None:
        if self._raw is not None and not self._raw.get_write_buffer_size():  # `PeerConnection.sweep` ends a slow reader
            self._raw.abort()

    def abort(self) -> None:
        self._is_closing = True
        self._received.clear()
        if self._raw is not None:
            self._raw.abort()

    def is_closing(self) -> bool:
        return self._is_closing

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """See asyncio.BaseTransport. With TLS, "peercert" is the peer's certificate."""
        if name == "peercert" and self._tls is not None:
            return self._tls.getpeercert()
        return default if self._raw is None else self._raw.get_extra_info(name, default)
