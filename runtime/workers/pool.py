"""Workers: child processes for requests that may take long, such as reviews of a megabyte, so that they can be killed.

A worker is a fork of this process, so it has the current state without copying: memory pages are shared until they are written. A worker
answers requests while its state is current; after that, a new worker is forked. It has no socket except to its parent, and limits of memory
and CPU. It is killed when a request takes too long, or when it is stopped. It ends itself after a request that left it with much memory. If
a worker ends during a request, the request is repeated once in a new worker: earlier requests may have filled the memory. If no worker
decides a request, `decide` raises Undecided, and the caller chooses the answer.

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
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

import msgspec

from runtime.workers.slots import Crowded, Requester, Slots

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    BeforeFork = Callable[[], Awaitable[object]]

T = TypeVar("T")

# The most bytes that a worker can allocate after the fork. An update of a pod with 8,000 containers takes 25 MiB. The parent and all workers,
# with the shared pages that they write, must stay below 512 MiB together.
MAX_MEMORY = 64 << 20
MAX_KEPT = 64 << 20  # a worker with more bytes of its own after a request ends
MIN_FREE = MAX_MEMORY // 2  # a worker that can allocate fewer bytes for the next request ends
MAX_CPU_SECONDS = 60  # the most CPU seconds of a worker in its life
MAX_WAITING = 16  # the most requests that wait for a worker
REAP_INTERVAL = 0.01  # seconds between two checks whether killed workers have ended
WATCH_INTERVAL = 0.1  # seconds between two checks whether busy workers are stopped

ANY = Requester("")
_LENGTH = struct.Struct("!I")
_reply = msgspec.msgpack.Decoder(tuple[str, msgspec.Raw])
_request = msgspec.msgpack.Decoder(tuple[str, bytes])
_encode = msgspec.msgpack.Encoder().encode


class Undecided(Exception):  # noqa: N818  names the outcome
    """No worker has decided the request; the message says why."""


class _Ended(Exception):  # noqa: N818
    """A worker ended before it answered."""


class Bug(Exception):  # noqa: N818
    """An exception in a worker; the text is the traceback."""


class _Use(NamedTuple):
    """A slot that a requester occupies, and since when."""

    requester: Requester
    since: float


class WorkerPool(Generic[T]):
    """A limited number of workers, forked when needed."""

    def __init__(self, size: int, outcome: type[T], *, before_fork: BeforeFork | None = None) -> None:
        """`outcome` is the type of decisions. Each fork first awaits `before_fork`, if given, because a fork blocks the event loop."""
        self._decoder = msgspec.msgpack.Decoder(outcome)
        self._before_fork = before_fork
        self._slots = Slots(size, MAX_WAITING)
        self._idle: list[_Worker] = []
        self._busy: set[_Worker] = set()
        # Killed processes that have not ended yet, and the slot that each still occupies, if any.
        self._dying: dict[int, _Use | None] = {}
        self._reap_timer: asyncio.TimerHandle | None = None
        self._watch: asyncio.TimerHandle | None = None
        self.counts = Counter[str]()  # for metrics: forked, decided, killed, crowded

    async def decide(
        self,
        decide: Callable[[str, bytes], T],
        state: object,
        path: str,
        body: bytes,
        seconds: float,
        *,
        requester: Requester = ANY,
    ) -> T:
        """Return a worker's decision; raises Undecided or Bug.

        Workers with another `state` are replaced. If `state` is None, each worker answers one request only.
        """
        try:
            async with asyncio.timeout(seconds):
                try:
                    return await self._ask(decide, state, path, body, requester)
                except _Ended:
                    return await self._ask(decide, state, path, body, requester, is_new=True)
        except _Ended as error:
            raise Undecided("the worker ended before it had decided") from error
        except TimeoutError:
            raise Undecided(f"it took more than {seconds:g} s") from None
        except Crowded:
            self.counts["crowded"] += 1
            raise Undecided("too many requests wait for a worker") from None

    def close(self) -> None:
        """End all workers, and wait until they have ended."""
        for worker in (*self._idle, *self._busy):
            self._dying[worker.kill()] = None
        self._idle.clear()
        self._busy.clear()
        for timer in (self._reap_timer, self._watch):
            if timer is not None:
                timer.cancel()
        for pid in self._dying:
            _has_ended(pid, wait=True)
        self._dying.clear()

    async def _ask(
        self,
        decide: Callable[[str, bytes], T],
        state: object,
        path: str,
        body: bytes,
        requester: Requester,
        *,
        is_new: bool = False,
    ) -> T:
        """Wait for a slot, and return the decision of an idle worker or a new one; raises _Ended if the worker ends by itself."""
        await self._slots.take(requester)
        use = _Use(requester, asyncio.get_running_loop().time())
        try:
            worker = None
            while self._idle and worker is None:
                idle = self._idle.pop()
                if not is_new and idle.state is state and not idle.has_ended():
                    worker = idle
                else:
                    self._end(idle)
            if worker is None:
                if self._before_fork is not None:
                    await self._before_fork()
                self.counts["forked"] += 1
                try:
                    worker = _Worker(decide, state)
                except OSError as error:  # no descriptor, process or memory left
                    raise Undecided(f"no worker could be started: {error}") from error
        except BaseException:
            self._leave(use)
            raise
        self._busy.add(worker)
        self._keep_watch()
        try:
            outcome = self._decoder.decode(await worker.ask(path, body))
        except (OSError, EOFError, asyncio.CancelledError) as error:
            # The request took too long, or the worker ended by itself, for example at a limit.
            self._busy.discard(worker)
            self._end(worker, use)
            self.counts["killed"] += 1
            if isinstance(error, asyncio.CancelledError):
                raise
            raise _Ended from error
        except BaseException:
            self._put_back(worker, use)
            raise
        self._put_back(worker, use)
        self.counts["decided"] += 1
        return outcome

    def _keep_watch(self) -> None:
        if self._watch is None and self._busy:
            self._watch = asyncio.get_running_loop().call_later(WATCH_INTERVAL, self._find_stopped)

    def _find_stopped(self) -> None:
        """Kill workers that are stopped; their requests then fail with _Ended."""
        self._watch = None
        for worker in self._busy:
            worker.end_if_stopped()
        self._keep_watch()

    def _put_back(self, worker: _Worker, use: _Use) -> None:
        self._busy.discard(worker)
        if worker.state is None:
            self._end(worker, use)
            return
        self._idle.append(worker)
        self._leave(use)

    def _leave(self, use: _Use) -> None:
        self._slots.leave(use.requester, asyncio.get_running_loop().time() - use.since)

    def _end(self, worker: _Worker, use: _Use | None = None) -> None:
        """Kill a worker. The kernel may take 50 ms or more to end a large process; only its slot waits for that."""
        self._dying[worker.kill()] = use
        if self._reap_timer is None:
            self._reap_timer = asyncio.get_running_loop().call_later(REAP_INTERVAL, self._reap)

    def _reap(self) -> None:
        self._reap_timer = None
        for pid in tuple(self._dying):
            if not _has_ended(pid):
                continue
            use = self._dying.pop(pid)
            if use is not None:
                self._leave(use)
        if self._dying:
            self._reap_timer = asyncio.get_running_loop().call_later(REAP_INTERVAL, self._reap)


class _Worker:
    def __init__(self, decide: Callable[[str, bytes], object], state: object) -> None:
        self.state = state
        self._is_alive = True
        self._socket, child_socket = socket.socketpair()
        with warnings.catch_warnings():
            # Python warns of a fork in a process with threads. The threads of this process hold no lock that a child needs.
            warnings.simplefilter("ignore", DeprecationWarning)
            try:
                self._pid = os.fork()
            except OSError:
                self._socket.close()
                child_socket.close()
                raise
        if self._pid == 0:
            _run_worker(child_socket, decide)
        child_socket.close()
        self._socket.setblocking(False)

    async def ask(self, path: str, body: bytes) -> msgspec.Raw:
        """Return the worker's decision, still encoded."""
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
        """Kill the process if it is stopped; the request that waits for it then fails."""
        try:
            stopped = os.waitid(os.P_PID, self._pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if stopped is not None:
            os.kill(self._pid, signal.SIGKILL)

    def has_ended(self) -> bool:
        """Report whether the process has ended by itself."""
        self._is_alive = self._is_alive and not _has_ended(self._pid)
        return not self._is_alive

    def kill(self) -> int:
        """Kill the process, and return its id."""
        self._socket.close()
        if self._is_alive:  # later another process may have this id
            self._is_alive = False
            os.kill(self._pid, signal.SIGKILL)
        return self._pid


def _has_ended(pid: int, *, wait: bool = False) -> bool:
    """Report whether a child has ended; if so, it is reaped."""
    try:
        ended, _ = os.waitpid(pid, 0 if wait else os.WNOHANG)
    except ChildProcessError:
        return True
    return ended == pid


# ---- the child


def _run_worker(parent: socket.socket, decide: Callable[[str, bytes], object]) -> None:
    """Answer the parent's requests until it closes the socket. Never returns: the stack above belongs to the parent."""
    try:
        _drop_parent_resources(parent.fileno())
        limit = _limit_resources()
        requests = parent.makefile("rb")
        while head := requests.read(_LENGTH.size):
            request = requests.read(*_LENGTH.unpack(head))
            reply = _encode(_answer(decide, *_request.decode(request)))
            parent.sendall(_LENGTH.pack(len(reply)) + reply)
            if _own_bytes() > MAX_KEPT or limit - _address_space() < MIN_FREE:
                break
    finally:
        os._exit(0)


def _drop_parent_resources(keep: int) -> None:
    """Reset signal handlers, disable garbage collection, and close all descriptors but `keep`, so that no connection of the parent stays open."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    gc.disable()  # a collection would write to every shared page
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    os.closerange(3, keep)
    os.closerange(keep + 1, most)


def _limit_resources() -> int:
    """Limit CPU and memory, and return the limit of the address space.

    If the machine's memory runs out, the kernel kills a worker before its parent.
    """
    resource.setrlimit(resource.RLIMIT_CPU, (MAX_CPU_SECONDS, MAX_CPU_SECONDS + 5))
    size = _address_space()
    limit = size + MAX_MEMORY if size else sys.maxsize
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    with suppress(OSError):
        open("/proc/self/oom_score_adj", "w").write("1000")  # noqa: PTH123, SIM115
    return limit


def _address_space() -> int:
    """Return the size of the address space of this process in bytes; 0 if it is unknown."""
    with suppress(OSError):
        pages = open("/proc/self/statm").read().split()[0]  # noqa: PTH123, SIM115
        return int(pages) * resource.getpagesize()
    return 0


def _own_bytes() -> int:
    """Return the bytes of this process that it does not share with its parent; 0 if they are unknown."""
    with suppress(OSError):
        for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
            if line.startswith("Private_Dirty:"):
                return int(line.split()[1]) << 10
    return 0


def _answer(decide: Callable[[str, bytes], object], path: str, body: bytes) -> tuple[str, object]:
    """Return the kind of the reply, and its content."""
    try:
        return "outcome", decide(path, body)
    except MemoryError:
        return "memory", None
    except Exception:  # noqa: BLE001  the parent logs it
        return "bug", "".join(traceback.format_exception(*sys.exc_info(), limit=-20))
