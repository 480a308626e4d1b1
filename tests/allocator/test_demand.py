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
from tests.limits import draws

CASES_PER_FAMILY = 60


def upper_bound_in_turns(claim_spec, stock):
    """Return the upper bound of a claim's demand, computed in many turns with a small budget each."""
    demands = Demands()
    for _ in range(1000):
        try:
            return demands.most_held(claim_spec, stock, Budget(150))
        except OutOfBudget:
            continue
    raise AssertionError("the upper bound was not computed within 1,000 turns")


def with_twin_nodes(stock):
    """Return the stock with a twin of each node. The twin publishes the same devices as the node."""
    twin_slices = []
    for original_slice in stock.slices.values():
        if original_slice.spec.node_name:
            spec = replace(original_slice.spec, node_name=f"{original_slice.spec.node_name}-twin")
            twin_slices.append(
                replace(
                    original_slice,
                    metadata=replace(original_slice.metadata, name=f"{original_slice.metadata.name}-twin"),
                    spec=spec,
                )
            )
    return stock.with_all(twin_slices)


@pytest.mark.parametrize("family", FAMILIES)
def test_no_allocation_exceeds_its_predicted_demand(family):
    counts = Counter()
    for seed in range(CASES_PER_FAMILY):
        if counts["served"] == draws(CASES_PER_FAMILY):
            break
        case = case_of(family, seed)
        stock = with_twin_nodes(stock_of(case))
        claims = [convert(claim, ResourceClaim) for claim in case["claims"]]
        answer = ours(case)
        if not answer.feasible:
            continue
        counts["served"] += 1
        demands = Demands()
        for claim, allocated_claim in zip(claims, as_granted(claims, answer), strict=True):
            predicted_amounts = demands.upper_bound(claim.spec, stock)
            allocated_amounts = amounts_of(allocated_claim, stock.pages_of)
            assert predicted_amounts == upper_bound_in_turns(claim.spec, stock), (
                "the bound computed in small turns differs"
            )
            exceeded = {
                key: (predicted_amounts.get(key, 0), amount)
                for key, amount in allocated_amounts.items()
                if amount > predicted_amounts.get(key, 0)
            }
            assert exceeded == {}, (seed, claim.spec)
            counts["devices"] += allocated_amounts.get((ALL_CLASSES, DEVICES), 0)
    assert counts["devices"], "no device was allocated, so no demand was compared"


ONE_GPU = convert(
    {"spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}}, ResourceClaim
).spec
ALL_GPUS = convert({"spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "All"}}]}}}, ResourceClaim).spec  # fmt: skip


def gpus(node, *memory_sizes):
    devices = [{"name": f"gpu-{i}", "capacity": {"memory": {"value": size}}} for i, size in enumerate(memory_sizes)]
    return slice_(node, *devices, node=node, pool=node)


@pytest.mark.parametrize(
    ("claim_spec", "expected_memory"), [(ONE_GPU, 80), (ALL_GPUS, 160)], ids=["one GPU", "all GPUs of a node"]
)
@pytest.mark.parametrize("sizes_on_n0", [(), ("80",), ("9223372036854775807",) * 9, ("0",), ("-9223372036854775808",)])
def test_slices_of_one_node_do_not_increase_the_demand(claim_spec, expected_memory, sizes_on_n0):
    """The slices of node n0 vary. If they increased the demand, a compromised node could exhaust every quota of memory."""
    slices = [gpus(node, "80", "80") for node in ("n1", "n2", "n3")]
    stock = Stock.of(
        slices=[*slices, gpus("n0", *sizes_on_n0)], classes=[convert({"metadata": {"name": "gpu"}}, DeviceClass)]
    )
    demand = Demands().upper_bound(claim_spec, stock)  # in billionths
    assert demand["gpu", "memory"] == expected_memory * 10**9
    assert demand["gpu", DEVICES] == expected_memory // 80 * 10**9


def test_devices_of_the_only_node_with_devices_set_the_demand():
    stock = Stock.of(
        slices=[gpus("n0", "94", "80"), gpus("n1")], classes=[convert({"metadata": {"name": "gpu"}}, DeviceClass)]
    )
    assert Demands().upper_bound(ONE_GPU, stock)["gpu", "memory"] == 94 * 10**9
