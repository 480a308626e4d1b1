"""What a claim may come to hold is never less than what an allocation then gives it, in random fleets that use every feature."""

from collections import Counter

import pytest

from allocator.answer import as_granted
from dra.budget import Budget
from dra.errors import OutOfBudget
from dra.objects import ResourceClaim
from dra.policy import Demands
from dra.stock import ALL_CLASSES, DEVICES, amounts_of
from dra.wire import convert
from tests.allocator.differ import ours, stock_of
from tests.allocator.generate import FAMILIES, case_of

CASES = 60  # a family


def in_turns(spec, stock):
    """What a claim may come to hold, looked at with a small budget again and again."""
    demands = Demands()
    for _ in range(1000):
        try:
            return demands.look(spec, stock, Budget(150))
        except OutOfBudget:
            continue
    raise AssertionError("it never comes to an end")


@pytest.mark.parametrize("family", FAMILIES)
def test_no_allocation_gives_more_than_was_foreseen(family):
    seen = Counter()
    for seed in range(CASES):
        case = case_of(family, seed)
        stock = stock_of(case)
        claims = [convert(one, ResourceClaim) for one in case["claims"]]
        answer = ours(case)
        if not answer.feasible:
            continue
        demands = Demands()
        for wanted, given in zip(claims, as_granted(claims, answer), strict=True):
            most, has = demands.of(wanted.spec, stock), amounts_of(given, stock.pages_of)
            assert most == in_turns(wanted.spec, stock), "a look in small turns sees the same"
            short = {key: (most.get(key, 0), amount) for key, amount in has.items() if amount > most.get(key, 0)}
            assert short == {}, (seed, wanted.spec)
            seen["exact" if most == has else "more"] += 1
            seen["devices"] += has.get((ALL_CLASSES, DEVICES), 0)
    assert seen["devices"], "nothing was allocated: the test shows nothing"
