"""The predicted demand of a claim is never less than its allocation, in random fleets with all features."""

from collections import Counter

import pytest
from msgspec.structs import replace

from allocator.answer import as_granted
from dra.budget import Budget
from dra.errors import OutOfBudget
from dra.objects import DeviceClass, ResourceClaim
from dra.policy import Demands
from dra.stock import ALL_CLASSES, DEVICES, Stock, amounts_of
from dra.wire import convert
from tests.allocator.differ import ours, stock_of
from tests.allocator.generate import FAMILIES, case_of
from tests.dra.samples import slice_
from tests.draws import draws

CASES = 60  # cases per family


def in_turns(spec, stock):
    """Return the upper bound of a claim's demand, computed in many turns with a small budget each."""
    demands = Demands()
    for _ in range(1000):
        try:
            return demands.most_held(spec, stock, Budget(150))
        except OutOfBudget:
            continue
    raise AssertionError("the upper bound was not computed within 1,000 turns")


def with_a_twin(stock):
    """Return the stock with a twin of each node. The twin publishes the same devices as the node."""
    twins = []
    for original in stock.slices.values():
        if original.spec.node_name:
            spec = replace(original.spec, node_name=f"{original.spec.node_name}-twin")
            twins.append(
                replace(original, metadata=replace(original.metadata, name=f"{original.metadata.name}-twin"), spec=spec)
            )
    return stock.with_all(twins)


@pytest.mark.parametrize("family", FAMILIES)
def test_no_allocation_exceeds_its_predicted_demand(family):
    seen = Counter()
    for seed in range(CASES):
        if seen["served"] == draws(CASES):
            break
        case = case_of(family, seed)
        stock = with_a_twin(stock_of(case))
        claims = [convert(claim, ResourceClaim) for claim in case["claims"]]
        answer = ours(case)
        if not answer.feasible:
            continue
        seen["served"] += 1
        demands = Demands()
        for wanted, granted in zip(claims, as_granted(claims, answer), strict=True):
            predicted, allocated_amounts = demands.upper_bound(wanted.spec, stock), amounts_of(granted, stock.pages_of)
            assert predicted == in_turns(wanted.spec, stock), "the bound computed in small turns differs"
            exceeded = {
                key: (predicted.get(key, 0), amount)
                for key, amount in allocated_amounts.items()
                if amount > predicted.get(key, 0)
            }
            assert exceeded == {}, (seed, wanted.spec)
            seen["devices"] += allocated_amounts.get((ALL_CLASSES, DEVICES), 0)
    assert seen["devices"], "no device was allocated, so no demand was compared"


GPU = convert(
    {"spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}}, ResourceClaim
).spec
EVERY = convert({"spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "All"}}]}}}, ResourceClaim).spec  # fmt: skip


def gpus(node, *sizes):
    devices = [{"name": f"gpu-{i}", "capacity": {"memory": {"value": size}}} for i, size in enumerate(sizes)]
    return slice_(node, *devices, node=node, pool=node)


@pytest.mark.parametrize(("spec", "expected"), [(GPU, 80), (EVERY, 160)], ids=["one GPU", "all GPUs of a node"])
@pytest.mark.parametrize("lie", [(), ("80",), ("9223372036854775807",) * 9, ("0",), ("-9223372036854775808",)])
def test_slices_of_one_node_do_not_increase_the_demand(spec, expected, lie):
    """The slices of node n0 vary. If they increased the demand, a compromised node could exhaust every quota of memory."""
    slices = [gpus(node, "80", "80") for node in ("n1", "n2", "n3")]
    stock = Stock.of(slices=[*slices, gpus("n0", *lie)], classes=[convert({"metadata": {"name": "gpu"}}, DeviceClass)])
    held = Demands().upper_bound(spec, stock)
    assert held["gpu", "memory"] == expected * 10**9
    assert held["gpu", DEVICES] == expected // 80 * 10**9


def test_slices_of_the_only_suitable_node_count():
    stock = Stock.of(
        slices=[gpus("n0", "94", "80"), gpus("n1")], classes=[convert({"metadata": {"name": "gpu"}}, DeviceClass)]
    )
    assert Demands().upper_bound(GPU, stock)["gpu", "memory"] == 94 * 10**9
