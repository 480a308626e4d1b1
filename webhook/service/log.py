"""Log lines as JSON, one a line. Values given as `extra` become members.

Decisions have a way of their own past the standard library's records: on the hot path those cost more than deciding. What
they leave out is the look for the calling line, which is always the same one.
"""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from functools import lru_cache
from time import time
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from webhook.service.outlet import Outlet

if TYPE_CHECKING:
    from webhook.admission import Record

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
# A pod of 5,000 containers would fill megabytes; a collector cuts lines at 16 KiB and a reader long before.
LONGEST = 16 * 1024
MOST = 32  # decisions of one pod
_encoder = msgspec.json.Encoder(enc_hook=str)


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "ts": _time(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": record.getMessage(),
        }
        line |= {key: value for key, value in vars(record).items() if key not in _STANDARD}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return _shorten_line(_encoder.encode(line)).decode()


class Decisions:
    """Writes one line a decision: those worth telling at level info, the others at debug."""

    def __init__(self, stream: BinaryIO | Outlet | None = None, level: int = logging.INFO) -> None:
        """Without a stream nothing is written."""
        self._stream = stream
        self._level = level

    def write(self, record: Record, seconds: float) -> None:
        """Write a decision, and how long it took."""
        level = logging.INFO if record.worth_telling else logging.DEBUG
        if self._stream is None or level < self._level:
            return
        name = logging.getLevelName(level).lower()
        microseconds = seconds * 1e6
        head = f'{{"ts":"{_time()}","level":"{name}","logger":"drawbridge.decision","us":{microseconds:.0f},'
        shown = record
        if len(record.decisions) > MOST:
            shown = _shorten(record)
        line = _encoder.encode(shown)
        whole = head.encode() + line[1:]
        self._stream.write(_shorten_line(whole) + b"\n")
        self._stream.flush()


def configure(level: str = "info", stream: BinaryIO | None = None) -> Decisions:
    """Send every logger's lines to one stream as JSON, and give the writer of decisions to the same."""
    outlet = _outlet(stream or sys.stderr.buffer)
    handler = logging.StreamHandler(_Text(outlet))
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    return Decisions(outlet, root.level)


def _outlet(stream: BinaryIO) -> BinaryIO | Outlet:
    """Past the stream to its descriptor, where there is one."""
    try:
        descriptor = stream.fileno()
    except (OSError, AttributeError):
        return stream
    stream.flush()
    return Outlet(descriptor)


class _Text:
    """What logging writes text to, over a stream of bytes."""

    def __init__(self, stream: BinaryIO | Outlet) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        self._stream.write(text.encode(errors="backslashreplace"))

    def flush(self) -> None:
        self._stream.flush()


def _shorten(record: Record) -> Record:
    left = len(record.decisions) - MOST
    said = f"{left} more decisions on this object are not listed here"
    return msgspec.structs.replace(record, decisions=record.decisions[:MOST], problems=(*record.problems[:MOST], said))


def _time(seconds: float | None = None) -> str:
    now = time() if seconds is None else seconds
    whole = int(now)
    return f"{_second(whole)}.{int((now - whole) * 1000):03}Z"


@lru_cache(maxsize=4)
def _second(whole: int) -> str:
    return f"{datetime.fromtimestamp(whole, UTC):%Y-%m-%dT%H:%M:%S}"


def _shorten_line(line: bytes) -> bytes:
    """A line that a collector takes: what is longer than LONGEST keeps its beginning, as JSON."""
    if len(line) <= LONGEST:
        return line
    cut = line[:LONGEST].decode(errors="ignore")
    return _encoder.encode({"ts": _time(), "level": "warning", "logger": "drawbridge.log", "msg": "a line was cut", "bytes": len(line), "line": cut})  # fmt: skip
