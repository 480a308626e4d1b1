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

MIN_SECONDS = 0.001


class Piece(NamedTuple):
    """A piece of work: what was done, its begin and end, its CPU seconds, and the number of pieces that contain it."""

    what: str
    started: float
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
        started, cpu_before = monotonic(), thread_time()
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            seconds = thread_time() - cpu_before
            if seconds >= MIN_SECONDS and os.getpid() == self._process:
                finished_piece = Piece(what(), started, monotonic(), seconds, self._depth)
                self._file.write(json.dumps(finished_piece) + "\n")

    def time_calls(self, owner: Any, name: str, what: Callable[..., str]) -> None:
        original = getattr(owner, name)

        @wraps(original)
        def timed(*args: Any, **kwargs: Any) -> Any:
            with self.piece(lambda: what(*args)):
                return original(*args, **kwargs)

        setattr(owner, name, timed)

    @types.coroutine
    def time_steps(self, coroutine: Any) -> Generator[Any, Any, Any]:
        """Time each step of a coroutine."""
        send, value = coroutine.send, None
        while True:
            try:
                with self.piece(lambda: "a step of a review that is answered later"):
                    awaited = send(value)
            except StopIteration as end:
                return end.value
            try:
                send, value = coroutine.send, (yield awaited)
            except BaseException as error:  # noqa: BLE001  every exception belongs to the coroutine
                send, value = coroutine.throw, error


def add_timers(recorder: Recorder) -> None:
    """Put timers around the functions that the webhook's event loop calls."""
    from runtime.http.connection import PeerConnection
    from runtime.http.fair_queue import FairQueue
    from runtime.http.listener import Listener
    from runtime.workers import pool
    from webhook.service import app
    from webhook.service.decider import ReviewDecider

    time_calls = recorder.time_calls
    time_calls(PeerConnection, "data_received", lambda _, data: f"reading {len(data)} bytes")
    time_calls(PeerConnection, "connection_made", lambda _, __: "a connection after its handshake")
    time_calls(PeerConnection, "_reply", lambda _, reply: f"writing {reply.status} and {len(reply.body)} bytes")
    time_calls(FairQueue, "_serve", lambda _: "a turn of the queue")
    time_calls(Listener, "_accept", lambda *_: "accepting connections")
    time_calls(app.App, "_review", lambda _, review: f"a {review.path} review of {len(review.body)} bytes on the loop")
    time_calls(
        app, "answer_timeout", lambda path, body, *_: f"answering undecided: a {path} review of {len(body)} bytes"
    )
    time_calls(ReviewDecider, "decide", lambda _, path, body, *__: f"deciding a {path} review of {len(body)} bytes")
    time_calls(pool._Worker, "__init__", lambda *_: "forking a worker")  # noqa: SLF001
    time_calls(pool, "_encode", lambda _: "handing a review to a worker")
    run_task = Listener.run_task
    Listener.run_task = lambda listener, coroutine: run_task(listener, recorder.time_steps(coroutine))  # type: ignore[method-assign, assignment]
    _add_timer_of_collector(recorder)


def _add_timer_of_collector(recorder: Recorder) -> None:
    open_pieces: list[Any] = []

    def on_collection(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            open_pieces.append(recorder.piece(lambda: f"the collector, generation {info['generation']}"))
            open_pieces[-1].__enter__()
        elif open_pieces:
            open_pieces.pop().__exit__(None, None, None)

    gc.callbacks.append(on_collection)


def read(path: Path) -> list[Piece]:
    """Read the records, except an incomplete last line."""
    lines = path.read_text().split("\n")[:-1]
    return [Piece(*json.loads(line)) for line in lines]


def between(pieces: Iterable[Piece], begun: float, ended: float) -> Iterator[str]:
    """Return the pieces between two times, as lines."""
    for piece in sorted(pieces, key=lambda piece: (piece.started, piece.depth)):
        if piece.ended > begun and piece.started < ended:
            yield f"{'  ' * piece.depth}{piece.seconds * 1e3:6.1f} ms {piece.what}"


def main() -> None:
    from bench.webhook.admission import serve_webhook

    with open(sys.argv[1], "w", buffering=1) as file:  # noqa: PTH123
        add_timers(Recorder(file))
        serve_webhook()


if __name__ == "__main__":
    main()
