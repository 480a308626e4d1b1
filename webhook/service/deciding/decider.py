"""Decides for `webhook.service.app`, by `webhook.admission.review`, on the cluster as it is followed now."""

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

# A selector that needs every module which `dra.cel` loads late, for a command line's sake.
WHOLE_LANGUAGE = "['a'].all(text, text.matches('a'))"

# What makes the pods of Kubernetes' own workloads, which the template controller follows.
CONTROLLERS = ("ReplicaSet", "StatefulSet", "DaemonSet", "Job")

# A step of a budget is about a microsecond. One call that cannot be interrupted may take this share of the patience.
STEPS_A_SECOND = 1_000_000
PIECE = 0.4


class ReviewDecider:
    """Decides reviews by the state of the moment."""

    def __init__(
        self,
        builder: StateBuilder,
        follower: Follower,
        certificate: Callable[[], str],
        configuration: Callable[[], Mapping[str, str]] = dict,
        clock: Callable[[], float] = thread_time,
    ) -> None:
        """`certificate` says what is wrong with the one we serve, "" if nothing is; `configuration` what there is to know of it.

        By the CPU of this thread: one that is not given the machine has not searched meanwhile.
        """
        self._builder = builder
        self._follower = follower
        self._certificate = certificate
        self._configuration = configuration
        self._clock = clock
        # No review waits for the import of what compiles selectors.
        cel.compile(WHOLE_LANGUAGE)
        # A state that may not refuse is made once for each that may, so that it is known again.
        self._old: tuple[State, State] | None = None

    def state(self) -> State:
        """Hand out what decisions are made on now."""
        now = self._follower.state()
        if self._follower.fresh():
            return now
        if self._old is None or self._old[0] is not now:
            self._old = now, self._builder.state(fresh=False)
        return self._old[1]

    def decide(self, path: str, body: bytes, state: State, patience: float) -> Answer:
        """Answer a review to "mutate" or "validate"; `patience` is how many seconds of CPU it may take.

        A failure may be due to what was remembered of earlier reviews, so the review is decided once more without it.
        """
        until = self._clock() + patience
        longest = int(patience * STEPS_A_SECOND * PIECE)

        def impatient() -> bool:
            return self._clock() > until

        def attempt() -> Answer:
            answer = review.validate if path == "validate" else review.mutate
            return answer(body, state, impatient=impatient, longest=longest)

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
        """Say whether a workload's pod names a template that is made for the workload, and is not there yet."""
        record = outcome.record
        if record.outcome != "translated" or record.dry_run or outcome.controller not in CONTROLLERS:
            return False
        templates = self._follower.state().templates
        return any((outcome.namespace, name) not in templates for name in record.templates)

    def forget(self, state: State) -> None:
        """Drop what a decision that did not end may have left half remembered."""
        state.memo.clear()

    def unready(self) -> Mapping[str, str]:
        """Say what keeps us from deciding well."""
        # An old view is a matter of metrics and takes no pod off the Service: every replica would have the same one.
        return {"cluster": self._follower.what_is_unread(), "certificate": self._certificate()}

    def notes(self) -> Mapping[str, str]:
        """Say what takes no replica off the Service, and is worth knowing all the same."""
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
