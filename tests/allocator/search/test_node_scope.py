"""Rules of scope `node`, which apply to the devices of all pools of a node, compared with a brute-force search."""

import random

import pytest

from allocator import SearchOptions, SearchVerdict, allocate, fleet
from allocator.answer import Stage
from allocator.search.walk import Cuts
from dra.stock.stock import Stock
from tests.allocator.brute import Brute
from tests.allocator.search.test_compatibility import CLASSES, EXPRESSIONS, devices_of, random_claims
from tests.dra.samples import compatibility, holding, node, slice_
from tests.limits import draws
from tests.objects import claim, exactly, typed

MODE = 'device.attributes["gpu.example.com"].mode'


def device_of_mode(name, mode, gpu="0", **fields):
    return {"name": name, "attributes": {"mode": {"string": mode}, "gpu": {"string": gpu}}, **fields}


def random_pool(rng, name):
    """Return the slices and device names of a pool of node n0: plain, with counters, with a node for each device, for all nodes, or incomplete."""
    shape = rng.choice(
        ("plain", "plain", "plain", "counters", "counters", "node per device", "all nodes", "incomplete")
    )
    devices = []
    for number in range(rng.choice((1, 1, 2, 3))):
        fields = {}
        if shape == "counters":
            amount = rng.choice(("1", "2"))
            groups = {"compatibilityGroups": [rng.choice("ab")]} if rng.random() < 0.3 else {}
            fields["consumesCounters"] = [{"counterSet": "s", "counters": {"m": {"value": amount}}, **groups}]
        if shape == "node per device":
            fields |= rng.choice(({"nodeName": "n0"}, {"nodeName": "n0"}, {"nodeName": "n1"}, {"allNodes": True}))
        # Pools may use equal names for different devices.
        mode = rng.choice(("full", "mig", "mps"))
        devices.append(device_of_mode(f"{rng.choice((name, 'd'))}{number}", mode, rng.choice("01"), **fields))
    selection = {"node per device": {"perDeviceNodeSelection": True}, "all nodes": {"allNodes": True}}.get(shape, {})
    slices = [slice_(f"{name}-a", *devices, pool=name, count=1 + (shape in ("counters", "incomplete")), **selection)]
    if shape == "counters":
        slices.append(slice_(f"{name}-c", pool=name, count=2, counters={"s": {"m": rng.choice(("2", "3"))}}))
    return slices, [device["name"] for device in devices]


def random_fleet(rng):
    slices, held_devices = [], []
    for name in ("p", "q", "r")[: rng.choice((2, 2, 3))]:
        pool_slices, names = random_pool(rng, name)
        slices += pool_slices
        held_devices += [(name, device) for device in names if rng.random() < 0.15]
    rules = [
        compatibility(
            f"r{number}",
            rng.choice(EXPRESSIONS[1:]),
            rng.choice(["", "", *[f'{MODE} == "{mode}"' for mode in ("full", "mig", "mps")], f"{MODE}.size() > 9"]),
            scope=rng.choice(("node", "node", "node", "pool", "counterSet")),
            groups=rng.choice(("upstream", "proposal")),
        )
        for number in range(rng.choice((1, 1, 2)))
    ]
    claims = [holding(f"h-{pool}-{name}", name, pool=pool) for pool, name in held_devices]
    return Stock.of(slices=slices, nodes=[node(), node("n1")], classes=CLASSES, compatibilities=rules, claims=claims)


def pools_and_devices(answer):
    results = [result for item in answer.allocations for result in item.allocation.devices.results]
    return [(result.pool, result.device) for result in results]


def check_random_case(seed):
    """Check that the allocator and the brute-force search find the same devices for a random case; return case and devices."""
    rng = random.Random(seed)
    stock, claims = random_fleet(rng), random_claims(rng)
    expected = Brute(stock, "n0", claims).first()
    for cuts in (Cuts(), Cuts(patience=0)):
        answer = allocate(stock, "n0", claims, options=SearchOptions(cuts=cuts))
        assert answer.verdict in (SearchVerdict.FEASIBLE, SearchVerdict.INFEASIBLE), (seed, answer.error)
        assert devices_of(answer) == expected, seed
    return stock, claims, expected


def test_brute_force_finds_the_same_devices_in_several_pools():
    feasible = refused_by_a_rule = 0
    for seed in range(draws(1_000)):
        stock, claims, expected = check_random_case(seed)
        feasible += expected is not None
        if expected is None:
            stock_without_rules = Stock.of(
                slices=stock.slices.values(),
                nodes=stock.nodes.values(),
                classes=CLASSES,
                claims=stock.claims.values(),
            )
            refused_by_a_rule += allocate(stock_without_rules, "n0", claims).feasible
    assert feasible > draws(1_000) // 5
    assert refused_by_a_rule > draws(1_000) // 17


@pytest.mark.long
@pytest.mark.timeout(900)
def test_brute_force_finds_the_same_devices_in_twenty_thousand_fleets():
    assert sum(check_random_case(seed)[2] is not None for seed in range(1_000, 21_000)) > 4_000


MIG_ONLY_WITH_MIG = compatibility("mig", f'{MODE} == "mig"', f'{MODE} == "mig"', scope="node")


def stock_with(*claims, rules=(MIG_ONLY_WITH_MIG,), slices=(), nodes=("n0", "n1")):
    slices = slices or [
        slice_("a", device_of_mode("mig-0", "mig"), device_of_mode("mig-1", "mig"), pool="p"),
        slice_("b", device_of_mode("full-0", "full"), pool="q"),
        slice_("c", device_of_mode("full-0", "full"), pool="r", node="n1"),
    ]
    return Stock.of(
        slices=slices, nodes=[node(name) for name in nodes], classes=CLASSES, compatibilities=rules, claims=claims
    )


def claims_for(*modes, **fields):
    requests = [exactly(mode, name=f"r{i}", **fields) for i, mode in enumerate(modes)]
    return [typed(claim("c", *requests, namespace="team", uid="c"))]


def test_the_conflicting_device_of_another_pool_is_named():
    answer = fleet(stock_with(holding("theirs", "mig-0")), claims_for("full"))["n0"]
    assert not answer.feasible
    [reason] = [reason for reason in answer.reasons if reason.stage is Stage.COMPATIBILITY]
    assert reason.text == "DeviceCompatibility/mig keeps it apart from mig-0 of pool p (held by claim team/theirs)"


def test_a_device_of_another_node_does_not_conflict():
    assert pools_and_devices(allocate(stock_with(holding("theirs", "mig-0")), "n1", claims_for("full"))) == [
        ("r", "full-0")
    ]


def test_one_claim_cannot_get_conflicting_devices_of_two_pools():
    assert not allocate(stock_with(), "n0", claims_for("mig", "full")).feasible
    assert allocate(stock_with(), "n0", claims_for("mig", "mig")).feasible
    assert allocate(stock_with(rules=()), "n0", claims_for("mig", "full")).feasible


def test_node_rules_ignore_a_device_of_several_nodes():
    slices = [
        slice_("a", device_of_mode("mig-0", "mig"), pool="p"),
        slice_("b", device_of_mode("full-0", "full"), pool="q", allNodes=True),
    ]
    assert allocate(stock_with(slices=slices), "n0", claims_for("mig", "full")).feasible


def test_a_held_device_stays_in_use_during_republication():
    """The pool is incomplete: no claim gets its devices, but a claim that holds a device keeps it."""
    slices = [
        slice_("a1", device_of_mode("mig-0", "mig"), pool="p"),
        slice_("a2", device_of_mode("mig-1", "mig"), pool="p", generation=2, count=2),
        slice_("b", device_of_mode("full-0", "full"), pool="q"),
    ]
    assert allocate(stock_with(slices=slices), "n0", claims_for("full")).feasible
    for device in ("mig-0", "mig-1"):
        stock = stock_with(holding("theirs", device), slices=slices)
        assert not allocate(stock, "n0", claims_for("full")).feasible
        assert not fleet(stock, claims_for("full"))["n0"].feasible


def test_a_conflicting_holder_in_another_pool_makes_the_node_infeasible():
    slices = []
    for name in ("n0", "n1", "n2"):
        slices.append(slice_(f"a-{name}", device_of_mode("mig-0", "mig"), pool=f"p-{name}", node=name))
        slices.append(slice_(f"b-{name}", device_of_mode("full-0", "full"), pool=f"q-{name}", node=name))
    stock = stock_with(holding("theirs", "mig-0", pool="p-n1"), slices=slices, nodes=("n0", "n1", "n2"))
    assert fleet(stock, claims_for("full")).feasible == ["n0", "n2"]


def test_a_further_share_joins_the_holders_of_a_device():
    """For a further share the rule is not checked again, because the device is in use already."""
    slices = [
        slice_("a", device_of_mode("mig-0", "mig"), pool="p"),
        slice_("b", device_of_mode("full-0", "full", allowMultipleAllocations=True), pool="q"),
    ]
    holders = (holding("theirs", "full-0", pool="q", share="s1"),)
    assert allocate(stock_with(*holders, slices=slices), "n0", claims_for("full")).feasible
    assert not allocate(stock_with(*holders, slices=slices), "n0", claims_for("mig")).feasible


def test_shares_are_counted_under_a_rule_across_pools():
    def device_with_memory(name, mode, **fields):
        return device_of_mode(name, mode, capacity={"memory": {"value": "10"}}, **fields)

    slices = [
        slice_("a", device_with_memory("mig-0", "mig"), pool="p"),
        slice_("b", device_with_memory("full-0", "full", allowMultipleAllocations=True), pool="q"),
    ]
    holder = holding("theirs", "full-0", pool="q", share="s1", consumed={"memory": "8"})
    stock = stock_with(holder, slices=slices)
    assert pools_and_devices(allocate(stock, "n0", claims_for("any", capacity={"requests": {"memory": "2"}}))) == [
        ("q", "full-0")
    ]
    assert not allocate(stock, "n0", claims_for("any", capacity={"requests": {"memory": "3"}})).feasible
