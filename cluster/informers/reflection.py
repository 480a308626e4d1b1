"""The state machine that keeps a copy of a collection up to date (client-go tools/cache/reflector.go), as a table without I/O.

The phase of `ReflectionState` is the next step of the informer. `TABLE` maps the phase and the outcome of the step to the next phase. The
informer never gives up.

STREAM requests the whole collection at the beginning of a watch (sendInitialEvents). If the server refuses, the collection is requested in pages
(LIST) from then on. The whole collection is read only at first, when the server no longer has the copy's version, when there is room again for
objects that were not kept, or after a watch that was silent for too long. The last case needs LIST, because what keeps watches silent may not
affect lists.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

import msgspec

from cluster.errors import ApiError, BadRequest, Gone, Invalid, Unavailable

if TYPE_CHECKING:
    from collections.abc import Mapping

# A watch that ends sooner than this (in seconds) without an event has failed.
SHORT_WATCH = 1.0
# A watch that stays open for this time (in seconds) ends a series of failures. A list does not, because a sick server may answer each list, and
# then refuse each watch.
STABLE_WATCH = 5.0


class SilentWatch(Unavailable):
    """A watch stayed open and showed nothing for too long."""


class ReflectionPhase(Enum):
    """The step that the informer executes."""

    STREAM = "stream"
    LIST = "list"
    WATCH = "watch"


class StepOutcome(Enum):
    COMPLETE = "complete"  # the whole collection was read
    ENDED = "ended"  # the server closed the watch in good order
    GONE = "gone"  # the version or the page token has expired, or there is room again for objects that were not kept
    REFUSED = "refused"  # the server does not support the request
    SILENT = "silent"  # the watch stayed open and showed nothing
    FAILED = "failed"  # anything else


class Move(msgspec.Struct, frozen=True):
    """What follows an outcome in a phase. `anew` resets the version and the page. `counted` means that the step counts as a failure, with backoff."""

    to: ReflectionPhase | None  # None means STREAM if the server supports it, else LIST
    anew: bool = False
    counted: bool = False


TABLE: Mapping[tuple[ReflectionPhase, StepOutcome], Move] = {
    (ReflectionPhase.STREAM, StepOutcome.COMPLETE): Move(ReflectionPhase.WATCH),
    (ReflectionPhase.STREAM, StepOutcome.GONE): Move(ReflectionPhase.STREAM, anew=True, counted=True),
    (ReflectionPhase.STREAM, StepOutcome.REFUSED): Move(ReflectionPhase.LIST, anew=True),
    (ReflectionPhase.STREAM, StepOutcome.FAILED): Move(ReflectionPhase.STREAM, anew=True, counted=True),
    (ReflectionPhase.STREAM, StepOutcome.SILENT): Move(ReflectionPhase.LIST, anew=True, counted=True),
    (ReflectionPhase.LIST, StepOutcome.COMPLETE): Move(ReflectionPhase.WATCH),
    (ReflectionPhase.LIST, StepOutcome.GONE): Move(ReflectionPhase.LIST, anew=True, counted=True),
    (ReflectionPhase.LIST, StepOutcome.REFUSED): Move(ReflectionPhase.LIST, anew=True, counted=True),
    (ReflectionPhase.LIST, StepOutcome.FAILED): Move(ReflectionPhase.LIST, counted=True),
    (ReflectionPhase.WATCH, StepOutcome.ENDED): Move(ReflectionPhase.WATCH),
    (ReflectionPhase.WATCH, StepOutcome.GONE): Move(None, anew=True, counted=True),
    (ReflectionPhase.WATCH, StepOutcome.REFUSED): Move(None, anew=True, counted=True),
    (ReflectionPhase.WATCH, StepOutcome.SILENT): Move(ReflectionPhase.LIST, anew=True, counted=True),
    (ReflectionPhase.WATCH, StepOutcome.FAILED): Move(ReflectionPhase.WATCH, counted=True),
}


class ReflectionState(msgspec.Struct, frozen=True):
    phase: ReflectionPhase = ReflectionPhase.STREAM
    streams: bool = True  # whether the server supports streamed lists, as far as known
    version: str = ""  # the copy has all changes up to this version
    more: str = ""  # the token of the next page
    failures: int = 0  # since the last stable watch

    def advance(self, version: str) -> ReflectionState:
        """Return the state at a new version."""
        return self if version == self.version else msgspec.structs.replace(self, version=version)

    def turn_page(self, more: str) -> ReflectionState:
        """Return the state after a page that is not the last."""
        return msgspec.structs.replace(self, more=more)

    def after(self, outcome: StepOutcome, *, was_stable: bool = False) -> ReflectionState:
        """Return the state after an outcome. `was_stable` reports whether the watch was open for STABLE_WATCH seconds."""
        move = TABLE[self.phase, outcome]
        refused = self.phase is ReflectionPhase.STREAM and outcome is StepOutcome.REFUSED
        streams = self.streams and not refused
        return ReflectionState(
            phase=move.to or (ReflectionPhase.STREAM if streams else ReflectionPhase.LIST),
            streams=streams,
            version="" if move.anew else self.version,
            more="" if move.anew or outcome is StepOutcome.COMPLETE else self.more,
            failures=(0 if was_stable else self.failures) + move.counted,
        )


def outcome(error: ApiError) -> StepOutcome:
    """Return the outcome that an API error stands for."""
    if isinstance(error, SilentWatch):
        return StepOutcome.SILENT
    if isinstance(error, Gone) or error.has_cause("ResourceVersionTooLarge"):
        # ResourceVersionTooLarge: the cluster was restored from a backup, and the copy is newer than that.
        return StepOutcome.GONE
    if isinstance(error, Invalid | BadRequest):
        return StepOutcome.REFUSED
    return StepOutcome.FAILED
