"""The frame of an evaluation, with the account of its cost and work.

A frame is a list: the view's slots (the device last), the cost so far, the cost at which the next check is due, the
cost that was already charged to the budget, the work, the budget, and the variables. Cost is what Go counts; a cost
beyond MAX_COST ends the evaluation as in Go. Work is what Go does not charge, or charges too little for: copying lists,
comparing nested values, running patterns. Work beyond MAX_WORK also ends the evaluation. If there is a budget
(`dra.budget`), cost and work are charged to the budget, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from dra.cel.cost import MAX_COST
from dra.cel.device_fields import FIELDS
from dra.errors import CostExceeded

if TYPE_CHECKING:
    Frame = list[Any]

DEVICE: Final = len(FIELDS)
SPENT, NEXT_CHECK, CHARGED, WORK, BUDGET, FIRST_VARIABLE = range(DEVICE + 1, DEVICE + 7)
MAX_WORK: Final = 200_000  # steps of `dra.budget`: about a fifth of a second
COST_PER_STEP: Final = 3
CHECK_INTERVAL: Final = 600  # units of cost between two charges to the budget


def open_frame(slots: tuple[Any, ...], variables: int) -> Frame:
    """Return a frame without cost, work and budget."""
    return [*slots, 0, MAX_COST, 0, 0, None, *[None] * variables]


def cost_exceeded() -> CostExceeded:
    """Make the error for an evaluation that cost too much."""
    return CostExceeded(f"operation cancelled: actual cost limit exceeded: more than {MAX_COST}")


def charge_cost(frame: Frame, cost: int) -> None:
    """Add a charge that Go makes to the cost. If a check is due, settle."""
    frame[SPENT] += cost
    if frame[SPENT] > frame[NEXT_CHECK]:
        settle(frame)


def settle(frame: Frame) -> None:
    """Raise CostExceeded if the cost exceeds MAX_COST; else charge new cost to the budget and set the next check."""
    spent = frame[SPENT]
    if spent > MAX_COST:
        raise cost_exceeded()
    if frame[BUDGET] is not None:
        frame[BUDGET].charge(1 + (spent - frame[CHARGED]) // COST_PER_STEP)
        frame[CHARGED] = spent
        frame[NEXT_CHECK] = min(spent + CHECK_INTERVAL, MAX_COST)


def charge_work(frame: Frame, steps: int) -> None:
    """Charge work that Go does not charge."""
    frame[WORK] += steps
    if frame[WORK] > MAX_WORK:
        raise CostExceeded("operation cancelled: the selector exceeds the limit on work that CEL's cost does not count")
    if frame[BUDGET] is not None:
        frame[BUDGET].charge(steps)


def charge_whole_work(frame: Frame, steps: int) -> None:
    """Charge the work of one call that cannot be interrupted."""
    if frame[BUDGET] is not None and steps > frame[BUDGET].max_call_steps:
        frame[BUDGET].charge_whole(steps)
    charge_work(frame, steps)


def work_left(frame: Frame) -> int:
    """Return how much work may still be charged."""
    left: int = MAX_WORK - frame[WORK]
    return left if frame[BUDGET] is None else min(left, frame[BUDGET].left)
