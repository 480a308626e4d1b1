"""Accepts connections and keeps order among them.

It accepts by itself rather than through `create_server`, so that a connection is counted before its handshake has cost
anything, and so that a process out of descriptors goes on. When there is no room, room is made: connections that have waited
longest without a request go first, then those that have long been idle, those with a client certificate last; a connection
whose review is being decided never goes. Requests are read by `connection` and ordered by `fair_queue`.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import socket
import ssl
from collections import Counter, deque
from contextlib import suppress
from heapq import nsmallest
from time import thread_time
from typing import TYPE_CHECKING, NamedTuple

from runtime.http.connection import ConnectionPhase, Limits, PeerConnection
from runtime.http.fair_queue import FairQueue
from runtime.http.tls_handshakes import Handshakes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine
    from pathlib import Path

    from runtime.http.connection import Handler
    from runtime.http.messages import Head

    Stand = tuple[PeerConnection, ConnectionPhase, float]  # a connection, its phase, and since when

logger = logging.getLogger("drawbridge.listener")

TICK = 0.25
# Descriptors that are not for peers: watches, files, workers.
RESERVED = 128
# So many that had to make room may still read their answer. They count as gone, and hold a descriptor.
PARTING = 32
# Without descriptors the kernel keeps new connections in its queue while old ones end.
PAUSE = 0.05
BACKLOG = 1024
# Connections that are accepted in one turn of the loop, at most.
TAKEN = 32
# Addresses that are remembered because a whole request came from there.
KNOWN = 1024
# Above this share of connections without a request, unknown addresses make room before known ones.
CROWD = 0.25
# CPU seconds of the sweep in one turn of the loop: to answer a thousand late peers takes long.
PIECE = 0.005
# So many candidates for making room are found at once, and are valid for so long.
GOING, GOING_SECONDS = 32, 0.05
# The address of connections by a unix socket.
LOCAL = "local"
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_NOWHERE = (ConnectionPhase.HANDSHAKE, ConnectionPhase.QUIET, ConnectionPhase.HEAD, ConnectionPhase.BODY)


class Address(NamedTuple):
    """Where to listen; port 0 is any free one."""

    host: str = "127.0.0.1"
    port: int = 0

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class _Going(NamedTuple):
    """The connections that make room first, as of some moment: in a crowd there is no time to look at all each time."""

    since: float
    queue: deque[Stand]

    def leave(self, among: Collection[PeerConnection]) -> PeerConnection | None:
        """Take out the first that has not changed since."""
        while self.queue:
            first, phase, since = self.queue.popleft()
            if first in among and first.phase is phase and first.since == since and not first.has_asked():
                return first
        return None


class Listener:
    """One listening socket and its connections."""

    def __init__(
        self,
        handler: Handler,
        limits: Limits,
        refused: Callable[[str], None],
        account: Callable[[bytes], str] = lambda _: "",
    ) -> None:
        """`refused` is told why a connection had to go; `account` names the account that a body is on (`fair_queue`)."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        descriptors = 1 << 20 if soft == resource.RLIM_INFINITY else max(16, soft - RESERVED)
        self.limits = limits._replace(connections=min(limits.connections, descriptors))
        self.draining = False
        self.queue = FairQueue()
        self.body_bytes = 0
        self.connections: set[PeerConnection] = set()
        self._by_peer: dict[str, set[PeerConnection]] = {}
        # Addresses that a whole request came from, the latest last.
        self._known: dict[str, None] = {}
        self._going = _Going(float("-inf"), deque())
        self._parting: dict[PeerConnection, None] = {}  # in the order in which they had to go
        self._handler = handler
        self._refused = refused
        self._account = account
        self._listener: socket.socket | None = None
        self._tls: ssl.SSLContext | None = None
        self._handshakes = Handshakes()
        self._told = False  # that a connection could not be taken
        self._tasks: set[asyncio.Task[None]] = set()
        self._sweeping: asyncio.Task[None] | None = None

    @property
    def is_open(self) -> bool:
        """Whether new connections are taken."""
        return self._listener is not None

    def open(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> int:
        """Listen, with or without TLS; return the port."""
        family = socket.AF_INET
        if ":" in host:
            family = socket.AF_INET6
        address = host, port
        listener = socket.create_server(address, family=family, backlog=BACKLOG)
        self._tls = tls
        self._listen(listener)
        bound: int = listener.getsockname()[1]
        return bound

    def open_socket(self, path: Path) -> None:
        """Listen on a unix socket; a process that may enter its directory may ask. What an earlier process left there is removed.

        Raise OSError if a process listens there: it would not be found any more, and would not notice.
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

    def renew(self, tls: ssl.SSLContext) -> None:
        """Use this context from now on. Connections of the former one end (`PeerConnection.leave`)."""
        self._tls = tls
        for connection in tuple(self.connections):
            connection.leave()

    def _listen(self, listener: socket.socket) -> None:
        listener.setblocking(False)
        self._listener = listener
        loop = asyncio.get_running_loop()
        self._sweeping = loop.create_task(self._sweep())
        loop.add_reader(listener, self._accept, listener)

    def close(self) -> None:
        """Take no new connection any more."""
        if self._listener is None:
            return
        listener, self._listener = self._listener, None
        asyncio.get_running_loop().remove_reader(listener)
        listener.close()

    async def end(self, grace: float, linger: float = 0.0) -> None:
        """End all connections: those that wait for an answer when there is one or grace is over, idle ones after `linger` seconds.

        Until then their clients may still ask, and are answered, or close them: a review that meets a close on its way is lost.
        """
        self.draining = True
        self.close()
        loop = asyncio.get_running_loop()
        idle = loop.time() + linger
        while self.connections and loop.time() < idle + grace:
            if loop.time() >= idle:
                for connection in tuple(self.connections):
                    connection.close()
            await asyncio.sleep(TICK / 10)
        for connection in (*self.connections, *self._parting):
            connection.cut()
        tasks = [*self._tasks]
        if self._sweeping is not None:
            tasks.append(self._sweeping)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # ---- what a connection says

    def forget(self, connection: PeerConnection) -> None:
        """Take notice that a connection is over."""
        self.connections.discard(connection)
        self._parting.pop(connection, None)
        others = self._by_peer.get(connection.peer)
        if others is not None:
            others.discard(connection)
            if not others:
                del self._by_peer[connection.peer]

    def free_bytes(self) -> None:
        """Have those give way who send most, until no more bytes of bodies wait than may."""
        while self.body_bytes > self.limits.bytes:
            bodies = [one for one in self.connections if one.phase is ConnectionPhase.BODY]
            if not bodies:
                return
            self._refused("bytes")
            of_peer: Counter[str] = Counter()
            for one in bodies:
                of_peer[one.peer] += one.received
            _, most = max((size, peer) for peer, size in of_peer.items())
            theirs = [one for one in bodies if one.peer == most]
            min(theirs, key=lambda one: one.since).give_way()

    def whole(self, connection: PeerConnection, head: Head, body: bytes) -> None:
        """Have a request answered when it is its turn."""
        peer = connection.peer
        self._known.pop(peer, None)
        self._known[peer] = None
        if len(self._known) > KNOWN:
            del self._known[next(iter(self._known))]
        self.queue.join(connection, self._account(body), head, body)

    def later(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Run work that is not finished now."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # ---- taking connections

    def _accept(self, listener: socket.socket) -> None:
        """Take connections: there is at least one, and in a crowd who is not taken soon waits for the kernel's next try, a second or three.

        Not with `sock_accept`, in a task: what such a task has taken at the moment in which it is cancelled is lost.
        """
        for _ in range(TAKEN):
            try:
                sock, address = listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                # No descriptor or no memory, or the peer was gone before we looked: make room, and look again in a moment.
                if not self._told:
                    logger.warning("a connection could not be taken", extra={"problem": str(error)})
                    self._told = True
                if error.errno in _EXHAUSTED:
                    self._make_room(self.connections, "descriptors")
                loop = asyncio.get_running_loop()
                loop.remove_reader(listener)
                loop.call_later(PAUSE, self._go_on, listener)
                return
            self._told = False
            sock.setblocking(False)
            try:
                self._let_in(sock, address[0] if address else LOCAL)
            except Exception:
                # One connection may fail; accepting must go on.
                logger.exception("a bug in the listener; please report it")
                sock.close()

    def _go_on(self, listener: socket.socket) -> None:
        if self._listener is listener:  # it was not closed meanwhile
            asyncio.get_running_loop().add_reader(listener, self._accept, listener)

    def _let_in(self, sock: socket.socket, peer: str) -> None:
        mates = self._by_peer.get(peer, ())
        room = True
        if len(mates) >= self.limits.peer:
            room = self._make_room(mates, "peer")
        elif len(self.connections) >= self.limits.connections:
            room = self._make_room(self.connections, "connections")
        if not room:
            sock.close()
            return
        connection = PeerConnection(self, self._handler, peer, sock)
        self.connections.add(connection)
        mine = self._by_peer.setdefault(peer, set())
        mine.add(connection)

        def forget_failed(_: object) -> None:
            if connection.transport is None:
                self.forget(connection)
                with suppress(OSError):
                    sock.close()

        task = self.later(self._shake_hands(connection, sock))
        # Not in the task itself: one that is cancelled before it has begun runs no `finally`.
        task.add_done_callback(forget_failed)

    async def _shake_hands(self, connection: PeerConnection, sock: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            if self._tls is None:
                await loop.connect_accepted_socket(lambda: connection, sock)
                return
            async with self._handshakes.turn_of(connection, sock, is_known=connection.peer in self._known):
                # The sweep is earlier, and does not count the time in which the loop did not look.
                late = 4 * self.limits.handshake
                await loop.connect_accepted_socket(
                    lambda: connection, sock, ssl=self._tls, ssl_handshake_timeout=late, ssl_shutdown_timeout=1.0
                )
        except (OSError, ssl.SSLError):
            # A handshake that fails gets no line in the log; a scanner would fill it.
            self._refused("handshake")

    def _make_room(self, among: Collection[PeerConnection], why: str) -> bool:
        self._refused(why)
        victim = self._find_victim(among)
        if victim is None:
            return False
        self.forget(victim)
        victim.give_way()
        # It ends now or, if it is to read an answer, in a moment.
        self._parting[victim] = None
        most = 0 if why == "descriptors" else PARTING
        while len(self._parting) > most:
            oldest = next(iter(self._parting))
            del self._parting[oldest]
            oldest.cut()
        return True

    def _find_victim(self, among: Collection[PeerConnection]) -> PeerConnection | None:
        """Find the connection of some that makes room first. One that has just sent a request, not read yet, is passed over."""
        now = asyncio.get_running_loop().time()
        if self._going.since >= now - GOING_SECONDS:
            found = self._going.leave(among)
            if found is not None:
                return found
        long_ago = now - self.limits.settled
        waiting = [one for one in among if one.phase is not ConnectionPhase.ANSWER]
        nowhere = sum(one.phase in _NOWHERE for one in waiting)
        known = self._known if nowhere > CROWD * len(among) else {}

        def rank(one: PeerConnection) -> tuple[bool, bool, int, bool, float]:
            # A new connection is about to ask; one that has been idle for long will hardly be missed. An API server keeps idle ones for
            # each bundle that it ever believed, and after some rotations they are most of what it has.
            stage = int(one.phase not in _NOWHERE) + (0 if one.since < long_ago else 2)
            return one.peer in known, one.certified, stage, one.has_posted, one.since

        # More are looked at only where the first few have all just sent more.
        for count in (min(GOING, 1 + len(among) // 8), GOING):
            first = nsmallest(count, waiting, key=rank)
            self._going = _Going(now, deque([(one, one.phase, one.since) for one in first]))
            found = self._going.leave(among)
            if found is not None:
                return found
        return None

    async def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        while True:
            due = now + TICK
            await asyncio.sleep(TICK)
            now = loop.time()
            # What arrived while this process was stopped, or had no CPU, was not seen: that time does not count.
            stood = now - due if now - due > TICK else 0.0
            until = thread_time() + PIECE
            for connection in (*self.connections, *self._parting):
                if thread_time() > until:
                    await asyncio.sleep(0)
                    until = thread_time() + PIECE
                try:
                    connection.since += stood
                    connection.sweep(now)
                except Exception:
                    logger.exception("a bug in the listener; please report it")
                    self.forget(connection)


def listens(path: Path) -> bool:
    """Say whether a process listens at a unix socket: a killed one leaves its path behind. One without room, or stopped, listens."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.setblocking(False)
        try:
            asking.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            return True
    return True
