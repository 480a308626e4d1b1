"""A plugin's device is matched with devices of slices: the same hardware, partitions of the hardware, and shares.

A plugin's device excludes the devices that no claim may use while a pod has the plugin's device.
"""

import pytest
from msgspec.structs import replace

from dra.objects import Counter, CounterSet, DeviceAttribute, DeviceCounterConsumption
from dra.quantity import parse
from node.audit import Hardware
from node.hardware import MAX_BESIDE
from tests.node.audit.snapshots import RESOURCE, device, published_slice, slices


@pytest.fixture(scope="module")
def example_hardware():
    return Hardware(slices())


def device_names(devices):
    return sorted(device_id.device for device_id in devices)


@pytest.mark.parametrize("id_", ["GPU-0", "gpu-0", "GPU-0::3", "0000:3b:00.0", "3b:00.0", "00000000:3B:00.0"])
def test_a_whole_device_is_found_by_uuid_and_by_address(example_hardware, id_):
    assert device_names(example_hardware.excluded_by_plugin(RESOURCE, id_)) == ["gpu-0"]


def test_a_card_excludes_its_partitions(example_hardware):
    assert device_names(example_hardware.excluded_by_plugin(RESOURCE, "GPU-1")) == ["gpu-1", "gpu-1-1g-0", "gpu-1-1g-1", "gpu-1-1g-2", "gpu-1-2g-0", "gpu-1-2g-2"]  # fmt: skip


def test_a_partition_excludes_its_card_and_overlapping_partitions(example_hardware):
    """The partition 2g/0 uses the memory slices 0 and 1, and 2 of 3 compute units, so the other 2g partition does not fit either."""
    assert device_names(example_hardware.excluded_by_plugin(RESOURCE, "GPU-1/2g/0")) == ["gpu-1", "gpu-1-1g-0", "gpu-1-1g-1", "gpu-1-2g-0", "gpu-1-2g-2"]  # fmt: skip
    assert device_names(example_hardware.excluded_by_plugin(RESOURCE, "GPU-1/1g/2")) == [
        "gpu-1",
        "gpu-1-1g-2",
        "gpu-1-2g-2",
    ]


def test_a_card_excludes_its_shared_device(example_hardware):
    assert device_names(example_hardware.excluded_by_plugin(RESOURCE, "GPU-2")) == ["gpu-2", "gpu-2-shared"]


@pytest.mark.parametrize("id_", ["GPU-9", "0000:3b:00.1", "7", "", "²", "9" * 5000, "::1"])
def test_a_plugin_id_that_no_slice_publishes_matches_no_device(example_hardware, id_):
    assert example_hardware.excluded_by_plugin(RESOURCE, id_) == frozenset()


def test_an_index_matches_only_devices_of_the_same_vendor():
    slice_of_vendor = published_slice("gpu.example.com", ("a", {"index": {"int": 0}}))
    slice_of_other_vendor = published_slice("nic.other.org", ("b", {"index": {"int": 0}}))
    hardware = Hardware([slice_of_vendor, slice_of_other_vendor])
    assert device_names(hardware.excluded_by_plugin("example.com/gpu", "0")) == ["a"]
    assert device_names(hardware.excluded_by_plugin("gpu.example.com/card", "00")) == ["a"]
    assert device_names(hardware.excluded_by_plugin("com/gpu", "0")) == []
    assert device_names(hardware.excluded_by_plugin("ample.com/gpu", "0")) == []


def test_an_index_is_not_compared_with_a_uuid():
    hardware = Hardware([published_slice("nic.other.org", ("b", {"uuid": {"string": "0"}}))])
    assert hardware.excluded_by_plugin("example.com/gpu", "0") == frozenset()


def test_an_adapter_device_matches_its_plugin_device_by_id():
    """The adapter publishes devices of plugins. The resource name must be equal, too."""
    attributes = {"resource": {"string": RESOURCE}, "id": {"string": "Dev:1"}}
    hardware = Hardware([published_slice("plugins.drawbridge.dev", ("d", attributes))])
    assert device_names(hardware.excluded_by_plugin(RESOURCE, "Dev:1")) == ["d"]
    assert device_names(hardware.excluded_by_plugin("example.com/other", "Dev:1")) == []


def test_two_drivers_may_publish_the_same_device():
    slice_of_a = published_slice("a.example.com", ("x", {"uuid": {"string": "GPU-7"}}))
    slice_of_b = published_slice("b.example.com", ("y", {"b.example.com/uuid": {"string": "GPU-7"}}), ("z", {}))
    hardware = Hardware([slice_of_a, slice_of_b])
    assert hardware.same_hardware(device("x", "a.example.com")) == {device("y", "b.example.com")}
    assert hardware.same_hardware(device("z", "b.example.com")) == frozenset()
    assert hardware.same_hardware(device("w", "b.example.com")) == frozenset()


@pytest.mark.parametrize("address", ["", "zz:00.0", "3b:00", ":::", "3b:00.0 ", "1" * 64])
def test_an_invalid_address_is_ignored(address):
    hardware = Hardware([published_slice("a.example.com", ("x", {"pciBusID": {"string": address}}))])
    assert hardware.excluded_by_plugin(RESOURCE, address) == frozenset()


@pytest.mark.parametrize("shared_property", ["uuid", "counter"])
def test_devices_of_one_card_are_compared_up_to_a_limit(shared_property):
    """10,000 devices that exclude each other would keep the agent busy for minutes, and taint as many devices."""
    uuid = {"string": "GPU-7"}
    slice_ = published_slice("hostile.example.com", *((f"d{number}", {"uuid": uuid} if shared_property == "uuid" else {}) for number in range(2 * MAX_BESIDE)))  # fmt: skip
    if shared_property == "counter":
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
