"""Claims of any scheduler that hold devices which must not be allocated together."""

import pytest
from msgspec.structs import replace

from allocator.reservations import overlaps
from allocator.reservations.events import Overlapped
from dra.stock import Stock
from tests.allocator.reservations.server import claim, granted
from tests.dra.samples import DRIVER, compatibility, consuming, node, slice_


def holding(name, *devices, **fields):
    unallocated = claim(name)
    return replace(unallocated, status=replace(unallocated.status, allocation=granted(*devices, **fields)))


def stock(*claims, devices=("d0", "d1"), rules=(), **spec):
    slices = [slice_("s", *devices, node="n1", **spec)]
    return Stock.of(slices=slices, nodes=[node("n1")], claims=claims, compatibilities=rules)


SHARED = {"name": "d0", "allowMultipleAllocations": True, "capacity": {"memory": {"value": "3"}}}
APART = compatibility(expression='"x" in device.attributes')
COUNTED = [consuming(name, k={"m": "2"}) for name in ("d0", "d1")]
GROUPED = [consuming("d0", groups=["a"], k={"m": "1"}), consuming("d1", groups=["b"], k={"m": "1"})]
ENOUGH, SCARCE = {"k": {"m": "4"}}, {"k": {"m": "3"}}

APART_FROM_X = compatibility(expression='!("x" in device.attributes)', selector="true")
EXCLUSIVE = compatibility(expression="false", scope="node")


def two_pools(*claims, node_of_second="n1", rules=(EXCLUSIVE,)):
    slices = [slice_("s", "d0", node="n1"), slice_("t", "d0", pool="q", node=node_of_second)]
    return Stock.of(slices=slices, nodes=[node(), node("n1")], claims=claims, compatibilities=rules)


OVERLAPS = {
    "one device twice": stock(holding("c", "d0"), holding("e", "d0")),
    "a device, and a share of it": stock(holding("c", "d0"), holding("e", "d0", share="s")),
    "more capacity than there is": stock(
        holding("c", "d0", share="s", amount={"memory": "2"}),
        holding("e", "d0", share="t", amount={"memory": "2"}),
        devices=[SHARED],
    ),
    "more of a counter than it has": stock(holding("c", "d0"), holding("e", "d1"), devices=COUNTED, counters=SCARCE),
    "devices that do not go together": stock(holding("c", "d0"), holding("e", "d1"), rules=[APART]),
    "devices of two pools of a node": two_pools(holding("c", "d0"), holding("e", "d0", pool="q")),
    "groups with nothing in common": stock(holding("c", "d0"), holding("e", "d1"), devices=GROUPED, counters=ENOUGH),
}
FINE = {
    "two devices": stock(holding("c", "d0"), holding("e", "d1")),
    "shares that fit": stock(
        holding("c", "d0", share="s", amount={"memory": "1"}),
        holding("e", "d0", share="t", amount={"memory": "2"}),
        devices=[SHARED],
    ),
    "counters that last": stock(holding("c", "d0"), holding("e", "d1"), devices=COUNTED, counters=ENOUGH),
    "one claim with one device twice": stock(holding("c", "d0", "d0")),
    "devices of pools of two nodes": two_pools(
        holding("c", "d0"), holding("e", "d0", pool="q", node="n0"), node_of_second="n0"
    ),
    "devices of two pools without a rule": two_pools(holding("c", "d0"), holding("e", "d0", pool="q"), rules=()),
    "a device that is not published": stock(holding("c", "x", share="s"), holding("e", "x", share="t")),
}


@pytest.mark.parametrize("name", OVERLAPS)
def test_claims_that_must_not_hold_devices_together_are_found(name):
    assert overlaps(OVERLAPS[name]) == (Overlapped(frozenset(["c", "e"])),)


@pytest.mark.parametrize("name", FINE)
def test_claims_that_may_hold_devices_together_are_left_alone(name):
    assert overlaps(FINE[name]) == ()


def test_only_the_given_pools_are_checked():
    overlapping = OVERLAPS["one device twice"]
    assert overlaps(overlapping, [(DRIVER, "other")]) == ()
    assert len(overlaps(overlapping, [(DRIVER, "p")])) == 1
    across = OVERLAPS["devices of two pools of a node"]
    assert overlaps(across, [(DRIVER, "p")]) == overlaps(across, [(DRIVER, "q")]) == overlaps(across)


FOREIGN_SLICES = {
    "no device": (),
    "no capacity": [SHARED | {"capacity": {"memory": {"value": "1"}}}],
    "no counters": [consuming("d0", k={"m": "100"}), consuming("d1", k={"m": "100"})],
    "groups apart": [consuming("d0", groups=["x"], k={"m": "1"}), consuming("d1", groups=["y"], k={"m": "1"})],
    "a device that goes with no other": [{"name": "d0", "attributes": {"x": {"bool": True}}}],
}
HONEST = {
    "whole": (("d0", {}), ("d1", {})),
    "shares": (("d0", {"share": "s", "amount": {"memory": "1"}}), ("d0", {"share": "t", "amount": {"memory": "2"}})),
}


@pytest.mark.parametrize("foreign", FOREIGN_SLICES)
@pytest.mark.parametrize("generation", [1, 2**62])
@pytest.mark.parametrize("held", HONEST)
def test_slices_in_a_foreign_pool_cause_no_overlap(held, generation, foreign):
    """A compromised node publishes a slice for another node's pool, with too small counters or without capacity."""
    counters = {"k": {"m": "1"}} if generation > 1 else {}
    stolen = slice_("s", *FOREIGN_SLICES[foreign], generation=generation, counters=counters)
    devices = [SHARED, "d1"] if held == "shares" else [consuming(name, k={"m": "1"}) for name in ("d0", "d1")]
    honest = slice_("t", *devices, node="n1", count=2)
    theirs = slice_("u", node="n1", count=2, counters={"k": {"m": "9"}})
    claims = [holding(name, device, **fields) for name, (device, fields) in zip("ce", HONEST[held], strict=True)]
    for slices in ([stolen, honest, theirs], [honest, theirs, stolen]):
        nodes = [node(), node("n1")]
        with_foreign = Stock.of(slices=slices, nodes=nodes, claims=claims, compatibilities=[APART_FROM_X])
        assert overlaps(with_foreign) == ()


def test_equal_device_names_on_two_nodes_do_not_overlap():
    slices = [slice_("s", "d0"), slice_("t", "d0", node="n1")]
    first, other = holding("c", "d0", node="n0"), holding("e", "d0")
    assert overlaps(Stock.of(slices=slices, nodes=[node(), node("n1")], claims=[first, other])) == ()
    both = Stock.of(slices=slices, nodes=[node(), node("n1")], claims=[first, holding("e", "d0", node="n0")])
    assert overlaps(both) == (Overlapped(frozenset(["c", "e"])),)
