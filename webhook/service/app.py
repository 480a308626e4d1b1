"""The rim of admission: requests come in, bytes of a review's answer go out. It decides nothing.

It guarantees one thing: the API server always gets an answer fast: a decision, or a status that lets its failurePolicy
act. A small review is decided at once, within a budget; a large one, and one that exceeds the budget, in a worker that can
be killed; an object that no worker decides in time is allowed as it is, with a warning. Decisions check the budget in every loop over
what a caller sent (`tests/webhook/service/test_charged.py`), so no review holds another for much longer than `DecisionLimits.hold`, and an account
that asks for much waits behind the others for a while (`runtime.http.fair_queue`). When more comes than can
be decided, the answer is 503 at once; a bug of ours is 500 with a log line.
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
from runtime.metrics import readiness
from runtime.workers import Bug, Requester, Undecided, WorkerPool
from webhook.admission import REFUSED, UNDECIDED, Answer, ReviewError, answer_timeout
from webhook.service.deciding.limits import DecisionLimits
from webhook.service.log import Decisions
from webhook.service.settings import LINGER

if TYPE_CHECKING:
    import ssl
    from collections.abc import Coroutine, Mapping

    from runtime.http import Head
    from webhook.service.deciding.decider import ReviewDecider
    from webhook.service.metrics import WebhookMetrics
    from webhook.state import State

logger = logging.getLogger("drawbridge.webhook")

# The share of a worker's time after which searches end.
PATIENCE = 0.66
# What a worker needs for a byte, at most: decoding 3 MB of empty members takes a second.
SECONDS_OF_BYTE = 0.35e-6
# How many of the reviews that may wait are of one peer, at most.
PEER_SHARE = 0.75
# How often it is looked whether a template has come.
POLL_SECONDS = 0.01
BUG = "internal error, see the log of drawbridge"


class _OpenReview(NamedTuple):
    """A review on its way; `arrived` is when it was whole, `started` when its turn had come.

    By `monotonic`: uvloop's clock counts milliseconds, and most reviews take less than one.
    """

    path: str
    body: bytes
    peer: str
    arrived: float
    started: float


class _Decided(msgspec.Struct):
    """What a worker made of a review: an outcome, or the status of a ReviewError and what it says."""

    outcome: Answer | None
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
        """`limits` are of what is decided at a time, `connections` of what is let in."""
        self._callers = callers or Callers(Credentials())
        self._decisions = decisions or Decisions()
        self._decider = decider
        self._metrics = metrics
        self._limits = limits or DecisionLimits()
        self._listener = Listener(self, connections or Limits(), metrics.count_closure, _namespace)
        self._pool = WorkerPool(self._limits.workers, _Decided, turn=self._listener.queue.wait_turn)
        self._waiting = 0
        self._waiting_of_peer: Counter[str] = Counter()
        # The longest that one review has held the loop, in seconds.
        self.longest_hold = 0.0

    async def start(self, host: str, port: int, tls: ssl.SSLContext) -> int:
        """Listen; return the port."""
        self._callers.prepare(tls)
        return self._listener.open(host, port, tls)

    async def drain(self, *, notice: float, grace: float, linger: float = LINGER) -> None:
        """Say unready, serve on for `notice` seconds while others notice, then finish what is in flight.

        From the first moment each answer closes its connection. A connection that is idle then is not closed under its client before
        `linger` times the notice is over.
        """
        self._listener.draining = True
        if self._listener.is_open:
            await asyncio.sleep(notice)
        await self._listener.end(grace, linger * notice)
        self._pool.close()

    @property
    def workers(self) -> Mapping[str, int]:
        """What became of the reviews that were decided in workers, and how many workers were made and ended."""
        return self._pool.counts

    def close(self) -> None:
        """Take no new connection any more."""
        self._listener.close()

    # ---- one request

    def refuse(self, head: Head) -> Reply | None:
        """Refuse a request before its body is read, or not."""
        if head.path not in ("/mutate", "/validate") or head.method != "POST":
            if head.length <= 0:
                return None
            return text(405 if head.path in _PATHS else 404, "no body is expected here", close=True)
        refused = None
        most = self._listener.limits.body
        if not self._callers.may_ask(head):
            refused = text(401, "authentication required: reviews are answered for the API server only", close=True)
        elif head.length > most:
            refused = text(413, f"a review has at most {most} bytes", close=True)
        elif (
            head.headers.get("Content-Type", "").partition(";")[0].strip().lower() != "application/json"
            or "Content-Encoding" in head.headers
        ):
            refused = text(415, "send a review as application/json, not compressed", close=True)
        if refused is not None:
            self._metrics.count_refusal(head.path, refused.status)
        return refused

    def answer(self, head: Head, body: bytes) -> Reply | Coroutine[None, None, Reply]:
        """Answer one request."""
        path, method = head.path, head.method
        if path in ("/mutate", "/validate"):
            if method != "POST":
                return text(405, f"{path} takes POST only", ("Allow", "POST"))
            now = monotonic()
            return self._review(_OpenReview(path[1:], body, head.peer, now - self._listener.queue.waited, now))
        if path not in _PATHS:
            return text(404, "not found: this port serves /mutate, /validate, /livez and /readyz")
        if method not in ("GET", "HEAD"):
            return text(405, f"{path} takes GET, HEAD only", ("Allow", "GET, HEAD"))
        if path == "/livez":
            reply = text(200, "ok")
        else:
            checks = dict(self._decider.unready())
            if self._listener.draining:
                checks["serving"] = "shutting down"
            reply = readiness(checks, self._decider.notes(), verbose="verbose" in head.query)
        if method == "HEAD":
            return reply._replace(body=b"")
        return reply

    # ---- reviews

    def _review(self, review: _OpenReview) -> Reply | Coroutine[None, None, Reply]:
        """Decide a small review now, for as long as it may hold the loop; what needs more is answered later."""
        limits = self._limits
        # A process that was not given the machine for a while has a slow queue, too, but a short one.
        if review.started - review.arrived > limits.line and len(self._listener.queue) >= limits.crowd:
            return self._turn_away(review.path)
        state = self._decider.state()
        try:
            outcome = self._decide_here(review, state)
        except Exception as error:  # noqa: BLE001  each review is answered
            return self._fail(review.path, error)
        finally:
            self.longest_hold = max(self.longest_hold, monotonic() - review.started)
        if outcome is None:
            return self._answer_later(review, self._decide_in_worker(review))
        later = self._look_further(review, outcome, state) if 2 * (self._waiting + 1) <= limits.reviews else None
        return self._answer_later(review, later) if later else self._record_decision(review, outcome)

    def _decide_here(self, review: _OpenReview, state: State) -> Answer | None:
        """Decide a review on the loop; None if it is too large for that."""
        limits, body = self._limits, review.body
        # A body with fewer bytes has no more members.
        if len(body) > limits.inline or (len(body) > limits.members and count_members(body) > limits.members):
            return None
        return self._decider.decide(review.path, body, state, limits.hold)

    def _look_further(self, review: _OpenReview, outcome: Answer, state: State) -> Coroutine[None, None, Reply] | None:
        """Return the work that may change an answer, or has to precede it; None if the answer can be sent."""
        if outcome.record.outcome == REFUSED:
            return self._decide_again(review, outcome, state)
        if outcome.record.outcome == UNDECIDED:
            # Here it may take little, and nothing in one piece; a worker may take its time.
            return self._decide_in_worker(review, outcome)
        return self._await_templates(review, outcome) if self._decider.is_early(outcome) else None

    def _answer_later(
        self, review: _OpenReview, answer: Coroutine[None, None, Reply]
    ) -> Reply | Coroutine[None, None, Reply]:
        """Answer when there is an answer, unless too many wait already, or too many of this peer."""
        most, peer = self._limits.reviews, review.peer
        if self._waiting >= most or self._waiting_of_peer[peer] >= PEER_SHARE * most:
            answer.close()
            return self._turn_away(review.path)
        # Now, not when the work begins: of many that arrive in one turn each would find the others not there.
        self._waiting += 1
        self._waiting_of_peer[peer] += 1

        async def wait() -> Reply:
            try:
                return await answer
            except Exception as error:  # noqa: BLE001  each review is answered
                return self._fail(review.path, error)
            finally:
                self._waiting -= 1
                self._waiting_of_peer[peer] -= 1
                if not self._waiting_of_peer[peer]:
                    del self._waiting_of_peer[peer]

        return wait()

    async def _decide_again(self, review: _OpenReview, refused: Answer, earlier_state: State) -> Reply:
        """Look a second time at what is refused: a class may have come just before its first pod.

        Where nothing has come, the first refusal stands; where there was no time to say what would fit, a worker does.
        """
        await asyncio.sleep(self._limits.second_look)
        # All that were refused in one turn come back in one; each is a piece of work for the loop.
        await self._listener.queue.wait_turn()
        outcome: Answer | None = refused
        state = self._decider.state()
        if state is not earlier_state:
            outcome = self._decide_here(review, state)
        if outcome is None or outcome.record.outcome == UNDECIDED or outcome.is_late:
            # It was refused, and is not told anything else because this look was shorter.
            return await self._decide_in_worker(review, outcome)
        return self._record_decision(review, outcome)

    async def _await_templates(self, review: _OpenReview, outcome: Answer) -> Reply:
        """Answer when the templates are there: else the claim controller would not find them, and tell the pod so."""
        until = monotonic() + self._limits.second_look
        while monotonic() < until and self._decider.is_early(outcome):  # noqa: ASYNC110  the state is replaced as a whole
            await asyncio.sleep(POLL_SECONDS)
        return self._record_decision(review, outcome)

    async def _decide_in_worker(self, review: _OpenReview, otherwise: Answer | None = None) -> Reply:
        """Decide in a worker; `otherwise` is the answer if it does not, where there is one."""
        state = self._decider.state()
        patience = self._limits.patience
        path, body = review.path, review.body

        def decide(path: str, body: bytes) -> _Decided:
            try:
                return _Decided(self._decider.decide(path, body, state, patience * PATIENCE))
            except ReviewError as error:
                return _Decided(None, error.status, str(error))

        try:
            requester = Requester(_namespace(body), review.peer, len(body) * SECONDS_OF_BYTE)
            decided = await self._pool.decide(decide, state, path, body, patience, requester=requester)
        except Undecided as error:
            note = {"path": path, "bytes": len(body), "problem": str(error)}
            logger.warning("a review was not decided", extra=note)
            # Workers end together, and to answer for one is to read its review again.
            await self._listener.queue.wait_turn()
            return self._record_decision(review, otherwise or answer_timeout(path, body, state))
        if decided.outcome is None:
            raise ReviewError(decided.status, decided.problem)
        return self._record_decision(review, decided.outcome)

    def _record_decision(self, review: _OpenReview, outcome: Answer) -> Reply:
        seconds = monotonic() - review.arrived
        self._metrics.count_decision(f"/{review.path}", outcome.record, seconds)
        self._decisions.write(outcome.record, seconds)
        return Reply(200, outcome.body, "application/json")

    def _fail(self, path: str, error: Exception) -> Reply:
        """Answer with a status: the API server's failurePolicy decides what it means for the pod, not a broken connection."""
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


_PATHS = ("/mutate", "/validate", "/livez", "/readyz")
# An API server says the namespace before the object, and soon.
_NAMESPACE = re.compile(rb'"namespace": ?"([^"]{1,63})"')
_OPENING = 2048


def _namespace(body: bytes) -> str:
    """Say on whose account a review is, without reading it. It need not be true: it decides which review waits for which."""
    found = _NAMESPACE.search(body, 0, _OPENING)
    return found[1].decode("latin-1") if found else ""
