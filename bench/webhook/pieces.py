"""Records the pieces of work of the webhook's event loop, so that `make soak` can report what delayed an honest review.

`python -m bench.webhook.pieces FILE` is the webhook server of `bench.webhook.admission`, with timers around the callbacks of the event loop
and around their slow parts. For each piece of work that took a millisecond of CPU or more, it writes a line into the file. The rest of a
delay is time in TLS and in the kernel, which Python cannot measure.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import types
from contextlib import contextmanager
from functools import wraps
from time import monotonic, thread_time
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator
    from pathlib import Path
    from typing import TextIO

MIN = 0.001


class Piece(NamedTuple):
    """A piece of work: what was done, its begin and end, its CPU seconds, and the number of pieces that contain it."""

    what: str
    begun: float
    ended: float
    seconds: float
    depth: int


class Recorder:
    def __init__(self, file: TextIO) -> None:
        """Write the pieces to a file, one per line."""
        self._file = file
        self._process = os.getpid()
        self._depth = 0

    @contextmanager
    def piece(self, what: Callable[[], str]) -> Iterator[None]:
        """Time one piece; `what` is called only for long ones."""
        begun, worked = monotonic(), thread_time()
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            seconds = thread_time() - worked
            if seconds >= MIN and os.getpid() == self._process:
                one = Piece(what(), begun, monotonic(), seconds, self._depth)
                self._file.write(json.dumps(one) + "\n")

    def stand_around(self, owner: Any, name: str, what: Callable[..., str]) -> None:
        inner = getattr(owner, name)

        @wraps(inner)
        def timed(*given: Any, **named: Any) -> Any:
            with self.piece(lambda: what(*given)):
                return inner(*given, **named)

        setattr(owner, name, timed)

    @types.coroutine
    def step_through(self, work: Any) -> Generator[Any, Any, Any]:
        """Time each step of a coroutine."""
        send, value = work.send, None
        while True:
            try:
                with self.piece(lambda: "a step of a review that is answered later"):
                    waited_for = send(value)
            except StopIteration as end:
                return end.value
            try:
                send, value = work.send, (yield waited_for)
            except BaseException as error:  # noqa: BLE001  every exception belongs to the coroutine
                send, value = work.throw, error


def watch(recorder: Recorder) -> None:
    """Put timers around the functions that the webhook's event loop calls."""
    from runtime.http.connection import PeerConnection
    from runtime.http.fair_queue import FairQueue
    from runtime.http.listener import Listener
    from runtime.workers import pool
    from webhook.service import app
    from webhook.service.decider import ReviewDecider

    around = recorder.stand_around
    around(PeerConnection, "data_received", lambda _, data: f"reading {len(data)} bytes")
    around(PeerConnection, "connection_made", lambda _, __: "a connection after its handshake")
    around(PeerConnection, "_reply", lambda _, reply: f"writing {reply.status} and {len(reply.body)} bytes")
    around(FairQueue, "_serve", lambda _: "a turn of the queue")
    around(Listener, "_accept", lambda *_: "accepting connections")
    around(app.App, "_review", lambda _, review: f"a {review.path} review of {len(review.body)} bytes on the loop")
    around(app, "answer_timeout", lambda path, body, *_: f"answering undecided: a {path} review of {len(body)} bytes")
    around(ReviewDecider, "decide", lambda _, path, body, *__: f"deciding a {path} review of {len(body)} bytes")
    around(pool._Worker, "__init__", lambda *_: "forking a worker")  # noqa: SLF001
    around(pool, "_encode", lambda _: "handing a review to a worker")
    later = Listener.run_task
    Listener.run_task = lambda door, work: later(door, recorder.step_through(work))  # type: ignore[method-assign, assignment]
    _watch_collector(recorder)


def _watch_collector(recorder: Recorder) -> None:
    pieces: list[Any] = []

    def told(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            pieces.append(recorder.piece(lambda: f"the collector, generation {info['generation']}"))
            pieces[-1].__enter__()
        elif pieces:
            pieces.pop().__exit__(None, None, None)

    gc.callbacks.append(told)


def read(path: Path) -> list[Piece]:
    """Read the records, except an incomplete last line."""
    lines = path.read_text().split("\n")[:-1]
    return [Piece(*json.loads(line)) for line in lines]


def between(pieces: Iterable[Piece], begun: float, ended: float) -> Iterator[str]:
    """Return the pieces between two times, as lines."""
    for one in sorted(pieces, key=lambda piece: (piece.begun, piece.depth)):
        if one.ended > begun and one.begun < ended:
            yield f"{'  ' * one.depth}{one.seconds * 1e3:6.1f} ms {one.what}"


def main() -> None:
    from bench.webhook.admission import serve_webhook

    with open(sys.argv[1], "w", buffering=1) as file:  # noqa: PTH123
        watch(Recorder(file))
        serve_webhook()


if __name__ == "__main__":
    main()
