"""The webhook's HTTP handler: where and when a review is decided. `webhook.admission` makes the decision.

The API server always gets a fast answer:

    small review                        decided on the event loop, within a budget of CPU time
    large review, or budget exceeded    decided in a worker, which can be killed
    no decision in time                 the object is allowed unchanged, with a warning
    refused                             decided again a moment later, because an object that it needs may just have been created
    more reviews than can be decided    503
    a bug                               500, and a line in the log; the API server's failurePolicy applies

Decisions check the budget in every loop over what a client sent (`tests/webhook/service/test_charged.py`), so no review delays another for much
longer than `DecisionLimits.loop_seconds`. Requests of expensive accounts wait behind cheap ones (`runtime.http.fair_queue`).

The functions for one review, in order: `refuse` (before its body is read), `answer`, `_review`, `_decide_on_loop`, `_record_decision`.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from runtime.authentication import Callers, Credentials
from runtime.http import Limits, Listener, Reply, count_members, text
from runtime.workers import Bug, Requester, Undecided, WorkerPool
from webhook.admission import REFUSED, UNDECIDED, Answer, ReviewError, answer_timeout
from webhook.service.log import Decisions
from webhook.service.settings import LINGER

if TYPE_CHECKING:
    import ssl
    from collections.abc import Coroutine

    from runtime.http import Head
    from webhook.service.decider import ReviewDecider
    from webhook.service.metrics import WebhookMetrics
    from webhook.state import State

logger = logging.getLogger("drawbridge.webhook")

# CPU time of a decision in a worker, as a share of `worker_seconds`, which also covers the wait for a worker.
WORKER_CPU_SHARE = 0.66
# The most seconds that a worker needs for one byte of a review: decoding 3 MB of empty members takes a second.
SECONDS_OF_BYTE = 0.35e-6
# The largest share of the waiting reviews that may come from one peer address.
PEER_SHARE = 0.75
# Seconds between two checks whether a template exists.
POLL_SECONDS = 0.01
REVIEWS = ("/mutate", "/validate")  # the paths of reviews
BUG = "internal error, see the log of drawbridge"


class DecisionLimits(NamedTuple):
    """Limits of decisions in one process; the listener's limits are `runtime.http.Limits`."""

    # The most reviews that wait for a worker, a second decision or a template. Further ones get 503, or keep their first decision.
    reviews: int = 128
    # Seconds after which a refused object is decided again: informers lag, and a DeviceClass may have been created just before the first pod
    # that names it. Also the longest wait for the template of a workload's pod.
    recheck_delay: float = 0.25
    # The most bytes of a review that is decided on the event loop; larger ones are decided in a worker.
    inline: int = 64 * 1024
    # JSON members, each of which takes some microseconds; reviews with more are decided in a worker. A pod with 64 KiB of variables has 4,000.
    members: int = 8_000
    # CPU seconds of a decision on the event loop; uncharged work adds some. An honest review can wait behind four of these decisions, and should
    # wait for less than 100 ms. The first evaluation of 5,000 nodes takes 40 ms; later reviews use its cached result.
    loop_seconds: float = 0.010
    # Seconds for a decision in a worker, including the wait for a worker.
    worker_seconds: float = 1.5
    workers: int = 2
    # A review that has waited for `queue_wait` seconds is rejected if at least `crowd` others wait.
    queue_wait: float = 0.25
    crowd: int = 64


class _OpenReview(NamedTuple):
    """A review that is not answered yet: `arrived` is when its body was complete, `started` when it left the queue.

    Both times are of `monotonic`, because uvloop's clock counts milliseconds, and most reviews take less than one millisecond.
    """

    path: str
    body: bytes
    peer: str
    arrived: float
    started: float


class _Decided(msgspec.Struct):
    """A worker's result: an answer, or the status and the text of a ReviewError."""

    answer: Answer | None
    status: int = 0
    problem: str = ""


class App:
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
        self._listener = Listener(self, connections or Limits(), metrics.count_closure, _namespace)
        self._pool = WorkerPool(self._limits.workers, _Decided, before_fork=self._listener.queue.wait_turn)
        self.workers = self._pool.counts
        self._waiting = 0
        self._waiting_of_peer: Counter[str] = Counter()
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
        self._pool.close()

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
        now = monotonic()
        return self._review(_OpenReview(head.path[1:], body, head.peer, now - self._listener.queue.waited, now))

    def _answer_other(self, head: Head) -> Reply:
        """Answer a request that is not a review."""
        if head.path in REVIEWS:
            return text(405, f"{head.path} takes POST only", ("Allow", "POST"))
        return self._metrics.probe(head) or text(
            404, "not found: this port serves /mutate, /validate, /livez and /readyz"
        )

    # ---- reviews

    def _review(self, review: _OpenReview) -> Reply | Coroutine[None, None, Reply]:
        """Decide a small review now, within the loop's budget; return a coroutine for a review that needs more."""
        limits = self._limits
        # After a pause of the whole process, a review has waited long too, but then the queue is short.
        if review.started - review.arrived > limits.queue_wait and len(self._listener.queue) >= limits.crowd:
            return self._turn_away(review.path)
        state = self._decider.state()
        try:
            answer = self._decide_on_loop(review, state)
        except Exception as error:  # noqa: BLE001  each review is answered
            return self._fail(review.path, error)
        finally:
            self.longest_hold = max(self.longest_hold, monotonic() - review.started)
        if answer is None:
            return self._answer_later(review, self._decide_in_worker(review))
        # When many reviews wait, the first decision is final.
        later_work = self._later_decision(review, answer, state) if 2 * (self._waiting + 1) <= limits.reviews else None
        return self._answer_later(review, later_work) if later_work else self._record_decision(review, answer)

    def _decide_on_loop(self, review: _OpenReview, state: State) -> Answer | None:
        """Decide a review on the loop; return None if it is too large for that."""
        limits, body = self._limits, review.body
        # Each member has at least one byte, so most bodies need no count.
        if len(body) > limits.inline or (len(body) > limits.members and count_members(body) > limits.members):
            return None
        return self._decider.decide(review.path, body, state, limits.loop_seconds)

    def _later_decision(self, review: _OpenReview, answer: Answer, state: State) -> Coroutine[None, None, Reply] | None:
        """Return the work that may change this answer, or that must precede it; None if the answer can be sent now."""
        if answer.record.outcome == REFUSED:
            return self._decide_again(review, answer, state)
        if answer.record.outcome == UNDECIDED:
            # The loop's budget is small, and allows no long call; a worker has the full budget.
            return self._decide_in_worker(review, answer)
        return self._await_templates(review, answer) if self._decider.awaits_template(answer) else None

    def _answer_later(
        self, review: _OpenReview, work: Coroutine[None, None, Reply]
    ) -> Reply | Coroutine[None, None, Reply]:
        """Return a coroutine that awaits `work`; 503 if too many reviews wait already, in total or of this peer."""
        max_waiting, peer = self._limits.reviews, review.peer
        if self._waiting >= max_waiting or self._waiting_of_peer[peer] >= PEER_SHARE * max_waiting:
            work.close()
            return self._turn_away(review.path)
        # Count now, not when the coroutine starts: many reviews can arrive in one turn, and each must count the others.
        self._waiting += 1
        self._waiting_of_peer[peer] += 1

        async def wait() -> Reply:
            try:
                return await work
            except Exception as error:  # noqa: BLE001  each review is answered
                return self._fail(review.path, error)
            finally:
                self._waiting -= 1
                self._waiting_of_peer[peer] -= 1
                if not self._waiting_of_peer[peer]:
                    del self._waiting_of_peer[peer]

        return wait()

    async def _decide_again(self, review: _OpenReview, refused: Answer, earlier_state: State) -> Reply:
        """Decide a refused review again after a moment: a DeviceClass may have been created just before the first pod that names it.

        If the state has not changed, the refusal is final, unless the budget ended before its reason was complete: then a worker decides.
        """
        await asyncio.sleep(self._limits.recheck_delay)
        # Reviews that were refused in one turn of the event loop wake up in one turn; the queue spreads them over several.
        await self._listener.queue.wait_turn()
        answer: Answer | None = refused
        state = self._decider.state()
        if state is not earlier_state:
            answer = self._decide_on_loop(review, state)
        if answer is None or answer.record.outcome == UNDECIDED or answer.is_late:
            # The new decision had too little time, so it must not replace the refusal.
            return await self._decide_in_worker(review, answer)
        return self._record_decision(review, answer)

    async def _await_templates(self, review: _OpenReview, answer: Answer) -> Reply:
        """Answer once the templates exist, or after a moment. If they are missing, the claim controller writes an Event on the pod."""
        until = monotonic() + self._limits.recheck_delay
        while monotonic() < until and self._decider.awaits_template(answer):  # noqa: ASYNC110  the state is replaced as a whole
            await asyncio.sleep(POLL_SECONDS)
        return self._record_decision(review, answer)

    async def _decide_in_worker(self, review: _OpenReview, otherwise: Answer | None = None) -> Reply:
        """Decide in a worker. If the worker does not decide in time, the answer is `otherwise`, or else the object is allowed unchanged."""
        state = self._decider.state()
        seconds = self._limits.worker_seconds
        path, body = review.path, review.body

        def decide(path: str, body: bytes) -> _Decided:
            try:
                return _Decided(self._decider.decide(path, body, state, seconds * WORKER_CPU_SHARE))
            except ReviewError as error:
                return _Decided(None, error.status, str(error))

        try:
            requester = Requester(_namespace(body), review.peer, len(body) * SECONDS_OF_BYTE)
            decided = await self._pool.decide(decide, state, path, body, seconds, requester=requester)
        except Undecided as error:
            note = {"path": path, "bytes": len(body), "problem": str(error)}
            logger.warning("a review was not decided", extra=note)
            # Many workers can end at the same time, and `answer_timeout` decodes the review again on the loop.
            await self._listener.queue.wait_turn()
            return self._record_decision(review, otherwise or answer_timeout(path, body, state))
        if decided.answer is None:
            raise ReviewError(decided.status, decided.problem)
        return self._record_decision(review, decided.answer)

    def _record_decision(self, review: _OpenReview, answer: Answer) -> Reply:
        seconds = monotonic() - review.arrived
        self._metrics.count_decision(f"/{review.path}", answer.record, seconds)
        self._decisions.write(answer.record, seconds)
        return Reply(200, answer.body, "application/json")

    def _fail(self, path: str, error: Exception) -> Reply:
        """Answer an error with an HTTP status, to which the API server applies its failurePolicy."""
        if isinstance(error, ReviewError):
            logger.warning("review refused", extra={"path": path, "status": error.status, "problem": str(error)})
            return self._count(path, text(error.status, str(error)))
        note = {"path": path}
        if isinstance(error, Bug):  # with the traceback of the worker
            note["exception"] = str(error)
        logger.error(
            "a bug while deciding; please report it", extra=note, exc_info=None if isinstance(error, Bug) else error
        )
        return self._count(path, text(500, BUG))

    def _turn_away(self, path: str) -> Reply:
        return self._count(path, text(503, "too many reviews in flight", ("Retry-After", "1")))

    def _count(self, path: str, reply: Reply) -> Reply:
        self._metrics.count_refusal(f"/{path}", reply.status)
        return reply


# API servers write the namespace of a review before its object, near the beginning.
_NAMESPACE = re.compile(rb'"namespace": ?"([^"]{1,63})"')
_OPENING = 2048


def _namespace(body: bytes) -> str:
    """Return the namespace of a review without decoding it. A wrong one is harmless: it only affects the order of answers."""
    match = _NAMESPACE.search(body, 0, _OPENING)
    return match[1].decode("latin-1") if match else ""
