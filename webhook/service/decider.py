"""Decides reviews for `webhook.service.app` on the current state of the cluster, within a time limit."""

from __future__ import annotations

import logging
from time import thread_time
from typing import TYPE_CHECKING

from dra import cel
from webhook.admission import Replicas, ReviewError, decide_review

if TYPE_CHECKING:
    from collections.abc import Callable

    from webhook.admission import ReviewAnswer
    from webhook.service.follower import Follower
    from webhook.state import State, StateBuilder

logger = logging.getLogger("drawbridge.webhook")

# Compiling this selector makes `dra.cel` import all modules that it otherwise imports when it needs them.
WHOLE_LANGUAGE = "['a'].all(text, text.matches('a'))"

# About how many steps of a budget take a second of CPU.
STEPS_A_SECOND = 1_000_000
# The largest share of a decision's CPU time that one uninterruptible call may take.
MAX_CALL_SHARE = 0.4


class ReviewDecider:
    def __init__(self, builder: StateBuilder, follower: Follower, clock: Callable[[], float] = thread_time) -> None:
        """`clock` is thread CPU time, so time when the thread is descheduled does not count."""
        self._builder = builder
        self._follower = follower
        self._clock = clock
        # Import the compiler of selectors now, so that no review waits for it.
        cel.compile(WHOLE_LANGUAGE)
        # The latest state, and the variant of it on which nothing is refused, for decisions while the state is stale. The variant is cached,
        # because memos compare states by identity.
        self._stale: tuple[State, State] | None = None
        self._replicas = Replicas()

    def state(self) -> State:
        latest = self._follower.state()
        if self._follower.fresh():
            return latest
        if self._stale is None or self._stale[0] is not latest:
            self._stale = latest, self._builder.state(fresh=False)
        return self._stale[1]

    def decide(self, path: str, body: bytes, state: State, cpu_seconds: float) -> ReviewAnswer:
        """Answer a review to "mutate" or "validate" within `cpu_seconds` seconds of CPU after its object is decoded.

        After an unexpected exception the review is decided once more without the memo of earlier reviews, which may be the cause.
        """
        until = 0.0
        max_call_steps = int(cpu_seconds * STEPS_A_SECOND * MAX_CALL_SHARE)

        def is_out_of_time() -> bool:
            nonlocal until
            now = self._clock()  # a system call, which a sandboxed kernel makes slow
            until = until or now + cpu_seconds
            return now > until

        def attempt() -> ReviewAnswer:
            return decide_review(
                path,
                body,
                state,
                replicas=self._replicas,
                is_out_of_time=is_out_of_time,
                max_call_steps=max_call_steps,
            )

        try:
            return attempt()
        except ReviewError:
            raise
        except Exception as error:
            if isinstance(error, MemoryError):
                logger.warning("no memory was left; the review is decided again without cached results")
            else:
                logger.exception("a bug while deciding; the review is decided again without cached results")
            state.memo.clear()  # an interrupted decision may have left incomplete results in it
            self._replicas.clear()
            return attempt()

    def awaits_template(self, answer: ReviewAnswer) -> bool:
        """Report whether the answer waits for a template that the template controller has not created yet."""
        awaited = answer.awaited_templates
        return bool(awaited) and not self._follower.state().templates.keys() >= set(awaited)
