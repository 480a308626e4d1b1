"""A strategy chooses among devices that fit, and changes no verdict."""

from contextlib import suppress

import pytest

from allocator import SearchOptions
from allocator.decisions import Decider
from allocator.strategies import read_placement
from allocator.strategies.choose import choose_devices
from allocator.strategies.node_view import LooksAt, NodeView, StrategyCache
from allocator.strategies.strategy import STRATEGIES
from dra.objects.claim import ResourceClaim
from dra.wire import convert
from tests.allocator.differ import stock_of
from tests.allocator.fleets import allocated, claim, fleet, gpu, partitions, shared, taken
from tests.allocator.generate import FAMILIES, case_of
from tests.allocator.legality import violations
from tests.limits import draws
from tests.objects import exactly


def differences_from_first_fit(family, seeds, max_served):
    """Compare every strategy with first-fit until first-fit has served `max_served` cases; return the differences."""
    served_cases, found_differences = 0, []
    for seed in seeds:
        case = case_of(family, seed)
        stock, claims = stock_of(case), [convert(claim, ResourceClaim) for claim in case["claims"]]
        first_fit = choose_devices(stock, "n0", claims).answer
        served_cases += first_fit.feasible
        # If the claims do not fit, all strategies take the same path, so one is enough.
        for strategy in STRATEGIES if first_fit.feasible else ("topology",):
            chosen = choose_devices(stock, "n0", claims, strategy=strategy)
            differences = []
            if (chosen.answer.verdict, chosen.answer.error) != (first_fit.verdict, first_fit.error):
                verdicts = chosen.answer.verdict, chosen.answer.error, first_fit.verdict, first_fit.error
                differences.append("{} {}, first-fit {} {}".format(*verdicts))
            if not 0 <= chosen.score <= 100:
                differences.append(f"score {chosen.score}")
            if first_fit.feasible:
                differences += violations(stock, "n0", claims, chosen.answer)
                if chosen_requests(chosen.answer) != chosen_requests(first_fit):
                    differences.append("the chosen alternatives differ")
            found_differences += [f"{family} {seed} {strategy}: {difference}" for difference in differences]
        if served_cases == max_served:
            break
    assert served_cases, "no case could be served, so nothing was compared"
    return found_differences


def chosen_requests(answer):
    """Return the requests or alternatives that each claim got devices for."""
    return [{result.request for result in item.allocation.devices.results} for item in answer.allocations]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_strategy_legally_serves_what_first_fit_serves(family):
    assert differences_from_first_fit(family, range(60), max_served=draws(8)) == []


@pytest.mark.long
@pytest.mark.parametrize("family", FAMILIES)
def test_every_strategy_serves_what_first_fit_serves_in_many_cases(family):
    assert differences_from_first_fit(family, range(1000, 9000), max_served=400) == []


def device_names(chosen):
    return [r.device for allocation in chosen.answer.allocations for r in allocation.allocation.devices.results]


def choose(stock, *claims, strategy, node="n0"):
    return choose_devices(stock, node, claims, strategy=strategy)


# ---- devices within a node

MIG_GPUS = partitions("gpu-0") + partitions("gpu-1")


@pytest.mark.parametrize(
    ("strategy", "used", "count", "devices"),
    [
        ("first-fit", [], 1, ["gpu-0-1g-0"]),
        ("CompactFirst", ["gpu-1-1g-0"], 1, ["gpu-1-1g-1"]),
        ("CompactFirst", [], 2, ["gpu-0-1g-0", "gpu-0-1g-1"]),
        ("LowLoadFirst", ["gpu-0-1g-0"], 1, ["gpu-1-1g-0"]),
        ("LowLoadFirst", [], 2, ["gpu-0-1g-0", "gpu-1-1g-0"]),
        ("NodeCompactGPULowLoad", ["gpu-0-1g-0"], 1, ["gpu-1-1g-0"]),
    ],
)
def test_a_strategy_packs_gpus_or_spreads_over_them(strategy, used, count, devices):
    stock = fleet({"n0": MIG_GPUS}, *(taken("n0", device) for device in used))
    assert device_names(choose(stock, claim("a", exactly("1g", count=count)), strategy=strategy)) == devices


def test_low_load_first_spreads_claims_over_shared_gpus():
    stock = fleet({"n0": (shared("gpu-0", "80Gi"), shared("gpu-1", "80Gi"))})
    claims = [claim(name, exactly("gpu", memory="10Gi")) for name in ("a", "b")]
    assert device_names(choose(stock, *claims, strategy="CompactFirst")) == ["gpu-0", "gpu-0"]
    assert sorted(device_names(choose(stock, *claims, strategy="LowLoadFirst"))) == ["gpu-0", "gpu-1"]


ROOTS = [gpu(f"gpu-{i}", root=f"r{i % 2}") for i in range(4)]
LINKS = [gpu("a", numa=0, nvlink="x"), gpu("b", numa=0, nvlink="y"), gpu("c", numa=1, nvlink="x")]


@pytest.mark.parametrize(
    ("gpus", "strategy", "devices"),
    [
        pytest.param(ROOTS, "first-fit", ["gpu-0", "gpu-1"], id="first-fit ignores PCIe roots"),
        pytest.param(ROOTS, "topology", ["gpu-0", "gpu-2"], id="topology takes devices of one PCIe root"),
        pytest.param(ROOTS[:2], "topology", ["gpu-0", "gpu-1"], id="topology is a preference only"),
        pytest.param(LINKS, "topology", ["a", "c"], id="topology prefers NVLink over NUMA"),
    ],
)
def test_topology_takes_neighbours(gpus, strategy, devices):
    stock = fleet({"n0": gpus})
    assert device_names(choose(stock, claim("a", exactly("gpu", count=2)), strategy=strategy)) == devices


def claim_with_alternatives(*profiles):
    """Return a claim for a device of one of these profiles, the first preferred."""
    alternatives = [exactly(profile)["exactly"] | {"name": f"as-{profile}"} for profile in profiles]
    return claim("a", {"name": "r", "firstAvailable": alternatives})


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_strategy_takes_the_alternative_that_first_fit_takes(strategy):
    """Packing favours the partition, but the claim prefers the whole GPU."""
    stock = fleet({"n0": MIG_GPUS}, taken("n0", "gpu-0-1g-0"))
    assert device_names(choose(stock, claim_with_alternatives("8g", "1g"), strategy=strategy)) == ["gpu-1-8g-0"]


# ---- nodes


def visible_values(stock, node, looks_at):
    """Return the text of everything that a view shows of a node."""
    view = NodeView(stock, node, stock.pools(node), StrategyCache(), looks_at)
    attributes = {}
    for name in dir(view):
        if not name.startswith("_"):
            with suppress(LookupError):
                attributes[name] = getattr(view, name)
    values = {name: value for name, value in attributes.items() if not callable(value)}
    values["free"] = list(map(view.free, view.homes))
    return {name: repr(value) for name, value in values.items()}


@pytest.mark.parametrize("looks_at", [LooksAt.USE, LooksAt.SITES])
def test_a_strategy_that_does_not_declare_it_sees_nothing_of_other_nodes(looks_at):
    """Otherwise the answers for a node that a simulation caches would be outdated once another node changes."""
    before = fleet({"n0": MIG_GPUS, "n1": MIG_GPUS}, taken("n0", "gpu-0-1g-0"))
    other_nodes = {"n1": (gpu("gpu-0", root="r0"),), "n2": MIG_GPUS}
    after = fleet(
        {"n0": MIG_GPUS, **other_nodes}, taken("n0", "gpu-0-1g-0"), taken("n2", "gpu-1-1g-0"), labels={"n1": {"a": "b"}}
    )
    assert visible_values(before, "n0", looks_at) == visible_values(after, "n0", looks_at)
    assert visible_values(before, "n0", looks_at) != visible_values(before, "n1", looks_at)


def chosen_node(stock, wanted, strategy):
    decider, placement = Decider(), read_placement(strategy)
    scores = decider.scores(decider.search_fleet(stock, [wanted]), stock, [wanted], placement)
    return max(scores, key=scores.get)


TWO_MIG_NODES = {"n0": MIG_GPUS, "n1": MIG_GPUS}


@pytest.mark.parametrize(
    ("strategy", "node"),
    [("CompactFirst", "n1"), ("NodeCompactGPULowLoad", "n1"), ("LowLoadFirst", "n0")],
)
def test_packing_prefers_the_used_node_and_spreading_the_idle_node(strategy, node):
    stock = fleet(TWO_MIG_NODES, taken("n1", "gpu-0-1g-0"))
    assert chosen_node(stock, claim("a", exactly("1g")), strategy) == node


def test_topology_prefers_the_node_where_neighbours_are_free():
    stock = fleet({"n0": ROOTS[:2], "n1": [gpu("gpu-0", root="r0"), gpu("gpu-1", root="r0")]})
    assert chosen_node(stock, claim("a", exactly("gpu", count=2)), "topology") == "n1"


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_prefers_the_node_of_the_first_alternative(strategy):
    stock = fleet(TWO_MIG_NODES, taken("n0", "gpu-0-1g-0"), taken("n0", "gpu-1-1g-0"))
    assert chosen_node(stock, claim_with_alternatives("8g", "4g"), strategy) == "n1"


def test_a_strategy_stops_when_its_steps_are_spent():
    stock = fleet({"n0": MIG_GPUS})
    options = SearchOptions(steps=0)
    chosen = choose_devices(stock, "n0", [claim("a", exactly("1g"))], strategy="CompactFirst", options=options)
    assert chosen.answer.verdict == "undecided"


def test_chosen_devices_are_load_for_the_next_claim():
    stock = fleet({"n0": (shared("gpu-0", "80Gi"), shared("gpu-1", "80Gi"))})
    chosen_devices = []
    for i in range(4):
        next_claim = claim(f"c{i}", exactly("gpu", memory="40Gi"))
        chosen = choose(stock, next_claim, strategy="LowLoadFirst")
        chosen_devices += device_names(chosen)
        stock = stock.with_object(allocated(next_claim, chosen.answer))
    assert chosen_devices == ["gpu-0", "gpu-1", "gpu-0", "gpu-1"]
