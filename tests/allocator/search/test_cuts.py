"""Each cut of the search can be switched off, because a wrong cut raises no error. No setting of the cuts may change an answer."""

import itertools
import random

import pytest

from allocator import Options, Verdict
from allocator.search.supply import ProofLimits
from allocator.search.walk import Cuts
from tests.allocator.differ import ours
from tests.allocator.generate import FAMILIES, case_of
from tests.draws import draws

TINY = [
    ProofLimits(2, 2, 2, 2),
    ProofLimits(3, 10, 4, 1),
    ProofLimits(10, 3, 20, 8),
    ProofLimits(5, 5, 10, 4),
    ProofLimits(4, 4, 60000, 64),
]
SETTINGS = [
    Cuts(siblings=siblings, memo=memo, twins=twins, counts=counts, proof=proof, patience=patience)
    for siblings, memo, twins, counts in itertools.product((True, False), repeat=4)
    for proof, patience in ((True, 0), (True, 5), (False, 0))
] + [Cuts(values=False, patience=patience, limits=limits) for limits in TINY for patience in (0, 3)]
NEEDED = ("tight", "mig", "pairs", "bins", "admin", "parts")  # the families with the most to cut


def disputed(case, settings):
    """Return the settings of the cuts with another answer than the default's."""
    expected = ours(case)
    differing = []
    for cuts in settings:
        answer = ours(case, Options(steps=20_000, cuts=cuts))
        if Verdict.UNDECIDED in (answer.verdict, expected.verdict):
            continue
        if (answer.verdict, answer.allocations, answer.node_only) != (
            expected.verdict,
            expected.allocations,
            expected.node_only,
        ):
            differing.append(cuts)
    return differing


@pytest.mark.parametrize("family", FAMILIES)
def test_no_setting_of_the_cuts_changes_an_answer(family):
    rng = random.Random(family)
    for seed in range(draws(24 if family in NEEDED else 8)):
        assert disputed(case_of(family, 5000 + seed), rng.sample(SETTINGS, 4)) == [], (family, seed)


@pytest.mark.parametrize("cuts", SETTINGS[:: len(SETTINGS) // 12])
def test_each_setting_answers_a_packing_that_needs_search(cuts):
    for seed in (1, 4, 9, 12):
        assert disputed(case_of("mig", seed), [cuts]) == []


@pytest.mark.long
@pytest.mark.parametrize("family", FAMILIES)
def test_no_setting_changes_an_answer_in_many_cases(family):
    rng = random.Random(family)
    for seed in range(1500):
        assert disputed(case_of(family, 100_000 + seed), rng.sample(SETTINGS, 6)) == [], (family, seed)
