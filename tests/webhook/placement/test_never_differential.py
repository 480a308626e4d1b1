"""The webhook refuses only pods that Kubernetes' own allocator could not serve in an idle cluster, where no device is in use."""

import os
import random
from collections import Counter

import pytest
from msgspec.structs import replace

from allocator import allocate
from dra.objects.claim import ResourceClaim
from dra.wire import convert
from tests.allocator.differ import stock_of
from tests.allocator.generate import FAMILIES, case_of
from tests.allocator.mixed_fleets import assemble_fleet
from tests.limits import draws
from webhook.placement.feasibility import can_any_node_serve
from webhook.placement.impossible import Feasibility
from webhook.placement.problems import MayServe

# Cases for each family (kind of random fleet): 840 in total with a live oracle (Kubernetes' allocator), 84 with recorded answers.
CASES, RECORDED = 60, 6
# The number of cases of the long test, and the first case of each family.
LONG = int(os.environ.get("DRAWBRIDGE_CASES", "20000"))
FIRST = int(os.environ.get("DRAWBRIDGE_FIRST_CASE", "0"))


def compare(oracle, family, seeds):
    """Judge a range of cases. Count them by the pair of drawbridge's verdict and the oracle's verdict.

    Pods that drawbridge admits are not checked, because a pod that fits the cluster as it is need not fit the idle cluster. For example, it may
    get a share of a device that other claims share already. The counters and rules for this device are not checked again. In the idle cluster
    they are checked, and may exclude the device.
    """
    counts = Counter()
    cases = [case_of(family, seed) for seed in seeds]
    idle_cases = [case | {"allocatedClaims": []} for case in cases]
    for seed, case, oracle_answer in zip(seeds, cases, oracle.ask_all(idle_cases), strict=True):
        claims = [convert(claim, ResourceClaim) for claim in case["claims"]]
        judgement = can_any_node_serve(stock_of(case), claims)
        counts[judgement.verdict, oracle_answer["verdict"]] += 1
        denied_falsely = judgement.verdict is Feasibility.NEVER and oracle_answer["verdict"] == "feasible"
        assert not denied_falsely, f"{family} {seed}: {judgement.text}"
    return counts


def test_a_pod_is_refused_only_if_no_reachable_node_serves():
    counts = Counter()
    for family in FAMILIES:
        for seed in range(draws(8)):
            rng = random.Random(f"reach {family} {seed}")
            stock, claims = assemble_fleet(family, 40_000 + seed, rng)
            within = frozenset(rng.sample(sorted(stock.nodes), rng.choice((1, 2, 4))))
            for_all_nodes, judgement = (
                can_any_node_serve(stock, claims),
                can_any_node_serve(stock, claims, within=within),
            )
            idle_verdicts = [allocate(stock.idle(), node, claims).verdict.value for node in sorted(within)]
            never = judgement.verdict is Feasibility.NEVER
            if for_all_nodes.verdict not in (Feasibility.FITS, Feasibility.BUSY):
                # The remedy is for the nodes within reach.
                assert replace(judgement, remedies=()) == replace(for_all_nodes, remedies=())
            elif never:
                assert set(idle_verdicts) == {"infeasible"}, (family, seed, judgement.text)
            counts[judgement.may_serve] += 1
    assert counts[MayServe.PLUGIN | MayServe.NEW_NODE | MayServe.UNREACHED], counts


@pytest.mark.oracle
@pytest.mark.parametrize("family", FAMILIES)
def test_a_pod_that_fits_an_idle_fleet_is_not_refused(allocate_oracle, family):
    cases = allocate_oracle.cases(CASES, recorded=RECORDED)
    counts = compare(allocate_oracle, family, range(cases))
    assert sum(counts.values()) == cases


@pytest.mark.whole
@pytest.mark.oracle
def test_enough_random_cases_have_the_verdicts_never_and_busy(allocate_oracle):
    counts = Counter()
    for family in FAMILIES:
        counts += compare(allocate_oracle, family, range(CASES, CASES + 10))
    assert counts[Feasibility.NEVER, "infeasible"] >= 10
    assert counts[Feasibility.BUSY, "feasible"] >= 2


@pytest.mark.long
@pytest.mark.oracle
def test_many_random_fleets_show_no_false_denial(allocate_oracle):
    counts = Counter()
    cases_of_family, step = LONG // len(FAMILIES) + 1, 100
    for first_case in range(FIRST, FIRST + cases_of_family, step):
        for family in FAMILIES:
            seeds = range(2_000_000 + first_case, 2_000_000 + min(first_case + step, FIRST + cases_of_family))
            counts += compare(allocate_oracle, family, seeds)
        print(f"after {first_case + step - FIRST} cases a family: {dict(counts)}", flush=True)
    assert sum(counts.values()) >= LONG
    assert counts[Feasibility.NEVER, "infeasible"] >= LONG / 20
