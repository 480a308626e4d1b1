"""Questions that take long, decided a piece at a time, so that everything else on the loop has its turn in between.

To evaluate selectors, or to search, is one deep call that cannot be left and entered again. One that takes longer than a turn is given up
and begun anew in its own thread. That thread works only while the loop waits for it, and stops where it charges its budget: two are
never at work at once, so what they share needs no lock. Its result is remembered, and the whole question is asked again: writes, and what
they rest on, stay within one turn of the loop.
"""

from __future__ import annotations

import asyncio
from functools import partial
from math import inf
from threading import Semaphore, Thread
from time import monotonic, thread_time
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from allocator.decisions import BY_DEFAULT, Decider

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from allocator.decisions import Outlooks, Serving, Unserved
    from allocator.one_node import Options
    from allocator.service.namespace_turns import NamespaceTurns
    from allocator.strategies import Placement
    from dra.objects import Pod
    from dra.stock import Stock

    Ask = Callable[[], Any]

T = TypeVar("T")
MILLISECONDS = 20  # of the processor; one charge that cannot be ended halfway comes on top
TURN = MILLISECONDS / 1000
TRIES = 8  # parts of a question that take long, before the rest is decided in one turn


class TurnEnded(BaseException):
    """A turn is over. No Exception, so that nothing in between takes it for an answer."""


class PiecewiseDecider(Decider):
    """A decider for calls on a loop."""

    def __init__(self, turns: NamespaceTurns, turn: float = TURN) -> None:
        super().__init__()
        self._turn = turn
        self.spent = 0.0  # seconds that earlier turns took of the answer that is made now
        self._turns = turns
        self._until = inf
        self._work: _Work | None = None
        self._one_at_a_time = asyncio.Lock()
        self._found: dict[object, Any] = {}
        self._outlooks = 0  # that this turn of the call has asked for
        self._interrupted: tuple[object, Ask] = "", lambda: None

    async def answer(self, namespace: str, call: Callable[[], T]) -> T:
        """Make a call that asks this decider, and again after each part of it that takes long; the namespace owes the time."""
        found: dict[object, Any] = {}
        spent = 0.0
        try:
            for turn in (*[self._turn] * TRIES, inf):
                self._found, self.spent, self._outlooks = found, spent, 0
                try:
                    return self._in_one_turn(call, turn)
                except TurnEnded:
                    question, ask = self._interrupted
                finally:
                    self._found, self.spent = {}, 0.0
                async with self._one_at_a_time:
                    work = _Work(ask, self._turn)
                    try:
                        while not work.is_done:
                            await asyncio.sleep(0)
                            self._go_on(work)
                    finally:
                        work.is_abandoned = True
                        while not work.is_done:
                            self._go_on(work)
                        spent += work.seconds
                    found[question] = work.result()
            raise AssertionError("the last turn has no end")
        finally:
            if spent:
                self._turns.owe(namespace, spent)

    def outlook(
        self,
        pod: Pod,
        stock: Stock,
        placement: Placement = BY_DEFAULT,
        crowded: Mapping[str, str] = MappingProxyType({}),
    ) -> Outlooks:
        """Ask all nodes. An answer of an earlier turn holds for the stock of that turn; the reservation asks again."""
        question = "outlook", self._outlooks
        self._outlooks += 1
        ask = partial(super().outlook, pod, stock, placement, crowded)
        return self._found[question] if question in self._found else self._ask_timed(question, ask)

    def serve(
        self, pod: Pod, node: str, stock: Stock, placement: Placement = BY_DEFAULT, *, uncached: Options | None = None
    ) -> Serving | Unserved:
        # Its answer is not kept: asked again it is quick, and holds for the stock of that turn.
        ask = partial(super().serve, pod, node, stock, placement, uncached=uncached)
        return ask() if uncached is not None else self._ask_timed("serve", ask)

    def may_fit(self, pod: Pod, stock: Stock, crowded: Mapping[str, str] = MappingProxyType({})) -> bool:
        """Say whether some node may serve a pod now; of one that takes long to decide on, that one may."""
        try:
            return self._in_one_turn(partial(super().may_fit, pod, stock, crowded), self._turn)
        except TurnEnded:
            return True

    def _ask_timed(self, question: object, ask: Callable[[], T]) -> T:
        self._interrupted = question, ask
        return ask()

    def _in_one_turn(self, call: Callable[[], T], turn: float) -> T:
        """Make a call, and raise Overtime where it takes longer than the turn."""
        self._until, before = thread_time() + turn, self._until
        try:
            return call()
        finally:
            self._until = before

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

    def __init__(self, ask: Ask, turn: float) -> None:
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
