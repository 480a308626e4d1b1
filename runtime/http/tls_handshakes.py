"""TLS handshakes: one is begun when the client's hello has arrived whole, and some in each turn of the loop.

A hello costs its sender nothing, for the same bytes may be sent again and again; to answer one takes a quarter of a
millisecond of CPU. A thousand at one moment would hold all reviews for a quarter of a second. So the kernel keeps a hello
until it is whole, so that a slow sender costs a socket and no more, and TURN of them are answered in a turn. A client may keep
back the second half of a handshake, too: MOST are under way, and beyond them the oldest of the address with most is cut.

A hello is one record, as every client writes it; what begins otherwise is not TLS, or meant to be slow.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from contextlib import asynccontextmanager
from socket import MSG_PEEK
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncIterator

    from runtime.http.connection import PeerConnection

# How many are begun in a turn of the loop, and how many may be under way.
TURN = 16
MOST = 256
# A record's head and the largest record; the message in it has a head of its own.
_HEAD, _LARGEST, _MESSAGE = 5, 1 << 14, 4
_HANDSHAKE, _HELLO = 22, 1
# How long to wait for the rest of a hello of which a part is there, at first and at most.
SOON, LATER = 0.002, 0.25


class Handshakes:
    """Which handshake is next: of known and of unknown addresses by turns, and each address among them."""

    def __init__(self, turn: int = TURN, most: int = MOST) -> None:
        """Begin so many in a turn, and have so many under way."""
        self._loop = asyncio.get_running_loop()
        self._turn = turn
        self._most = most
        # By whether the address is known, then by address, in the order of their turns.
        self._waiting: dict[bool, dict[str, deque[asyncio.Future[None]]]] = {True: {}, False: {}}
        self._called = False
        self._under_way: dict[PeerConnection, None] = {}

    @asynccontextmanager
    async def turn_of(self, connection: PeerConnection, sock: socket.socket, *, is_known: bool) -> AsyncIterator[None]:
        """Wait for a whole hello and its turn; raise OSError if the client is gone or sends something else. Leave when the handshake is over."""
        connection.waits = asyncio.current_task()
        try:
            await self._hear(sock)
            future = self._loop.create_future()
            self._waiting[is_known].setdefault(connection.peer, deque()).append(future)
            if not self._called:
                self._call()
            await future
        finally:
            connection.waits = None
        if len(self._under_way) >= self._most:  # the oldest of the address that has most makes room
            of_peer = Counter([one.peer for one in self._under_way])
            most = max(of_peer.values())
            oldest = next(one for one in self._under_way if of_peer[one.peer] == most)
            del self._under_way[oldest]
            oldest.cut()
        self._under_way[connection] = None
        try:
            yield
        finally:
            self._under_way.pop(connection, None)

    async def _hear(self, sock: socket.socket) -> None:
        pause = SOON
        while True:
            try:
                said = sock.recv(_HEAD + _LARGEST, MSG_PEEK)
            except BlockingIOError:
                readable = asyncio.Event()
                self._loop.add_reader(sock, readable.set)
                try:
                    await readable.wait()
                finally:
                    self._loop.remove_reader(sock)
                continue
            if is_whole(said):
                return
            # A part stays readable, so waiting for readability would not wait.
            await asyncio.sleep(pause)
            pause = min(2 * pause, LATER)

    def _call(self) -> None:
        # So that the loop looks at its connections between two turns, as in the fair queue.
        self._called = True
        self._loop.call_soon(self._loop.call_later, 0, self._serve)

    def _serve(self) -> None:
        for number in range(self._turn):
            future = self._next(is_known=number % 2 == 0) or self._next(is_known=number % 2 == 1)
            if future is None:
                break
            future.set_result(None)
        self._called = any(self._waiting.values())
        if self._called:
            self._call()

    def _next(self, *, is_known: bool) -> asyncio.Future[None] | None:
        """Take out the next of one kind; one that was cancelled takes no turn."""
        peers = self._waiting[is_known]
        while peers:
            peer = next(iter(peers))
            queue = peers.pop(peer)
            future = queue.popleft()
            if queue:
                peers[peer] = queue
            if not future.done():
                return future
        return None


def is_whole(said: bytes) -> bool:
    """Whether a hello is all there; raise ConnectionError where it is something else."""
    if not said:
        raise ConnectionResetError("gone")
    length = int.from_bytes(said[3:_HEAD], "big")
    if said[0] != _HANDSHAKE or length > _LARGEST:
        raise ConnectionAbortedError("not a hello")
    message = said[_HEAD : _HEAD + _MESSAGE]
    if len(message) == _MESSAGE:
        size = int.from_bytes(message[1:], "big")
        if message[0] != _HELLO or size + _MESSAGE > length:
            raise ConnectionAbortedError("not a hello in one piece")
    needed = _HEAD + max(length, _MESSAGE)
    return len(said) >= needed
