"""File access: takes the steps of `node.checkpoint`, and keeps other processes of the node out by a lock file."""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from node.checkpoint import PRIVATE, FileStep, Remove, Rename, SyncFile, SyncFolder, WriteFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class Disk:
    """The file system of this node. Tests override `take` to fail between two steps."""

    def carry_out(self, steps: Iterable[FileStep]) -> None:
        for step in steps:
            self.take(step)

    def take(self, step: FileStep) -> None:
        match step:
            case WriteFile(path, data, mode):
                descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, PRIVATE)
                try:
                    if mode != PRIVATE:
                        os.fchmod(descriptor, mode)  # regardless of the umask
                    remaining = memoryview(data)
                    while remaining:
                        remaining = remaining[os.write(descriptor, remaining) :]
                except OSError:
                    # A partial file must not take up space on a full disk.
                    with suppress(OSError):
                        Path(path).unlink()
                    raise
                finally:
                    os.close(descriptor)
            case SyncFile(path):
                _sync(path, os.O_RDONLY)
            case SyncFolder(path):
                _sync(path, os.O_RDONLY | os.O_DIRECTORY)
            case Rename(path, onto):
                Path(path).replace(onto)
            case Remove(path):
                Path(path).unlink(missing_ok=True)

    def read(self, path: str) -> bytes | None:
        """Return a file's content; None if there is no file."""
        try:
            return Path(path).read_bytes()
        except FileNotFoundError:
            return None

    def names(self, folder: str) -> list[str]:
        return sorted(path.name for path in Path(folder).iterdir())

    def make_folder(self, path: str) -> None:
        Path(path).mkdir(mode=0o750, parents=True, exist_ok=True)

    @contextmanager
    def locked(self, path: str) -> Iterator[None]:
        """Hold a lock file; the kernel releases it when the process dies."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _sync(path: str, flags: int) -> None:
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
