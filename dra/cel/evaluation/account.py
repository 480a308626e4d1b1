"""What an evaluation has spent, kept in its frame: the cost that Go counts, and the work that only we count.

Behind the view's slots, of which the device itself is the last, stand the cost so far, the cost at which the account is checked next, the cost that the budget
was charged for, the work that Go does not count, the budget, and then the variables. Cost beyond MAX_COST ends the
evaluation as in Go. Work is what Go does for nothing, or for less than it takes here: copying lists, comparing what is nested,
the programs of patterns. Without a budget work ends at MOST_WORK; with one, cost and work are charged to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from dra.cel.cost import MAX_COST
from dra.cel.device_fields import FIELDS
from dra.errors import CostExceeded

if TYPE_CHECKING:
    from dra.budget import Budget

    Frame = list[Any]

DEVICE: Final = len(FIELDS)
SPENT, LOOK, CHARGED, WORK, BUDGET, FIRST_VARIABLE = range(DEVICE + 1, DEVICE + 7)
MOST_WORK: Final = 200_000  # steps as in `dra.budget`: about a fifth of a second
# Units of cost in a step, and between two checks of the budget.
UNITS: Final = 3
INTERVAL: Final = 600


def open_frame(slots: tuple[Any, ...], variables: int, budget: Budget | None) -> Frame:
    """Make a frame in which nothing is spent."""
    return [*slots, 0, MAX_COST if budget is None else INTERVAL, 0, 0, budget, *[None] * variables]


def overrun() -> CostExceeded:
    """The error for an evaluation that cost too much."""
    return CostExceeded(f"operation cancelled: actual cost limit exceeded: more than {MAX_COST}")


def pay(frame: Frame, cost: int) -> None:
    """Charge what Go charges."""
    frame[SPENT] += cost
    if frame[SPENT] > frame[LOOK]:
        settle(frame)


def settle(frame: Frame) -> None:
    """End an evaluation that cost too much; charge the budget, and set the cost of the next check."""
    spent = frame[SPENT]
    if spent > MAX_COST:
        raise overrun()
    if frame[BUDGET] is not None:
        frame[BUDGET].charge(1 + (spent - frame[CHARGED]) // UNITS)
        frame[CHARGED] = spent
        frame[LOOK] = min(spent + INTERVAL, MAX_COST)


def toil(frame: Frame, steps: int) -> None:
    """Charge work that Go does not."""
    frame[WORK] += steps
    if frame[WORK] > MOST_WORK:
        raise CostExceeded("operation cancelled: more work than any selector may do")
    if frame[BUDGET] is not None:
        frame[BUDGET].charge(steps)


def toil_whole(frame: Frame, steps: int) -> None:
    """Charge the work of one call that cannot be ended halfway."""
    if frame[BUDGET] is not None and steps > frame[BUDGET].longest:
        frame[BUDGET].charge_whole(steps)
    toil(frame, steps)


def room(frame: Frame) -> int:
    """Return how much work may still be charged."""
    left: int = MOST_WORK - frame[WORK]
    return left if frame[BUDGET] is None else min(left, frame[BUDGET].left)
