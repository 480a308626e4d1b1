"""How a copy of a collection is brought and kept up to date (client-go tools/cache/reflector.go), as a table without I/O.

The informer asks `ReflectionState` what to do, does it, and reports how it went; the answer is the next state and how long to
wait first. It never gives up.

    phase   complete   ended       gone          refused      failed
    STREAM  WATCH      STREAM*     STREAM        LIST         STREAM*
    LIST    WATCH      -           LIST (anew)   LIST*        LIST* (same page)
    WATCH   -          WATCH       STREAM/LIST   STREAM/LIST  WATCH*

`*` waits first, longer each time in a row. STREAM asks for the whole collection as the beginning of a watch
(sendInitialEvents); a server that refuses is asked for pages (LIST) from then on. Only the first time, or when its
version is no longer known, is the whole collection read.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

import msgspec

from cluster.errors import ApiError, BadRequest, Gone, Invalid

if TYPE_CHECKING:
    from collections.abc import Mapping

# A watch that ends sooner than this without having said anything has not worked.
SHORT_WATCH = 1.0


class Phase(Enum):
    """What the copy is doing."""

    STREAM = "stream"
    LIST = "list"
    WATCH = "watch"


class Outcome(Enum):
    """How a step went."""

    COMPLETE = "complete"  # the whole collection was read
    ENDED = "ended"  # the server closed the watch in good order
    GONE = "gone"  # our version, or our page token, is too old
    REFUSED = "refused"  # the server does not do such requests
    FAILED = "failed"  # anything else


class Move(msgspec.Struct, frozen=True):
    """Where a phase goes on an outcome. `anew` forgets version and page; `counted` is a failure that waits."""

    to: Phase | None  # None: the way to read everything
    anew: bool = False
    counted: bool = False


TABLE: Mapping[tuple[Phase, Outcome], Move] = {
    (Phase.STREAM, Outcome.COMPLETE): Move(Phase.WATCH),
    (Phase.STREAM, Outcome.ENDED): Move(Phase.STREAM, anew=True, counted=True),
    (Phase.STREAM, Outcome.GONE): Move(Phase.STREAM, anew=True, counted=True),
    (Phase.STREAM, Outcome.REFUSED): Move(Phase.LIST, anew=True),
    (Phase.STREAM, Outcome.FAILED): Move(Phase.STREAM, anew=True, counted=True),
    (Phase.LIST, Outcome.COMPLETE): Move(Phase.WATCH),
    (Phase.LIST, Outcome.GONE): Move(Phase.LIST, anew=True),
    (Phase.LIST, Outcome.REFUSED): Move(Phase.LIST, anew=True, counted=True),
    (Phase.LIST, Outcome.FAILED): Move(Phase.LIST, counted=True),
    (Phase.WATCH, Outcome.ENDED): Move(Phase.WATCH),
    (Phase.WATCH, Outcome.GONE): Move(None, anew=True),
    (Phase.WATCH, Outcome.REFUSED): Move(None, anew=True, counted=True),
    (Phase.WATCH, Outcome.FAILED): Move(Phase.WATCH, counted=True),
}


class ReflectionState(msgspec.Struct, frozen=True):
    """Where the copy stands."""

    phase: Phase = Phase.STREAM
    streams: bool = True  # the server is believed to stream lists
    version: str = ""  # everything up to here is in the copy
    more: str = ""  # the page to go on with
    failures: int = 0  # in a row

    def advance(self, version: str) -> ReflectionState:
        """Something came through: the copy is at a version, and whatever failed before is over."""
        if version == self.version and not self.failures:
            return self
        return msgspec.structs.replace(self, version=version, failures=0)

    def turn_page(self, more: str) -> ReflectionState:
        """A page came, and there are more."""
        return msgspec.structs.replace(self, more=more, failures=0)

    def after(self, outcome: Outcome) -> ReflectionState:
        """The state that follows an outcome; waits are due while `failures` is not zero."""
        move = TABLE[self.phase, outcome]
        refused = self.phase is Phase.STREAM and outcome is Outcome.REFUSED
        streams = self.streams and not refused
        return ReflectionState(
            phase=move.to or (Phase.STREAM if streams else Phase.LIST),
            streams=streams,
            version="" if move.anew else self.version,
            more="" if move.anew or outcome is Outcome.COMPLETE else self.more,
            failures=self.failures + 1 if move.counted else 0,
        )


def outcome(error: ApiError) -> Outcome:
    """What an error means to the copy."""
    if isinstance(error, Gone) or error.has_cause("ResourceVersionTooLarge"):
        # The second: a cluster was restored to an earlier time, and what we know is from a future that is not.
        return Outcome.GONE
    if isinstance(error, Invalid | BadRequest):
        return Outcome.REFUSED
    return Outcome.FAILED
