"""The report of a node: its devices, their state, and their free capacity."""

from allocator.reports import DeviceState, device_reports
from dra.stock import Stock
from tests.allocator.reports.test_shares import claim_holding
from tests.dra.samples import consuming, node, slice_


def report(*published_devices, claims=()):
    return device_reports(Stock.of(slices=[slice_("s", *published_devices)], nodes=[node()], claims=claims), "n0")


def gpu(name, **further_fields):
    usual_fields = {"attributes": {"productName": {"string": "A100"}}, "capacity": {"memory": {"value": "40Gi"}}}
    return {"name": name} | usual_fields | further_fields


def quantity_texts(quantities):
    return {name: str(amount) for name, amount in quantities.items()}


def test_devices_are_free_held_or_shared():
    share = {"device": "d2", "shareID": "s", "consumedCapacity": {"memory": "16Gi"}}
    claims = [claim_holding("whole", {"device": "d1"}), claim_holding("part", share)]
    reports = report(gpu("d0"), gpu("d1"), gpu("d2", allowMultipleAllocations=True), claims=claims)
    assert [device.state for device in reports] == [DeviceState.FREE, DeviceState.HELD, DeviceState.SHARED]
    assert [quantity_texts(device.capacity) for device in reports] == [{"memory": "40Gi"}] * 3
    assert [quantity_texts(device.available)["memory"] for device in reports] == ["40Gi", "0", "24Gi"]
    assert [device.model for device in reports] == ["A100"] * 3


def test_a_partition_with_too_few_counters_left_is_blocked():
    partitions = [consuming(name, k={"m": "2"}) for name in ("d0", "d1")]
    slices = [slice_("s", *partitions, count=2), slice_("k", counters={"k": {"m": "3"}}, count=2)]
    reports = device_reports(
        Stock.of(slices=slices, nodes=[node()], claims=[claim_holding("c", {"device": "d0"})]), "n0"
    )
    assert [device.state for device in reports] == [DeviceState.HELD, DeviceState.BLOCKED]


def test_a_device_is_reported_with_its_taints():
    tainted = gpu("d0", taints=[{"key": "broken", "value": "", "effect": "NoSchedule"}])
    assert report(tainted)[0].taints == ("broken:NoSchedule",)
