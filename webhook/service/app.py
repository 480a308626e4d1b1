"""The webhook's HTTP handler: where and when a review is decided. `webhook.admission` makes the decision.

The API server always gets a fast answer:

    small review               decided at once, within a small budget of CPU time
    large, or budget exceeded  decided in its turn, within a larger budget: one review at a time, of the namespace with the least recent CPU
    over both budgets          the object is allowed unchanged, with a warning; the third time at once, unless the state has changed
    refused                    decided again a moment later, because an object that it needs may just have been created
    a bug                      500, and a line in the log; the API server's failurePolicy applies

Decisions check the budget in every loop over what a client sent (`tests/webhook/service/test_charged.py`), and a body with too many JSON
members is not decoded. So one review costs less than 100 ms of CPU (docs/security.md).

The functions for one review, in order: `refuse` (before its body is read), `answer`, `_decide`, `_decide_in_turn`.
"""

from __future__ import annotations

import asyncio
import logging
import re
from hashlib import blake2b
from time import monotonic, thread_time
from typing import TYPE_CHECKING, NamedTuple

from serving.authentication import Callers, Credentials
from serving.http import Crowded, Limits, Listener, Reply, Turns, count_members, text
from webhook.admission import REFUSED, UNDECIDED, ReviewError, answer_timeout
from webhook.service.log import Decisions
from webhook.service.settings import LINGER

if TYPE_CHECKING:
    import ssl
    from collections.abc import Coroutine

    from serving.http import Head
    from webhook.admission import ReviewAnswer
    from webhook.service.decider import ReviewDecider
    from webhook.service.metrics import WebhookMetrics
    from webhook.state import State

logger = logging.getLogger("drawbridge.webhook")

# Seconds before each review that is decided in its turn, in which the event loop answers small reviews.
PAUSE = 0.002
# Seconds between two checks whether a template exists.
POLL_SECONDS = 0.01
REVIEWS = ("/mutate", "/validate")  # the paths of reviews
# Seconds of a decision that affects no order of turns.
CHEAP = 0.002
MAX_EXHAUSTED = 1024  # reviews without a decision that are remembered
BUG = "internal error, see the log of drawbridge"


class DecisionLimits(NamedTuple):
    """Limits of decisions in one process; the listener's limits are `serving.http.Limits`."""

    # A review with more bytes or JSON members is decided in its turn only, so that it is decoded once. A pod with 32 KiB of variables has 2,000
    # members.
    small: int = 32 * 1024
    small_members: int = 4_000
    # CPU seconds of a decision at once, and of a decision in its turn. Work that is not charged adds some. The first evaluation of 5,000 nodes
    # takes 40 ms; later reviews use its cached result.
    at_once: float = 0.010
    in_turn: float = 0.050
    # A review with more members is not decoded, because decoding cannot be interrupted.
    members: int = 16_000
    # Seconds that a review waits for its turn, and reviews of one namespace that wait.
    wait: float = 1.5
    waiting: int = 16
    # Seconds after which a refused object is decided again: informers lag, and a DeviceClass may have been created just before the first pod
    # that names it. Also the longest wait for the template of a workload's pod.
    recheck_delay: float = 0.25


class _OpenReview(NamedTuple):
    """A review that is not answered yet. `arrived` is a time of `monotonic`, because uvloop's clock counts milliseconds."""

    path: str
    body: bytes
    arrived: float


class _Exhausted:
    """Reviews that ran out of both budgets with the current state. Their uids differ, so digests do not cover the uid."""

    def __init__(self) -> None:
        self._state: State | None = None
        self._attempts: dict[bytes, int] = {}

    def includes(self, review: _OpenReview, state: State) -> bool:
        """Report whether this review ran out of time at least twice. The first attempt may have filled caches for the second one."""
        return self._state is state and self._attempts.get(_digest(review), 0) > 1

    def add(self, review: _OpenReview, state: State) -> None:
        if self._state is not state:
            self._state, self._attempts = state, {}
        digest = _digest(review)
        self._attempts[digest] = self._attempts.pop(digest, 0) + 1
        if len(self._attempts) > MAX_EXHAUSTED:
            del self._attempts[next(iter(self._attempts))]


class WebhookApp:
    """The webhook's HTTP server."""

    def __init__(
        self,
        decider: ReviewDecider,
        metrics: WebhookMetrics,
        *,
        decisions: Decisions | None = None,
        callers: Callers | None = None,
        limits: DecisionLimits | None = None,
        connections: Limits | None = None,
    ) -> None:
        """`limits` bound the decisions, `connections` the listener."""
        self._callers = callers or Callers(Credentials())
        self._decisions = decisions or Decisions()
        self._decider = decider
        self._metrics = metrics
        self._limits = limits or DecisionLimits()
        self._listener = Listener(self, connections or Limits(), metrics.count_closure)
        self._turns = Turns(self._limits.waiting)
        self._exhausted = _Exhausted()
        # The most seconds for which one review has blocked the loop.
        self.longest_hold = 0.0

    async def start(self, host: str, port: int, tls: ssl.SSLContext) -> int:
        """Listen; return the port."""
        self._callers.prepare(tls)
        return self._listener.open(host, port, tls)

    async def drain(self, *, notice: float, grace: float, linger: float = LINGER) -> None:
        """Report unready, and serve for `notice` more seconds, while the Service removes this pod. Then answer the open requests and end.

        From now on, each answer closes its connection. Idle connections are closed `linger` times `notice` seconds after the port.
        """
        self._metrics.draining = self._listener.draining = True
        if self._listener.is_open:
            await asyncio.sleep(notice)
        await self._listener.end(grace, linger * notice)

    def close(self) -> None:
        """Stop accepting connections."""
        self._listener.close()

    # ---- one request

    def refuse(self, head: Head) -> Reply | None:
        """Return the reply to a request whose body must not be read; None if it may be read."""
        if head.path not in REVIEWS or head.method != "POST":
            return self._answer_other(head) if head.length > 0 else None
        refusal = None
        max_bytes = self._listener.limits.body
        if not self._callers.is_allowed(head):
            refusal = text(401, "authentication required: reviews are answered for the API server only", close=True)
        elif head.length > max_bytes:
            refusal = text(413, f"a review has at most {max_bytes} bytes", close=True)
        elif (
            head.headers.get("Content-Type", "").partition(";")[0].strip().lower() != "application/json"
            or "Content-Encoding" in head.headers
        ):
            refusal = text(415, "send a review as application/json, not compressed", close=True)
        if refusal is not None:
            self._metrics.count_refusal(head.path, refusal.status)
        return refusal

    def answer(self, head: Head, body: bytes) -> Reply | Coroutine[None, None, Reply]:
        """Answer a complete request: a review, or a probe."""
        if head.path not in REVIEWS or head.method != "POST":
            return self._answer_other(head)
        return self._review(_OpenReview(head.path[1:], body, monotonic()))

    def _answer_other(self, head: Head) -> Reply:
        """Answer a request that is not a review."""
        if head.path in REVIEWS:
            return text(405, f"{head.path} takes POST only", ("Allow", "POST"))
        return self._metrics.probe(head) or text(
            404, "not found: this port serves /mutate, /validate, /livez and /readyz"
        )

    # ---- reviews

    async def _review(self, review: _OpenReview) -> Reply:
        try:
            answer = await self._decide(review)
            await self._await_templates(answer)
        except ReviewError as error:
            note = {"path": review.path, "status": error.status, "problem": str(error)}
            logger.warning("review refused", extra=note)
            return self._refuse_review(review, error.status, str(error))
        except Exception:
            # The API server's failurePolicy applies.
            logger.exception("a bug while deciding; please report it", extra={"path": review.path})
            return self._refuse_review(review, 500, BUG)
        seconds = monotonic() - review.arrived
        self._metrics.count_decision(f"/{review.path}", answer.record, seconds)
        self._decisions.write(answer.record, seconds)
        return Reply(200, answer.body, "application/json")

    def _refuse_review(self, review: _OpenReview, status: int, problem: str) -> Reply:
        self._metrics.count_refusal(f"/{review.path}", status)
        return text(status, problem)

    async def _decide(self, review: _OpenReview) -> ReviewAnswer:
        """Decide a small review now; decide a large, slow or refused review in its turn."""
        limits, body, state = self._limits, review.body, self._decider.state()
        if self._exhausted.includes(review, state):
            return self._give_up(review, state, "it ran out of time before")
        # Each member has at least one byte, so most bodies need no count.
        members = count_members(body) if len(body) > limits.small_members else 0
        if members > limits.members:
            return self._give_up(review, state, "it has too many members")
        first = None
        if len(body) <= limits.small and members <= limits.small_members:
            first = self._decide_now(review, state, limits.at_once)
            is_refused = first.record.outcome == REFUSED
            if not is_refused and first.record.outcome != UNDECIDED:
                return first
            if is_refused:
                await asyncio.sleep(limits.recheck_delay)
                if self._decider.state() is state and not first.is_late:
                    return first
        return await self._decide_in_turn(review, first)

    async def _decide_in_turn(self, review: _OpenReview, first: ReviewAnswer | None) -> ReviewAnswer:
        """Decide a review when it is its turn. Without a turn in time the first decision is final."""
        state = self._decider.state()
        try:
            async with asyncio.timeout(self._limits.wait), self._turns.turn(_namespace(review.body)):
                await asyncio.sleep(PAUSE)
                state = self._decider.state()
                answer = self._decide_now(review, state, self._limits.in_turn)
        except (TimeoutError, Crowded):
            return first or self._give_up(review, state, "too many other reviews wait")
        if answer.record.outcome != UNDECIDED:
            return answer
        if first and first.record.outcome == REFUSED:  # a decision without enough time must not replace a refusal
            return first
        self._exhausted.add(review, state)
        return answer

    def _decide_now(self, review: _OpenReview, state: State, cpu_seconds: float) -> ReviewAnswer:
        started, cpu_started = monotonic(), thread_time()
        try:
            return self._decider.decide(review.path, review.body, state, cpu_seconds)
        finally:
            held = monotonic() - started
            self.longest_hold = max(self.longest_hold, held)
            if held > CHEAP:
                self._turns.charge(_namespace(review.body), thread_time() - cpu_started)

    def _give_up(self, review: _OpenReview, state: State, problem: str) -> ReviewAnswer:
        """Allow the object of a review unchanged, with a warning."""
        note = {"path": review.path, "bytes": len(review.body), "problem": problem}
        logger.warning("a review was not decided", extra=note)
        return answer_timeout(review.path, review.body, state)

    async def _await_templates(self, answer: ReviewAnswer) -> None:
        """Wait until the templates exist, or a moment. If they are missing, the template controller writes an Event on the pod."""
        until = monotonic() + self._limits.recheck_delay
        while self._decider.awaits_template(answer) and monotonic() < until:  # noqa: ASYNC110  the state is replaced as a whole
            await asyncio.sleep(POLL_SECONDS)


# API servers write the namespace and the uid of a review before its object, near the beginning.
_NAMESPACE = re.compile(rb'"namespace": ?"([^"]{1,63})"')
_UID = re.compile(rb'"uid": ?"[^"]{1,64}"')
_OPENING = 2048


def _namespace(body: bytes) -> str:
    """Return the namespace of a review without decoding it. A wrong one is harmless: it only affects the order of answers."""
    match = _NAMESPACE.search(body, 0, _OPENING)
    return match[1].decode("latin-1") if match else ""


def _digest(review: _OpenReview) -> bytes:
    """Return a digest of a review without the first uid."""
    match = _UID.search(review.body, 0, _OPENING)
    start, end = match.span() if match else (0, 0)
    digest = blake2b(review.path.encode() + review.body[:start], digest_size=16)
    digest.update(memoryview(review.body)[end:])
    return digest.digest()
