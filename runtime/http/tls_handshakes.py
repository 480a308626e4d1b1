"""Limits TLS handshakes: a handshake begins when its ClientHello is complete, and only a few begin in each turn of the event loop.

A ClientHello costs its sender nothing, because it can be replayed. The server's answer to it takes a quarter of a millisecond of CPU, so a
thousand at once would delay all reviews for a quarter of a second. Therefore an incomplete ClientHello stays in the kernel's buffer, where it
costs only a socket, and at most MAX_PER_TURN handshakes begin in one turn of the loop.

A client can also hold back the second half of a handshake. So at most MAX_IN_PROGRESS handshakes are in progress. When another one begins, the oldest
handshake of the address with the most handshakes is aborted.

Usual clients send the ClientHello as one TLS record. Anything else is rejected: the peer does not use TLS, or is slow on purpose.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from socket import MSG_PEEK
from typing import TYPE_CHECKING

from runtime.http.turns import Turns

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncIterator

    from runtime.http.connection import PeerConnection

MAX_PER_TURN = 16  # handshakes begun in one turn of the loop
MAX_IN_PROGRESS = 256  # handshakes in progress
_HEAD, _LARGEST, _MESSAGE = (
    5,
    1 << 14,
    4,
)  # bytes: a record's header, the largest record, the header of the message in it
_HANDSHAKE, _HELLO = 22, 1  # content type of the record, type of the message
FIRST_WAIT, LONGEST_WAIT = 0.002, 0.25  # seconds between two checks whether an incomplete ClientHello is complete


class Handshakes:
    """Handshakes that wait for their turn, and those in progress."""

    def __init__(self, turn: int = MAX_PER_TURN, most: int = MAX_IN_PROGRESS) -> None:
        """Begin at most `turn` handshakes in a turn of the loop, with at most `most` in progress."""
        self._loop = asyncio.get_running_loop()
        self._per_turn = turn
        self._most_in_progress = most
        self._waiting = Turns[asyncio.Future[None]]()
        self._is_scheduled = False
        self._in_progress: dict[PeerConnection, None] = {}

    @asynccontextmanager
    async def turn_of(self, connection: PeerConnection, sock: socket.socket, *, is_known: bool) -> AsyncIterator[None]:
        """Wait for a complete ClientHello and a turn; the handshake runs in the `async with` block.

        Raises OSError if the client has disconnected or does not send a ClientHello.
        """
        connection.handshake_task = asyncio.current_task()
        try:
            await self._wait_for_hello(sock)
            future = self._loop.create_future()
            self._waiting.add(future, connection.peer, is_known=is_known)
            if not self._is_scheduled:
                self._schedule()
            await future
        finally:
            connection.handshake_task = None
        if len(self._in_progress) >= self._most_in_progress:
            of_peer = Counter([handshake.peer for handshake in self._in_progress])
            largest_count = max(of_peer.values())
            oldest = next(handshake for handshake in self._in_progress if of_peer[handshake.peer] == largest_count)
            del self._in_progress[oldest]
            oldest.cut()
        self._in_progress[connection] = None
        try:
            yield
        finally:
            self._in_progress.pop(connection, None)

    async def _wait_for_hello(self, sock: socket.socket) -> None:
        """Wait until the kernel has the whole ClientHello; it is only peeked at, and stays in the kernel's buffer."""
        pause = FIRST_WAIT
        while True:
            try:
                data = sock.recv(_HEAD + _LARGEST, MSG_PEEK)
            except BlockingIOError:
                readable = asyncio.Event()
                self._loop.add_reader(sock, readable.set)
                try:
                    await readable.wait()
                finally:
                    self._loop.remove_reader(sock)
                continue
            if is_whole(data):
                return
            # Peeking leaves the socket readable, so the loop would call a reader again at once. Poll instead.
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_WAIT)

    def _schedule(self) -> None:
        # A callback of `call_soon` runs before new I/O is handled. So this one only starts a timer, which ends after that I/O.
        self._is_scheduled = True
        self._loop.call_soon(self._loop.call_later, 0, self._serve)

    def _serve(self) -> None:
        """Run one turn: let the next handshakes begin."""
        begun_count = 0
        while begun_count < self._per_turn and (future := self._waiting.pop()):
            if not future.done():  # not cancelled
                future.set_result(None)
                begun_count += 1
        self._is_scheduled = bool(self._waiting)
        if self._is_scheduled:
            self._schedule()


def is_whole(data: bytes) -> bool:
    """Report whether a ClientHello is complete. Raises ConnectionError if the data is no ClientHello."""
    if not data:
        raise ConnectionResetError("gone")
    length = int.from_bytes(data[3:_HEAD], "big")
    if data[0] != _HANDSHAKE or length > _LARGEST:
        raise ConnectionAbortedError("not a hello")
    message = data[_HEAD : _HEAD + _MESSAGE]
    if len(message) == _MESSAGE:
        size = int.from_bytes(message[1:], "big")
        if message[0] != _HELLO or size + _MESSAGE > length:
            raise ConnectionAbortedError("not a hello in one piece")
    needed = _HEAD + max(length, _MESSAGE)
    return len(data) >= needed
