"""The attribute that ties devices to each other: PCIe root, NUMA node or partition."""

from dra import wire
from dra.objects.device import ResourceSlice
from tests.webhook.pods import HAMI, exactly, example_fleet, outcomes, pod, untouched, verdict_of
from tests.webhook.state.fleets import fleet, given, stripped, typed_class
from webhook.dialects.targets import NUMA_NODE, PCIE_ROOT, TARGETS
from webhook.state.inventory import Inventory

JOINT = {
    "dialects": [
        {
            "name": "n",
            "title": "n",
            "target": "nic",
            "keys": [{"name": "example.com/nic", "meaning": "a NIC", "role": "nic"}],
        }
    ],
    "joint": [{"primary": "nvidia.com/gpu", "secondary": "example.com/nic"}],
}


def test_the_numa_node_replaces_an_unpublished_pcie_root():
    value = pod({"nvidia.com/gpu": 1, "example.com/nic": 1})
    done = verdict_of(value, fleet=fleet(slices=stripped("dra.net", PCIE_ROOT)), **JOINT)
    (spec,) = done.templates.values()
    assert spec["spec"]["devices"]["constraints"][0]["matchAttribute"] == NUMA_NODE
    assert any("pcieRoot" in warning and "dranet" in warning for warning in done.warnings)


def test_an_attribute_missing_on_one_device_is_not_published():
    """A constraint on the attribute would exclude that card."""
    root = {PCIE_ROOT: {"string": "pci0000:10"}}
    every, some = [root, root], [root, {}]

    def published(*nodes: list[dict]) -> bool:
        slices = []
        for number, cards in enumerate(nodes):
            devices = [{"name": f"card-{i}", "attributes": card} for i, card in enumerate(cards)]
            pool = {"name": f"n{number}", "generation": 1, "resourceSliceCount": 1}
            spec = {"driver": "dra.net", "nodeName": f"n{number}", "pool": pool, "devices": devices}
            slices.append(wire.convert({"metadata": {"name": f"n{number}"}, "spec": spec}, ResourceSlice))
        classes = [typed_class("dranet", "device.driver == 'dra.net'")]
        [served] = fleet(classes=classes, slices=slices).classes.values()
        return served.publishes(PCIE_ROOT)

    assert published(every, every, some)
    assert not published(every, some)
    assert not published(some)


def test_without_any_common_attribute_joint_requests_are_left_unchanged():
    value = pod({"nvidia.com/gpu": 1, "example.com/nic": 1})
    done = verdict_of(value, fleet=fleet(slices=stripped("dra.net", PCIE_ROOT, NUMA_NODE)), **JOINT)
    assert untouched(done)
    assert outcomes(done) == {"nvidia.com/gpu": "left", "example.com/nic": "left"}


def test_an_empty_pcie_root_is_distinguished():
    slices = given().of_type(ResourceSlice)
    text = wire.encode(next(s for s in slices if s.metadata.name == "train-1-dra"))
    blank = wire.decode(text.replace(b'"pci0000:15"', b'""'), ResourceSlice)
    facts = fleet(slices=[*(s for s in slices if s.metadata.name != "train-1-dra"), blank])
    assert facts.classes["dranet"].rootless == 1
    done = verdict_of(pod({"nvidia.com/gpu": 1, "example.com/nic": 1}), fleet=facts, **JOINT)
    assert exactly(done)[1]["cel"] == ['device.attributes["resource.kubernetes.io"].?pcieRoot.orValue("") != ""']


def test_targets_without_an_inventory_are_the_vendors_own():
    assert Inventory().find_class(TARGETS["gpu"]) is None
    assert exactly(verdict_of(pod({"nvidia.com/gpumem": 1})))[0]["class"] == HAMI


def test_koordinators_pairs_fall_back_to_the_numa_node_too():
    same = '{"deviceTypes":["gpu","rdma"],"requiredScope":"SamePCIe"}'
    value = pod(
        {"koordinator.sh/gpu": 200, "koordinator.sh/rdma": 200},
        annotations={"scheduling.koordinator.sh/device-joint-allocate": same},
    )
    done = verdict_of(value, fleet=fleet(slices=stripped("dra.net", PCIE_ROOT)))
    (spec,) = done.templates.values()
    assert {constraint["matchAttribute"] for constraint in spec["spec"]["devices"]["constraints"]} == {NUMA_NODE}
    assert any("numaNode is used" in warning for warning in done.warnings)


def test_a_partition_that_is_published_ties_the_gpus():
    slices = given().of_type(ResourceSlice)
    partitioned = []
    for slice_ in slices:
        text = wire.encode(slice_)
        if slice_.spec.driver == "gpu.nvidia.com":
            text = text.replace(b'"brand":', b'"partition2":{"int":1},"brand":')
        partitioned.append(wire.decode(text, ResourceSlice))
    value = pod({"koordinator.sh/gpu": 200}, annotations={"scheduling.koordinator.sh/gpu-partition-spec": "{}"})
    done = verdict_of(value, fleet=fleet(slices=partitioned))
    (spec,) = done.templates.values()
    ties = [{"requests": ["gpu"], "matchAttribute": "gpu.nvidia.com/partition2"}]
    assert spec["spec"]["devices"]["constraints"] == ties
    assert untouched(verdict_of(value, fleet=example_fleet()))
