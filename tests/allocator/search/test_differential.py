"""Our answers equal those of Kubernetes' in-tree allocator (the oracle), on random fleets and claims that combine all features."""

import os
from collections import Counter
from typing import get_args

import msgspec
import pytest

from allocator import SearchOptions
from allocator.one_node import DEFAULTS
from allocator.search.walk import Cuts
from dra.objects.claim import AllocationResult, DeviceClassSpec, ResourceClaim, ResourceClaimSpec
from dra.objects.device import ResourceSliceSpec
from dra.wire import convert
from tests.allocator.differ import difference, disagreement, easier_cases, ours, stock_of
from tests.allocator.generate import FAMILIES, FEATURES, case_of, features
from tests.allocator.legality import violations

# A family is a kind of generated case. All families together have 2,450 cases with a live oracle, and 420 with recorded answers.
CASES_PER_FAMILY, RECORDED_CASES_PER_FAMILY = 175, 30
# The search tries to prove that nothing fits as soon as the first candidate fails.
PROOF_AT_FIRST_FAILURE = SearchOptions(cuts=Cuts(patience=0))
CASES_OF_A_LONG_RUN = int(os.environ.get("DRAWBRIDGE_CASES", "50000"))
FIRST_CASE = int(os.environ.get("DRAWBRIDGE_FIRST_CASE", "0"))
EXPECTED_FEATURES = {word.strip("'") for word in FEATURES} | {
    f"verdict {verdict}" for verdict in ("feasible", "infeasible", "error")
}


def compare(oracle, family, first, count):
    """Compare a range of cases; return how often each feature occurred. Shrink the first case with different answers, and fail."""
    covered = Counter()
    cases = [case_of(family, seed) for seed in range(first, first + count)]
    for seed, case, theirs in zip(range(first, first + count), cases, oracle.ask_all(cases), strict=True):
        answer = ours(case, PROOF_AT_FIRST_FAILURE if seed % 2 else DEFAULTS)
        covered += features(case, theirs)
        covered["compared"] += theirs["verdict"] != "timeout"
        if theirs["verdict"] == "timeout":
            check_without_verdict(oracle, case, answer)
        elif answer.verdict == "undecided":
            covered["undecided where the oracle was not"] += 1
        elif difference(answer, theirs):
            pytest.fail(f"{family} {seed}:\n{disagreement(oracle, case, answer, theirs)}")
    return covered


def check_without_verdict(oracle, case, answer):
    """Check our answer to a case for which the oracle ran out of time: it must be legal. Compare one smaller case."""
    claims = [convert(claim, ResourceClaim) for claim in case["claims"]]
    if answer.feasible:
        assert violations(stock_of(case), case["node"]["metadata"]["name"], claims, answer) == []
    for easier_case in easier_cases(case):
        theirs = oracle.ask(**easier_case)
        if theirs["verdict"] != "timeout":
            assert difference(ours(easier_case), theirs) is None, easier_case
            return


@pytest.mark.oracle
@pytest.mark.parametrize("family", FAMILIES)
def test_verdict_and_devices_equal_those_of_the_in_tree_allocator(allocate_oracle, family):
    cases = allocate_oracle.cases(CASES_PER_FAMILY, recorded=RECORDED_CASES_PER_FAMILY)
    covered = compare(allocate_oracle, family, 0, cases)
    # With few cases, the share of timeouts varies more.
    assert covered["compared"] >= cases * (0.75 if cases == CASES_PER_FAMILY else 0.6)
    assert covered["undecided where the oracle was not"] <= 1


@pytest.mark.oracle
def test_the_generator_covers_every_feature_and_every_verdict(allocate_oracle):
    covered = Counter()
    for family in FAMILIES:
        cases = [case_of(family, seed) for seed in range(RECORDED_CASES_PER_FAMILY)]
        for case, theirs in zip(cases, allocate_oracle.ask_all(cases), strict=True):
            covered += features(case, theirs)
    assert {name for name in EXPECTED_FEATURES if covered[name] < 5} == set()


def api_fields(kind, path):
    """Return the paths of all fields of an API type."""
    for part in (kind, *get_args(kind)):
        if isinstance(part, type) and issubclass(part, msgspec.Struct):
            for field in msgspec.structs.fields(part):
                yield f"{path}.{field.encode_name}"
                yield from api_fields(field.type, f"{path}.{field.encode_name}")
        elif part is not kind:
            yield from api_fields(part, path)


def used_fields(value, known_fields, path):
    """Return the paths of the known fields that a value uses. Keys of maps are not fields."""
    if isinstance(value, dict):
        for key, member in value.items():
            inner = f"{path}.{key}"
            if inner in known_fields:
                yield inner
            yield from used_fields(member, known_fields, inner if inner in known_fields else path)
    elif isinstance(value, list):
        for member in value:
            yield from used_fields(member, known_fields, path)


def test_generated_cases_use_every_field_of_slices_classes_and_claims():
    kinds = {"slices": ResourceSliceSpec, "classes": DeviceClassSpec, "claims": ResourceClaimSpec}
    known_fields = {path for name, kind in kinds.items() for path in api_fields(kind, name)}
    known_fields |= set(api_fields(AllocationResult, "allocations"))
    found_fields = set()
    for seed in range(300):
        case = case_of("wide", seed)
        for name in kinds:
            found_fields |= {path for obj in case[name] for path in used_fields(obj["spec"], known_fields, name)}
        for claim in case["allocatedClaims"]:
            found_fields |= set(used_fields(claim["status"]["allocation"], known_fields, "allocations"))
    assert len(known_fields) > 120
    assert {path for path in known_fields - found_fields if not path.startswith("allocations.nodeSelector.")} == set()


@pytest.mark.long
@pytest.mark.oracle
def test_answers_equal_the_in_tree_allocators_in_long_runs(allocate_oracle):
    covered = Counter()
    per_family, step = CASES_OF_A_LONG_RUN // len(FAMILIES) + 1, 100
    for first in range(FIRST_CASE, FIRST_CASE + per_family, step):
        for family in FAMILIES:
            covered += compare(allocate_oracle, family, 1_000_000 + first, min(step, FIRST_CASE + per_family - first))
        print(f"after {first + step - FIRST_CASE} cases a family: {dict(covered)}", flush=True)
    assert covered["compared"] >= CASES_OF_A_LONG_RUN * 0.9
