"""Questions that take long, decided a piece at a time, so that everything else on the loop has its turn in between.

To evaluate selectors, or to search, is one deep call that cannot be left and entered again. One that takes longer than a turn is given up
and begun anew in its own thread. That thread works only while the loop waits for it, and stops where it charges its budget: two are
never at work at once, so what they share needs no lock. Its result is remembered with the question, and the whole call is made again: writes,
and what they rest on, stay within one turn of the loop. A question is the function and its arguments, the stock among them, so no answer
can be taken for that of another question.
"""

from __future__ import annotations

import asyncio
from functools import partial
from math import inf
from threading import Semaphore, Thread
from time import monotonic, thread_time
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from allocator.decisions import BY_DEFAULT, Decider

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from allocator.decisions import Outlooks, Serving
    from allocator.one_node import Options
    from allocator.service.namespace_turns import NamespaceTurns
    from allocator.strategies import Placement
    from dra.objects import Pod
    from dra.stock import Stock

    _Found = list[tuple[partial[Any], Any]]  # questions, and what was found for each

P = ParamSpec("P")
T = TypeVar("T")
MILLISECONDS = 20  # of the processor; one charge that cannot be ended halfway comes on top
TURN = MILLISECONDS / 1000
TRIES = 8  # parts of a question that take long, before the rest is decided in one turn


class TurnEnded(BaseException):
    """A turn is over. No Exception, so that nothing in between takes it for an answer."""

    question: partial[Any]  # that it interrupted


class PiecewiseDecider(Decider):
    """A decider for calls on a loop."""

    def __init__(self, turns: NamespaceTurns, turn: float = TURN) -> None:
        super().__init__()
        self._turn = turn
        self.spent = 0.0  # seconds that earlier turns took of the answer that is made now
        self._turns = turns
        self._turn_ends = inf  # of the call that is made now
        self._until = inf  # when a question is interrupted: never, if it could not be asked again
        self._work: _Work | None = None
        self._one_at_a_time = asyncio.Lock()
        self._found: _Found | None = None  # of the call that is made now

    async def answer(self, namespace: str, call: Callable[[], T]) -> T:
        """Make a call that asks this decider, and again after each part of it that takes long; the namespace owes the time."""
        found: _Found = []
        spent = 0.0
        try:
            for turn in (*[self._turn] * TRIES, inf):
                self._found, self.spent, self._turn_ends = found, spent, thread_time() + turn
                try:
                    return call()
                except TurnEnded as end:
                    question = end.question
                finally:
                    self._found, self.spent, self._turn_ends = None, 0.0, inf
                async with self._one_at_a_time:
                    work = _Work(question, self._turn)
                    try:
                        while not work.is_done:
                            await asyncio.sleep(0)
                            self._go_on(work)
                    finally:
                        work.is_abandoned = True
                        while not work.is_done:
                            self._go_on(work)
                        spent += work.seconds
                    found.append((question, work.result()))
            raise AssertionError("the last turn has no end")
        finally:
            if spent:
                self._turns.owe(namespace, spent)

    def once(self, compute: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
        """Compute a value once for an answer, also if that takes several turns. It is found again by the function and all of its arguments."""
        question = partial(compute, *arguments, **options)
        for earlier, value in self._found or ():
            if (earlier.func, earlier.args, earlier.keywords) == (question.func, question.args, question.keywords):
                return cast("T", value)
        self._until = self._turn_ends
        try:
            value = question()
        except TurnEnded as end:
            end.question = question
            raise
        finally:
            self._until = inf
        if self._found is not None:
            self._found.append((question, value))
        return value

    def outlook(
        self,
        pod: Pod,
        stock: Stock,
        placement: Placement = BY_DEFAULT,
        crowded: Mapping[str, str] = MappingProxyType({}),
    ) -> Outlooks:
        return self.once(super().outlook, pod, stock, placement, crowded)

    def by_plugin(self, pod: Pod, stock: Stock, placement: Placement, crowded: Mapping[str, str]) -> Outlooks:
        return self.once(super().by_plugin, pod, stock, placement, crowded)

    def serve(
        self, pod: Pod, node: str, stock: Stock, placement: Placement = BY_DEFAULT, *, uncached: Options | None = None
    ) -> Serving | str:
        # Of a stock that has changed since an earlier turn it is asked again, which is quick: what is reserved rests on the stock of this turn.
        if uncached is not None:
            return super().serve(pod, node, stock, placement, uncached=uncached)
        return self.once(super().serve, pod, node, stock, placement)

    def may_fit(self, pod: Pod, stock: Stock, crowded: Mapping[str, str] = MappingProxyType({})) -> bool:
        """Say whether some node may serve a pod now; of one that takes long to decide on, that one may."""
        self._until = thread_time() + self._turn
        try:
            return super().may_fit(pod, stock, crowded)
        except TurnEnded:
            return True
        finally:
            self._until = inf

    def is_impatient(self) -> bool:
        """Leave the work for now if its turn is over; say whether it was given up."""
        if self._work is not None:
            return self._work.pause()
        if thread_time() > self._until:
            raise TurnEnded
        return False

    def _go_on(self, work: _Work) -> None:
        self._work = work
        try:
            work.go_on()
        finally:
            self._work = None


class _Work:
    """A question in a thread, which works while `go_on` waits."""

    def __init__(self, ask: Callable[[], Any], turn: float) -> None:
        self._turn = turn
        self.is_done = self.is_abandoned = False
        self.seconds = 0.0  # for which the loop waited
        self._ask = ask
        self._result: Any = None
        self._error: BaseException | None = None
        self._until = 0.0
        self._begins, self._ends = Semaphore(0), Semaphore(0)  # turns
        Thread(target=self._do, name="question", daemon=True).start()

    def go_on(self) -> None:
        """Let it work for a turn."""
        begun = monotonic()
        self._begins.release()
        self._ends.acquire()
        self.seconds += monotonic() - begun

    def pause(self) -> bool:
        """From within the work: wait for the next turn if this one is over; say whether the work was given up."""
        if thread_time() > self._until and not self.is_abandoned:
            self._ends.release()
            self._begin()
        return self.is_abandoned

    def result(self) -> Any:
        """Return what was found, or raise what was raised."""
        if self._error is not None:
            raise self._error
        return self._result

    def _begin(self) -> None:
        self._begins.acquire()
        self._until = thread_time() + self._turn

    def _do(self) -> None:
        self._begin()
        try:
            self._result = self._ask()
        except BaseException as error:  # noqa: BLE001  raised again where it was asked
            self._error = error
        self.is_done = True
        self._ends.release()
