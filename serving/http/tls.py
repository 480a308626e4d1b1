"""TLS of the listener: in one turn of the event loop, a connection decrypts only a few records.

OpenSSL decrypts everything that it gets in one call. asyncio passes up to 256 KiB to it, which can be 11,000 records of one byte (40 ms of CPU)
or 9,700 key updates (0.5 s). So this transport keeps received bytes encrypted, passes a few whole records to OpenSSL, and continues in the next
turn. It closes a connection whose records are too small; those of API servers have kilobytes.
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Callable

    from serving.http.connection import GuardedConnection

RECORDS_A_TURN = 2  # of one connection; a key update, the most expensive record, takes 55 µs of CPU
# Between two answers, a connection may send this number of records, and one more for each `BYTES_OF_RECORD` bytes of content.
FREE_RECORDS, BYTES_OF_RECORD = 16, 64
HANDSHAKE_BYTES = 1 << 15  # each certificate in a handshake takes 0.12 ms of CPU
READ = 1 << 15  # encrypted bytes of a connection after which it pauses reading; more than a record
_HEADER, _LARGEST = 5, (1 << 14) + 256  # bytes of a record's header, and the most bytes after it


class TlsTransport(asyncio.Transport, asyncio.BufferedProtocol):
    """The protocol of a socket's transport, and the transport of a `GuardedConnection`."""

    def __init__(
        self,
        connection: GuardedConnection,
        tls: ssl.SSLContext,
        buffer: memoryview,
        count_closure: Callable[[str], None],
    ) -> None:
        """`buffer` takes the bytes that the event loop is reading from a socket. All connections of the loop can share it."""
        super().__init__()
        self._connection, self._buffer, self._count_closure = connection, buffer, count_closure
        self._loop = asyncio.get_running_loop()
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = tls.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._received = bytearray()  # not decrypted yet
        self._is_established = self._is_scheduled = self._is_paused = self._is_closing = False
        # Since the last answer: records, and bytes of content. In the handshake, encrypted bytes.
        self._records = self._bytes = 0

    # ---- the protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()
        self._connection.connection_lost(exc)

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()

    def get_buffer(self, sizehint: int) -> memoryview:
        del sizehint
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._is_closing:
            return
        self._received += self._buffer[:nbytes]
        if len(self._received) >= READ:
            self._socket.pause_reading()
        if not self._is_scheduled:
            self._read()

    def _read(self) -> None:
        """Decrypt the next records, and pass their content on."""
        end, pieces = 0, list[bytes]()
        for _ in range(RECORDS_A_TURN):
            if next_end := self._end_of_record(end):
                end = next_end
                self._records += 1
        self._incoming.write(self._received[:end])
        del self._received[:end]
        try:
            if not self._is_established:
                self._shake_hands(end)
            while self._incoming.pending and b"" not in pieces:  # b"" is the end of the connection
                pieces.append(self._tls.read(_LARGEST))
        except ssl.SSLWantReadError:
            pass
        except OSError:
            self.close()  # after OpenSSL's alert
        self._send()  # such as the answer to a key update
        content = b"".join(pieces)
        self._bytes += len(content)
        if self._records > FREE_RECORDS + self._bytes // BYTES_OF_RECORD:
            self._count_closure("records")
            self.abort()
        elif content:
            self._connection.data_received(content)
        if b"" in pieces:
            self.close()
        self._is_scheduled = False
        self._continue()

    def _shake_hands(self, received: int) -> None:
        self._bytes += received
        if self._bytes > HANDSHAKE_BYTES:
            raise ConnectionAbortedError("the handshake is too long")
        self._tls.do_handshake()
        self._is_established, self._records, self._bytes = True, 0, 0
        self._connection.connection_made(self)

    def _end_of_record(self, start: int) -> int:
        """Return where the record ends that begins at `start`; 0 if it is incomplete, or must not be read now."""
        after_header = start + _HEADER
        if self._is_paused or len(self._received) < after_header:
            return 0
        length = int.from_bytes(self._received[start + 3 : after_header], "big")
        # OpenSSL refuses a record that is too long after it has read the header.
        end = after_header + (length if length <= _LARGEST else 0)
        return end if len(self._received) >= end else 0

    def _continue(self) -> None:
        """Read the received records in the next turn, or wait for more bytes."""
        if self._end_of_record(0):
            self._is_scheduled = True
            self._loop.call_soon(self._read)
        elif not self._is_paused:
            self._socket.resume_reading()

    # ---- the transport

    def pause_reading(self) -> None:
        self._is_paused = True
        self._socket.pause_reading()

    def resume_reading(self) -> None:
        self._is_paused = False
        if not self._is_scheduled:
            self._continue()

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if data and not self._is_closing:
            self._records = self._bytes = 0
            self._tls.write(data)
            self._send()

    def _send(self) -> None:
        if self._outgoing.pending:
            self._socket.write(self._outgoing.read())

    def close(self) -> None:
        if not self._is_closing:
            self._end()
            with suppress(ssl.SSLError):  # the peer's answer is not awaited
                self._tls.unwrap()
            self._send()
            self._socket.close()

    def abort(self) -> None:
        self._end()
        self._socket.abort()

    def _end(self) -> None:
        self._is_closing = True
        self._received.clear()

    def is_closing(self) -> bool:
        return self._is_closing

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._tls.getpeercert() if name == "peercert" else self._socket.get_extra_info(name, default)
