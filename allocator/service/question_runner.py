"""Questions that may take long: functions of immutable values, which write nothing.

A question is computed on the loop first. One that takes longer than a turn is given up there, through its budget, and computed as a
whole in one thread beside the loop. As a question changes nothing, to give it up or to compute it twice does no harm. The two sides have
a `Decider` each: what a decider remembers is not shared between threads, and stocks are immutable.

Of the questions that wait for the thread, the next one is of the namespace that owes least (`NamespaceTurns`).

A search for victims has a thread of its own, which rests while a question waits for the other thread or is computed there.
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
MILLISECONDS = 20  # of the processor on the loop; one call that cannot be ended halfway comes on top
TURN = MILLISECONDS / 1000
SWITCH_SECONDS = 0.001  # for which the thread holds the interpreter while the loop has something to do
REST = 2.5  # seconds for which a search rests in all: together with its own time less than its scheduler waits
SECONDS = 4.5  # for a question in the thread: a scheduler waits for five
_LATE: Final = object()


class QuestionRunner:
    """Computes questions, and has their namespaces owe the time."""

    def __init__(self, turns: NamespaceTurns, turn: float = TURN) -> None:
        self._turns = turns
        self._turn = turn
        self._loop = asyncio.get_running_loop()
        self._on_loop = Decider()
        self._questions, self._searches = _Lane(), _Lane()
        self._no_question = Event()  # none waits or is computed
        self._no_question.set()

    def within_turn(self, namespace: str, question: Callable[[Decider], T], otherwise: T) -> T:
        """Compute a question on the loop; return `otherwise` if that takes longer than a turn."""
        begun, worked = monotonic(), thread_time()
        is_late = False

        def is_impatient() -> bool:
            nonlocal is_late
            is_late = is_late or thread_time() - worked > self._turn
            return is_late

        self._on_loop.is_impatient = is_impatient
        answer = question(self._on_loop)
        self._turns.owe(namespace, monotonic() - begun, thread_time() - worked)
        return otherwise if is_late else answer

    async def ask(self, namespace: str, question: Callable[[Decider], T], seconds: float = SECONDS) -> T:
        """Compute a question, in so many seconds if it takes long. A question of which the caller is cancelled is given up."""
        return await self._ask(self._questions, namespace, question, seconds)

    async def search(self, namespace: str, question: Callable[[Decider], T], seconds: float) -> T:
        """Compute a search for victims, in so many seconds if it takes long. While it rests its time does not count."""
        return await self._ask(self._searches, namespace, question, seconds)

    async def ask_thread(self, namespace: str, question: Callable[[Decider], T]) -> T:
        """Compute a question in the thread, after the questions of namespaces that owe less."""
        return await self._enqueue(self._questions, namespace, question, SECONDS)

    async def _ask(self, lane: _Lane, namespace: str, question: Callable[[Decider], T], seconds: float) -> T:
        late = cast("T", _LATE)
        answer = self.within_turn(namespace, question, late)
        return answer if answer is not late else await self._enqueue(lane, namespace, question, seconds)

    async def _enqueue(self, lane: _Lane, namespace: str, question: Callable[[Decider], T], seconds: float) -> T:
        one = _LongQuestion(namespace, question, seconds, self._loop.create_future())
        lane.waiting.append(one)
        self._begin_next(lane)
        answer: T = await one.answer
        return answer

    def close(self) -> None:
        """Give up all questions."""
        for lane in (self._questions, self._searches):
            for one in (*lane.waiting, *([lane.running] if lane.running else [])):
                one.answer.cancel()

    def _begin_next(self, lane: _Lane) -> None:
        """Begin with the question of the namespace that owes least, if the thread is free."""
        lane.waiting = [one for one in lane.waiting if not one.answer.done()]
        if lane.running is None and lane.waiting:
            lane.running = min(lane.waiting, key=lambda one: self._turns.owed(one.namespace))
            lane.waiting.remove(lane.running)
            Thread(target=self._compute, args=(lane, lane.running), name="question", daemon=True).start()
        if self._questions.running is None:
            self._no_question.set()
        else:
            self._no_question.clear()

    def _compute(self, lane: _Lane, one: _LongQuestion) -> None:
        begun, rested = monotonic(), 0.0

        def is_impatient() -> bool:
            nonlocal rested
            while (
                lane is self._searches and rested < REST and not (one.answer.cancelled() or self._no_question.is_set())
            ):
                resting = monotonic()
                self._no_question.wait(REST - rested)
                rested += monotonic() - resting
            return one.answer.cancelled() or monotonic() - begun - rested > one.seconds

        lane.decider.is_impatient = is_impatient
        try:
            one.value = one.question(lane.decider)
        except BaseException as error:  # noqa: BLE001  raised again where it was asked
            one.error = error
        one.took, one.worked = monotonic() - begun - rested, thread_time()  # this thread computes nothing else
        with suppress(RuntimeError):  # the loop is closed: the process ends
            self._loop.call_soon_threadsafe(self._end, lane, one)

    def _end(self, lane: _Lane, one: _LongQuestion) -> None:
        lane.running = None
        self._turns.owe(one.namespace, one.took, one.worked)
        if not one.answer.done():
            if one.error is not None:
                one.answer.set_exception(one.error)
            else:
                one.answer.set_result(one.value)
        self._begin_next(lane)


class _LongQuestion:
    """A question that waits for its thread, or is computed there."""

    def __init__(
        self, namespace: str, question: Callable[[Decider], Any], seconds: float, answer: asyncio.Future[Any]
    ) -> None:
        self.namespace = namespace
        self.question = question
        self.seconds = seconds
        self.answer = answer
        self.value: Any = None
        self.error: BaseException | None = None
        self.took = self.worked = 0.0


class _Lane:
    """Questions that share a thread."""

    def __init__(self) -> None:
        self.decider = Decider()
        self.waiting: list[_LongQuestion] = []
        self.running: _LongQuestion | None = None
