"""The file behind an embedded store: one line for each write, with a checksum, appended before the write is done in memory.

    drawbridge store 1
    6f1c7b52 {"version":7,"changes":[{"resource":"pods","namespace":"default","name":"a","object":{...}}]}

A kill leaves at most an unfinished last line, which was never acknowledged and is cut off. A complete line with a wrong checksum is
damage and an error, because later lines cannot be trusted. When the file has grown well beyond its content, it is rewritten to
a temporary file and renamed into place. `object` null is a removal.
"""

from __future__ import annotations

import fcntl
import logging
import os
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from cluster.errors import StoreError, map_exceptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import AbstractContextManager

_HEADER = b"drawbridge store 1\n"
_CHECKSUM = 8
MIN_COMPACTION = 1024 * 1024
GROWTH = 4
logger = logging.getLogger("drawbridge.store")


class JournalEntry(msgspec.Struct, frozen=True):
    """One object after a write; `null` if it was removed."""

    resource: str
    namespace: str
    name: str
    object: msgspec.Raw


class JournalCommit(msgspec.Struct, frozen=True):
    """One write with its consequences; all of it happened, or nothing."""

    version: int
    changes: tuple[JournalEntry, ...]


REMOVED = b"null"
_read_commit = msgspec.json.Decoder(JournalCommit).decode


def line(commit: JournalCommit) -> bytes:
    text = msgspec.json.encode(commit)
    return b"%08x %s\n" % (zlib.crc32(text), text)


def read(data: bytes, path: str) -> tuple[list[JournalCommit], int]:
    """Return the commits in a file's bytes and the number of intact bytes; raise StoreError if the file is damaged."""
    if len(data) < len(_HEADER) and _HEADER.startswith(data):
        return [], 0
    if not data.startswith(_HEADER):
        raise StoreError(f"{path} is not a store of drawbridge: its first line should be {_HEADER.decode().strip()!r}")
    commits: list[JournalCommit] = []
    intact = len(_HEADER)
    *whole, _unfinished = data[intact:].split(b"\n")
    for number, text in enumerate(whole, 2):
        where, body = f"{path}:{number}", text[_CHECKSUM + 1 :]
        if text[: _CHECKSUM + 1] != b"%08x " % zlib.crc32(body):
            raise StoreError(
                f"{where}: the line is damaged (its checksum does not fit): restore the file from a copy, "
                "or cut it before this line"
            )
        try:
            commits.append(_read_commit(body))
        except msgspec.DecodeError as error:
            raise StoreError(
                f"{where}: the line is complete, but not in the form that this version writes: {error}"
            ) from error
        intact += len(text) + 1
    return commits, intact


class Journal:
    def __init__(
        self, path: str | os.PathLike[str], *, durable: bool = False, least_compaction: int = MIN_COMPACTION
    ) -> None:
        """Open or create a file. With `durable`, each write waits for the disk, to survive a loss of power and not only a kill.

        A file smaller than `least_compaction` bytes is not compacted.
        """
        self._path = Path(path)
        self._durable = durable
        self._least_compaction = least_compaction
        with _naming(self._path):
            # The path may name a directory, or a device, whose content may be endless.
            if self._path.exists() and not self._path.is_file():
                raise StoreError(f"{self._path} is not a file")
            self._lock = os.open(f"{self._path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._file = -1
        self._size = 0
        self._compacted = 0
        try:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise StoreError(f"{self._path} is in use by another process") from error
            with _naming(self._path):
                self._new.unlink(missing_ok=True)
                self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                data = self._path.read_bytes()
                self.commits, intact = read(data, str(self._path))
                if intact < len(data):
                    cut_off = len(data) - intact
                    logger.warning("%s: cut off an unfinished write of %d bytes at its end", self._path, cut_off)
                if not intact:
                    _write(self._file, _HEADER, 0)
                    intact = len(_HEADER)
                os.ftruncate(self._file, intact)
                self._size = self._compacted = intact
                os.fchmod(self._file, 0o600)  # an existing file as well: it holds Secrets
        except BaseException:
            self.close()
            raise

    @property
    def _new(self) -> Path:
        return self._path.with_name(f"{self._path.name}.new")

    def append(self, commit: JournalCommit) -> None:
        """Append a commit, or raise StoreError and leave the file as it was."""
        if self._file < 0:
            raise StoreError(f"{self._path} is closed")
        try:
            _write(self._file, line(commit), self._size)
            if self._durable:
                os.fsync(self._file)
        except OSError as error:
            # Undo the write. If that fails, write no more, because the file ends in an unfinished line.
            try:
                os.ftruncate(self._file, self._size)
            except OSError:
                os.close(self._file)
                self._file = -1
            raise StoreError(f"cannot write {self._path}: {error.strerror}; nothing was changed") from error
        self._size += len(line(commit))

    def tidy(self, content: Callable[[], Iterable[JournalCommit]]) -> None:
        """Compact the file if it has grown well beyond its content. On failure the long file remains in use."""
        if self._size <= max(self._least_compaction, GROWTH * self._compacted):
            return
        try:
            self._compact(content())
        except StoreError as error:
            logger.warning("the file of the store could not be rewritten and keeps growing: %s", error)
            self._compacted = self._size

    def _compact(self, commits: Iterable[JournalCommit]) -> None:
        """Replace the file by an equivalent shorter one. A kill in between leaves the old file or the new one."""
        with _naming(self._path):
            file = os.open(self._new, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            size = 0
            try:
                for text in (_HEADER, *map(line, commits)):
                    _write(file, text, size)
                    size += len(text)
                os.fsync(file)
                self._new.replace(self._path)
            except BaseException:
                os.close(file)
                self._new.unlink(missing_ok=True)
                raise
            os.close(self._file)
            self._file, self._size, self._compacted = file, size, size
            directory = os.open(self._path.parent, os.O_RDONLY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)

    def close(self) -> None:
        for file in (self._file, self._lock):
            if file >= 0:
                os.close(file)
        self._file = self._lock = -1


def _write(file: int, data: bytes, offset: int) -> None:
    while data:
        written = os.pwrite(file, data, offset)
        data, offset = data[written:], offset + written


def _naming(path: Path) -> AbstractContextManager[None]:
    return map_exceptions({OSError: lambda error: StoreError(f"{path}: {error}")})
