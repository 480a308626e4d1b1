"""Claims that hold together what nobody may hold together, whoever gave it to them."""

import pytest
from msgspec.structs import replace

from allocator.reservations import Overlapped, overlaps
from dra.stock import Stock
from tests.allocator.reservations.server import claim, granted
from tests.dra.samples import DRIVER, compatibility, consuming, node, slice_


def holding(name, *devices, **how):
    one = claim(name)
    return replace(one, status=replace(one.status, allocation=granted(*devices, **how)))


def stock(*claims, devices=("d0", "d1"), rules=(), **spec):
    slices = [slice_("s", *devices, **spec)]
    return Stock.of(slices=slices, nodes=[node()], claims=claims, compatibilities=rules)


SHARED = {"name": "d0", "allowMultipleAllocations": True, "capacity": {"memory": {"value": "3"}}}
APART = compatibility(expression='"x" in device.attributes')
COUNTED = [consuming(name, k={"m": "2"}) for name in ("d0", "d1")]
GROUPED = [consuming("d0", groups=["a"], k={"m": "1"}), consuming("d1", groups=["b"], k={"m": "1"})]
ENOUGH, SCARCE = {"k": {"m": "4"}}, {"k": {"m": "3"}}

EXCLUSIVE = compatibility(expression="false", scope="node")


def two_pools(*claims, node_of_second="n0", rules=(EXCLUSIVE,)):
    slices = [slice_("s", "d0"), slice_("t", "d0", pool="q", node=node_of_second)]
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
    "devices of pools of two nodes": two_pools(holding("c", "d0"), holding("e", "d0", pool="q"), node_of_second="n1"),
    "devices of two pools without a rule": two_pools(holding("c", "d0"), holding("e", "d0", pool="q"), rules=()),
    "a device that is not published": stock(holding("c", "x", share="s"), holding("e", "x", share="t")),
}


@pytest.mark.parametrize("name", OVERLAPS)
def test_what_is_held_together_and_must_not_be_is_found(name):
    assert overlaps(OVERLAPS[name]) == (Overlapped(frozenset(["c", "e"])),)


@pytest.mark.parametrize("name", FINE)
def test_what_may_be_held_together_is_left_alone(name):
    assert overlaps(FINE[name]) == ()


def test_only_the_pools_that_are_asked_about_are_looked_at():
    found = OVERLAPS["one device twice"]
    assert overlaps(found, [(DRIVER, "other")]) == ()
    assert len(overlaps(found, [(DRIVER, "p")])) == 1
    across = OVERLAPS["devices of two pools of a node"]
    assert overlaps(across, [(DRIVER, "p")]) == overlaps(across, [(DRIVER, "q")]) == overlaps(across)
