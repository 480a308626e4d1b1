"""The most that a claim may hold once it is allocated."""

import pytest

from dra.budget import Budget
from dra.errors import OutOfBudget
from dra.objects import DeviceClass, ResourceClaimSpec
from dra.policy import Demands
from dra.stock import Stock
from dra.wire import convert
from tests.dra.samples import DRIVER, slice_

CLASS = convert(
    {"metadata": {"name": "gpu"}, "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]}},
    DeviceClass,
)
SELECTS_SMALL = {"cel": {"expression": f"device.attributes['{DRIVER}'].model == 'small'"}}
BROKEN = {"cel": {"expression": "device.nothing"}}


def device(name, memory, model="large", **fields):
    return {
        "name": name,
        "capacity": {"memory": {"value": memory}},
        "attributes": {"model": {"string": model}},
    } | fields


def stock(*slices):
    return Stock.of(slices=slices, classes=[CLASS])


def exactly(**fields):
    return {"name": "r", "exactly": {"deviceClassName": "gpu"} | fields}


def demand(fleet, *requests, **options):
    spec = convert({"devices": {"requests": list(requests)}}, ResourceClaimSpec)
    bound = Demands(**options).upper_bound(spec, fleet)
    return {f"{class_name}/{resource}": amount / 10**9 for (class_name, resource), amount in bound.items()}


# Two nodes of each kind, because the largest node does not count.
PAIRS_OF_NODES = stock(
    *(slice_(at, device("d0", "40"), device("d1", "40"), device("d2", "40"), pool=at, nodeName=at) for at in "ab"),
    *(slice_(at, device("d0", "80"), device("d1", "10", "small"), pool=at, nodeName=at) for at in "cd"),
)
SHARED = stock(slice_("a", device("a0", "80", allowMultipleAllocations=True), pool="a", nodeName="a"))
PARTITIONED = stock(
    slice_(
        "a",
        device("whole", "80"),
        device("part", "10", consumesCounters=[{"counterSet": "a", "counters": {"memory": {"value": "12"}}}])
        | {"attributes": {"profile": {"string": "1g"}}},
        pool="a",
        nodeName="a",
        sharedCounters=None,
    )
)


@pytest.mark.parametrize(
    ("fleet", "request_", "expected"),
    [
        (PAIRS_OF_NODES, exactly(), {"devices": 1, "memory": 80}),
        (PAIRS_OF_NODES, exactly(allocationMode="ExactCount", count=3), {"devices": 3, "memory": 240}),
        (PAIRS_OF_NODES, exactly(selectors=[SELECTS_SMALL]), {"devices": 1, "memory": 10}),
        (PAIRS_OF_NODES, exactly(allocationMode="All"), {"devices": 3, "memory": 120}),
        (PAIRS_OF_NODES, exactly(selectors=[SELECTS_SMALL], allocationMode="All"), {"devices": 1, "memory": 10}),
        (PAIRS_OF_NODES, exactly(capacity={"requests": {"memory": "20"}}), {"devices": 1, "memory": 80}),
        (SHARED, exactly(capacity={"requests": {"memory": "20"}}), {"devices": 1, "shares": 1, "memory": 20}),
        (SHARED, exactly(), {"devices": 1, "shares": 1, "memory": 80}),
        (PARTITIONED, exactly(), {"devices": 1, "memory": 80, "counter.memory": 12, "profile.1g": 1}),
        (PAIRS_OF_NODES, exactly(selectors=[BROKEN]), {"devices": 1}),
        (stock(), exactly(allocationMode="All"), {"devices": 32}),
        (stock(), exactly(count=2, capacity={"requests": {"memory": "20"}}), {"devices": 2, "memory": 40}),
    ],
    ids=[
        "the largest device that two nodes have counts",
        "a count multiplies the largest device",
        "the largest device that the selector matches counts",
        "all: the largest total of any node",
        "all that match the selector",
        "an unshared device counts whole",
        "a share counts the requested amount",
        "a share without a requested amount counts whole",
        "a partition adds its counter and its profile",
        "with an invalid selector one device counts",
        "All counts as 32 if no device is known",
        "unpublished devices count as requested",
    ],
)
def test_the_demand_is_the_most_that_a_request_may_hold(fleet, request_, expected):
    # Each amount counts for the class and for all classes together.
    expected_lines = {f"{name}/{resource}": amount for resource, amount in expected.items() for name in ("gpu", "*")}
    assert demand(fleet, request_) == expected_lines


def test_the_largest_alternative_counts_once_over_all_classes():
    alternative = {"name": "small", "deviceClassName": "gpu", "selectors": [SELECTS_SMALL], "count": 3}
    other = {"name": "other", "deviceClassName": "elsewhere", "count": 2}
    assert demand(PAIRS_OF_NODES, {"name": "r", "firstAvailable": [alternative, other]}) == {
        "gpu/devices": 3,
        "gpu/memory": 30,
        "elsewhere/devices": 2,
        "*/devices": 3,
        "*/memory": 30,
    }


def test_admin_access_counts_nothing_and_requests_add_up():
    assert demand(PAIRS_OF_NODES, exactly(adminAccess=True)) == {}
    assert demand(PAIRS_OF_NODES, exactly(), exactly(), exactly(adminAccess=True))["gpu/memory"] == 160


def test_a_request_too_long_to_scan_counts_as_written():
    request = exactly(count=2, capacity={"requests": {"memory": "20"}})
    assert demand(PAIRS_OF_NODES, request, steps=2)["gpu/memory"] == 40
    assert demand(PAIRS_OF_NODES, request)["gpu/memory"] == 160


STEPS_PER_CALL = 8_000


def scan_in_calls(spec, demands, fleet):
    """Repeat the call until the scan is complete; return the number of calls and the bound."""
    for calls in range(1, 100):
        try:
            return calls, demands.most_held(spec, fleet, Budget(STEPS_PER_CALL))
        except OutOfBudget:
            continue
    pytest.fail("the scan never ends")


def test_a_selector_that_takes_several_calls_is_still_evaluated():
    text = " && ".join([SELECTS_SMALL["cel"]["expression"]] * 175)
    spec = convert({"devices": {"requests": [exactly(selectors=[{"cel": {"expression": text}}])]}}, ResourceClaimSpec)
    assert 9_000 < len(text) < 10_240
    calls, bound = scan_in_calls(spec, Demands(), PAIRS_OF_NODES)
    assert calls > 1
    assert bound == Demands().upper_bound(spec, PAIRS_OF_NODES)
    assert bound["gpu", "memory"] == 10 * 10**9


def test_a_device_whose_selector_exceeds_the_budget_ends_the_scan():
    numbers = list(range(150))
    text = f"{numbers}.all(a, {numbers}.all(b, a + b >= 0))"
    capacity = {"requests": {"memory": "20"}}
    spec = convert(
        {"devices": {"requests": [exactly(selectors=[{"cel": {"expression": text}}], capacity=capacity)]}},
        ResourceClaimSpec,
    )
    calls, bound = scan_in_calls(spec, Demands(), PAIRS_OF_NODES)
    assert calls < 5
    assert bound["gpu", "memory"] == 20 * 10**9


def test_a_demand_is_cached_until_the_published_slices_change():
    demands = Demands()
    spec = convert({"devices": {"requests": [exactly()]}}, ResourceClaimSpec)
    key = "gpu", "memory"
    assert demands.upper_bound(spec, PAIRS_OF_NODES)[key] == 80 * 10**9
    first_node, second_node = (slice_(at, device("d0", "160"), pool=at, nodeName=at) for at in "ef")
    assert demands.upper_bound(spec, PAIRS_OF_NODES.with_object(first_node))[key] == 80 * 10**9
    assert (
        demands.upper_bound(spec, PAIRS_OF_NODES.with_object(first_node).with_object(second_node))[key] == 160 * 10**9
    )
    assert demands.upper_bound(spec, PAIRS_OF_NODES)[key] == 80 * 10**9


def spec_of(**fields):
    return convert({"devices": {"requests": [exactly(**fields)]}}, ResourceClaimSpec)


def scan_changing_stocks(demands, spec, stocks, steps):
    """Repeat the call with `steps` steps, each time with the next stock; return the bound and the number of calls."""
    for call in range(10_000):
        fleet = stocks[min(call, len(stocks) - 1)]
        try:
            return demands.most_held(spec, fleet, Budget(steps)), call + 1
        except OutOfBudget:
            continue
    raise AssertionError("the scan never ends")


def slices_of_nodes(nodes):
    return [
        slice_(
            f"s{index}",
            *(device(f"d{number}", f"{10 + index}") for number in range(4)),
            pool=f"n{index}",
            nodeName=f"n{index}",
        )
        for index in range(nodes)
    ]


@pytest.mark.parametrize("mode", ["ExactCount", "All"])
def test_a_scan_resumes_where_its_budget_ended(mode):
    fleet, spec = stock(*slices_of_nodes(20)), spec_of(allocationMode=mode)
    expected = Demands().most_held(spec, fleet, Budget())
    assert expected["gpu", "memory"] == (28 if mode == "ExactCount" else 4 * 28) * 10**9
    assert scan_changing_stocks(Demands(), spec, [fleet], 60) == (expected, 40), "a call does not scan two devices"


def test_a_scan_makes_progress_although_slices_change_between_calls():
    spec, nodes = spec_of(), slices_of_nodes(40)
    first_stock = stock(*nodes)
    changed = [
        first_stock.with_object(slice_(f"x{index}", device("x", "5"), pool=f"x{index}", nodeName=f"x{index}"))
        for index in range(30)
    ]
    bound, calls = scan_changing_stocks(Demands(), spec, [first_stock, *changed], 300)
    assert bound == Demands().most_held(spec, changed[-1], Budget())
    assert calls <= 30


def test_an_unfinished_scan_counts_the_claim_as_written():
    demands, fleet = Demands(), stock(*slices_of_nodes(20))
    spec = spec_of(count=2, capacity={"requests": {"memory": "3"}})
    with pytest.raises(OutOfBudget):
        demands.most_held(spec, fleet, Budget(100))
    assert demands.at_hand(spec, fleet)["gpu", "memory"] == 6 * 10**9
    demands.most_held(spec, fleet, Budget())
    assert demands.at_hand(spec, fleet)["gpu", "memory"] == 2 * 28 * 10**9


def test_distinct_requests_do_not_fill_the_demand_cache():
    demands, fleet = Demands(pages=100), stock(*slices_of_nodes(20))
    for number in range(50):
        demands.most_held(spec_of(capacity={"requests": {"memory": f"{number}"}}), fleet, Budget())
    scans = vars(demands)["_scans"]
    assert sum(len(scan.scanned) for scan in scans.values()) <= 120
    demands_of_few_slices = Demands()
    for number in range(500):
        demands_of_few_slices.most_held(
            spec_of(capacity={"requests": {"memory": f"{number}"}}), PAIRS_OF_NODES, Budget()
        )
    assert len(vars(demands_of_few_slices)["_scans"]) <= 256


def test_requests_with_long_selectors_do_not_fill_the_demand_cache():
    """A request has up to 32 selectors of 10 KiB, and 4,096 results are cached."""
    demands, fleet = Demands(pages=25_000), stock(*slices_of_nodes(3))
    for number in range(30):
        selectors = [{"cel": {"expression": f"device.driver != '{number}{copy}{'x' * 5000}'"}} for copy in range(4)]
        with pytest.raises(OutOfBudget):
            demands.most_held(spec_of(selectors=selectors), fleet, Budget(50_000))
        if number % 2:
            demands.most_held(spec_of(selectors=selectors), fleet, Budget())
    cached = vars(demands)
    assert len(cached["_most"]) == 15
    assert 1 <= sum(bool(scan._uncompiled) for scan in cached["_scans"].values()) <= 2, (
        "the selectors of completed scans are kept in memory"
    )
    assert max(map(len, (*cached["_most"], *cached["_scans"]))) <= 256
