"""A strategy chooses among devices that fit, and changes no verdict."""

from contextlib import suppress

import pytest

from allocator import Options
from allocator.strategies.choose import best_node, choose_devices
from allocator.strategies.node_view import LooksAt, NodeView, StrategyCache
from allocator.strategies.strategy import STRATEGIES
from dra.objects.claim import ResourceClaim
from dra.wire import convert
from tests.allocator.differ import stock_of
from tests.allocator.fleets import allocated, claim, fleet, gpu, partitions, shared, taken
from tests.allocator.generate import FAMILIES, case_of
from tests.allocator.legality import violations
from tests.draws import draws
from tests.objects import exactly


def disagreements(family, seeds, enough):
    """Compare every strategy with first-fit until enough questions were served; return the violations."""
    served_questions, found_violations = 0, []
    for seed in seeds:
        case = case_of(family, seed)
        stock, claims = stock_of(case), [convert(claim, ResourceClaim) for claim in case["claims"]]
        first = choose_devices(stock, "n0", claims).answer
        served_questions += first.feasible
        for strategy in STRATEGIES if first.feasible else ("topology",):
            other = choose_devices(stock, "n0", claims, strategy=strategy)
            differences = []
            if (other.answer.verdict, other.answer.error) != (first.verdict, first.error):
                differences.append(
                    f"{other.answer.verdict} {other.answer.error}, first-fit {first.verdict} {first.error}"
                )
            if not 0 <= other.score <= 100:
                differences.append(f"score {other.score}")
            if first.feasible:
                differences += violations(stock, "n0", claims, other.answer)
                if list(map(alternatives, other.answer.allocations)) != list(map(alternatives, first.allocations)):
                    differences.append("other alternatives")
            found_violations += [f"{family} {seed} {strategy}: {difference}" for difference in differences]
        if served_questions == enough:
            break
    assert served_questions, "no question could be served, so nothing was compared"
    return found_violations


def alternatives(granted):
    return sorted({result.request for result in granted.allocation.devices.results})


@pytest.mark.parametrize("family", FAMILIES)
def test_every_strategy_serves_what_first_fit_serves_and_legally(family):
    assert disagreements(family, range(60), enough=draws(8)) == []


@pytest.mark.long
@pytest.mark.parametrize("family", FAMILIES)
def test_every_strategy_serves_what_first_fit_serves(family):
    assert disagreements(family, range(1000, 9000), enough=400) == []


def devices(chosen):
    return [r.device for allocation in chosen.answer.allocations for r in allocation.allocation.devices.results]


def ask(stock, *claims, strategy, node="n0"):
    return choose_devices(stock, node, claims, strategy=strategy)


# ---- devices within a node

MIG = partitions("gpu-0") + partitions("gpu-1")


def test_first_fit_takes_the_first_device():
    stock = fleet({"n0": MIG})
    assert devices(ask(stock, claim("a", exactly("1g")), strategy="first-fit")) == ["gpu-0-1g-0"]


def test_compact_first_fills_the_gpu_that_is_in_use():
    stock = fleet({"n0": MIG}, taken("n0", "gpu-1-1g-0"))
    assert devices(ask(stock, claim("a", exactly("1g")), strategy="CompactFirst")) == ["gpu-1-1g-1"]


def test_low_load_first_takes_the_idle_gpu():
    stock = fleet({"n0": MIG}, taken("n0", "gpu-0-1g-0"))
    assert devices(ask(stock, claim("a", exactly("1g")), strategy="LowLoadFirst")) == ["gpu-1-1g-0"]


def test_low_load_first_spreads_one_request_over_gpus():
    chosen = devices(ask(fleet({"n0": MIG}), claim("a", exactly("1g", count=2)), strategy="LowLoadFirst"))
    assert {name[:5] for name in chosen} == {"gpu-0", "gpu-1"}


def test_low_load_first_spreads_claims_over_shared_gpus():
    stock = fleet({"n0": (shared("gpu-0", "80Gi"), shared("gpu-1", "80Gi"))})
    pair = [claim(name, exactly("gpu", memory="10Gi")) for name in ("a", "b")]
    assert devices(ask(stock, *pair, strategy="CompactFirst")) == ["gpu-0", "gpu-0"]
    assert sorted(devices(ask(stock, *pair, strategy="LowLoadFirst"))) == ["gpu-0", "gpu-1"]


def test_compact_first_keeps_one_request_on_one_gpu():
    chosen = devices(ask(fleet({"n0": MIG}), claim("a", exactly("1g", count=2)), strategy="CompactFirst"))
    assert {name[:5] for name in chosen} == {"gpu-0"}


def test_least_fragmentation_leaves_room_for_the_largest_partition():
    # Halves begin at slots 0 and 4. A device in one of the slots 0 to 3 would break the free half, so the half in use is filled.
    stock = fleet({"n0": partitions("gpu-0")}, taken("n0", "gpu-0-1g-4"))
    (chosen,) = devices(ask(stock, claim("a", exactly("1g")), strategy="least-fragmentation"))
    assert chosen in ("gpu-0-1g-5", "gpu-0-1g-6", "gpu-0-1g-7")


def test_least_fragmentation_fits_shares_where_least_is_left_over():
    stock = fleet(
        {"n0": (shared("gpu-0", "80Gi"), shared("gpu-1", "80Gi"), shared("gpu-2", "80Gi"))},
        taken("n0", "gpu-1", memory="60Gi"),
        taken("n0", "gpu-2", memory="40Gi"),
    )
    chosen = {
        size: devices(ask(stock, claim("a", exactly("gpu", memory=size)), strategy="least-fragmentation"))
        for size in ("16Gi", "30Gi", "50Gi")
    }
    assert chosen == {"16Gi": ["gpu-1"], "30Gi": ["gpu-2"], "50Gi": ["gpu-0"]}


def test_least_fragmentation_gives_a_small_request_the_small_gpu():
    stock = fleet({"n0": (gpu("large", memory="80Gi"), gpu("small", memory="40Gi"))})
    assert devices(ask(stock, claim("a", exactly("gpu")), strategy="least-fragmentation")) == ["small"]


def test_least_fragmentation_takes_the_gpu_of_a_broken_domain():
    roots = tuple(gpu(f"gpu-{i}", root=f"r{i // 2}") for i in range(4))
    stock = fleet({"n0": roots}, taken("n0", "gpu-3"))
    assert devices(ask(stock, claim("a", exactly("gpu")), strategy="least-fragmentation")) == ["gpu-2"]


def test_topology_takes_devices_of_one_pcie_root():
    roots = tuple(gpu(f"gpu-{i}", root=f"r{i % 2}") for i in range(4))
    assert devices(ask(fleet({"n0": roots}), claim("a", exactly("gpu", count=2)), strategy="first-fit")) == [
        "gpu-0",
        "gpu-1",
    ]
    assert devices(ask(fleet({"n0": roots}), claim("a", exactly("gpu", count=2)), strategy="topology")) == [
        "gpu-0",
        "gpu-2",
    ]


def test_topology_is_a_preference_only():
    roots = tuple(gpu(f"gpu-{i}", root=f"r{i}") for i in range(2))
    assert len(devices(ask(fleet({"n0": roots}), claim("a", exactly("gpu", count=2)), strategy="topology"))) == 2


def test_topology_prefers_nvlink_over_numa():
    links = (gpu("a", numa=0, nvlink="x"), gpu("b", numa=0, nvlink="y"), gpu("c", numa=1, nvlink="x"))
    assert devices(ask(fleet({"n0": links}), claim("c", exactly("gpu", count=2)), strategy="topology")) == ["a", "c"]


def test_a_strategy_takes_the_alternative_that_first_fit_takes():
    # Packing favours the partition, but the claim prefers the whole GPU.
    stock = fleet({"n0": MIG}, taken("n0", "gpu-0-1g-0"))
    wanted = claim(
        "a",
        {
            "name": "r",
            "firstAvailable": [
                {**exactly("8g")["exactly"], "name": "whole"},
                {**exactly("1g")["exactly"], "name": "part"},
            ],
        },
    )
    for strategy in STRATEGIES:
        assert devices(ask(stock, wanted, strategy=strategy)) == ["gpu-1-8g-0"]


# ---- nodes


def shown(stock, node, looks_at):
    """Return everything that a view shows of a node; objects that cannot be compared are replaced by their fields."""
    view = NodeView(stock, stock.pools(node), StrategyCache(), looks_at)
    shown_values = {}
    for name in dir(view):
        if not name.startswith("_"):
            with suppress(LookupError):
                shown_values[name] = getattr(view, name)
    values = {name: value for name, value in shown_values.items() if not callable(value)}
    ids = list(view.homes)
    values |= {name: [getattr(view, name)(id_) for id_ in ids] for name in ("free", "lost_value")}
    return {name: repr(value) for name, value in values.items()}


@pytest.mark.parametrize("looks_at", LooksAt)
def test_a_strategy_sees_nothing_of_other_nodes(looks_at):
    """Otherwise a simulation's cached answers for a node would be outdated once another node changes."""
    before = fleet({"n0": MIG, "n1": MIG}, taken("n0", "gpu-0-1g-0"))
    others = {"n1": (gpu("gpu-0", root="r0"),), "n2": MIG}
    after = fleet(
        {"n0": MIG, **others}, taken("n0", "gpu-0-1g-0"), taken("n2", "gpu-1-1g-0"), labels={"n1": {"a": "b"}}
    )
    assert shown(before, "n0", looks_at) == shown(after, "n0", looks_at)
    assert shown(before, "n0", looks_at) != shown(before, "n1", looks_at)


def choice(stock, wanted, strategy):
    return best_node({node: choose_devices(stock, node, [wanted], strategy=strategy) for node in stock.nodes})


TWO = {"n0": MIG, "n1": MIG}


@pytest.mark.parametrize(
    ("strategy", "node"),
    [("CompactFirst", "n1"), ("NodeCompactGPULowLoad", "n1"), ("LowLoadFirst", "n0"), ("least-fragmentation", "n1")],
)
def test_packing_prefers_the_used_node_and_spreading_the_idle(strategy, node):
    stock = fleet(TWO, taken("n1", "gpu-0-1g-0"))
    assert choice(stock, claim("a", exactly("1g")), strategy) == node


def test_node_compact_gpu_low_load_takes_the_fuller_node():
    stock = fleet(TWO, taken("n1", "gpu-0-1g-0"))
    assert devices(ask(stock, claim("a", exactly("1g")), strategy="NodeCompactGPULowLoad", node="n1")) == ["gpu-1-1g-0"]


def test_topology_prefers_the_node_where_neighbours_are_free():
    pair = (gpu("gpu-0", root="r0"), gpu("gpu-1", root="r0"))
    loose = (gpu("gpu-0", root="r0"), gpu("gpu-1", root="r1"))
    assert choice(fleet({"n0": loose, "n1": pair}), claim("a", exactly("gpu", count=2)), "topology") == "n1"


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_prefers_the_better_alternative(strategy):
    stock = fleet(TWO, taken("n0", "gpu-0-1g-0"), taken("n0", "gpu-1-1g-0"))
    wanted = claim(
        "a",
        {
            "name": "r",
            "firstAvailable": [
                {**exactly("8g")["exactly"], "name": "whole"},
                {**exactly("4g")["exactly"], "name": "half"},
            ],
        },
    )
    assert choice(stock, wanted, strategy) == "n1"


def test_no_node_is_best_when_none_can_serve():
    assert choice(fleet({"n0": ()}), claim("a", exactly("gpu")), "CompactFirst") is None


def test_a_strategy_stops_when_its_steps_are_spent():
    stock = fleet({"n0": MIG * 1})
    chosen = choose_devices(
        stock, "n0", [claim("a", exactly("1g"))], strategy="least-fragmentation", options=Options(steps=0)
    )
    assert chosen.answer.verdict == "undecided"


def test_chosen_devices_are_load_for_the_next_claim():
    stock = fleet({"n0": (shared("gpu-0", "80Gi"), shared("gpu-1", "80Gi"))})
    chosen_devices = []
    for i in range(4):
        wanted = claim(f"c{i}", exactly("gpu", memory="40Gi"))
        chosen = ask(stock, wanted, strategy="LowLoadFirst")
        chosen_devices += devices(chosen)
        stock = stock.with_object(allocated(wanted, chosen.answer))
    assert chosen_devices == ["gpu-0", "gpu-1", "gpu-0", "gpu-1"]
