"""A plugin's device is matched with the devices of slices: the same hardware, its partitions and its shares."""

import pytest
from msgspec.structs import replace

from dra.objects import Counter, CounterSet, DeviceAttribute, DeviceCounterConsumption
from dra.quantity import parse
from node.audit import Hardware
from node.audit.hardware_identity import MAX_BESIDE
from tests.node.audit.snapshots import RESOURCE, device, published, slices


@pytest.fixture(scope="module")
def described():
    return Hardware(slices())


def names(devices):
    return sorted(device_id.device for device_id in devices)


@pytest.mark.parametrize("id_", ["GPU-0", "gpu-0", "GPU-0::3", "0000:3b:00.0", "3b:00.0", "00000000:3B:00.0"])
def test_a_whole_device_is_found_by_uuid_and_by_address(described, id_):
    assert names(described.excluded_by_plugin(RESOURCE, id_)) == ["gpu-0"]


def test_a_card_excludes_its_partitions(described):
    assert names(described.excluded_by_plugin(RESOURCE, "GPU-1")) == ["gpu-1", "gpu-1-1g-0", "gpu-1-1g-1", "gpu-1-1g-2", "gpu-1-2g-0", "gpu-1-2g-2"]  # fmt: skip


def test_a_partition_excludes_its_card_and_overlapping_partitions_only(described):
    """2g at 0 uses the slices 0 and 1. It leaves 1 of 3 compute, so the other 2g partition does not fit either."""
    assert names(described.excluded_by_plugin(RESOURCE, "GPU-1/2g/0")) == ["gpu-1", "gpu-1-1g-0", "gpu-1-1g-1", "gpu-1-2g-0", "gpu-1-2g-2"]  # fmt: skip
    assert names(described.excluded_by_plugin(RESOURCE, "GPU-1/1g/2")) == ["gpu-1", "gpu-1-1g-2", "gpu-1-2g-2"]


def test_a_card_excludes_its_shared_device(described):
    assert names(described.excluded_by_plugin(RESOURCE, "GPU-2")) == ["gpu-2", "gpu-2-shared"]


@pytest.mark.parametrize("id_", ["GPU-9", "0000:3b:00.1", "7", "", "²", "9" * 5000, "::1"])
def test_a_plugin_id_that_no_slice_publishes_matches_no_device(described, id_):
    assert described.excluded_by_plugin(RESOURCE, id_) == frozenset()


def test_an_index_matches_devices_of_the_same_vendor_only():
    first = published("gpu.example.com", ("a", {"index": {"int": 0}}))
    other = published("nic.other.org", ("b", {"index": {"int": 0}}))
    hardware = Hardware([first, other])
    assert names(hardware.excluded_by_plugin("example.com/gpu", "0")) == ["a"]
    assert names(hardware.excluded_by_plugin("gpu.example.com/card", "00")) == ["a"]
    assert names(hardware.excluded_by_plugin("com/gpu", "0")) == []
    assert names(hardware.excluded_by_plugin("ample.com/gpu", "0")) == []


def test_an_index_matches_no_uuid():
    hardware = Hardware([published("nic.other.org", ("b", {"uuid": {"string": "0"}}))])
    assert hardware.excluded_by_plugin("example.com/gpu", "0") == frozenset()


def test_an_adapter_device_matches_its_plugin_device_by_id():
    """The resource must be the same."""
    attributes = {"resource": {"string": RESOURCE}, "id": {"string": "Dev:1"}}
    hardware = Hardware([published("plugins.drawbridge.dev", ("d", attributes))])
    assert names(hardware.excluded_by_plugin(RESOURCE, "Dev:1")) == ["d"]
    assert names(hardware.excluded_by_plugin("example.com/other", "Dev:1")) == []


def test_two_drivers_may_publish_the_same_device():
    mine = published("a.example.com", ("x", {"uuid": {"string": "GPU-7"}}))
    theirs = published("b.example.com", ("y", {"b.example.com/uuid": {"string": "GPU-7"}}), ("z", {}))
    hardware = Hardware([mine, theirs])
    assert hardware.same_hardware(device("x", "a.example.com")) == {device("y", "b.example.com")}
    assert hardware.same_hardware(device("z", "b.example.com")) == frozenset()
    assert hardware.same_hardware(device("w", "b.example.com")) == frozenset()


@pytest.mark.parametrize("address", ["", "zz:00.0", "3b:00", ":::", "3b:00.0 ", "1" * 64])
def test_an_invalid_address_is_ignored(address):
    hardware = Hardware([published("a.example.com", ("x", {"pciBusID": {"string": address}}))])
    assert hardware.excluded_by_plugin(RESOURCE, address) == frozenset()


@pytest.mark.parametrize("same", ["uuid", "counter"])
def test_devices_of_one_card_are_compared_up_to_a_limit(same):
    """10,000 devices that exclude each other would keep the agent busy for minutes, and taint as many devices."""
    uuid = {"string": "GPU-7"}
    slice_ = published("liar.example.com", *((f"d{number}", {"uuid": uuid} if same == "uuid" else {}) for number in range(2 * MAX_BESIDE)))  # fmt: skip
    if same == "counter":
        amounts = {"c": Counter(value=parse("1"))}
        uses = (DeviceCounterConsumption(counter_set="s", counters=amounts),)
        devices = tuple(replace(member, consumes_counters=uses) for member in slice_.spec.devices)
        named = replace(devices[0], attributes={"uuid": DeviceAttribute(string="GPU-7")})
        sets = (CounterSet(name="s", counters=amounts),)
        slice_ = replace(slice_, spec=replace(slice_.spec, devices=(named, *devices[1:]), shared_counters=sets))
    hardware = Hardware([slice_])
    assert len(hardware.excluded_by_plugin("example.com/gpu", "GPU-7")) == MAX_BESIDE
    assert len(hardware.crowded) == 1
    assert Hardware(slices()).crowded == set()
