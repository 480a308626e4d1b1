"""Log lines as JSON, one a line. Values given as `extra` become members.

Decisions have a way of their own past the standard library's records: on the hot path those cost more than deciding. What
they leave out is the look for the calling line, which is always the same one.
"""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

if TYPE_CHECKING:
    from webhook.admission import Record

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
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
        return _encoder.encode(line).decode()


class Decisions:
    """Writes one line a decision: those worth telling at level info, the others at debug."""

    def __init__(self, stream: BinaryIO | None = None, level: int = logging.INFO) -> None:
        """Without a stream nothing is written."""
        self._stream = stream
        self._level = level

    def write(self, record: Record, seconds: float) -> None:
        """Write a decision, and how long it took."""
        level = logging.INFO if record.worth_telling else logging.DEBUG
        if self._stream is None or level < self._level:
            return
        head = f'{{"ts":"{_time()}","level":"{logging.getLevelName(level).lower()}","logger":"drawbridge.decision","us":{seconds * 1e6:.0f},'
        self._stream.write(head.encode() + _encoder.encode(record)[1:] + b"\n")
        self._stream.flush()


def configure(level: str = "info", stream: BinaryIO | None = None) -> Decisions:
    """Send every logger's lines to one stream as JSON, and give the writer of decisions to the same."""
    stream = stream or sys.stderr.buffer
    handler = logging.StreamHandler(_Text(stream))
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    return Decisions(stream, root.level)


class _Text:
    """What logging writes text to, over a stream of bytes."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        self._stream.write(text.encode(errors="backslashreplace"))

    def flush(self) -> None:
        self._stream.flush()


def _time(seconds: float | None = None) -> str:
    moment = datetime.now(UTC) if seconds is None else datetime.fromtimestamp(seconds, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03}Z"
