"""Claims of any scheduler that hold devices which must not be allocated together."""

import pytest
from msgspec.structs import replace

from allocator.reservations import overlaps
from allocator.reservations.events import Overlapped
from dra.stock import Stock
from tests.allocator.reservations.server import allocation_of, claim
from tests.dra.samples import DRIVER, compatibility, consuming, node, slice_
from tests.loops import every


def claim_holding(name, *devices, **fields):
    unallocated = claim(name)
    return replace(unallocated, status=replace(unallocated.status, allocation=allocation_of(*devices, **fields)))


def stock(*claims, devices=("d0", "d1"), rules=(), **spec):
    slices = [slice_("s", *devices, node="n1", **spec)]
    return Stock.of(slices=slices, nodes=[node("n1")], claims=claims, compatibilities=rules)


SHARED_DEVICE = {"name": "d0", "allowMultipleAllocations": True, "capacity": {"memory": {"value": "3"}}}
NO_TWO_DEVICES_TOGETHER = compatibility(expression='"x" in device.attributes')
DEVICES_WITH_COUNTERS = [consuming(name, k={"m": "2"}) for name in ("d0", "d1")]
DEVICES_WITH_GROUPS = [consuming("d0", groups=["a"], k={"m": "1"}), consuming("d1", groups=["b"], k={"m": "1"})]
ENOUGH_COUNTERS, TOO_FEW_COUNTERS = {"k": {"m": "4"}}, {"k": {"m": "3"}}

DEVICE_WITH_X_MUST_BE_ALONE = compatibility(expression='!("x" in device.attributes)', selector="true")
NO_TWO_DEVICES_OF_A_NODE_TOGETHER = compatibility(expression="false", scope="node")


def stock_of_two_pools(*claims, second_node="n1", rules=(NO_TWO_DEVICES_OF_A_NODE_TOGETHER,)):
    slices = [slice_("s", "d0", node="n1"), slice_("t", "d0", pool="q", node=second_node)]
    return Stock.of(slices=slices, nodes=[node(), node("n1")], claims=claims, compatibilities=rules)


OVERLAPPING_CLAIMS = {
    "two claims hold one device": stock(claim_holding("c", "d0"), claim_holding("e", "d0")),
    "one claim holds a device, the other a share of that device": stock(
        claim_holding("c", "d0"), claim_holding("e", "d0", share="s")
    ),
    "the shares exceed the capacity of the device": stock(
        claim_holding("c", "d0", share="s", amount={"memory": "2"}),
        claim_holding("e", "d0", share="t", amount={"memory": "2"}),
        devices=[SHARED_DEVICE],
    ),
    "the devices consume more than the counter has": stock(
        claim_holding("c", "d0"), claim_holding("e", "d1"), devices=DEVICES_WITH_COUNTERS, counters=TOO_FEW_COUNTERS
    ),
    "a rule forbids two devices together": stock(
        claim_holding("c", "d0"), claim_holding("e", "d1"), rules=[NO_TWO_DEVICES_TOGETHER]
    ),
    "a rule forbids devices of two pools of a node": stock_of_two_pools(
        claim_holding("c", "d0"), claim_holding("e", "d0", pool="q")
    ),
    "the devices have no common compatibility group": stock(
        claim_holding("c", "d0"), claim_holding("e", "d1"), devices=DEVICES_WITH_GROUPS, counters=ENOUGH_COUNTERS
    ),
}
COMPATIBLE_CLAIMS = {
    "the claims hold different devices": stock(claim_holding("c", "d0"), claim_holding("e", "d1")),
    "the shares fit the capacity of the device": stock(
        claim_holding("c", "d0", share="s", amount={"memory": "1"}),
        claim_holding("e", "d0", share="t", amount={"memory": "2"}),
        devices=[SHARED_DEVICE],
    ),
    "the counters suffice for both devices": stock(
        claim_holding("c", "d0"), claim_holding("e", "d1"), devices=DEVICES_WITH_COUNTERS, counters=ENOUGH_COUNTERS
    ),
    "one claim holds a device twice": stock(claim_holding("c", "d0", "d0")),
    "a rule for the pools of a node, pools of two nodes": stock_of_two_pools(
        claim_holding("c", "d0"), claim_holding("e", "d0", pool="q", node="n0"), second_node="n0"
    ),
    "no rule for devices of two pools": stock_of_two_pools(
        claim_holding("c", "d0"), claim_holding("e", "d0", pool="q"), rules=()
    ),
    "no slice publishes the held device": stock(claim_holding("c", "x", share="s"), claim_holding("e", "x", share="t")),
}


@pytest.mark.parametrize("name", OVERLAPPING_CLAIMS)
def test_claims_that_must_not_hold_devices_together_are_found(name):
    assert overlaps(OVERLAPPING_CLAIMS[name]) == (Overlapped(frozenset(["c", "e"])),)


@pytest.mark.parametrize("name", COMPATIBLE_CLAIMS)
def test_claims_that_may_hold_devices_together_are_not_reported(name):
    assert overlaps(COMPATIBLE_CLAIMS[name]) == ()


def test_only_the_given_pools_are_checked():
    overlapping = OVERLAPPING_CLAIMS["two claims hold one device"]
    assert overlaps(overlapping, [(DRIVER, "other")]) == ()
    assert len(overlaps(overlapping, [(DRIVER, "p")])) == 1
    overlap_across_pools = OVERLAPPING_CLAIMS["a rule forbids devices of two pools of a node"]
    assert (
        overlaps(overlap_across_pools, [(DRIVER, "p")])
        == overlaps(overlap_across_pools, [(DRIVER, "q")])
        == overlaps(overlap_across_pools)
    )


DEVICES_OF_FOREIGN_SLICE = {
    "no devices": (),
    "a device with less capacity": [SHARED_DEVICE | {"capacity": {"memory": {"value": "1"}}}],
    "devices that consume more": [consuming("d0", k={"m": "100"}), consuming("d1", k={"m": "100"})],
    "devices without a common group": [
        consuming("d0", groups=["x"], k={"m": "1"}),
        consuming("d1", groups=["y"], k={"m": "1"}),
    ],
    "a device that a rule separates from all devices": [{"name": "d0", "attributes": {"x": {"bool": True}}}],
}
HELD_DEVICES = {
    "whole devices": (("d0", {}), ("d1", {})),
    "shares of a device": (
        ("d0", {"share": "s", "amount": {"memory": "1"}}),
        ("d0", {"share": "t", "amount": {"memory": "2"}}),
    ),
}


@every("foreign_devices", DEVICES_OF_FOREIGN_SLICE)
@every("generation", [1, 2**62])
@every("held_devices", HELD_DEVICES)
def test_slices_in_a_foreign_pool_cause_no_overlap(held_devices, generation, foreign_devices):
    """A compromised node publishes a slice in another node's pool, in which the held devices are missing or would overlap."""
    counters = {"k": {"m": "1"}} if generation > 1 else {}
    foreign_slice = slice_("s", *DEVICES_OF_FOREIGN_SLICE[foreign_devices], generation=generation, counters=counters)
    devices = (
        [SHARED_DEVICE, "d1"]
        if held_devices == "shares of a device"
        else [consuming(name, k={"m": "1"}) for name in ("d0", "d1")]
    )
    device_slice = slice_("t", *devices, node="n1", count=2)
    counter_slice = slice_("u", node="n1", count=2, counters={"k": {"m": "9"}})
    claims = [
        claim_holding(name, device, **fields)
        for name, (device, fields) in zip("ce", HELD_DEVICES[held_devices], strict=True)
    ]
    for slices in ([foreign_slice, device_slice, counter_slice], [device_slice, counter_slice, foreign_slice]):
        nodes = [node(), node("n1")]
        stock_with_foreign_slice = Stock.of(
            slices=slices, nodes=nodes, claims=claims, compatibilities=[DEVICE_WITH_X_MUST_BE_ALONE]
        )
        assert overlaps(stock_with_foreign_slice) == ()


def test_equal_device_names_on_two_nodes_do_not_overlap():
    slices = [slice_("s", "d0"), slice_("t", "d0", node="n1")]
    claim_on_n0, claim_on_n1 = claim_holding("c", "d0", node="n0"), claim_holding("e", "d0")
    assert overlaps(Stock.of(slices=slices, nodes=[node(), node("n1")], claims=[claim_on_n0, claim_on_n1])) == ()
    stock_of_one_node = Stock.of(
        slices=slices, nodes=[node(), node("n1")], claims=[claim_on_n0, claim_holding("e", "d0", node="n0")]
    )
    assert overlaps(stock_of_one_node) == (Overlapped(frozenset(["c", "e"])),)
