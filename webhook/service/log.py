"""Writes log lines as JSON objects. Values given as `extra` become members.

`Decisions` does not use the standard library's log records: they look up the calling line, which takes longer than a decision.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import select
import stat
import sys
import threading
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from time import time
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

if TYPE_CHECKING:
    from webhook.admission import Record

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
# The most bytes of a line. The line of a pod with 5,000 containers would have megabytes, and log collectors cut lines at 16 KiB.
LONGEST = 16 * 1024
MAX_DECISIONS = 32  # the most decisions about one pod that are logged
_encoder = msgspec.json.Encoder(enc_hook=str)
_formatter = logging.Formatter()
# Characters that JSON does not escape and that a terminal interprets or hides. Names and messages of objects may contain them.
_UNSEEN = re.compile("[\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")


# Bytes that a pipe accepts at least if it is writable.
PIECE = select.PIPE_BUF
# The size that is set for pipes: a pipe of the default size may hold the lines of less than 0.1 s.
ROOM = 1 << 20
# Milliseconds that a line waits for room in the pipe. After a lost line, the next lines do not wait.
PATIENCE = 10


class JsonHandler(logging.Handler):
    """Writes the lines of loggers."""

    def __init__(self, stream: BinaryIO | Outlet) -> None:
        super().__init__()
        self._stream = stream

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line: dict[str, Any] = {
                "ts": _time(record.created),
                "level": record.levelname.lower(),
                "logger": record.name,
                "msg": record.getMessage(),
            }
            line |= {key: value for key, value in vars(record).items() if key not in _STANDARD}
            if record.exc_info:
                line["exception"] = _formatter.formatException(record.exc_info)
            self._stream.write(_finished(_encoder.encode(line)) + b"\n")
        except Exception:  # noqa: BLE001  the caller must go on
            self.handleError(record)


class Outlet:
    """Writes whole lines to a descriptor. It never fails, even if the log collector is slow, has stopped reading, or has ended.

    A write to a full pipe would block all reviews, and a write to a broken pipe fails. So a line is dropped if the pipe has no room within
    PATIENCE milliseconds. The next written line reports how many lines were lost. A slow disk can still block reviews. Threads write in turns.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)
        self._lock = threading.Lock()
        self._lost = 0
        self._is_torn = False  # whether a part of a lost line was written
        if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            with suppress(OSError, AttributeError):
                fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, ROOM)

    def write(self, line: bytes) -> None:
        """Write a line, or drop it."""
        with self._lock:
            if self._lost:
                lost = {"level": "warning", "logger": "drawbridge.log", "msg": "lines were lost", "lines": self._lost}
                line = (b"\n" if self._is_torn else b"") + _encoder.encode(lost) + b"\n" + line
            for start in range(0, len(line), PIECE):
                piece = line[start : start + PIECE]
                patience = 0 if self._lost else PATIENCE
                try:
                    is_written = bool(self._poll.poll(patience)) and os.write(self._descriptor, piece) == len(piece)
                except OSError:
                    is_written = False
                if not is_written:
                    self._lost += 1
                    self._is_torn = self._is_torn or start > 0
                    return
            self._lost = 0
            self._is_torn = False


class Decisions:
    """Writes one line for each decision: at level info if the record is `is_logged_at_info`, else at debug."""

    def __init__(self, stream: BinaryIO | Outlet | None = None, level: int = logging.INFO) -> None:
        """Without a stream nothing is written."""
        self._stream = stream
        self._level = level

    def write(self, record: Record, seconds: float) -> None:
        level = logging.INFO if record.is_logged_at_info else logging.DEBUG
        if self._stream is None or level < self._level:
            return
        name = "info" if level == logging.INFO else "debug"
        microseconds = seconds * 1e6
        head = f'{{"ts":"{_time()}","level":"{name}","logger":"drawbridge.decision","us":{microseconds:.0f},'
        left = len(record.decisions) - MAX_DECISIONS
        if left > 0:
            problems = (*record.problems[:MAX_DECISIONS], f"{left} more decisions on this object are not listed here")
            record = msgspec.structs.replace(record, decisions=record.decisions[:MAX_DECISIONS], problems=problems)
        line = _encoder.encode(record)
        whole = head.encode() + line[1:]
        self._stream.write(_finished(whole) + b"\n")


def configure(level: str = "info", stream: BinaryIO | None = None) -> Decisions:
    """Send the lines of all loggers to one stream as JSON, and return the writer of decisions for this stream."""
    stream = stream or sys.stderr.buffer
    outlet: BinaryIO | Outlet = stream
    try:
        descriptor = stream.fileno()
    except (OSError, AttributeError):
        pass  # without a descriptor, the stream is written to directly
    else:
        stream.flush()
        outlet = Outlet(descriptor)
    root = logging.getLogger()
    root.handlers[:] = [JsonHandler(outlet)]
    root.setLevel(level.upper())
    return Decisions(outlet, root.level)


def _time(seconds: float | None = None) -> str:
    now = time() if seconds is None else seconds
    whole = int(now)
    return f"{_second(whole)}.{int((now - whole) * 1000):03}Z"


@lru_cache(maxsize=1)
def _second(whole: int) -> str:
    return f"{datetime.fromtimestamp(whole, UTC):%Y-%m-%dT%H:%M:%S}"


def _finished(line: bytes) -> bytes:
    """Escape the line for terminals, and cut it to LONGEST bytes for log collectors; the cut line is JSON again."""
    if not line.isascii() or b"\x7f" in line:
        line = _UNSEEN.sub(lambda match: f"\\u{ord(match.group()):04x}", line.decode()).encode()
    if len(line) <= LONGEST:
        return line
    cut = line[:LONGEST].decode(errors="ignore")
    return _encoder.encode({"ts": _time(), "level": "warning", "logger": "drawbridge.log", "msg": "a line was cut", "bytes": len(line), "line": cut})  # fmt: skip
