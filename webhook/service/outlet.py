"""Where log lines go: to a collector that may be slow, have stopped reading, or be gone.

A write to a full pipe waits until somebody reads, and with it everybody who wants a decision; a write to a broken one fails, and
so did the answer whose line it was. So a line goes out if there is room for it within a moment, and is lost otherwise. How many were
lost is said in the next line that finds its way. A disk can't be asked whether it has time.
"""

from __future__ import annotations

import fcntl
import os
import select
import stat
from contextlib import suppress

import msgspec

# A pipe with room has room for so many bytes. Some have less than a tenth of a second's lines in all, and can be made larger.
PIECE = select.PIPE_BUF
ROOM = 1 << 20
# Milliseconds that a line waits for room. Where lines are lost already, none waits.
PATIENCE = 10


class Outlet:
    """Writes whole lines to a descriptor, and waits for nobody. It never fails."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)
        self._lost = 0
        self._is_torn = False  # whether a line was lost in its middle
        if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            with suppress(OSError, AttributeError):
                fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, ROOM)

    def write(self, line: bytes) -> None:
        """Write a line, or lose it."""
        if self._lost:
            line = self._tell_of_lost() + line
        for start in range(0, len(line), PIECE):
            if not self._put(line[start : start + PIECE]):
                self._lost += 1
                self._is_torn = self._is_torn or start > 0
                return
        self._lost = 0
        self._is_torn = False

    def flush(self) -> None:
        """Do nothing: nothing is kept back."""

    def _put(self, piece: bytes) -> bool:
        patience = 0 if self._lost else PATIENCE
        try:
            return bool(self._poll.poll(patience)) and os.write(self._descriptor, piece) == len(piece)
        except OSError:
            return False

    def _tell_of_lost(self) -> bytes:
        line = {"level": "warning", "logger": "drawbridge.log", "msg": "lines were lost", "lines": self._lost}
        end = b"\n" if self._is_torn else b""
        return end + msgspec.json.encode(line) + b"\n"
