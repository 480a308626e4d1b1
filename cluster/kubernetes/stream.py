"""A watch's bytes become its events: a state machine without I/O. Feed it chunks as they come, cut anywhere.

Lines are split here, because a full ResourceSlice is longer than an HTTP library's line limit. What arrived whole before
something broke is still delivered: `feed` returns the events before the failure, and `failure` says what comes after.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from cluster.errors import ClusterError, Unavailable
from cluster.kubernetes.answers import line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster.protocol import Bookmark, Change, Unreadable
    from cluster.resources import Resource

T = TypeVar("T")
# An object in etcd is at most 1.5 MiB by default and 8 MiB where an admin insisted; more than that is no API server.
LONGEST_LINE = 16 * 1024 * 1024


class Lines:
    """Cuts bytes into lines. Holds at most one unfinished line."""

    def __init__(self, longest: int = LONGEST_LINE) -> None:
        self._longest = longest
        self._pieces: list[bytes] = []
        self._size = 0

    @property
    def unfinished(self) -> int:
        """How many bytes of a line have come without its end."""
        return self._size

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Take a chunk and give the lines it completes."""
        *whole, rest = chunk.split(b"\n")
        if whole:
            whole[0] = b"".join((*self._pieces, whole[0]))
            self._pieces.clear()
            self._size = 0
        if rest:
            self._pieces.append(rest)
            self._size += len(rest)
        yield from (one for one in whole if one and not one.isspace())
        if self._size > self._longest:
            raise Unavailable(
                f"a line of the watch exceeds {self._longest} bytes: this is not the watch of an API server"
            )


class Stream(Generic[T]):
    """Reads one watch response. Once `failure` is set, the stream is over and gives nothing any more."""

    def __init__(self, resource: Resource[T], *, longest: int = LONGEST_LINE) -> None:
        self._resource = resource
        self._lines = Lines(longest)
        self.failure: ClusterError | None = None

    def feed(self, chunk: bytes) -> list[Change[T] | Bookmark | Unreadable]:
        """Take a chunk and give the events it completes, up to the first failure."""
        events: list[Change[T] | Bookmark | Unreadable] = []
        if self.failure is not None:
            return events
        try:
            for data in self._lines.feed(chunk):
                events.append(line(data, self._resource))  # noqa: PERF401  what came before a failure must be kept
        except ClusterError as error:
            self.failure = error
        return events

    def end(self) -> None:
        """The response ended. In the middle of a line that is a broken connection, not an end."""
        if self._lines.unfinished and self.failure is None:
            self.failure = Unavailable(
                f"the watch of {self._resource.id} ended in the middle of a line ({self._lines.unfinished} bytes of it)"
            )
