"""The remaining amounts of shared counters (KEP-4815)."""

from dra.stock.counters import available, overdrawn
from dra.stock.stock import Stock
from tests.dra.samples import DRIVER, consuming, holding, node, slice_

NANO = 10**9


def remaining_counters(*claims, devices=(), counters=None):
    slices = [slice_("a", *devices, count=2), slice_("c", count=2, counters=counters or {"s": {"m": "4"}})]
    stock = Stock.of(slices=slices, nodes=[node()], claims=claims)
    return available(stock.pools("n0")[0], stock.use((DRIVER, "p")))


def test_a_shared_device_consumes_its_counters_once():
    devices = [consuming("x", s={"m": "1"}), consuming("y", s={"m": "2"})]
    counters = remaining_counters(holding("1", "x", share="a"), holding("2", "x", share="b"), devices=devices)
    assert counters == {"s": {"m": 3 * NANO}}


def test_admin_access_and_vanished_devices_consume_no_counters():
    counters = remaining_counters(
        holding("1", "x", admin=True), holding("2", "gone"), devices=[consuming("x", s={"m": "1"})]
    )
    assert counters == {"s": {"m": 4 * NANO}}


def test_a_counter_consumed_beyond_its_value_is_overdrawn():
    counters = remaining_counters(
        holding("1", "x", "y"), devices=[consuming("x", s={"m": "3"}), consuming("y", s={"m": "3"})]
    )
    assert overdrawn(counters) == [("s", "m")]


def test_devices_of_other_nodes_are_charged_too():
    slices = [
        slice_("a", "x", count=3),
        slice_("b", consuming("y", s={"m": "1"}), count=3, node="n1"),
        slice_("c", count=3, counters={"s": {"m": "4"}}),
    ]
    stock = Stock.of(slices=slices, nodes=[node()], claims=[holding("1", "y")])
    assert available(stock.pools("n0")[0], stock.use((DRIVER, "p"))) == {"s": {"m": 3 * NANO}}
