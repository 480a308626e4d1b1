"""Workers: child processes for what may take long, such as reviews of a megabyte, and that can be killed.

A worker is a fork of this process, so it has the stock of the moment without a byte being sent: 5,000 nodes are shared with
their parent, page by page, until one is written to. It serves as long as its state is the present one, up to a number
of reviews, then another is forked. It has no socket but the one to its parent, a limit of memory and of CPU, and it is killed when its time
is over. One that ends by itself may have been full of what others had asked, or have been killed while it was idle: what it was asked is asked once more, of a
new one. So it is with one that was stopped: the kernel tells a stopped process from one at work, and it is ended as soon as that is seen. What is not decided in time is undecided; the caller says what that means.

    parent                              worker
    path, body (msgpack, length first) ─▶ decide
    kind, bytes                        ◀─ outcome | a bug's traceback
"""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import signal
import socket
import struct
import sys
import traceback
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from runtime.workers.fair_semaphore import Asker, Crowded, FairSemaphore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Turn = Callable[[], Awaitable[object]]

T = TypeVar("T")

# After so many reviews a worker is replaced, whatever it has piled up.
REVIEWS = 64
# What a worker may take beyond what it was born with, and the CPU it may use in its life. An update of the largest pod
# that can be stored takes 96 MiB; all workers and their parent are to stay below 512, whatever they are sent.
MEMORY = 128 << 20
CPU_SECONDS = 60
# Waiting for a place costs the API server's patience; more than so many do not.
QUEUE = 16
COUNTED = ("forked", "decided", "killed", "crowded")
# Seconds between two looks whether killed workers are gone.
BURIAL = 0.01
# ... and whether workers that were asked something are stopped.
WATCH = 0.1

ANY = Asker("")
_LENGTH = struct.Struct("!I")
_reply = msgspec.msgpack.Decoder(tuple[str, msgspec.Raw])
_request = msgspec.msgpack.Decoder(tuple[str, bytes])
_encode = msgspec.msgpack.Encoder().encode


class Undecided(Exception):  # noqa: N818  it is an answer, of a kind
    """A worker has not answered in time, or there was none."""


class _Ended(Exception):  # noqa: N818
    """A worker ended before it had decided."""


class Bug(Exception):  # noqa: N818
    """Deciding failed in a worker; the text is the traceback."""


class Pool(Generic[T]):
    """Up to a number of workers, forked when one is needed."""

    def __init__(
        self,
        size: int,
        outcome: type[T],
        *,
        memory: int = MEMORY,
        turn: Turn | None = None,
    ) -> None:
        """What is decided has the type `outcome`. A process is copied in a `turn` of the loop that is for slow things, if there are such."""
        self._decoder = msgspec.msgpack.Decoder(outcome)
        self._turn = turn
        self._memory = memory
        self._semaphore = FairSemaphore(size, QUEUE)
        self._idle: list[_Worker] = []
        self._busy: set[_Worker] = set()
        # Processes that were killed and are not gone yet, the asker that each slot still counts for, and when to look again.
        self._dying: dict[int, Asker | None] = {}
        self._look: asyncio.TimerHandle | None = None
        self._watch: asyncio.TimerHandle | None = None
        # What happened, for metrics: name to count.
        self.counts = dict.fromkeys(COUNTED, 0)

    async def decide(
        self,
        decide: Callable[[str, bytes], T],
        state: object,
        path: str,
        body: bytes,
        seconds: float,
        *,
        asker: Asker = ANY,
    ) -> T:
        """Have something decided; raise Undecided or Bug. `state` tells when a worker's view is old; with None it always is."""
        try:
            async with asyncio.timeout(seconds):
                try:
                    return await self._ask(decide, state, path, body, asker)
                except _Ended:
                    return await self._ask(decide, state, path, body, asker, is_new=True)
        except _Ended as error:
            raise Undecided("the worker ended before it had decided") from error
        except TimeoutError:
            raise Undecided(f"it took more than {seconds:g} s") from None
        except Crowded:
            self.counts["crowded"] += 1
            raise Undecided("too many such reviews at a time") from None

    def close(self) -> None:
        """End all workers, and wait for that."""
        for worker in (*self._idle, *self._busy):
            self._dying[worker.kill()] = None
        self._idle.clear()
        self._busy.clear()
        for timer in (self._look, self._watch):
            if timer is not None:
                timer.cancel()
        for pid in self._dying:
            _is_gone(pid, wait=True)
        self._dying.clear()

    async def _ask(
        self,
        decide: Callable[[str, bytes], T],
        state: object,
        path: str,
        body: bytes,
        asker: Asker,
        *,
        is_new: bool = False,
    ) -> T:
        """Have a worker decide, a new one if need be; raise _Ended if it ended by itself."""
        await self._semaphore.take(asker)
        try:
            worker = None
            while self._idle and worker is None:
                idle = self._idle.pop()
                if not is_new and idle.state is state and idle.asked < REVIEWS:
                    worker = idle
                else:
                    self._end(idle)
            if worker is None:
                if self._turn is not None:
                    await self._turn()
                self.counts["forked"] += 1
                try:
                    worker = _Worker(decide, state, self._memory)
                except OSError as error:  # no descriptor, no process, no memory: others have them all
                    raise Undecided(f"no worker could be made: {error}") from error
        except BaseException:
            self._semaphore.leave(asker)
            raise
        self._busy.add(worker)
        self._keep_watch()
        try:
            outcome = self._decoder.decode(await worker.ask(path, body))
        except (OSError, EOFError, asyncio.CancelledError) as error:
            # Its time was over, or it ended by its own limits: either way it is of no use any more.
            self._busy.discard(worker)
            self._end(worker, asker)
            self.counts["killed"] += 1
            if isinstance(error, asyncio.CancelledError):
                raise
            raise _Ended from error
        except BaseException:
            self._rest(worker, asker)
            raise
        self._rest(worker, asker)
        self.counts["decided"] += 1
        return outcome

    def _keep_watch(self) -> None:
        if self._watch is None and self._busy:
            self._watch = asyncio.get_running_loop().call_later(WATCH, self._find_stopped)

    def _find_stopped(self) -> None:
        """End workers that are stopped; the review that waits for one hears that it has ended."""
        self._watch = None
        for worker in self._busy:
            worker.end_if_stopped()
        self._keep_watch()

    def _rest(self, worker: _Worker, asker: Asker) -> None:
        self._busy.discard(worker)
        if worker.state is None:
            self._end(worker, asker)
            return
        self._idle.append(worker)
        self._semaphore.leave(asker)

    def _end(self, worker: _Worker, asker: Asker | None = None) -> None:
        """Kill a worker. A large one takes the kernel 50 ms to take down, and longer in a crowd: only its slot waits for that."""
        self._dying[worker.kill()] = asker
        if self._look is None:
            self._look = asyncio.get_running_loop().call_later(BURIAL, self._bury)

    def _bury(self) -> None:
        self._look = None
        for pid in tuple(self._dying):
            if not _is_gone(pid):
                continue
            asker = self._dying.pop(pid)
            if asker is not None:
                self._semaphore.leave(asker)
        if self._dying:
            self._look = asyncio.get_running_loop().call_later(BURIAL, self._bury)


class _Worker:
    """One child process."""

    def __init__(self, decide: Callable[[str, bytes], object], state: object, memory: int) -> None:
        self.state = state
        self.asked = 0
        self._lives = True
        self._socket, theirs = socket.socketpair()
        with warnings.catch_warnings():
            # Threads of ours only look at fleets, and hold no lock that a child needs.
            warnings.simplefilter("ignore", DeprecationWarning)
            try:
                self._pid = os.fork()
            except OSError:
                self._socket.close()
                theirs.close()
                raise
        if self._pid == 0:
            _live(theirs, decide, memory)
        theirs.close()
        self._socket.setblocking(False)

    async def ask(self, path: str, body: bytes) -> msgspec.Raw:
        """Ask for one decision, which is returned as it was sent."""
        self.asked += 1
        loop = asyncio.get_running_loop()
        message = _encode((path, body))
        await loop.sock_sendall(self._socket, _LENGTH.pack(len(message)) + message)
        (length,) = _LENGTH.unpack(await self._receive(loop, _LENGTH.size))
        kind, content = _reply.decode(await self._receive(loop, length))
        match kind:
            case "outcome":
                return content
            case "memory":
                raise EOFError("out of memory")
            case _:
                raise Bug(msgspec.msgpack.decode(content, type=str))

    async def _receive(self, loop: asyncio.AbstractEventLoop, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            part = await loop.sock_recv(self._socket, min(count - len(parts), 1 << 18))
            if not part:
                raise EOFError
            parts += part
        return bytes(parts)

    def end_if_stopped(self) -> None:
        """End it if the kernel says that it is stopped; the review that waits for its answer finds out."""
        try:
            stopped = os.waitid(os.P_PID, self._pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if stopped is not None:
            os.kill(self._pid, signal.SIGKILL)

    def kill(self) -> int:
        """End it, now; name the process that will be gone soon."""
        self._socket.close()
        if self._lives:  # later another process may have its number
            self._lives = False
            os.kill(self._pid, signal.SIGKILL)
        return self._pid


def _is_gone(pid: int, *, wait: bool = False) -> bool:
    """Whether a killed child is gone, and nothing is left of it."""
    try:
        gone, _ = os.waitpid(pid, 0 if wait else os.WNOHANG)
    except ChildProcessError:
        return True
    return gone == pid


# ---- the child


def _live(theirs: socket.socket, decide: Callable[[str, bytes], object], memory: int) -> None:
    """Serve until the parent is gone. Never returns: the stack above belongs to the parent."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal is the parent's business
        # A collection would write to every page that is shared.
        gc.disable()
        # Connections, watches and the listening socket are the parent's; held here, they would outlive it.
        most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        keep = theirs.fileno()
        os.closerange(3, keep)
        os.closerange(keep + 1, most)
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 5))
        with suppress(OSError, ValueError):
            pages = open("/proc/self/statm").read().split()[0]  # noqa: PTH123, SIM115
            size = int(pages) * resource.getpagesize()
            limit = size + memory
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        with suppress(OSError):
            # If memory runs out, a worker goes before its parent.
            open("/proc/self/oom_score_adj", "w").write("1000")  # noqa: PTH123, SIM115
        while (head := _read(theirs, _LENGTH.size)) is not None:
            message = _read(theirs, _LENGTH.unpack(head)[0])
            if message is None:
                break
            path, body = _request.decode(message)
            reply: tuple[str, object]
            try:
                reply = "outcome", decide(path, body)
            except MemoryError:
                reply = "memory", None
            except Exception:  # noqa: BLE001  the parent logs it
                reply = "bug", "".join(traceback.format_exception(*sys.exc_info(), limit=-20))
            sent = _encode(reply)
            theirs.sendall(_LENGTH.pack(len(sent)) + sent)
        code = 0
    finally:
        os._exit(code)


def _read(theirs: socket.socket, count: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < count:
        part = theirs.recv(min(count - len(parts), 1 << 18))
        if not part:
            return None
        parts += part
    return bytes(parts)
