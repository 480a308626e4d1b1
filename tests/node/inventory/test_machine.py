"""An inventory becomes devices with names, counters and shares. The example inventories are valid."""

import pytest

from cluster.manifests import read as read_files
from dra.objects import ResourceSlice
from dra.validation import errors
from dra.wire import builtins
from node.inventory import machine_of, numbers_of, ranges_of, read_inventory
from node.slices import pages_of
from tests.loops import every
from tests.node.machines import EXAMPLES, LAYOUT, MEMORY_STEPS, gpu, inventory_document, machine, shared_gpu


def device_names(node_machine):
    return [device.name for device in node_machine.devices]


def test_a_gpu_without_partitions_or_shares_has_no_counters():
    node_machine = machine(gpus=[gpu(place={"pciBusId": "0000:3b:00.0", "pcieRoot": "pci0000:3a", "numaNode": 1})])
    [device] = node_machine.devices
    assert node_machine.counter_sets == ()
    assert builtins(device) == {
        "name": "gpu-0",
        "attributes": {
            "type": {"string": "gpu"},
            "uuid": {"string": "GPU-0"},
            "resource.kubernetes.io/pciBusID": {"string": "0000:3b:00.0"},
            "resource.kubernetes.io/pcieRoot": {"string": "pci0000:3a"},
            "resource.kubernetes.io/numaNode": {"int": 1},
        },
        "capacity": {"memory": {"value": "40Gi"}},
    }


def test_all_devices_of_a_gpu_consume_one_counter_set():
    """Partitions are listed first, then the shared device and the whole GPU."""
    node_machine = machine(layouts=[LAYOUT], gpus=[shared_gpu(layout="small")])
    partitions = ["gpu-0-1g-0", "gpu-0-1g-1", "gpu-0-1g-2", "gpu-0-2g-0", "gpu-0-2g-2"]
    assert device_names(node_machine) == [*partitions, "gpu-0-shared", "gpu-0"]
    [counter_set] = node_machine.counter_sets
    total = {name: counter.value for name, counter in counter_set.counters.items()}
    assert {name: amount.value() for name, amount in total.items()} == dict.fromkeys(
        ("slice-0", "slice-1", "slice-2", "slice-3"), 1
    ) | {"compute": 3}
    consumed = {
        device.name: {name: counter.value for name, counter in device.consumes_counters[0].counters.items()}
        for device in node_machine.devices
    }
    assert consumed["gpu-0"] == consumed["gpu-0-shared"] == total
    assert {name: amount.value() for name, amount in consumed["gpu-0-2g-2"].items()} == {
        "slice-2": 1,
        "slice-3": 1,
        "compute": 2,
    }


def test_the_largest_share_is_the_last_step_that_fits():
    steps = {"minimum": "1Gi", "step": "3Gi"}
    node_machine = machine(gpus=[gpu(whole=False, memory="12Gi", sharing={"memory": steps})])
    [device] = node_machine.devices
    policy = device.capacity["memory"].request_policy
    assert str(policy.valid_range.max) == "10Gi"
    assert str(policy.default) == "1Gi"


def test_a_nic_and_its_virtual_functions_consume_one_counter():
    function = {"name": "vf-0", "interface": "e0v0", "rdmaDevice": "mlx5_1", "bandwidth": "25G"}
    node_machine = machine(
        nics=[{"name": "nic", "interface": "e0", "virtualFunctions": [function, function | {"name": "vf-1"}]}]
    )
    consumed = {
        device.name: device.consumes_counters[0].counters["functions"].value.value() for device in node_machine.devices
    }
    assert consumed == {"vf-0": 1, "vf-1": 1, "nic": 2}
    assert node_machine.offers["vf-0"].value == "e0v0"
    rdma = {device.name: device.attributes["rdma"].bool_ for device in node_machine.devices}
    assert rdma == {"vf-0": True, "vf-1": True, "nic": False}


def test_a_numa_node_offers_shares_of_cpus_and_hugepages():
    node_machine = machine(numaNodes=[{"number": 1, "cpus": "4-7,12", "hugepages": {"2Mi": 512}}])
    cpus, pages = node_machine.devices
    assert (cpus.name, str(cpus.capacity["cpus"].value)) == ("cpus-numa-1", "5")
    assert (pages.name, str(pages.capacity["size"].value)) == ("hugepages-2mi-numa-1", "1Gi")
    assert node_machine.offers["cpus-numa-1"].cpus == (4, 5, 6, 7, 12)


@pytest.mark.parametrize(
    ("text", "numbers"), [("", ()), ("3", (3,)), ("0-2,8", (0, 1, 2, 8)), ("8,0-2\n", (0, 1, 2, 8))]
)
def test_lists_of_cpus_are_read_as_linux_writes_them(text, numbers):
    assert numbers_of(text) == numbers
    assert numbers_of(ranges_of(numbers)) == numbers


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.yaml")), ids=lambda file: file.stem)
def test_every_example_inventory_makes_valid_slices(file):
    [document] = read_files([str(file)])
    inventory, problems = read_inventory(document.object)
    assert problems == []
    pages = pages_of(machine_of(inventory), "n")
    for number, page in enumerate(pages):
        plain = builtins(ResourceSlice(metadata={"name": f"n-{number}"}, spec=page))
        assert errors({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice"} | plain) == []


INVALID_INVENTORIES = [
    ({"gpuss": []}, "/gpuss", "did you mean"),
    ({"kind": "Inventory"}, "/kind", "kind: DeviceInventory"),
    ({"gpus": [gpu(memory="40Gigs")]}, "/gpus/0/memory", ""),
    ({"gpus": [gpu(layout="smal")], "layouts": [LAYOUT]}, "/gpus/0/layout", "did you mean small?"),
    ({"gpus": [gpu(), gpu()]}, "/gpus", "unique"),
    ({"gpus": [gpu(), gpu(1, name="gpu-0")]}, "", "unique"),
    ({"gpus": [gpu(name="Gpu_0")]}, "", ""),
    ({"gpus": [gpu(whole=False)]}, "/gpus/0", "sharing"),
    ({"gpus": [gpu(groups=["a"])]}, "/gpus/0", "used together"),
    ({"gpus": [gpu(cores=0)]}, "/gpus/0/cores", ""),
    ({"gpus": [gpu(whole=False, sharing={"memory": MEMORY_STEPS | {"minimum": "80Gi"}})]}, "", ""),
    ({"layouts": [LAYOUT | {"slices": 0}]}, "/layouts/0/slices", ""),
    ({"layouts": [LAYOUT | {"slices": 2}]}, "/layouts/0/partitions/0/at/2", "0 to 1"),
    ({"layouts": [LAYOUT | {"compute": 1}]}, "/layouts/0/partitions/1", ""),
    ({"numaNodes": [{"number": 0, "cpus": "0-"}]}, "/numaNodes/0/cpus", "0-3,8"),
    ({"numaNodes": [{"number": 0, "cpus": "0-9999999"}]}, "/numaNodes/0/cpus", "0-3,8"),
    ({"numaNodes": [{"number": 0, "cpus": "0-8192"}]}, "/numaNodes/0/cpus", "0-3,8"),
    ({"numaNodes": [{"number": 0, "cpus": "0-3"}, {"number": 1, "cpus": "3"}]}, "/numaNodes", "unique"),
    ({"numaNodes": [{"number": 0, "hugepages": {"2Mib": 4}}]}, "/numaNodes/0/hugepages/2Mib", "2Mi"),
    ({"driver": "Not A Name"}, "", ""),
]  # fmt: skip


@every(("parts", "path", "hint"), INVALID_INVENTORIES)
def test_an_invalid_inventory_is_reported_with_path_and_hint(parts, path, hint):
    inventory, problems = read_inventory(inventory_document(**parts))
    assert inventory is None
    assert any(problem.path == path and hint in problem.remedy for problem in problems), problems


def test_a_file_that_is_not_an_object_is_refused():
    assert read_inventory(["gpus"])[0] is None
