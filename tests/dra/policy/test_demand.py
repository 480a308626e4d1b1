"""The largest amount that a claim can be allocated."""

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
PICKY = {"cel": {"expression": f"device.attributes['{DRIVER}'].model == 'small'"}}
BROKEN = {"cel": {"expression": "device.nothing"}}


def device(name, memory, model="large", **more):
    return {
        "name": name,
        "capacity": {"memory": {"value": memory}},
        "attributes": {"model": {"string": model}},
    } | more


def stock(*slices):
    return Stock.of(slices=slices, classes=[CLASS])


def exactly(**more):
    return {"name": "r", "exactly": {"deviceClassName": "gpu"} | more}


def demand(of, *requests, **options):
    spec = convert({"devices": {"requests": list(requests)}}, ResourceClaimSpec)
    bound = Demands(**options).upper_bound(spec, of)
    return {f"{class_name}/{what}": amount / 10**9 for (class_name, what), amount in bound.items()}


# Two nodes of each kind: the sizes of a single node are not trusted.
PAIRS = stock(
    *(slice_(at, device("d0", "40"), device("d1", "40"), device("d2", "40"), pool=at, nodeName=at) for at in "ab"),
    *(slice_(at, device("d0", "80"), device("d1", "10", "small"), pool=at, nodeName=at) for at in "cd"),
)
SHARED = stock(slice_("a", device("a0", "80", allowMultipleAllocations=True), pool="a", nodeName="a"))
PARTS = stock(
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
    ("fleet", "request_", "wanted"),
    [
        (PAIRS, exactly(), {"devices": 1, "memory": 80}),
        (PAIRS, exactly(allocationMode="ExactCount", count=3), {"devices": 3, "memory": 240}),
        (PAIRS, exactly(selectors=[PICKY]), {"devices": 1, "memory": 10}),
        (PAIRS, exactly(allocationMode="All"), {"devices": 3, "memory": 120}),
        (PAIRS, exactly(selectors=[PICKY], allocationMode="All"), {"devices": 1, "memory": 10}),
        (PAIRS, exactly(capacity={"requests": {"memory": "20"}}), {"devices": 1, "memory": 80}),
        (SHARED, exactly(capacity={"requests": {"memory": "20"}}), {"devices": 1, "shares": 1, "memory": 20}),
        (SHARED, exactly(), {"devices": 1, "shares": 1, "memory": 80}),
        (PARTS, exactly(), {"devices": 1, "memory": 80, "counter.memory": 12, "profile.1g": 1}),
        (PAIRS, exactly(selectors=[BROKEN]), {"devices": 1}),
        (stock(), exactly(allocationMode="All"), {"devices": 32}),
        (stock(), exactly(count=2, capacity={"requests": {"memory": "20"}}), {"devices": 2, "memory": 40}),
    ],
    ids=[
        "the largest device that two nodes have",
        "n times that",
        "largest that the selector matches",
        "all: the largest total of any node",
        "all that match the selector",
        "a device is taken whole",
        "a share takes what it asks for",
        "a share that asks for nothing takes all",
        "a partition adds counter and profile",
        "an invalid selector selects nothing, but a device still counts",
        "All counts as 32 if no device is known",
        "unpublished devices count as requested",
    ],
)
def test_the_demand_of_a_request_is_its_maximum(fleet, request_, wanted):
    both = {f"{name}/{what}": amount for what, amount in wanted.items() for name in ("gpu", "*")}
    assert demand(fleet, request_) == both


def test_the_largest_alternative_counts_once_over_all_classes():
    alternative = {"name": "small", "deviceClassName": "gpu", "selectors": [PICKY], "count": 3}
    other = {"name": "other", "deviceClassName": "elsewhere", "count": 2}
    assert demand(PAIRS, {"name": "r", "firstAvailable": [alternative, other]}) == {
        "gpu/devices": 3,
        "gpu/memory": 30,
        "elsewhere/devices": 2,
        "*/devices": 3,
        "*/memory": 30,
    }


def test_admin_access_is_free_and_requests_add_up():
    assert demand(PAIRS, exactly(adminAccess=True)) == {}
    assert demand(PAIRS, exactly(), exactly(), exactly(adminAccess=True))["gpu/memory"] == 160


def test_a_request_too_long_to_scan_counts_as_written():
    request = exactly(count=2, capacity={"requests": {"memory": "20"}})
    assert demand(PAIRS, request, steps=2)["gpu/memory"] == 40
    assert demand(PAIRS, request)["gpu/memory"] == 160


TURN = 8_000


def in_turns(spec, demands, of):
    """Scan in several turns of the loop; return the number of turns and the bound."""
    for turn in range(1, 100):
        try:
            return turn, demands.most_held(spec, of, Budget(TURN))
        except OutOfBudget:
            continue
    pytest.fail("the scan never ends")


def test_a_selector_longer_than_one_turn_is_still_evaluated():
    text = " && ".join([PICKY["cel"]["expression"]] * 175)
    spec = convert({"devices": {"requests": [exactly(selectors=[{"cel": {"expression": text}}])]}}, ResourceClaimSpec)
    assert 9_000 < len(text) < 10_240
    turns, bound = in_turns(spec, Demands(), PAIRS)
    assert turns > 1
    assert bound == Demands().upper_bound(spec, PAIRS)
    assert bound["gpu", "memory"] == 10 * 10**9


def test_a_device_beyond_any_budget_ends_the_scan():
    numbers = list(range(150))
    text = f"{numbers}.all(a, {numbers}.all(b, a + b >= 0))"
    capacity = {"requests": {"memory": "20"}}
    spec = convert(
        {"devices": {"requests": [exactly(selectors=[{"cel": {"expression": text}}], capacity=capacity)]}},
        ResourceClaimSpec,
    )
    turns, bound = in_turns(spec, Demands(), PAIRS)
    assert turns < 5
    assert bound["gpu", "memory"] == 20 * 10**9


def test_an_answer_is_remembered_until_what_is_published_changes():
    demands = Demands()
    spec = convert({"devices": {"requests": [exactly()]}}, ResourceClaimSpec)
    key = "gpu", "memory"
    assert demands.upper_bound(spec, PAIRS)[key] == 80 * 10**9
    first, other = (slice_(at, device("d0", "160"), pool=at, nodeName=at) for at in "ef")
    assert demands.upper_bound(spec, PAIRS.with_object(first))[key] == 80 * 10**9
    assert demands.upper_bound(spec, PAIRS.with_object(first).with_object(other))[key] == 160 * 10**9
    assert demands.upper_bound(spec, PAIRS)[key] == 80 * 10**9


def spec_of(**more):
    return convert({"devices": {"requests": [exactly(**more)]}}, ResourceClaimSpec)


def scan_in_turns(demands, spec, stocks, steps):
    """Scan with `steps` steps a turn, on one stock after the other and then on the last; return the bound and the number of turns."""
    for turn in range(10_000):
        of = stocks[min(turn, len(stocks) - 1)]
        try:
            return demands.most_held(spec, of, Budget(steps)), turn + 1
        except OutOfBudget:
            continue
    raise AssertionError("the scan never ends")


def many(nodes):
    return [
        slice_(f"s{at}", *(device(f"d{number}", f"{10 + at}") for number in range(4)), pool=f"n{at}", nodeName=f"n{at}")
        for at in range(nodes)
    ]


@pytest.mark.parametrize("mode", ["ExactCount", "All"])
def test_a_scan_resumes_where_its_budget_ended(mode):
    fleet, spec = stock(*many(20)), spec_of(allocationMode=mode)
    whole = Demands().most_held(spec, fleet, Budget())
    assert whole["gpu", "memory"] == (28 if mode == "ExactCount" else 4 * 28) * 10**9
    assert scan_in_turns(Demands(), spec, [fleet], 60) == (whole, 40), "two devices per turn"


def test_a_scan_continues_although_slices_change_each_time():
    spec, nodes = spec_of(), many(40)
    first = stock(*nodes)
    changed = [
        first.with_object(slice_(f"x{at}", device("x", "5"), pool=f"x{at}", nodeName=f"x{at}")) for at in range(30)
    ]
    bound, turns = scan_in_turns(Demands(), spec, [first, *changed], 300)
    assert bound == Demands().most_held(spec, changed[-1], Budget())
    assert turns <= 30


def test_an_unfinished_scan_counts_the_claim_as_written():
    demands, fleet = Demands(), stock(*many(20))
    spec = spec_of(count=2, capacity={"requests": {"memory": "3"}})
    with pytest.raises(OutOfBudget):
        demands.most_held(spec, fleet, Budget(100))
    assert demands.at_hand(spec, fleet)["gpu", "memory"] == 6 * 10**9
    demands.most_held(spec, fleet, Budget())
    assert demands.at_hand(spec, fleet)["gpu", "memory"] == 2 * 28 * 10**9


def test_distinct_requests_do_not_fill_the_demand_cache():
    demands, fleet = Demands(pages=100), stock(*many(20))
    for at in range(50):
        demands.most_held(spec_of(capacity={"requests": {"memory": f"{at}"}}), fleet, Budget())
    looks = vars(demands)["_scans"]
    assert sum(len(look.scanned) for look in looks.values()) <= 120
    few = Demands()
    for at in range(500):
        few.most_held(spec_of(capacity={"requests": {"memory": f"{at}"}}), PAIRS, Budget())
    assert len(vars(few)["_scans"]) <= 256


def test_requests_with_long_selectors_do_not_fill_the_demand_cache():
    """A request has up to 32 selectors of 10 KiB, and 4,096 answers are remembered."""
    demands, fleet = Demands(pages=25_000), stock(*many(3))
    for at in range(30):
        long = [{"cel": {"expression": f"device.driver != '{at}{each}{'x' * 5000}'"}} for each in range(4)]
        with pytest.raises(OutOfBudget):
            demands.most_held(spec_of(selectors=long), fleet, Budget(50_000))
        if at % 2:
            demands.most_held(spec_of(selectors=long), fleet, Budget())
    kept = vars(demands)
    assert len(kept["_most"]) == 15
    assert 1 <= sum(bool(look._uncompiled) for look in kept["_scans"].values()) <= 2, (
        "only unfinished demands keep their selectors in memory"
    )
    assert max(map(len, (*kept["_most"], *kept["_scans"]))) <= 256
