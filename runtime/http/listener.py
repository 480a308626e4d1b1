"""Accepts connections, limits their number, and closes some to make room for others.

The listener accepts connections itself and does not use asyncio's `create_server`. So it counts a connection before the handshake costs CPU,
and continues when the process has no free descriptors.

To make room, the listener closes one connection (`_find_victim`): first one that has long been without a request, then one that has long been
idle, then newer ones. Connections with a client certificate are closed last. If more than `CROWD_SHARE` of the connections have no request,
those from unknown addresses are closed before all others. A connection whose request is being answered is never closed.
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
from runtime.http.reading import PeerTransport, ReadQueue
from runtime.http.tls_handshakes import Handshakes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine
    from pathlib import Path

    from runtime.http.connection import Handler
    from runtime.http.messages import Head

    Candidate = tuple[PeerConnection, ConnectionPhase, float]  # a connection, its phase, and since when

logger = logging.getLogger("drawbridge.listener")

SWEEP_INTERVAL = 0.25  # seconds between two checks of the connections' time limits
RESERVED = 128  # descriptors for other uses: watches, files, workers
# The most connections that are kept after they were closed to make room, because their peers may still read an answer. Each has a descriptor.
MAX_PARTING = 32
ACCEPT_PAUSE = 0.05  # seconds without accepting when descriptors are exhausted; the kernel queues new connections
BACKLOG = 1024
ACCEPT_BATCH = 32  # connections accepted in one turn of the loop, at most
MAX_KNOWN_PEERS = 1024  # the most remembered addresses from which a complete request came
# If more than this share of the connections has no request, connections of unknown addresses are closed before others.
CROWD_SHARE = 0.25
# CPU seconds that `_sweep` uses in one turn of the loop: a reply to each of a thousand late peers takes longer.
SWEEP_SECONDS = 0.005
# Connections selected at once to make room, and how long the selection is valid.
MAX_VICTIMS, VICTIMS_SECONDS = 32, 0.05
LOCAL = "local"  # the address of connections through a unix socket
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_WITHOUT_REQUEST = (ConnectionPhase.HANDSHAKE, ConnectionPhase.QUIET, ConnectionPhase.HEAD, ConnectionPhase.BODY)


class Address(NamedTuple):
    """Where to listen. Port 0 means any free port."""

    host: str = "127.0.0.1"
    port: int = 0

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Listener:
    """One listening socket and its connections."""

    def __init__(
        self,
        handler: Handler,
        limits: Limits,
        count_closure: Callable[[str], None],
        account: Callable[[bytes], str] = lambda _: "",
    ) -> None:
        """`count_closure` is called with the reason why a connection was closed.

        `account` returns the account of a body: the party whose earlier requests predict the cost (`fair_queue`).
        """
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        descriptors = 1 << 20 if soft == resource.RLIM_INFINITY else max(16, soft - RESERVED)
        self.limits = limits._replace(connections=min(limits.connections, descriptors))
        self.draining = False
        self.queue = FairQueue()
        self.body_bytes = 0
        self.connections: set[PeerConnection] = set()
        self._by_peer: dict[str, set[PeerConnection]] = {}
        self._known: dict[str, None] = {}  # addresses from which a complete request came, the latest last
        # The connections to close next to make room, and when they were selected. The selection is kept, because it takes long.
        self._victims: deque[Candidate] = deque()
        self._selected_at = float("-inf")
        self._parting: dict[PeerConnection, None] = {}  # closed to make room, the oldest first
        self._handler = handler
        self._count_closure = count_closure
        self._account = account
        self._socket: socket.socket | None = None
        self._tls: ssl.SSLContext | None = None
        self._handshakes = Handshakes()
        self._read_queue = ReadQueue(self._known, count_closure)
        self._failure_logged = False  # whether the last failure to accept was logged
        self._tasks: set[asyncio.Task[None]] = set()
        self._sweep_task: asyncio.Task[None] | None = None

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
        loop = asyncio.get_running_loop()
        self._sweep_task = loop.create_task(self._sweep())
        loop.add_reader(listener, self._accept, listener)

    @property
    def is_open(self) -> bool:
        """Whether new connections are accepted."""
        return self._socket is not None

    # ---- from accept() to the end of the handshake

    def _accept(self, listener: socket.socket) -> None:
        """Accept up to ACCEPT_BATCH connections, because the clients of a full backlog wait a second or more for a retransmission.

        This is a callback, because a task with `sock_accept` would lose a connection that is accepted while the task is cancelled.
        """
        for _ in range(ACCEPT_BATCH):
            try:
                sock, address = listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                # No descriptor or memory, or the peer has disconnected: make room, and try again soon.
                if not self._failure_logged:
                    logger.warning("cannot accept a connection", extra={"problem": str(error)})
                    self._failure_logged = True
                if error.errno in _EXHAUSTED:
                    self._make_room(self.connections, "descriptors")
                loop = asyncio.get_running_loop()
                loop.remove_reader(listener)
                loop.call_later(ACCEPT_PAUSE, self._resume_accepting, listener)
                return
            self._failure_logged = False
            sock.setblocking(False)
            try:
                self._add_connection(sock, address[0] if address else LOCAL)
            except Exception:
                # Accepting must go on.
                logger.exception("a bug in the listener; please report it")
                sock.close()

    def _resume_accepting(self, listener: socket.socket) -> None:
        if self._socket is listener:  # not closed meanwhile
            asyncio.get_running_loop().add_reader(listener, self._accept, listener)

    def _add_connection(self, sock: socket.socket, peer: str) -> None:
        """Begin the handshake of a new connection, or close the connection if there is no room."""
        others = self._by_peer.get(peer, ())
        has_room = True
        if len(others) >= self.limits.peer:
            has_room = self._make_room(others, "peer")
        elif len(self.connections) >= self.limits.connections:
            has_room = self._make_room(self.connections, "connections")
        if not has_room:
            sock.close()
            return
        connection = PeerConnection(self, self._handler, peer, sock)
        self.connections.add(connection)
        same_peer_connections = self._by_peer.setdefault(peer, set())
        same_peer_connections.add(connection)

        def forget_failed(_: object) -> None:
            if connection.transport is None:
                self.forget(connection)
                with suppress(OSError):
                    sock.close()

        task = self.run_task(self._shake_hands(connection, sock))
        # A callback, because a task that is cancelled before it starts does not run its own `finally`.
        task.add_done_callback(forget_failed)

    async def _shake_hands(self, connection: PeerConnection, sock: socket.socket) -> None:
        """Establish the connection; with TLS, once the handshake has its turn."""
        if self._tls is None:
            await self._open_transport(connection, sock)
            return
        try:
            async with self._handshakes.turn_of(connection, sock, is_known=connection.peer in self._known):
                await self._open_transport(connection, sock)
        except (OSError, ssl.SSLError):
            # Counted, not logged: port scanners would fill the log.
            self._count_closure("handshake")

    async def _open_transport(self, connection: PeerConnection, sock: socket.socket) -> None:
        """Create the transport. From then on, it passes received bytes to `PeerConnection.data_received`."""
        transport = PeerTransport(connection, sock, self._read_queue, self._tls)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(lambda: transport, sock)
            # Only a fallback: the sweep ends slow handshakes earlier, and does not count time in which the loop was blocked.
            async with asyncio.timeout(4 * self.limits.handshake):
                await transport.established()
        except BaseException:
            transport.abort()
            raise

    # ---- called by connections

    def queue_request(self, connection: PeerConnection, head: Head, body: bytes) -> None:
        """Queue a complete request, and remember its address."""
        peer = connection.peer
        self._known.pop(peer, None)
        self._known[peer] = None
        if len(self._known) > MAX_KNOWN_PEERS:
            del self._known[next(iter(self._known))]
        self.queue.join(connection, self._account(body), head, body)

    def run_task(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Run work in a task that `end` cancels."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def free_bytes(self) -> None:
        """Until all bodies fit `limits.bytes`, close one connection after another, of the address with the most body bytes."""
        while self.body_bytes > self.limits.bytes:
            receiving = [connection for connection in self.connections if connection.phase is ConnectionPhase.BODY]
            if not receiving:
                return
            self._count_closure("bytes")
            bytes_by_peer: Counter[str] = Counter()
            for connection in receiving:
                bytes_by_peer[connection.peer] += connection.received
            _, largest_peer = max((size, peer) for peer, size in bytes_by_peer.items())
            of_largest_peer = [connection for connection in receiving if connection.peer == largest_peer]
            min(of_largest_peer, key=lambda connection: connection.since).give_way()

    def forget(self, connection: PeerConnection) -> None:
        self.connections.discard(connection)
        self._parting.pop(connection, None)
        others = self._by_peer.get(connection.peer)
        if others is not None:
            others.discard(connection)
            if not others:
                del self._by_peer[connection.peer]

    # ---- making room

    def _make_room(self, among: Collection[PeerConnection], why: str) -> bool:
        """Close one of these connections; return False if none may be closed. `why` names the exhausted limit, for the metrics."""
        self._count_closure(why)
        victim = self._find_victim(among)
        if victim is None:
            return False
        self.forget(victim)
        victim.give_way()
        # With an unsent answer, the connection keeps its descriptor until its peer has read the answer.
        self._parting[victim] = None
        max_parting = 0 if why == "descriptors" else MAX_PARTING
        while len(self._parting) > max_parting:
            oldest = next(iter(self._parting))
            del self._parting[oldest]
            oldest.cut()
        return True

    def _find_victim(self, among: Collection[PeerConnection]) -> PeerConnection | None:
        """Return the connection to close first. One with an unread request is skipped."""
        now = asyncio.get_running_loop().time()
        if now - self._selected_at <= VICTIMS_SECONDS and (victim := self._next_victim(among)):
            return victim
        settled_before = now - self.limits.settled
        candidates = [connection for connection in among if connection.phase is not ConnectionPhase.ANSWER]
        without_request = sum(connection.phase in _WITHOUT_REQUEST for connection in candidates)
        known = self._known if without_request > CROWD_SHARE * len(among) else {}

        def rank(connection: PeerConnection) -> tuple[bool, bool, int, bool, float]:
            # 0: without a request for long, 1: idle for long, 2: without a request since recently, 3: idle since recently. A connection that is
            # idle for long is hardly needed: API servers keep idle connections for each CA bundle that they ever had.
            stage = int(connection.phase not in _WITHOUT_REQUEST) + (0 if connection.since < settled_before else 2)
            return connection.peer in known, connection.certified, stage, connection.has_posted, connection.since

        # The second, larger selection is only needed if the first few connections all have unread requests.
        for count in (min(MAX_VICTIMS, 1 + len(among) // 8), MAX_VICTIMS):
            first_candidates = nsmallest(count, candidates, key=rank)
            self._victims = deque([(connection, connection.phase, connection.since) for connection in first_candidates])
            self._selected_at = now
            if victim := self._next_victim(among):
                return victim
        return None

    def _next_victim(self, among: Collection[PeerConnection]) -> PeerConnection | None:
        """Remove and return the first selected connection whose phase has not changed since; None if there is none."""
        while self._victims:
            candidate, phase, since = self._victims.popleft()
            if (
                candidate in among
                and candidate.phase is phase
                and candidate.since == since
                and not candidate.has_unread_request()
            ):
                return candidate
        return None

    async def _sweep(self) -> None:
        """Enforce the time limits of all connections, every SWEEP_INTERVAL seconds."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        while True:
            due = now + SWEEP_INTERVAL
            await asyncio.sleep(SWEEP_INTERVAL)
            now = loop.time()
            # Time in which this process was stopped or had no CPU does not count against its peers.
            blocked = now - due if now - due > SWEEP_INTERVAL else 0.0
            turn_end = thread_time() + SWEEP_SECONDS
            for connection in (*self.connections, *self._parting):
                if thread_time() > turn_end:
                    await asyncio.sleep(0)
                    turn_end = thread_time() + SWEEP_SECONDS
                try:
                    connection.since += blocked
                    connection.sweep(now)
                except Exception:
                    logger.exception("a bug in the listener; please report it")
                    self.forget(connection)

    # ---- the end

    def renew(self, tls: ssl.SSLContext) -> None:
        """Use this context for new connections, and retire the existing connections (`PeerConnection.retire`)."""
        self._tls = tls
        for connection in tuple(self.connections):
            connection.retire()

    def close(self) -> None:
        if self._socket is None:
            return
        listener, self._socket = self._socket, None
        asyncio.get_running_loop().remove_reader(listener)
        listener.close()

    async def end(self, grace: float, linger: float = 0.0) -> None:
        """End all connections: idle ones after `linger` seconds, others after their answer, at most `grace` seconds later.

        During `linger` clients can still send requests or close their connections: a review sent while its connection is being closed fails.
        """
        self.draining = True
        self.close()
        loop = asyncio.get_running_loop()
        idle_end = loop.time() + linger
        while self.connections and loop.time() < idle_end + grace:
            if loop.time() >= idle_end:
                for connection in tuple(self.connections):
                    connection.close()
            await asyncio.sleep(SWEEP_INTERVAL / 10)
        for connection in (*self.connections, *self._parting):
            connection.cut()
        tasks = [*self._tasks]
        if self._sweep_task is not None:
            tasks.append(self._sweep_task)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def listens(path: Path) -> bool:
    """Report whether a process listens on a unix socket, even if it is stopped or its backlog is full."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.setblocking(False)
        try:
            client.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            return True
    return True
