"""Decides reviews for `webhook.service.app` with `webhook.admission.review`, on the current state of the cluster."""

from __future__ import annotations

import logging
from time import thread_time
from typing import TYPE_CHECKING

from dra import cel
from webhook.admission import ReviewError, review

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from webhook.admission import Answer
    from webhook.service.follower import Follower
    from webhook.state import State, StateBuilder

logger = logging.getLogger("drawbridge.webhook")

# A selector that makes `dra.cel` import all modules that it otherwise imports when needed.
WHOLE_LANGUAGE = "['a'].all(text, text.matches('a'))"

# Controllers of pods that the template controller watches.
CONTROLLERS = ("ReplicaSet", "StatefulSet", "DaemonSet", "Job")

# Steps of a budget in a second of CPU, about.
STEPS_A_SECOND = 1_000_000
# Share of the time for one uninterruptible call.
PIECE = 0.4


class ReviewDecider:
    """Decides reviews on the current state."""

    def __init__(
        self,
        builder: StateBuilder,
        follower: Follower,
        certificate: Callable[[], str],
        configuration: Callable[[], Mapping[str, str]] = dict,
        clock: Callable[[], float] = thread_time,
    ) -> None:
        """`certificate` returns the problem of the serving certificate, or ""; `configuration` returns notes on the configuration.

        `clock` is thread CPU time, so time when the thread is descheduled does not count.
        """
        self._builder = builder
        self._follower = follower
        self._certificate = certificate
        self._configuration = configuration
        self._clock = clock
        # Import the compiler of selectors now, so that no review waits for it.
        cel.compile(WHOLE_LANGUAGE)
        # The latest state, and its variant for a stale view, which does not refuse. It is cached, because workers and memos compare states by identity.
        self._stale: tuple[State, State] | None = None

    def state(self) -> State:
        """Return the state that decisions are made on now."""
        latest = self._follower.state()
        if self._follower.fresh():
            return latest
        if self._stale is None or self._stale[0] is not latest:
            self._stale = latest, self._builder.state(fresh=False)
        return self._stale[1]

    def decide(self, path: str, body: bytes, state: State, patience: float) -> Answer:
        """Answer a review to "mutate" or "validate" within `patience` seconds of CPU.

        After an unexpected exception the review is decided once more without the memo of earlier reviews, which may be the cause.
        """
        until = self._clock() + patience
        longest = int(patience * STEPS_A_SECOND * PIECE)

        def impatient() -> bool:
            return self._clock() > until

        def attempt() -> Answer:
            decide = review.validate if path == "validate" else review.mutate
            return decide(body, state, impatient=impatient, longest=longest)

        try:
            return attempt()
        except ReviewError:
            raise
        except Exception:
            logger.exception("a bug while deciding; the review is decided again with nothing remembered")
            self.forget(state)
            until = self._clock() + patience
            return attempt()

    def is_early(self, outcome: Answer) -> bool:
        """Report whether a pod of a workload names a template that the template controller has not created yet."""
        record = outcome.record
        if record.outcome != "translated" or record.dry_run or outcome.controller not in CONTROLLERS:
            return False
        templates = self._follower.state().templates
        return any((outcome.namespace, name) not in templates for name in record.templates)

    def forget(self, state: State) -> None:
        """Clear the memo, in which an interrupted decision may have left incomplete results."""
        state.memo.clear()

    def unready(self) -> Mapping[str, str]:
        """Return problems by check, "" for none; a problem makes this replica unready."""
        # A stale view is reported by metrics and does not make a replica unready: all replicas would have the same view.
        return {"cluster": self._follower.what_is_unread(), "certificate": self._certificate()}

    def notes(self) -> Mapping[str, str]:
        """Return problems by check that do not make this replica unready."""
        aside = str(self._follower.quarantine)
        return {
            "stock": self._follower.stale(),
            "namespaces": self._follower.unsure(),
            "pods": self._follower.uncounted(),
            "evidence": self._follower.unread_evidence(),
            "server": self._follower.doubts(),
            "objects read": f"set aside: {aside}" if aside else "",
            **self._configuration(),
        }
