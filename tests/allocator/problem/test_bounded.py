"""A question gets an answer within its budget, or the verdict that it is undecided."""

import pytest

from allocator import SearchOptions, SearchVerdict, allocate
from dra.budget import Budget
from dra.objects import DeviceCompatibility
from dra.wire import convert
from tests.allocator import fleets
from tests.objects import exactly

MATCHES_NO_DEVICE = f'device.attributes["{fleets.DRIVER}"].serial.startsWith("zz")'


def fleet_of_different_gpus(device_count, **fields):
    """Return a fleet of one node whose devices all differ."""
    devices = [fleets.gpu(f"gpu-{i}", **fields) for i in range(device_count)]
    for i, device in enumerate(devices):
        device["attributes"]["serial"] = {"string": f"s{i}"}
    return fleets.fleet({"n0": devices})


class DeadlineAfterChecks:
    """A deadline that passes after a number of checks."""

    def __init__(self, checks):
        self.checks, self.count = checks, 0

    def __call__(self):
        self.count += 1
        return self.count > self.checks


@pytest.mark.parametrize("device_count", [1_000, 20_000])
def test_a_passed_deadline_ends_compilation_soon(device_count, monkeypatch):
    from allocator.problem.candidates import DeviceJudge

    judged_devices = []
    judge_device = DeviceJudge.ask
    monkeypatch.setattr(
        DeviceJudge,
        "ask",
        lambda self, *leaf_and_device: judged_devices.append(leaf_and_device) or judge_device(self, *leaf_and_device),
    )
    stock = fleet_of_different_gpus(device_count)
    claims = [fleets.claim("c", exactly("gpu", selector=MATCHES_NO_DEVICE))]
    answer = allocate(stock, "n0", claims, options=SearchOptions(budget=Budget(is_out_of_time=DeadlineAfterChecks(1))))
    assert answer.verdict is SearchVerdict.UNDECIDED
    assert len(judged_devices) < 500


def test_devices_that_all_differ_are_charged_before_they_are_judged():
    stock = fleet_of_different_gpus(2_000)
    claims = [fleets.claim("c", exactly("gpu", selector=MATCHES_NO_DEVICE))]
    assert allocate(stock, "n0", claims).verdict is SearchVerdict.INFEASIBLE
    answer = allocate(stock, "n0", claims, options=SearchOptions(steps=2_000))
    assert answer.verdict is SearchVerdict.UNDECIDED
    assert answer.error == "the budget of steps is spent"


def test_a_rule_over_many_pairs_respects_the_budget():
    rule = {
        "metadata": {"name": "lonely"},
        "spec": {"driver": fleets.DRIVER, "compatibleOnlyWith": 'device.driver == "other"'},
    }
    stock = fleet_of_different_gpus(3_000).with_object(convert(rule, DeviceCompatibility))
    answer = allocate(stock, "n0", [fleets.claim("c", exactly("gpu"))])
    assert answer.verdict is SearchVerdict.UNDECIDED


def test_a_counter_set_of_many_devices_respects_the_budget():
    consumption = [{"counterSet": "gpu-0", "counters": {"slot-0": {"value": "1"}}}]
    stock = fleet_of_different_gpus(4_000, consumesCounters=consumption)
    answer = allocate(stock, "n0", [fleets.claim("c", exactly("gpu"))])
    assert answer.verdict is SearchVerdict.UNDECIDED


def test_an_exhausted_shared_budget_leaves_later_questions_undecided():
    stock = fleet_of_different_gpus(200)
    claims = [fleets.claim("c", exactly("gpu", selector=MATCHES_NO_DEVICE))]
    shared_budget = Budget(4_000)
    verdicts = [allocate(stock, "n0", claims, options=SearchOptions(budget=shared_budget)).verdict for _ in range(4)]
    assert verdicts == [
        SearchVerdict.INFEASIBLE,
        SearchVerdict.UNDECIDED,
        SearchVerdict.UNDECIDED,
        SearchVerdict.UNDECIDED,
    ]
    assert shared_budget.is_out


def test_reasons_are_unknown_when_the_budget_is_spent():
    stock = fleet_of_different_gpus(2_000)
    claims = [fleets.claim("c", exactly("gpu", selector=MATCHES_NO_DEVICE))]
    answer = allocate(stock, "n0", claims, options=SearchOptions(steps=6_000), reasons=True)
    assert answer.verdict is SearchVerdict.INFEASIBLE
    assert [reason.text for reason in answer.reasons] == ["the reason is not known: the budget of steps is spent"]


def test_a_small_budget_is_enough_for_a_usual_node():
    stock = fleets.fleet({"n0": [*fleets.partitions("gpu-0"), *fleets.partitions("gpu-1")]})
    claims = [fleets.claim("c", exactly("1g", count=4), exactly("4g", name="s"))]
    assert allocate(stock, "n0", claims, options=SearchOptions(budget=Budget(5_000))).feasible
