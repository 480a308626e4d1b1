"""The report of a node: its devices, their state, and their free capacity."""

from allocator.reports import DeviceState, device_reports
from dra.stock import Stock
from tests.allocator.reports.test_shares import claim_holding
from tests.dra.samples import consuming, node, slice_


def report(*devices, claims=()):
    return device_reports(Stock.of(slices=[slice_("s", *devices)], nodes=[node()], claims=claims), "n0")


def gpu(name, **more):
    facts = {"attributes": {"productName": {"string": "A100"}}, "capacity": {"memory": {"value": "40Gi"}}}
    return {"name": name} | facts | more


def texts(amounts):
    return {name: str(amount) for name, amount in amounts.items()}


def test_devices_are_free_held_or_shared():
    part = {"device": "d2", "shareID": "s", "consumedCapacity": {"memory": "16Gi"}}
    held = [claim_holding("whole", {"device": "d1"}), claim_holding("part", part)]
    reports = report(gpu("d0"), gpu("d1"), gpu("d2", allowMultipleAllocations=True), claims=held)
    assert [device.state for device in reports] == [DeviceState.FREE, DeviceState.HELD, DeviceState.SHARED]
    assert [texts(device.capacity) for device in reports] == [{"memory": "40Gi"}] * 3
    assert [texts(device.available)["memory"] for device in reports] == ["40Gi", "0", "24Gi"]
    assert [device.model for device in reports] == ["A100"] * 3


def test_a_partition_whose_counters_are_drawn_is_blocked():
    parts = [consuming(name, k={"m": "2"}) for name in ("d0", "d1")]
    slices = [slice_("s", *parts, count=2), slice_("k", counters={"k": {"m": "3"}}, count=2)]
    reports = device_reports(
        Stock.of(slices=slices, nodes=[node()], claims=[claim_holding("c", {"device": "d0"})]), "n0"
    )
    assert [device.state for device in reports] == [DeviceState.HELD, DeviceState.BLOCKED]


def test_a_device_is_reported_with_its_taints():
    tainted = gpu("d0", taints=[{"key": "broken", "value": "", "effect": "NoSchedule"}])
    assert report(tainted)[0].taints == ("broken:NoSchedule",)
