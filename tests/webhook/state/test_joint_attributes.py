"""The attribute that devices of a joint request must share: PCIe root, NUMA node or partition."""

from dra import wire
from dra.objects.device import ResourceSlice
from tests.objects import resource_slice, typed
from tests.webhook.pods import exactly, outcomes, pod, untouched, verdict_of
from tests.webhook.state.fleets import example_fleet_with, example_objects, slices_without, typed_class
from webhook.dialects.targets import NUMA_NODE, PCIE_ROOT

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
    manifest = pod({"nvidia.com/gpu": 1, "example.com/nic": 1})
    verdict = verdict_of(manifest, fleet=example_fleet_with(slices=slices_without("dra.net", PCIE_ROOT)), **JOINT)
    (spec,) = verdict.templates.values()
    assert spec["spec"]["devices"]["constraints"][0]["matchAttribute"] == NUMA_NODE
    assert any("pcieRoot" in warning and "dranet" in warning for warning in verdict.warnings)


def test_an_attribute_is_published_if_most_nodes_have_it():
    """A constraint on the attribute would exclude a card without it."""
    root = {PCIE_ROOT: {"string": "pci0000:10"}}
    on_both_cards, on_one_card = [root, root], [root, {}]

    def published(*nodes: list[dict]) -> bool:
        slices = []
        for number, cards in enumerate(nodes):
            devices = [{"name": f"card-{i}", "attributes": card} for i, card in enumerate(cards)]
            node = f"n{number}"
            slices.append(typed(resource_slice(node, *devices, driver="dra.net", pool=node, nodeName=node)))
        classes = [typed_class("dranet", "device.driver == 'dra.net'")]
        [served_class] = example_fleet_with(classes=classes, slices=slices).classes.values()
        return served_class.publishes(PCIE_ROOT)

    assert published(on_both_cards, on_both_cards, on_one_card)
    assert not published(on_both_cards, on_one_card)
    assert not published(on_one_card)


def test_without_even_pairs_both_keys_of_a_container_stay():
    """A pool of the shared RDMA plugin is one device, whatever its amount, and its key is translated without the others."""
    nics = {"targets": {"rdma/hca_a": "nic"}}
    joint = [{"primary": "nvidia.com/gpu", "secondary": "rdma/hca_a"}]
    given = pod({"nvidia.com/gpu": 3, "rdma/hca_a": 3})
    verdict = verdict_of(given, nics=nics, joint=joint, meanings={"nvidia.com/gpu": "whole"})
    assert untouched(verdict)
    assert outcomes(verdict) == {"nvidia.com/gpu": "left", "rdma/hca_a": "left"}
    reason = "rdma/hca_a becomes 1 device, which cannot be divided evenly among 3 nvidia.com/gpu"
    assert reason in " ".join(verdict.warnings)


def test_without_any_common_attribute_joint_requests_are_left_unchanged():
    manifest = pod({"nvidia.com/gpu": 1, "example.com/nic": 1})
    verdict = verdict_of(
        manifest, fleet=example_fleet_with(slices=slices_without("dra.net", PCIE_ROOT, NUMA_NODE)), **JOINT
    )
    assert untouched(verdict)
    assert outcomes(verdict) == {"nvidia.com/gpu": "left", "example.com/nic": "left"}


def test_devices_with_an_empty_pcie_root_are_excluded():
    slices = example_objects().of_type(ResourceSlice)
    text = wire.encode(next(s for s in slices if s.metadata.name == "train-1-dra"))
    blank = wire.decode(text.replace(b'"pci0000:15"', b'""'), ResourceSlice)
    fleet = example_fleet_with(slices=[*(s for s in slices if s.metadata.name != "train-1-dra"), blank])
    assert fleet.classes["dranet"].rootless == 1
    verdict = verdict_of(pod({"nvidia.com/gpu": 1, "example.com/nic": 1}), fleet=fleet, **JOINT)
    assert exactly(verdict)[1]["cel"] == ['device.attributes["resource.kubernetes.io"].?pcieRoot.orValue("") != ""']


def test_koordinators_pairs_use_the_numa_node_without_pcie_roots():
    joint_allocation = '{"deviceTypes":["gpu","rdma"],"requiredScope":"SamePCIe"}'
    manifest = pod(
        {"koordinator.sh/gpu": 200, "koordinator.sh/rdma": 200},
        annotations={"scheduling.koordinator.sh/device-joint-allocate": joint_allocation},
    )
    verdict = verdict_of(manifest, fleet=example_fleet_with(slices=slices_without("dra.net", PCIE_ROOT)))
    (spec,) = verdict.templates.values()
    assert {constraint["matchAttribute"] for constraint in spec["spec"]["devices"]["constraints"]} == {NUMA_NODE}
    assert any("numaNode is used" in warning for warning in verdict.warnings)
