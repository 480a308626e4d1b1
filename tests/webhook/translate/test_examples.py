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


def translated(name: str):
    configuration, _ = read_configuration(manifests.read([EXAMPLES / "configuration.yaml"])[0].object)
    return decide_object(example(name), State(configuration=configuration, fleet=example_fleet()))


def stock() -> Stock:
    given = read_objects(manifests.read([EXAMPLES / "fleet"]))
    return Stock.of(slices=given.of_type(ResourceSlice), classes=given.of_type(DeviceClass), nodes=given.of_type(Node))


def claims_of(name: str) -> list[ResourceClaim]:
    """The claims that kube-controller-manager would make for a pod of the translated object."""
    obj, done = example(name), translated(name)
    (path,) = paths(obj)
    spec = resolve_pointer(apply_json_patch(obj, done.operations), path)["spec"]
    made = []
    for entry in spec["resourceClaims"]:
        template = done.templates.get(entry["resourceClaimTemplateName"])
        if template is not None:
            value = {"metadata": {"name": entry["name"], "namespace": "n"}, "spec": template["spec"]}
            made.append(defaults.claim(wire.convert(value, ResourceClaim)))
    return made


def given_on(name: str) -> dict[str, list[str]]:
    """The devices that a pod would get, by node."""
    inventory, claims = stock(), claims_of(name)
    assert claims
    given = {}
    for node in inventory.nodes:
        answer = allocator.allocate(inventory, node, claims)
        assert answer.error in (None, ""), answer.error
        if answer.verdict == "feasible":
            given[node] = [r.device for allocation in answer.allocations for r in allocation.allocation.devices.results]
    return given


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
    given = given_on(name)
    assert set(given) == nodes
    assert {len(set(each)) for each in given.values()} == {devices}


def test_joint_devices_share_their_pcie_root():
    for pair in given_on("koordinator-joint").values():
        assert [pair[0][-1], pair[2][-1]] == [pair[1][-1], pair[3][-1]]  # gpu-0 with eth0, gpu-1 with eth1


@pytest.mark.parametrize("name", ["hami-wrong-unit", "koordinator-indivisible"])
def test_an_example_unserved_by_device_plugins_is_refused(name):
    assert translated(name).refusals


@pytest.mark.parametrize("name", ["nvidia-replica", "nvidia-mig-served-by-core"])
def test_an_example_is_left_unchanged(name):
    verdict = translated(name)
    assert not verdict.refusals
    assert not verdict.changed
    assert {str(decision.outcome) for decision in verdict.decisions} in ({"left"}, {"served"})


def test_the_example_fleet_is_valid_for_the_api_server():
    for document in manifests.read([EXAMPLES / "fleet"]):
        if document.object["kind"] != "Node":
            assert validation.errors(document.object) == []
