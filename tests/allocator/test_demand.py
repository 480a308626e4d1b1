"""What a claim may come to hold is never less than what an allocation then gives it, in random fleets that use every feature."""

from collections import Counter

import pytest

from allocator.answer import as_granted
from dra.objects import ResourceClaim
from dra.policy import Demands
from dra.stock import ALL_CLASSES, DEVICES, amounts_of
from dra.wire import convert
from tests.allocator.differ import ours, stock_of
from tests.allocator.generate import FAMILIES, case_of

CASES = 60  # a family


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
            short = {key: (most.get(key, 0), amount) for key, amount in has.items() if amount > most.get(key, 0)}
            assert short == {}, (seed, wanted.spec)
            seen["exact" if most == has else "more"] += 1
            seen["devices"] += has.get((ALL_CLASSES, DEVICES), 0)
    assert seen["devices"], "nothing was allocated: the test shows nothing"
