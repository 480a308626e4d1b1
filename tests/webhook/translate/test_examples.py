"""The example pods on the example fleet: the outcome of each, and the devices of its claims."""

import pytest

import allocator
from cluster import manifests
from cluster.patch import apply_json_patch
from dra import validation, wire
from dra.objects import defaults
from dra.objects.claim import DeviceClass, ResourceClaim
from dra.objects.device import ResourceSlice
from dra.objects.node import Node
from dra.stock.stock import Stock
from tests.webhook.pods import EXAMPLES, example_fleet, read_objects
from webhook.admission import decide_object
from webhook.state import State
from webhook.state.configuration import read_configuration
from webhook.translate import paths, resolve_pointer


def example(name: str) -> dict:
    return manifests.read([EXAMPLES / "pods" / f"{name}.yaml"])[-1].object


def example_verdict(name: str):
    configuration, _ = read_configuration(manifests.read([EXAMPLES / "configuration.yaml"])[0].object)
    return decide_object(example(name), State(configuration=configuration, fleet=example_fleet()))


def example_stock() -> Stock:
    """Return the devices, classes and nodes of the example fleet, as the allocator knows them."""
    objects = read_objects(manifests.read([EXAMPLES / "fleet"]))
    return Stock.of(
        slices=objects.of_type(ResourceSlice), classes=objects.of_type(DeviceClass), nodes=objects.of_type(Node)
    )


def claims_of(name: str) -> list[ResourceClaim]:
    """Return the claims that kube-controller-manager would create for a pod of the translated object."""
    obj, verdict = example(name), example_verdict(name)
    (path,) = paths(obj)
    spec = resolve_pointer(apply_json_patch(obj, verdict.operations), path)["spec"]
    claims = []
    for entry in spec["resourceClaims"]:
        template = verdict.templates.get(entry["resourceClaimTemplateName"])
        if template is not None:
            claim = {"metadata": {"name": entry["name"], "namespace": "n"}, "spec": template["spec"]}
            claims.append(defaults.claim(wire.convert(claim, ResourceClaim)))
    return claims


def devices_by_node_of(name: str) -> dict[str, list[str]]:
    """Return the devices that a pod of an example would get, by node that can run it."""
    stock, claims = example_stock(), claims_of(name)
    assert claims
    devices_by_node = {}
    for node in stock.nodes:
        answer = allocator.allocate(stock, node, claims)
        assert answer.error in (None, ""), answer.error
        if answer.verdict == "feasible":
            devices_by_node[node] = [
                result.device for allocation in answer.allocations for result in allocation.allocation.devices.results
            ]
    return devices_by_node


@pytest.mark.parametrize(
    ("name", "nodes", "devices"),
    [
        ("nvidia-training", {"train-1", "train-2", "slice-1"}, 2),
        ("nvidia-warmup", {"train-1", "train-2"}, 3),
        ("nvidia-mig", {"slice-1"}, 1),
        ("hami-shares", {"share-1", "share-2"}, 2),
        ("hami-percentage", {"share-1", "share-2"}, 1),
        ("hami-exclusive", {"share-1", "share-2"}, 1),
        ("koordinator-halves", {"share-1", "share-2"}, 2),
        ("koordinator-joint", {"train-1", "train-2"}, 4),
        ("own-claim", {"train-1", "train-2", "slice-1"}, 1),
    ],
)
def test_an_example_gets_its_devices(name, nodes, devices):
    devices_by_node = devices_by_node_of(name)
    assert set(devices_by_node) == nodes
    assert {len(set(device_names)) for device_names in devices_by_node.values()} == {devices}


def test_joint_devices_share_their_pcie_root():
    for first_gpu, first_nic, second_gpu, second_nic in devices_by_node_of("koordinator-joint").values():
        assert [first_gpu[-1], second_gpu[-1]] == [first_nic[-1], second_nic[-1]]  # gpu-0 with eth0, gpu-1 with eth1


@pytest.mark.parametrize("name", ["hami-wrong-unit", "koordinator-indivisible"])
def test_an_example_unserved_by_device_plugins_is_refused(name):
    assert example_verdict(name).refusals


@pytest.mark.parametrize("name", ["nvidia-replica", "nvidia-mig-served-by-core"])
def test_an_example_is_left_unchanged(name):
    verdict = example_verdict(name)
    assert not verdict.refusals
    assert not verdict.changed
    assert {str(decision.outcome) for decision in verdict.decisions} in ({"left"}, {"served"})


def test_the_example_fleet_is_valid_for_the_api_server():
    for document in manifests.read([EXAMPLES / "fleet"]):
        if document.object["kind"] != "Node":
            assert validation.errors(document.object) == []
