"""The door: takes connections, keeps order among them, and never stops taking new ones.

It accepts by itself rather than through `create_server`, so that a connection is counted before its handshake has cost
anything, and so that a process out of descriptors goes on. When there is no room, room is made: who has waited longest
without getting anywhere goes first, then who has long been idle, who has shown a certificate goes last, and a review that is
being decided never goes.
What it is not: it reads no request (`connection`), says not whose turn it is (`line`), and knows no review (`app`).
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
from typing import TYPE_CHECKING, Any, NamedTuple

from runtime.http.connection import ConnectionPhase, Limits, PeerConnection
from runtime.http.fair_queue import FairQueue
from runtime.http.tls_handshakes import Handshakes
from runtime.http.unix import listens

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine
    from pathlib import Path

    from runtime.http.connection import Handler
    from runtime.http.messages import Head

    Stand = tuple[PeerConnection, ConnectionPhase, float]  # somebody, and since when where

logger = logging.getLogger("drawbridge.listener")

TICK = 0.25
# Descriptors that are not for peers: watches, files, workers.
RESERVED = 128
# So many that had to make room may still read what they were told. They count as gone, and hold a descriptor.
PARTING = 32
# Without descriptors the kernel keeps new connections in its queue while old ones end.
PAUSE = 0.05
BACKLOG = 1024
# So many connections are taken at one look, at most.
TAKEN = 32
# Of so many addresses it is remembered that somebody asks from there.
KNOWN = 1024
# Where so many of all connections have got nowhere yet, strangers are a crowd, and make room before anybody who is known.
CROWD = 0.25
# The sweep does so much in one piece, in seconds of the processor: to tell a thousand at once that they are late takes long.
PIECE = 0.005
# Who has to go next is found out for so many at once, and holds for so long.
GOING, GOING_SECONDS = 32, 0.05
# Whom a unix socket brings: it has no address.
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
    """Who goes first, as it was at some moment: in a crowd there is no time to look at all for each one that comes."""

    since: float
    queue: deque[Stand]

    def leave(self, among: Collection[PeerConnection]) -> PeerConnection | None:
        """Take out the first of some who still stands where he stood."""
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
        """`refused` is told why somebody had to go; `account` says on whose account a body is (`line`)."""
        most = min(limits.connections, _descriptors())
        self.limits = limits._replace(connections=most)
        self.draining = False
        self.queue = FairQueue()
        self.bytes = 0
        self.connections: set[PeerConnection] = set()
        self._by_peer: dict[str, set[PeerConnection]] = {}
        # Addresses that somebody has sent a whole request from, the latest last.
        self._known: dict[str, None] = {}
        self._going = _Going(float("-inf"), deque())
        self._parting: dict[PeerConnection, None] = {}  # in the order in which they had to go
        self._handler = handler
        self._refused = refused
        self._account = account
        self._listener: socket.socket | None = None
        self._tls: ssl.SSLContext | None = None
        self._greetings = Handshakes()
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
        """Listen on a unix socket; who may enter its directory may ask. What an earlier process left there is removed.

        Raise OSError if a process listens there: nobody would find it any more, and it would not notice.
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
        """Let in by this context from now on. Who was let in by another one is let go, after the answer that is due."""
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

    async def end(self, grace: float) -> None:
        """Let go of everybody: who is idle at once, who is waiting for an answer when there is one or grace is over."""
        self.draining = True
        self.close()
        deadline = asyncio.get_running_loop().time() + grace
        while self.connections and asyncio.get_running_loop().time() < deadline:
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

    def count_bytes(self, count: int) -> None:
        """Take notice of bytes of bodies that wait, or of their end (negative)."""
        self.bytes += count
        while self.bytes > self.limits.bytes:
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
        self._know(connection.peer)
        self.queue.join(connection, self._account(body), head, body)

    def _know(self, peer: str) -> None:
        self._known.pop(peer, None)
        self._known[peer] = None
        if len(self._known) > KNOWN:
            del self._known[next(iter(self._known))]

    def later(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Do something that is not finished now."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # ---- taking connections

    def _accept(self, listener: socket.socket) -> None:
        """Take connections: there is at least one, and in a crowd who is not taken soon waits for the kernel's next try, a second or three.

        Not with `sock_accept`, in a task: what such a task has taken at the moment in which it is cancelled is nobody's.
        """
        for _ in range(TAKEN):
            try:
                sock, address = listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                self._pause(error, listener)
                return
            self._take(sock, address)

    def _take(self, sock: socket.socket, address: Any) -> None:
        self._told = False
        sock.setblocking(False)
        try:
            self._let_in(sock, address[0] if address else LOCAL)
        except Exception:
            # One connection may fail; that nobody is let in any more would be noticed too late.
            logger.exception("a bug in the listener; please report it")
            sock.close()

    def _pause(self, error: OSError, listener: socket.socket) -> None:
        """No descriptor or no memory, or the peer was gone before we looked: make room, and look again in a moment."""
        if not self._told:
            logger.warning("a connection could not be taken", extra={"problem": str(error)})
            self._told = True
        exhausted = error.errno in _EXHAUSTED
        if exhausted:
            self._make_room(self.connections, "descriptors")
        loop = asyncio.get_running_loop()
        loop.remove_reader(listener)
        loop.call_later(PAUSE, self._go_on, listener)

    def _go_on(self, listener: socket.socket) -> None:
        if self._listener is listener:  # nobody has closed the door meanwhile
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
        greeting = self.later(self._greet(connection, sock))
        # Not in the greeting itself: who is cancelled before he has begun does nothing at the end either.
        greeting.add_done_callback(lambda _: self._let_go(connection, sock))

    async def _greet(self, connection: PeerConnection, sock: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            if self._tls is None:
                await loop.connect_accepted_socket(lambda: connection, sock)
                return
            async with self._greetings.turn_of(connection, sock, is_known=connection.peer in self._known):
                # The sweep is earlier, and does not count the time in which nobody looked.
                late = 4 * self.limits.handshake
                await loop.connect_accepted_socket(
                    lambda: connection, sock, ssl=self._tls, ssl_handshake_timeout=late, ssl_shutdown_timeout=1.0
                )
        except (OSError, ssl.SSLError):
            # Whoever does not manage a handshake is not worth a line in the log; a scanner would fill it.
            self._refused("handshake")

    def _let_go(self, connection: PeerConnection, sock: socket.socket) -> None:
        """Close what never became a connection."""
        if connection.transport is None:
            self.forget(connection)
            with suppress(OSError):
                sock.close()

    def _make_room(self, among: Collection[PeerConnection], why: str) -> bool:
        self._refused(why)
        victim = self._find_victim(among)
        if victim is None:
            return False
        self.forget(victim)
        victim.give_way()
        self._part(victim, why)
        return True

    def _find_victim(self, among: Collection[PeerConnection]) -> PeerConnection | None:
        """Find who goes first of some. Who has asked a moment ago, and was not heard yet, is passed over."""
        now = asyncio.get_running_loop().time()
        if self._going.since >= now - GOING_SECONDS:
            found = self._going.leave(among)
            if found is not None:
                return found
        # Of a few the last is still before most of those who come meanwhile; only where all of these have just asked more are looked at.
        for count in (min(GOING, 1 + len(among) // 8), GOING):
            self._going = _Going(now, self._find_first(among, now - self.limits.settled, count))
            found = self._going.leave(among)
            if found is not None:
                return found
        return None

    def _find_first(self, among: Collection[PeerConnection], long_ago: float, count: int) -> deque[Stand]:
        waiting = [one for one in among if one.phase is not ConnectionPhase.ANSWER]
        nowhere = sum(one.phase in _NOWHERE for one in waiting)
        known = self._known if nowhere > CROWD * len(among) else {}
        first = nsmallest(count, waiting, key=lambda one: (one.peer in known, *_rank(one, long_ago)))
        return deque([(one, one.phase, one.since) for one in first])

    def _part(self, victim: PeerConnection, why: str) -> None:
        """Have somebody who makes room end, now or in a moment."""
        self._parting[victim] = None
        most = 0 if why == "descriptors" else PARTING
        while len(self._parting) > most:
            oldest = next(iter(self._parting))
            del self._parting[oldest]
            oldest.cut()

    async def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        while True:
            due = now + TICK
            await asyncio.sleep(TICK)
            now = loop.time()
            # Nobody saw what arrived while this process was stopped, or had no processor: that time is nobody's fault.
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


def _rank(connection: PeerConnection, long_ago: float) -> tuple[bool, int, bool, float]:
    """Who goes first when somebody must: the smallest.

    Somebody who has just come is about to ask; somebody idle for long will hardly miss the connection. An API server keeps idle
    ones for each bundle that it ever believed, and after some rotations they are most of what it has.
    """
    nowhere, settled = connection.phase in _NOWHERE, connection.since < long_ago
    if nowhere:
        stage = 0 if settled else 2
    else:
        stage = 1 if settled else 3
    return connection.certified, stage, connection.has_posted, connection.since


def _descriptors() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 20 if soft == resource.RLIM_INFINITY else max(16, soft - RESERVED)
