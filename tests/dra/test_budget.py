"""Budgets: what is charged, when a budget ends, and how parts share a budget."""

import pytest

from dra import cel
from dra.budget import Budget
from dra.errors import OutOfBudget


def _count_charges(budget: Budget, *steps: int) -> int:
    """Charge until the budget raises; return the number of successful charges."""
    for count, charge in enumerate(steps):
        try:
            budget.charge(charge)
        except OutOfBudget:
            return count
    return len(steps)


def test_a_budget_allows_exactly_its_steps():
    assert _count_charges(Budget(10), 4, 6, 1) == 2
    assert _count_charges(Budget(10), *[1] * 20) == 10
    assert _count_charges(Budget(0), 0, 1) == 1


def test_an_exhausted_budget_stays_exhausted():
    budget = Budget(5)
    assert not budget.is_out
    assert _count_charges(budget, 6) == 0
    assert budget.is_out
    assert _count_charges(budget, 0) == 0


def test_the_deadline_is_checked_by_the_first_charge_and_periodically():
    checks = 0

    def patient() -> bool:
        nonlocal checks
        checks += 1
        return False

    budget = Budget(100_000, patient)
    budget.charge()
    assert checks == 1
    for _ in range(99_000):
        budget.charge()
    assert 100 < checks < 1000


def test_a_large_charge_is_followed_by_a_deadline_check():
    is_late = [False, True]
    budget = Budget(100_000, lambda: is_late.pop(0))
    budget.charge(1)
    with pytest.raises(OutOfBudget, match="no longer waits"):
        budget.charge(5000)
    assert budget.is_out
    assert not is_late
    with pytest.raises(OutOfBudget):  # the deadline is not checked again
        budget.charge(1)


def test_a_part_charges_the_whole_at_its_price():
    whole = Budget(1000)
    whole.part(20, price=10).charge(3)
    assert whole.spent == 30


def test_an_exhausted_part_leaves_the_rest_of_the_budget():
    whole = Budget(1000)
    assert _count_charges(whole.part(5), *[1] * 10) == 5
    assert not whole.is_out
    assert _count_charges(whole.part(7), *[1] * 10) == 7


def test_a_part_ends_with_the_whole():
    whole = Budget(12)
    first, second = whole.part(10), whole.part(10)
    assert _count_charges(first, *[1] * 10) == 10
    assert _count_charges(second, *[1] * 10) == 2
    assert whole.is_out


def test_confirm_raises_for_a_timeout_but_not_for_spent_steps():
    whole = Budget(1000, lambda: True)
    with pytest.raises(OutOfBudget):
        whole.part().part().charge()
    assert whole.is_late
    with pytest.raises(OutOfBudget, match="no longer waits"):
        whole.confirm()
    short = Budget(1000, max_call_steps=10)
    with pytest.raises(OutOfBudget, match="interrupted"):
        short.part().charge_whole(11)
    assert short.is_late, "work that exceeds max_call_steps does not count as skipped for lack of time"
    spent = Budget(10, lambda: False)
    assert _count_charges(spent, *[1] * 20) == 10
    spent.confirm()


def test_a_separate_budget_shares_the_deadline_but_not_the_steps():
    spent = Budget(10)
    assert _count_charges(spent, *[1] * 20) == 10
    assert _count_charges(spent.separate(5), *[1] * 20) == 5
    hurried = Budget(1000, lambda: True)
    with pytest.raises(OutOfBudget, match="no longer waits"):
        hurried.separate(5).charge()
    assert hurried.is_late
    assert Budget(10, max_call_steps=3).separate(5).max_call_steps == 3


def test_selectors_charge_for_compiling_once_and_for_each_evaluation():
    text = '"charged once" in device.attributes.d'
    view = cel.DeviceView("d", {}, {})
    budget = Budget()
    selector = cel.compile(text, budget=budget)
    compilation = budget.spent
    assert compilation
    selector.matches(view, budget)
    evaluation = budget.spent - compilation
    assert evaluation
    cel.compile(text, budget=budget).matches(view, budget)
    assert budget.spent == compilation + 2 * evaluation


def test_a_call_beyond_max_call_steps_is_refused():
    budget = Budget(100, max_call_steps=10)
    budget.charge_whole(10)
    budget.charge(50)
    with pytest.raises(OutOfBudget, match="interrupted"):
        budget.charge_whole(11)
    assert budget.is_out
    assert budget.left == 40


def test_a_part_has_the_call_limit_of_the_whole():
    part = Budget(1000, max_call_steps=100).part(price=20)
    part.charge_whole(5)
    with pytest.raises(OutOfBudget):
        part.charge_whole(6)


def test_an_abandoned_budget_refuses_charges():
    waits = True
    budget = Budget(100, lambda: not waits)
    part = budget.part(50)
    assert not budget.is_abandoned()
    assert not part.is_abandoned()
    waits = False
    assert not budget.is_out
    assert part.is_abandoned()
    assert budget.is_out
    with pytest.raises(OutOfBudget):
        part.charge(1)
    assert not Budget(0).is_abandoned(), "a budget without steps counts as abandoned"
