"""Computes questions that may take long. A question is a function of a `Decider` and immutable values; it changes nothing.

A question is first computed on the event loop. If that takes longer than a turn, the question's budget ends the attempt, and a thread
computes the whole question again. The loop and each thread have their own `Decider`, because its caches are not thread-safe.

At most two questions are computed in threads at the same time: one scheduling question and one search for victims. Each kind has a queue
(`_Lane`). The question whose namespace owes the least time (`NamespaceTurns`) is computed next. A search pauses while a scheduling question
waits or runs.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from threading import Event, Thread
from time import monotonic, thread_time
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from allocator.decisions import Decider

if TYPE_CHECKING:
    from collections.abc import Callable

    from allocator.service.namespace_turns import NamespaceTurns

T = TypeVar("T")
MILLISECONDS = 20  # CPU time of a question on the event loop; a single uninterruptible call may exceed this
TURN = MILLISECONDS / 1000
SWITCH_SECONDS = 0.001  # the interpreter's switch interval: how long a thread may keep the event loop waiting
REST = 2.5  # seconds that a search may pause in total, so that it ends before the scheduler's timeout
SECONDS = 4.5  # for a question in the thread; a scheduler waits five seconds for the answer
_LATE: Final = object()


class QuestionRunner:
    """Computes questions and charges their time to the pods' namespaces."""

    def __init__(self, turns: NamespaceTurns, turn: float = TURN) -> None:
        self._turns = turns
        self._turn = turn
        self.seconds = SECONDS
        self._loop = asyncio.get_running_loop()
        self._on_loop = Decider()
        self._questions, self._searches = _Lane(), _Lane()
        self._no_question = Event()  # set while no scheduling question waits or runs
        self._no_question.set()

    def answer_within_turn(self, namespace: str, question: Callable[[Decider], T], default: T) -> T:
        """Compute a question on the event loop; return `default` if that takes longer than a turn."""
        begun, worked = monotonic(), thread_time()
        is_late = False

        def is_abandoned() -> bool:
            nonlocal is_late
            is_late = is_late or thread_time() - worked > self._turn
            return is_late

        self._on_loop.is_abandoned = is_abandoned
        try:
            answer = question(self._on_loop)
        finally:
            self._turns.owe(namespace, monotonic() - begun, thread_time() - worked)
        return default if is_late else answer

    async def answer(self, namespace: str, question: Callable[[Decider], T]) -> T:
        """Compute a question on the event loop or, if that takes longer than a turn, in the thread, for at most `self.seconds`.

        If the caller is cancelled, the question ends.
        """
        return await self._answer(self._questions, namespace, question, self.seconds)

    async def search(self, namespace: str, question: Callable[[Decider], T], seconds: float) -> T:
        """Compute a search for victims like `answer`, in the searches' own thread. Pauses do not count towards `seconds`."""
        return await self._answer(self._searches, namespace, question, seconds)

    async def answer_in_thread(self, namespace: str, question: Callable[[Decider], T]) -> T:
        """Compute a question in the thread, without trying the event loop first."""
        return await self._enqueue(self._questions, namespace, question, self.seconds)

    async def _answer(self, lane: _Lane, namespace: str, question: Callable[[Decider], T], seconds: float) -> T:
        late = cast("T", _LATE)
        answer = self.answer_within_turn(namespace, question, late)
        return answer if answer is not late else await self._enqueue(lane, namespace, question, seconds)

    async def _enqueue(self, lane: _Lane, namespace: str, question: Callable[[Decider], T], seconds: float) -> T:
        long_question = _LongQuestion(namespace, question, seconds, self._loop.create_future())
        lane.waiting.append(long_question)
        self._begin_next(lane)
        answer: T = await long_question.answer
        return answer

    def close(self) -> None:
        """Cancel all questions."""
        for lane in (self._questions, self._searches):
            for question in (*lane.waiting, *([lane.running] if lane.running else [])):
                question.answer.cancel()

    def _begin_next(self, lane: _Lane) -> None:
        """If the lane's thread is free, start the question whose namespace owes the least time."""
        lane.waiting = [question for question in lane.waiting if not question.answer.done()]
        while lane.running is None and lane.waiting:
            question = min(lane.waiting, key=lambda question: self._turns.owed(question.namespace))
            lane.waiting.remove(question)
            try:
                Thread(target=self._compute, args=(lane, question), name="question", daemon=True).start()
            except RuntimeError as error:  # the process may have no further thread
                question.answer.set_exception(error)
            else:
                lane.running = question
        if self._questions.running is None:
            self._no_question.set()
        else:
            self._no_question.clear()

    def _compute(self, lane: _Lane, question: _LongQuestion) -> None:
        """Compute a question, in the lane's thread."""
        begun, paused = monotonic(), 0.0

        def is_abandoned() -> bool:
            nonlocal paused
            is_search = lane is self._searches
            while is_search and paused < REST and not (question.answer.cancelled() or self._no_question.is_set()):
                pause_start = monotonic()
                self._no_question.wait(REST - paused)
                paused += monotonic() - pause_start
            return question.answer.cancelled() or monotonic() - begun - paused > question.seconds

        lane.decider.is_abandoned = is_abandoned
        try:
            question.value = question.compute(lane.decider)
        except BaseException as error:  # noqa: BLE001  `_end` raises it in the caller
            question.error = error
        question.took = monotonic() - begun - paused
        question.worked = thread_time()  # each question has a new thread
        with suppress(RuntimeError):  # the loop is closed: the process ends
            self._loop.call_soon_threadsafe(self._end, lane, question)

    def _end(self, lane: _Lane, question: _LongQuestion) -> None:
        """Answer the caller of a computed question, and start the next question. This runs on the event loop."""
        lane.running = None
        self._turns.owe(question.namespace, question.took, question.worked)
        if not question.answer.done():
            if question.error is not None:
                question.answer.set_exception(question.error)
            else:
                question.answer.set_result(question.value)
        self._begin_next(lane)


class _LongQuestion:
    """A question that waits for a thread or runs in one."""

    def __init__(
        self, namespace: str, compute: Callable[[Decider], Any], seconds: float, answer: asyncio.Future[Any]
    ) -> None:
        self.namespace = namespace
        self.compute = compute
        self.seconds = seconds
        self.answer = answer
        self.value: Any = None
        self.error: BaseException | None = None
        self.took = self.worked = 0.0


class _Lane:
    """The questions of one kind: at most one runs in a thread, the others wait."""

    def __init__(self) -> None:
        self.decider = Decider()
        self.waiting: list[_LongQuestion] = []
        self.running: _LongQuestion | None = None
