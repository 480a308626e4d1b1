"""How a file changes so that a kill between any two steps leaves the old one or the new one, and never a part.

The steps are values; the rim takes them one after the other, and a test can stop after any of them.
"""

from __future__ import annotations

from typing import NamedTuple

TEMPORARY = ".new"


PRIVATE = 0o600
FOR_ALL = 0o644


class Write(NamedTuple):
    """Write a file that no reader knows yet."""

    path: str
    data: bytes
    mode: int = PRIVATE


class SyncFile(NamedTuple):
    """Wait until the disk has a file's content."""

    path: str


class Rename(NamedTuple):
    """Put a file in the place of another, at once."""

    path: str
    onto: str


class SyncFolder(NamedTuple):
    """Wait until the disk has a folder's names."""

    path: str


class Remove(NamedTuple):
    """Remove a file, if it is there."""

    path: str


Step = Write | SyncFile | Rename | SyncFolder | Remove


def written(path: str, data: bytes) -> tuple[Step, ...]:
    """Say how a file gets a content that outlives a loss of power."""
    new = path + TEMPORARY
    folder = path.rpartition("/")[0] or "/"
    return Write(new, data), SyncFile(new), Rename(new, path), SyncFolder(folder)


def shown(path: str, data: bytes, mode: int = PRIVATE) -> tuple[Step, ...]:
    """Say how a file gets a content that others read, and that can be made again: no disk is waited for."""
    new = path + TEMPORARY
    return Write(new, data, mode), Rename(new, path)
