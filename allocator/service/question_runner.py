"""Questions that may take long: functions of immutable values, which write nothing.

A question is computed on the loop first. One that takes longer than a turn is given up there, through its budget, and computed as a
whole in one thread beside the loop. As a question changes nothing, to give it up or to compute it twice does no harm. The two sides have
a `Decider` each: what a decider remembers is not shared between threads, and stocks are immutable.

Of the questions that wait for the thread, the next one is of the namespace that owes least (`NamespaceTurns`).
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from threading import Thread
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
SECONDS = 4.5  # for a question in the thread: a scheduler waits for five
_LATE: Final = object()


class QuestionRunner:
    """Computes questions, and has their namespaces owe the time."""

    def __init__(self, turns: NamespaceTurns, turn: float = TURN) -> None:
        self._turns = turns
        self._turn = turn
        self._loop = asyncio.get_running_loop()
        self._on_loop, self._in_thread = Decider(), Decider()
        self._waiting: list[_LongQuestion] = []
        self._running: _LongQuestion | None = None

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
        late = cast("T", _LATE)
        answer = self.within_turn(namespace, question, late)
        return answer if answer is not late else await self.ask_thread(namespace, question, seconds)

    async def ask_thread(self, namespace: str, question: Callable[[Decider], T], seconds: float = SECONDS) -> T:
        """Compute a question in the thread, after the questions of namespaces that owe less."""
        long_question = _LongQuestion(namespace, question, seconds, self._loop.create_future())
        self._waiting.append(long_question)
        self._begin_next()
        found: T = await long_question.answer
        return found

    def close(self) -> None:
        """Give up all questions."""
        for one in (*self._waiting, *([self._running] if self._running else [])):
            one.answer.cancel()

    def _begin_next(self) -> None:
        """Begin with the question of the namespace that owes least, if the thread is free."""
        self._waiting = [one for one in self._waiting if not one.answer.done()]
        if self._running is None and self._waiting:
            self._running = min(self._waiting, key=lambda one: self._turns.owed(one.namespace))
            self._waiting.remove(self._running)
            Thread(target=self._compute, args=(self._running,), name="question", daemon=True).start()

    def _compute(self, one: _LongQuestion) -> None:
        begun = monotonic()
        until = begun + one.seconds
        self._in_thread.is_impatient = lambda: one.answer.cancelled() or monotonic() > until
        try:
            one.value = one.question(self._in_thread)
        except BaseException as error:  # noqa: BLE001  raised again where it was asked
            one.error = error
        one.took, one.worked = monotonic() - begun, thread_time()  # this thread computes nothing else
        with suppress(RuntimeError):  # the loop is closed: the process ends
            self._loop.call_soon_threadsafe(self._end, one)

    def _end(self, one: _LongQuestion) -> None:
        self._running = None
        self._turns.owe(one.namespace, one.took, one.worked)
        if not one.answer.done():
            if one.error is not None:
                one.answer.set_exception(one.error)
            else:
                one.answer.set_result(one.value)
        self._begin_next()


class _LongQuestion:
    """A question that waits for the thread, or is computed there."""

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
