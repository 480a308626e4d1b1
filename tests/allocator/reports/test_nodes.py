"""What a node has, and what is left of it."""

from allocator.reports import DeviceState, node_report
from dra.quantity import Quantity
from dra.stock import Stock
from tests.allocator.reports.test_shares import claim_holding
from tests.dra.samples import consuming, node, slice_


def report(*devices, claims=()):
    return node_report(Stock.of(slices=[slice_("s", *devices)], nodes=[node()], claims=claims), "n0")


def gpu(name, **more):
    facts = {"attributes": {"productName": {"string": "A100"}}, "capacity": {"memory": {"value": "40Gi"}}}
    return {"name": name} | facts | more


def texts(amounts):
    return {name: str(amount) for name, amount in amounts.items()}


def test_devices_are_free_held_or_shared_with_totals():
    part = {"device": "d2", "shareID": "s", "consumedCapacity": {"memory": "16Gi"}}
    held = [claim_holding("whole", {"device": "d1"}), claim_holding("part", part)]
    found = report(gpu("d0"), gpu("d1"), gpu("d2", allowMultipleAllocations=True), claims=held)
    assert [device.state for device in found.devices] == [DeviceState.FREE, DeviceState.HELD, DeviceState.SHARED]
    assert [texts(device.available)["memory"] for device in found.devices] == ["40Gi", "0", "24Gi"]
    assert (texts(found.capacity), found.available["memory"]) == ({"memory": "120Gi"}, Quantity.parse("64Gi"))
    assert (found.models, found.is_idle) == (("A100",), False)


def test_a_partition_whose_counters_are_drawn_is_blocked():
    parts = [consuming(name, k={"m": "2"}) for name in ("d0", "d1")]
    slices = [slice_("s", *parts, count=2), slice_("k", counters={"k": {"m": "3"}}, count=2)]
    found = node_report(Stock.of(slices=slices, nodes=[node()], claims=[claim_holding("c", {"device": "d0"})]), "n0")
    assert [device.state for device in found.devices] == [DeviceState.HELD, DeviceState.BLOCKED]
    assert found.count(DeviceState.FREE) == 0


def test_a_node_is_idle_with_devices_and_without_holders():
    assert report(gpu("d0")).is_idle
    assert not node_report(Stock.of(nodes=[node()]), "n0").is_idle


def test_taints_are_told():
    tainted = gpu("d0", taints=[{"key": "broken", "value": "", "effect": "NoSchedule"}])
    assert report(tainted).devices[0].taints == ("broken:NoSchedule",)
