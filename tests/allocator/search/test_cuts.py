"""The cuts of the search, which are the parts that it skips because no answer depends on them (`allocator.search.walk`).

A wrong cut raises no error, so each cut can be switched off, and the answers with and without it are compared.
"""

import itertools
import random

import pytest

from allocator import SearchOptions, SearchVerdict
from allocator.search.supply import ProofLimits
from allocator.search.walk import Cuts
from tests.allocator.differ import ours
from tests.allocator.generate import FAMILIES, case_of
from tests.limits import draws

SMALL_PROOF_LIMITS = [
    ProofLimits(2, 2, 2, 2),
    ProofLimits(3, 10, 4, 1),
    ProofLimits(10, 3, 20, 8),
    ProofLimits(5, 5, 10, 4),
    ProofLimits(4, 4, 60000, 64),
]
CUT_SETTINGS = [
    Cuts(siblings=siblings, memo=memo, twins=twins, counts=counts, proof=proof, patience=patience)
    for siblings, memo, twins, counts in itertools.product((True, False), repeat=4)
    for proof, patience in ((True, 0), (True, 5), (False, 0))
] + [Cuts(values=False, patience=patience, limits=limits) for limits in SMALL_PROOF_LIMITS for patience in (0, 3)]
# A family is a kind of generated case.
FAMILIES_WITH_MANY_CUTS = ("tight", "mig", "pairs", "bins", "admin", "parts")


def settings_with_another_answer(case, settings):
    """Return the settings of the cuts that change the answer which the default settings give."""
    expected = ours(case)
    differing_settings = []
    for cuts in settings:
        answer = ours(case, SearchOptions(steps=20_000, cuts=cuts))
        if SearchVerdict.UNDECIDED in (answer.verdict, expected.verdict):
            continue
        if (answer.verdict, answer.allocations, answer.node_only) != (
            expected.verdict,
            expected.allocations,
            expected.node_only,
        ):
            differing_settings.append(cuts)
    return differing_settings


@pytest.mark.parametrize("family", FAMILIES)
def test_no_setting_of_the_cuts_changes_an_answer(family):
    rng = random.Random(family)
    for seed in range(draws(24 if family in FAMILIES_WITH_MANY_CUTS else 8)):
        assert settings_with_another_answer(case_of(family, 5000 + seed), rng.sample(CUT_SETTINGS, 4)) == [], (
            family,
            seed,
        )


@pytest.mark.parametrize("cuts", CUT_SETTINGS[:: len(CUT_SETTINGS) // 12])
def test_settings_do_not_change_the_answer_about_a_packing(cuts):
    for seed in (1, 4, 9, 12):
        assert settings_with_another_answer(case_of("mig", seed), [cuts]) == []


@pytest.mark.long
@pytest.mark.parametrize("family", FAMILIES)
def test_no_setting_changes_an_answer_in_many_cases(family):
    rng = random.Random(family)
    for seed in range(1500):
        assert settings_with_another_answer(case_of(family, 100_000 + seed), rng.sample(CUT_SETTINGS, 6)) == [], (
            family,
            seed,
        )
