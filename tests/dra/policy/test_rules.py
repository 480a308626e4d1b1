"""Which devices may be in use together, by compatibility groups (KEP-5963) and by compatibleOnlyWith."""

import pytest

from dra.budget import Budget
from dra.errors import OutOfBudget
from dra.policy.compatibility import NO_GROUPS, Rules, admits, conflicting, group_states, join, own_state
from dra.stock.pool import PoolStatus
from dra.stock.stock import Stock
from tests.dra.samples import DRIVER, compatibility, consuming, holding, node, slice_

POOL = (DRIVER, "p")


# The state of a counter set is the groups that its devices in use have in common, or None if no device is in use.
@pytest.mark.parametrize(
    ("state", "groups", "admitted", "next_state"),
    [
        (None, (), True, NO_GROUPS),
        (None, ("a", "b"), True, {"a", "b"}),
        (NO_GROUPS, (), True, NO_GROUPS),
        (NO_GROUPS, ("a",), False, NO_GROUPS),
        (frozenset("ab"), (), False, frozenset("ab")),
        (frozenset("ab"), ("b", "c"), True, {"b"}),
        (frozenset("ab"), ("c",), False, frozenset()),
        (frozenset(), (), False, frozenset()),
        (frozenset(), ("a",), False, frozenset()),
    ],
)
def test_a_counter_set_admits_devices_with_a_common_group(state, groups, admitted, next_state):
    assert admits(state, own_state(groups)) is admitted
    assert join(state, own_state(groups)) == next_state


def test_a_device_without_groups_fits_every_group_as_proposed():
    wild = own_state((), wild=True)
    assert admits(frozenset("a"), wild)
    assert join(frozenset("a"), wild) == frozenset("a")
    assert own_state(("a",), wild=True) == {"a"}


def test_a_device_without_a_slice_does_not_count_for_groups():
    slices = [
        slice_("a", consuming("x", groups=["a"], s={"c": "1"}), consuming("y", groups=["b"], s={"c": "1"}), count=2),
        slice_("c", count=2, counters={"s": {"c": "4"}}),
    ]
    stock = Stock.of(slices=slices, nodes=[node()], claims=[holding("1", "x"), holding("2", "gone")])
    (pool,) = stock.pools("n0")
    assert pool.status is PoolStatus.OK
    assert group_states(pool, stock.use(POOL), Rules()) == {"s": {"a"}}


def device_in_mode(name, physical, mode=None):
    attributes = {"physicalDevice": {"string": physical}, **({"mode": {"string": mode}} if mode else {})}
    return {"name": name, "attributes": attributes}


# F: the full device (pattern 1 of the proposal). P1, P2: hardware partitions of it (pattern 2). S: a software partition of it.
# G: another full device.
DEVICES = [
    device_in_mode("F", "dev-0", "full"),
    device_in_mode("P1", "dev-0", "hardware-partitioned"),
    device_in_mode("P2", "dev-0", "hardware-partitioned"),
    device_in_mode("S", "dev-0", "software"),
    device_in_mode("G", "dev-1"),
]
RULES = [
    compatibility(
        "full",
        f'device.attributes["{DRIVER}"].physicalDevice != "dev-0"',
        f'device.attributes["{DRIVER}"].?mode.orValue("") == "full"',
    ),
    compatibility(
        "hardware",
        f'device.attributes["{DRIVER}"].mode == "hardware-partitioned"',
        f'device.attributes["{DRIVER}"].?mode.orValue("") == "hardware-partitioned"',
    ),
]


def conflicts(*rules, devices=DEVICES):
    stock = Stock.of(slices=[slice_("a", *devices)], nodes=[node()])
    return Rules(rules).conflicts(stock.pools("n0")[0])


@pytest.mark.parametrize(
    ("first", "other", "is_permitted"),
    [
        ("F", "P1", False),
        ("P1", "P2", True),
        ("P1", "S", False),
        ("S", "F", False),
        ("F", "G", True),
        ("P1", "G", False),
    ],
)
def test_the_patterns_of_the_proposal_hold_in_pool_scope(first, other, is_permitted):
    conflicts_by_device = conflicts(*RULES)
    assert (other not in conflicts_by_device.get(first, ())) is is_permitted
    assert (first not in conflicts_by_device.get(other, ())) is is_permitted


def test_scope_counter_set_does_not_restrict_devices_of_other_hardware():
    devices = [
        {**device, **consuming(device["name"], **{device["attributes"]["physicalDevice"]["string"]: {"c": "0"}})}
        for device in map(dict, DEVICES)
    ]
    devices = [
        {**device, "attributes": original["attributes"]} for device, original in zip(devices, DEVICES, strict=True)
    ]
    counters = slice_("c", count=2, counters={"dev-0": {"c": "1"}, "dev-1": {"c": "1"}})
    stock = Stock.of(slices=[slice_("a", *devices, count=2), counters], nodes=[node()])
    narrow = [compatibility("hardware", RULES[1].spec.compatible_only_with, RULES[1].spec.selector, scope="counterSet")]
    conflicts_by_device = Rules(narrow).conflicts(stock.pools("n0")[0])
    assert "G" not in conflicts_by_device.get("P1", ())
    assert "S" in conflicts_by_device["P1"]


def test_a_rule_that_is_false_forbids_all_other_devices():
    conflicts_by_device = conflicts(
        compatibility("alone", "false"), devices=[device_in_mode("x", "dev-0"), device_in_mode("y", "dev-0")]
    )
    assert conflicts_by_device == {"x": {"y"}, "y": {"x"}}


@pytest.mark.parametrize("expression", ["device.attributes[", 'device.attributes["other"].x == 1', "1"])
def test_a_rule_that_cannot_be_evaluated_permits_no_other_device(expression):
    conflicts_by_device = conflicts(
        compatibility("broken", expression), devices=[device_in_mode("x", "dev-0"), device_in_mode("y", "dev-0")]
    )
    assert conflicts_by_device == {"x": {"y"}, "y": {"x"}}


def test_the_conflicting_devices_in_use_are_listed():
    stock = Stock.of(claims=[holding("1", "S")])
    assert conflicting("F", conflicts(*RULES), stock.use(POOL)) == ["S"]


def conflicts_in_and_across_pools(scope="node", expression="false", **where):
    """Make two pools with two devices each. Return the conflicts of the first device within its pool, and across pools."""
    slices = [slice_("a", "x", "y"), slice_("b", "x", "z", pool="q", **where)]
    pools = Stock.of(slices=slices, nodes=[node()]).pools("n0")
    rules = Rules([compatibility("r", expression, scope=scope)])
    across = rules.conflicts_across(pools, "n0").get(POOL, {})
    return rules.conflicts(pools[0]).get("x", frozenset()), across.get("x", frozenset())


def test_a_node_rule_covers_every_pool_of_the_node():
    in_other_pool = {(DRIVER, "q", "x"), (DRIVER, "q", "z")}
    assert conflicts_in_and_across_pools() == ({"y"}, in_other_pool)
    assert conflicts_in_and_across_pools("pool") == ({"y"}, frozenset())
    assert conflicts_in_and_across_pools("counterSet") == (frozenset(), frozenset())
    assert conflicts_in_and_across_pools(expression="true") == (frozenset(), frozenset())


def test_a_node_rule_covers_one_driver_on_one_node():
    assert conflicts_in_and_across_pools(driver="nic.example.com") == ({"y"}, frozenset())
    assert conflicts_in_and_across_pools(allNodes=True) == ({"y"}, frozenset())
    on_n0, on_n1 = {"name": "x", "nodeName": "n0"}, {"name": "z", "nodeName": "n1"}
    slices = [slice_("a", "x"), slice_("b", on_n0, on_n1, pool="q", perDeviceNodeSelection=True)]
    pools = Stock.of(slices=slices, nodes=[node()]).pools("n0")
    conflicts_by_device = Rules([compatibility("r", "false", scope="node")]).conflicts_across(pools, "n0")
    assert conflicts_by_device[POOL] == {"x": {(DRIVER, "q", "x")}}
    assert "z" not in conflicts_by_device[DRIVER, "q"]


def test_a_node_rule_ignores_devices_of_other_nodes():
    def conflicts_of_x(scope):
        slices = [slice_("a", "x", "y", count=2), slice_("b", "x", "z", node="n1", count=2)]
        pool = Stock.of(slices=slices, nodes=[node(), node("n1")]).pools("n0")[0]
        return Rules([compatibility("r", "false", scope=scope)]).conflicts(pool)["x"]

    assert conflicts_of_x("node") == {"y"}
    assert conflicts_of_x("pool") == {"y", "z"}


def test_a_conflict_names_a_rule_whose_scope_has_both_devices():
    rules = Rules([compatibility("near", "false", scope="counterSet"), compatibility("far", "false", scope="node")])
    pools = Stock.of(slices=[slice_("a", "x"), slice_("b", "x", pool="q")], nodes=[node()]).pools("n0")
    assert rules.between((DRIVER, "p", "x"), (DRIVER, "q", "x"), pools) == "DeviceCompatibility/far"


def test_pairs_across_pools_are_charged_before_comparison():
    names = [f"d{number}" for number in range(120)]
    pools = Stock.of(slices=[slice_("a", *names), slice_("b", *names, pool="q")], nodes=[node()]).pools("n0")
    rules = Rules([compatibility("r", "false", scope="node")])
    with pytest.raises(OutOfBudget):
        rules.conflicts_across(pools, "n0", Budget(20_000))
    assert len(rules.conflicts_across(pools, "n0", Budget(200_000))[POOL]["d0"]) == 120
