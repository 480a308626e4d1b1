"""What one question may cost: a number of steps, and the caller's patience.

One budget belongs to one review, one attempt or one command. The code that answers makes it and hands it down as an argument; it
is never global and never a default that lives on. Every loop whose length a request chooses charges it before the work:

    budget = Budget(100_000, impatient=lambda: monotonic() > until)   # at the rim, which has a clock
    selector.matches(view, budget)                                    # in between: pass it on
    for device in devices:
        budget.charge(3)                                              # at the bottom: charge what a turn may cost
    budget.charge_whole(work(pattern))                                # before one call that cannot be ended halfway

A step is about a microsecond of work on a slow core. That need not be exact: twice too cheap is fine, a loop that
charges nothing is not. Code that counts in coarser units takes a `part` with a price.

When the steps are spent, or `impatient` says that the caller no longer waits, `charge` raises OutOfBudget, from then on each
time. That is not an answer in either direction: only the maker of the budget catches it, and says "undecided". OutOfBudget is not
a SelectorError, so what treats a failing selector as "no" never swallows it. `longest` bounds one call of a library, which an
alarm clock cannot end, for work that shares a thread. What is said to a user must not depend on how busy a machine is: if the
budget `is_late`, work was given up for want of time and not of steps, and the maker says that and nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dra.errors import OutOfBudget

if TYPE_CHECKING:
    from collections.abc import Callable

UNBOUNDED: Final = 1 << 62
# Steps between two looks at the caller's patience.
_LOOK: Final = 256
_ALWAYS: Final = UNBOUNDED + 1


class Budget:
    """Counts down; ends the work when nothing is left."""

    __slots__ = ("_impatient", "_is_late", "_look_below", "left", "longest", "steps")

    def __init__(
        self, steps: int = UNBOUNDED, impatient: Callable[[], bool] | None = None, *, longest: int = UNBOUNDED
    ) -> None:
        self.steps = steps
        self.longest = longest
        self.left = steps
        self._impatient = impatient
        self._is_late = False
        # As long as so much is left, charging looks at nothing else.
        self._look_below = 0 if impatient is None else steps

    def charge(self, steps: int = 1) -> None:
        """Pay for work that is about to be done; raise OutOfBudget if that is too much."""
        self.left -= steps
        if self.left >= self._look_below:
            return
        if self._look_below == _ALWAYS or self.left < 0:
            self._look_below = _ALWAYS
            raise OutOfBudget("the budget of steps is spent")
        if self.is_abandoned():
            raise OutOfBudget("the caller no longer waits for the answer")
        self._look_below = max(0, self.left - _LOOK)

    def charge_whole(self, steps: int) -> None:
        """Pay for one call that cannot be ended halfway; raise OutOfBudget if it may take longer than one such call may."""
        if steps > self.longest:
            self._look_below = _ALWAYS
            self.note_lateness()
            raise OutOfBudget("a step that cannot be ended halfway may take too long")
        self.charge(steps)

    def part(self, steps: int = UNBOUNDED, *, price: int = 1) -> Budget:
        """Make a budget of its own for a part of the work, each step of which also costs this one `price` steps.

        A part that is used up ends that part alone: its maker may catch OutOfBudget and go on with the next. If the
        whole was used up, the next charge says so again.
        """
        return _PartBudget(self, steps, price)

    def beside(self, steps: int) -> Budget:
        """Make a budget with steps of its own while the same caller waits: how far it reaches does not depend on what was spent before."""
        return Budget(steps, self.is_abandoned, longest=self.longest)

    def note_lateness(self) -> None:
        """Note that something was not done because there is no time for it; with more time it might have been done."""
        self._is_late = True

    def is_abandoned(self) -> bool:
        """Look whether the caller no longer waits for the answer; for work that is not charged. If so, every later charge is refused."""
        if self._impatient is None or not self._impatient():
            return False
        self._look_below = _ALWAYS
        self.note_lateness()
        return True

    @property
    def is_late(self) -> bool:
        """Whether something was not done for want of time: another time, with the same steps, more may be found out."""
        return self._is_late

    def confirm(self) -> None:
        """Raise OutOfBudget if something was not done for want of time: what was found out all the same is chance."""
        if self.is_late:
            raise OutOfBudget("the caller no longer waits for the answer")

    @property
    def spent(self) -> int:
        """How many steps were charged."""
        return self.steps - self.left

    @property
    def is_out(self) -> bool:
        """Whether a charge was refused; every later one will be, too."""
        return self._look_below == _ALWAYS


class _PartBudget(Budget):
    """A budget that charges another one as well."""

    __slots__ = ("_price", "_whole")

    def __init__(self, whole: Budget, steps: int, price: int) -> None:
        super().__init__(steps, longest=whole.longest // price)
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
