"""The limit on the work of one review, one scheduling attempt or one command: a number of steps, and a deadline.

The caller that starts the work makes the budget and passes it down as an argument; a budget is never global and never
a default argument. Every loop whose length depends on the input charges the budget before it works:

    budget = Budget(100_000, is_out_of_time=lambda: monotonic() > deadline)   # the caller, which has a clock
    selector.matches(view, budget)                                       # a function in between passes the budget on
    for device in devices:
        budget.charge(3)                                                 # the loop charges the cost of one iteration
    budget.charge_whole(work(pattern))                                   # before a library call, which cannot be interrupted

A step is about a microsecond on a slow core. A charge need not be exact: half the true cost is fine, but every loop
must charge something. Code that counts in coarser units makes a `part`, whose steps cost several steps of this budget.

When the steps are used up, or `is_out_of_time` returns true, the current and every later `charge` raises OutOfBudget.
The result of the work is then "undecided", neither yes nor no. Only the caller that made the budget catches
OutOfBudget. It is not a SelectorError, so code that treats a failing selector as "no match" never swallows it.
`max_call_steps` bounds a single library call. Answers must not depend on how busy the machine is: if `is_late` is true,
work was skipped for lack of time, and the caller reports no other result than that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dra.errors import OutOfBudget

if TYPE_CHECKING:
    from collections.abc import Callable

UNBOUNDED: Final = 1 << 62
_CHECK_INTERVAL: Final = 256  # steps between two calls of `is_out_of_time`
_ALWAYS: Final = UNBOUNDED + 1


class Budget:
    """Counts steps down and raises OutOfBudget when none are left."""

    __slots__ = ("_check_below", "_is_late", "_is_out_of_time", "left", "max_call_steps", "steps")

    def __init__(
        self,
        steps: int = UNBOUNDED,
        is_out_of_time: Callable[[], bool] | None = None,
        *,
        max_call_steps: int = UNBOUNDED,
    ) -> None:
        self.steps = steps
        self.max_call_steps = max_call_steps
        self.left = steps
        self._is_out_of_time = is_out_of_time
        self._is_late = False
        # While at least this many steps are left, `charge` only subtracts.
        self._check_below = 0 if is_out_of_time is None else steps

    def charge(self, steps: int = 1) -> None:
        """Charge work that is about to be done; raise OutOfBudget if it exceeds the budget."""
        self.left -= steps
        if self.left >= self._check_below:
            return
        if self._check_below == _ALWAYS or self.left < 0:
            self._check_below = _ALWAYS
            raise OutOfBudget("the budget of steps is spent")
        if self.is_abandoned():
            raise OutOfBudget("the caller no longer waits for the answer")
        self._check_below = max(0, self.left - _CHECK_INTERVAL)

    def charge_whole(self, steps: int) -> None:
        """Charge one call that cannot be interrupted; raise OutOfBudget if it may take more than `max_call_steps` steps."""
        if steps > self.max_call_steps:
            self._check_below = _ALWAYS
            self.note_lateness()
            raise OutOfBudget("a call that cannot be interrupted may take too long")
        self.charge(steps)

    def part(self, steps: int = UNBOUNDED, *, price: int = 1) -> Budget:
        """Make a budget for a part of the work; each of its steps also costs this budget `price` steps.

        When the part is used up, the code that made the part may catch OutOfBudget and go on with another part. If this
        budget is used up as well, the next charge raises again.
        """
        return _PartBudget(self, steps, price)

    def separate(self, steps: int) -> Budget:
        """Make an independent budget of steps with the same deadline, so that earlier work does not shorten later work."""
        return Budget(steps, self.is_abandoned, max_call_steps=self.max_call_steps)

    def note_lateness(self) -> None:
        """Record that work was skipped for lack of time."""
        self._is_late = True

    def is_abandoned(self) -> bool:
        """Return whether the caller no longer waits.

        If so, every later charge raises. For work that charges nothing.
        """
        if self._is_out_of_time is None or not self._is_out_of_time():
            return False
        self._check_below = _ALWAYS
        self.note_lateness()
        return True

    @property
    def is_late(self) -> bool:
        """Whether work was skipped for lack of time, so that the same question may get another answer later."""
        return self._is_late

    def confirm(self) -> None:
        """Raise OutOfBudget if work was skipped for lack of time: the partial result depends on the load of the machine."""
        if self.is_late:
            raise OutOfBudget("the caller no longer waits for the answer")

    @property
    def spent(self) -> int:
        """The number of steps that were charged."""
        return self.steps - self.left

    @property
    def is_out(self) -> bool:
        """Whether a charge raised OutOfBudget; every later charge then raises as well."""
        return self._check_below == _ALWAYS


class _PartBudget(Budget):
    """A budget whose charges also count against the budget that made it."""

    __slots__ = ("_price", "_whole")

    def __init__(self, whole: Budget, steps: int, price: int) -> None:
        super().__init__(steps, max_call_steps=whole.max_call_steps // price)
        self._whole = whole
        self._price = price

    def charge(self, steps: int = 1) -> None:
        self._whole.charge(steps * self._price)
        super().charge(steps)

    def is_abandoned(self) -> bool:
        return self._whole.is_abandoned()

    def note_lateness(self) -> None:
        self._whole.note_lateness()

    @property
    def is_late(self) -> bool:
        return self._whole.is_late
