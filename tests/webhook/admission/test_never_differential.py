"""No false denial: Kubernetes' own allocator cannot serve a pod that the webhook refuses, even if no device is in use."""

import os
import random
from collections import Counter

import pytest

from allocator import allocate
from dra.objects.claim import ResourceClaim
from dra.wire import convert
from tests.allocator.differ import stock_of
from tests.allocator.generate import FAMILIES, case_of
from tests.allocator.mixed_fleets import assembled
from tests.draws import draws
from webhook.admission.feasibility import Feasibility, judge
from webhook.admission.problems import MayServe

CASES, RECORDED = 60, 20  # cases per family: 840 in all with a live oracle, 280 with recorded answers
LONG = int(os.environ.get("DRAWBRIDGE_CASES", "20000"))
FIRST = int(os.environ.get("DRAWBRIDGE_FIRST_CASE", "0"))


def compare(oracle, family, seeds):
    """Judge a range of cases; return the number of cases for each pair of our verdict and the oracle's.

    Admitted pods are not checked: a pod that fits a further share of a device in use need not fit an idle fleet.
    """
    met = Counter()
    cases = [case_of(family, seed) for seed in seeds]
    idle = [case | {"allocatedClaims": []} for case in cases]
    for seed, case, theirs in zip(seeds, cases, oracle.ask_all(idle), strict=True):
        claims = [convert(claim, ResourceClaim) for claim in case["claims"]]
        judgement = judge(stock_of(case), claims)
        met[judgement.verdict, theirs["verdict"]] += 1
        denied_falsely = judgement.verdict is Feasibility.NEVER and theirs["verdict"] == "feasible"
        assert not denied_falsely, f"{family} {seed}: {judgement.text}"
    return met


def test_a_pod_is_refused_only_if_no_reachable_node_serves():
    met = Counter()
    for family in FAMILIES:
        for seed in range(draws(24)):
            rng = random.Random(f"reach {family} {seed}")
            stock, claims = assembled(family, 40_000 + seed, rng)
            within = frozenset(rng.sample(sorted(stock.nodes), rng.choice((1, 2, 4))))
            before, judgement = judge(stock, claims), judge(stock, claims, within=within)
            idle = [allocate(stock.idle(), node, claims).verdict.value for node in sorted(within)]
            never = judgement.verdict is Feasibility.NEVER
            if before.verdict not in (Feasibility.FITS, Feasibility.BUSY):
                assert judgement == before
            elif never:
                assert set(idle) == {"infeasible"}, (family, seed, judgement.text)
            met[judgement.may_serve] += 1
    assert met[MayServe.PLUGIN | MayServe.NEW_NODE | MayServe.UNREACHED], met


@pytest.mark.oracle
@pytest.mark.parametrize("family", FAMILIES)
def test_claims_judged_never_cannot_be_allocated_on_an_idle_fleet(allocate_oracle, family):
    cases = allocate_oracle.cases(CASES, recorded=RECORDED)
    met = compare(allocate_oracle, family, range(cases))
    assert sum(met.values()) == cases


@pytest.mark.oracle
def test_the_verdict_never_is_common_enough_to_test(allocate_oracle):
    met = Counter()
    for family in FAMILIES:
        met += compare(allocate_oracle, family, range(CASES, CASES + 10))
    assert met[Feasibility.NEVER, "infeasible"] >= 10
    assert met[Feasibility.BUSY, "feasible"] >= 2


@pytest.mark.long
@pytest.mark.oracle
def test_many_random_fleets_show_no_false_denial(allocate_oracle):
    met = Counter()
    each, step = LONG // len(FAMILIES) + 1, 100
    for first in range(FIRST, FIRST + each, step):
        for family in FAMILIES:
            stretch = range(2_000_000 + first, 2_000_000 + min(first + step, FIRST + each))
            met += compare(allocate_oracle, family, stretch)
        print(f"after {first + step - FIRST} cases a family: {dict(met)}", flush=True)
    assert sum(met.values()) >= LONG
    assert met[Feasibility.NEVER, "infeasible"] >= LONG / 20
