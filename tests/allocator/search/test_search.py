"""The search: hard cases, claims for many devices, limits, and errors."""

import pytest

from allocator import SearchOptions, SearchVerdict, allocate
from dra.budget import Budget
from dra.objects.claim import ResourceClaim
from dra.wire import convert
from tests.allocator import hard
from tests.allocator.differ import difference, ours, stock_of
from tests.allocator.hard import HARD

STEPS_FOR_HARD_CASES = 6000  # an exhaustive search would need billions


@pytest.mark.parametrize("name", HARD)
def test_hard_cases_are_answered_in_few_steps(name):
    make_case, fits = HARD[name]
    answer = ours(make_case(), SearchOptions(steps=STEPS_FOR_HARD_CASES))
    assert answer.verdict is (SearchVerdict.FEASIBLE if fits else SearchVerdict.INFEASIBLE)


@pytest.mark.oracle
@pytest.mark.parametrize("name", HARD)
def test_hard_cases_get_the_answer_of_the_in_tree_allocator(allocate_oracle, name):
    case = HARD[name][0]()
    theirs = allocate_oracle.ask(**case)
    assert difference(ours(case), theirs) is None


def test_claims_for_1184_devices_need_no_deep_recursion():
    case = hard.identical(1200, [32] * 37)
    case["slices"] = [
        hard.slice_("g", case["slices"][0]["spec"]["devices"][i : i + 128], f"s{i:05}", total=10)
        for i in range(0, 1200, 128)
    ]
    answer = ours(case)
    assert answer.feasible
    assert sum(len(allocation.allocation.devices.results) for allocation in answer.allocations) == 1184
    assert answer.allocations[-1].allocation.devices.results[-1].device == "gpu-1183"


def bin_packing():
    """Bin packing with many different sizes, which is hard for every solver."""
    sizes = [(7 * n * n + 13 * n) % 61 + 20 for n in range(32)]
    return hard.shares(8, sum(sizes) // 8 + 1, sizes)


def test_a_search_over_its_step_budget_is_undecided():
    answer = ours(bin_packing(), SearchOptions(steps=5000))
    assert answer.verdict is SearchVerdict.UNDECIDED
    assert "budget" in answer.error
    assert answer.steps <= 5000 * 2


def test_a_search_ends_when_its_caller_stops_waiting():
    checks = []

    def has_caller_left():
        checks.append(True)
        return len(checks) == 3

    answer = ours(bin_packing(), SearchOptions(budget=Budget(is_out_of_time=has_caller_left)))
    assert answer.verdict is SearchVerdict.UNDECIDED
    assert "no longer waits" in answer.error
    assert len(checks) == 3


def case_of_one_claim(requests, constraints=(), devices=()):
    """Return a case of one claim on one node."""
    return hard.case([hard.slice_("g", list(devices), "a")], [hard.claim("c", requests, constraints)])


TWO_DEVICES = [hard.device("a", {"x": {"int": 1}}), hard.device("b", {})]
REQUEST_FOR_ALL_DEVICES = {"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "All"}}


@pytest.mark.parametrize(
    ("make_case", "error"),
    [
        (
            lambda: case_of_one_claim([hard.request("r", "absent")], devices=TWO_DEVICES),
            "DeviceClass/absent does not exist",
        ),
        (lambda: case_of_one_claim([hard.request("r", "gpu", 33)], devices=TWO_DEVICES), "limit of 32"),
        (
            lambda: case_of_one_claim(
                [hard.request("r", "gpu", 1, 'device.attributes["g"].y == 1')], devices=TWO_DEVICES
            ),
            "ResourceClaim/d/c, request r, selector #0: on device g/p/a",
        ),
        (lambda: case_of_one_claim([hard.request("r", "gpu", 1, "device.")], devices=TWO_DEVICES), "selector #0"),
        (
            lambda: case_of_one_claim([REQUEST_FOR_ALL_DEVICES], [{"matchAttribute": "g/x"}], TWO_DEVICES),
            "request r: requests all devices, but a constraint excludes g/p/b",
        ),
        (lambda: case_of_one_claim([REQUEST_FOR_ALL_DEVICES], [{}], TWO_DEVICES), "constraint #0"),
        (lambda: case_of_one_claim([{"name": "r"}], devices=TWO_DEVICES), "neither exactly nor firstAvailable"),
    ],
)
def test_the_error_tells_what_is_wrong_with_the_case(make_case, error):
    answer = ours(make_case())
    assert answer.verdict is SearchVerdict.ERROR
    assert error in answer.error


def test_a_broken_selector_is_ignored_if_no_device_is_examined():
    assert ours(case_of_one_claim([hard.request("r", "gpu", 1, "device.")])).verdict is SearchVerdict.INFEASIBLE


def test_mode_all_with_an_incomplete_pool_is_an_error():
    case = case_of_one_claim([REQUEST_FOR_ALL_DEVICES], devices=TWO_DEVICES)
    case["slices"].append(hard.slice_("other", [hard.device("z", {})], "z", total=2))
    assert "resourceSliceCount says 2" in ours(case).error


def test_an_invalid_pool_matters_only_if_nothing_else_fits():
    case = case_of_one_claim([hard.request("r", "gpu")], devices=TWO_DEVICES)
    duplicate = hard.device("z", {})
    case["slices"].append(hard.slice_("g", [duplicate, duplicate], "z", pool="q"))
    assert ours(case).feasible
    case["claims"] = [hard.claim("c", [hard.request("r", "gpu", 3)])]
    answer = ours(case)
    assert answer.verdict is SearchVerdict.ERROR
    assert answer.node_only
    assert "g/q" in answer.error


def test_a_missing_node_is_named():
    assert allocate(stock_of(case_of_one_claim([])), "n9", []).error == "Node/n9 does not exist"


def test_no_claims_and_claims_without_requests_are_served():
    answer_without_requests = ours(case_of_one_claim([]))
    assert answer_without_requests.feasible
    assert answer_without_requests.allocations[0].allocation.devices.results == ()
    assert ours({**case_of_one_claim([]), "claims": []}).allocations == ()


def test_share_ids_are_repeatable():
    case = hard.shares(1, 24, [4, 4])
    first, second = ours(case), ours(case)
    ids = [result.share_id for result in first.allocations[0].allocation.devices.results]
    assert len(set(ids)) == 2
    assert first.allocations == second.allocations


def test_reasons_of_a_refusal_are_returned_on_request():
    case = case_of_one_claim([hard.request("r", "gpu", 3)], devices=TWO_DEVICES)
    claims = [convert(claim, ResourceClaim) for claim in case["claims"]]
    assert allocate(stock_of(case), "n0", claims).reasons == ()
    assert allocate(stock_of(case), "n0", claims, reasons=True).reasons
