"""The inventory of a cluster's devices, and the decisions about pods that depend on it."""

import pytest
from msgspec.structs import replace

from dra import wire
from dra.objects.claim import DeviceClass
from dra.objects.device import ResourceSlice
from dra.objects.node import Node
from tests.objects import resource_slice, typed
from tests.webhook.pods import (
    HAMI,
    configured,
    exactly,
    example_fleet,
    expression,
    pod,
    required_affinity,
    untouched,
    verdict_of,
)
from tests.webhook.state.fleets import (
    GPU_POD,
    HALF_GPU_POD,
    OLD_NODES,
    example_fleet_with,
    example_objects,
    hami_slice,
    memory_alternatives,
    old_node,
    slices_without,
    typed_class,
)
from webhook.dialects import Served
from webhook.dialects.targets import NUMA_NODE, PCIE_ROOT
from webhook.state import State
from webhook.state.inventory import Inventory


def test_the_inventory_describes_the_example_fleet():
    fleet = example_fleet()
    gpus, shares = fleet.classes["gpu.nvidia.com"], fleet.classes[HAMI]
    assert (gpus.devices, gpus.driver, gpus.shared) == (10, "gpu.nvidia.com", 0)
    assert [product.name for product in gpus.products] == ["NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-40GB"]
    assert gpus.publishes(PCIE_ROOT)
    assert gpus.publishes(NUMA_NODE)
    assert (shares.devices, shares.shared, set(shares.capacities)) == (4, 4, {"cores", "memory"})
    assert not shares.publishes(NUMA_NODE)
    assert fleet.classes["mig-1g.5gb"].devices == 14
    implicit = {f"deviceclass.resource.kubernetes.io/{name}": name for name in fleet.classes}
    assert fleet.extended == {"nvidia.com/gpu": "gpu.nvidia.com", "nvidia.com/mig-1g.5gb": "mig-1g.5gb"} | implicit


@pytest.mark.parametrize("old", OLD_NODES)
def test_one_old_node_does_not_decide_for_the_fleet(old):
    assert verdict_of(GPU_POD, fleet=example_fleet_with(nodes=[old_node(**old)])).changed


@pytest.mark.parametrize("old", OLD_NODES)
def test_half_the_nodes_being_old_leaves_a_gpu_count_unchanged(old):
    nodes = [old_node(name, **old) for name in ("old", "older", "oldest")]  # three nodes of the example have whole GPUs
    verdict = verdict_of(GPU_POD, fleet=example_fleet_with(nodes=nodes))
    assert untouched(verdict)
    assert "such as old, which" in verdict.warnings[0]
    assert "3 of 6 nodes" in verdict.warnings[0]
    assert verdict_of(GPU_POD, fleet=example_fleet_with(nodes=nodes), meanings={"nvidia.com/gpu": "whole"}).changed


SHARED_LABELS = {"nvidia.com/gpu.sharing-strategy": "time-slicing", "pool": "shared"}


# A constraint on `pool` stands for a required node affinity: the operator and the values.
@pytest.mark.parametrize(
    ("constraint", "changed", "text"),
    [
        ({}, False, "6 of 9 nodes show no whole GPU"),
        ({"nodeSelector": {"pool": "shared"}}, False, "6 of 6 nodes that the pod can run on"),
        ({"pool": ["DoesNotExist"]}, True, "3 of 3 nodes that the pod can run on"),
        ({"pool": ["NotIn", "shared"]}, True, "3 of 3 nodes that the pod can run on"),
        # A constraint that no node meets excludes none.
        ({"pool": ["In", "none there"]}, False, "6 of 9 nodes show no whole GPU"),
        ({"pool": ["In", "not a value/"]}, False, "6 of 9 nodes show no whole GPU"),
    ],
)
def test_nodes_outside_the_selector_of_a_pod_do_not_count(constraint, changed, text):
    fleet = example_fleet_with(
        nodes=[old_node(f"shared-{i}", labels=SHARED_LABELS, allocatable={"nvidia.com/gpu": "4"}) for i in range(6)]
    )
    if "pool" in constraint:
        constraint = {"affinity": required_affinity(expression("pool", *constraint["pool"]))}
    verdict = verdict_of(pod({"nvidia.com/gpu": 1}, **constraint), fleet=fleet)
    [decision] = verdict.decisions
    assert verdict.changed == changed
    assert text in (decision.basis or decision.detail)


@pytest.mark.parametrize(
    "harmless",
    [
        old_node(allocatable={"nvidia.com/gpu": "0", "nvidia.com/hostdev": "4"}),
        old_node(labels={"nvidia.com/gpu.sharing-strategy": "none", "nvidia.com/gpu.replicas": "1"}),
        old_node(labels={"nvidia.com/gpu.replicas": "many"}),
    ],
)
def test_a_node_without_contrary_evidence_permits_translation(harmless):
    assert verdict_of(GPU_POD, fleet=example_fleet_with(nodes=[harmless])).changed


def test_without_the_device_class_a_count_is_left_unchanged():
    assert untouched(verdict_of(GPU_POD, fleet=example_fleet_with(classes=[])))
    assert untouched(verdict_of(pod({"nvidia.com/gpumem": 1}), fleet=example_fleet_with(classes=[])))


def test_an_incomplete_pool_is_not_evidence():
    incomplete = [s for s in example_objects().of_type(ResourceSlice) if s.metadata.name == "slice-1-gpu-devices"]
    assert untouched(verdict_of(GPU_POD, fleet=example_fleet_with(slices=incomplete)))


def test_a_pool_with_duplicate_device_names_is_not_evidence():
    """Although the pool is complete, the scheduler allocates none of its devices. A request for a whole GPU would wait forever."""
    slices = [s for s in example_objects().of_type(ResourceSlice) if s.spec.driver == "gpu.nvidia.com"]
    assert example_fleet_with(slices=slices).classes["gpu.nvidia.com"].devices
    doubled = []
    for slice_ in slices:
        devices = (*slice_.spec.devices, *slice_.spec.devices[:1])
        doubled.append(replace(slice_, spec=replace(slice_.spec, devices=devices)))
    fleet = example_fleet_with(slices=doubled)
    assert fleet.classes["gpu.nvidia.com"].devices == 0
    assert untouched(verdict_of(GPU_POD, fleet=fleet))


def test_only_the_newest_generation_counts():
    slices = [s for s in example_objects().of_type(ResourceSlice) if s.spec.driver == "dra.net"]
    newer = []
    for slice_ in slices:
        pool = replace(slice_.spec.pool, generation=2)
        newer.append(replace(slice_, spec=replace(slice_.spec, devices=slice_.spec.devices[:1], pool=pool)))
    assert example_fleet_with(slices=slices).classes["dranet"].devices == 8
    assert example_fleet_with(slices=[*slices, *newer]).classes["dranet"].devices == 2


def test_a_network_class_is_found_by_its_selected_devices():
    classes = [typed_class("our-nics", "device.driver == 'dra.net' && device.attributes['dra.net'].rdma")]
    verdict = verdict_of(pod({"koordinator.sh/rdma": 100}), fleet=example_fleet_with(classes=classes))
    (request,) = exactly(verdict)
    assert request["class"] == "our-nics"
    assert request["cel"] == ['device.attributes["dra.net"].?rdma.orValue(false)']


def test_two_network_classes_need_a_declaration():
    classes = [typed_class(name, "device.driver == 'dra.net'") for name in ("a", "b")]
    manifest = pod({"koordinator.sh/rdma": 100})
    assert untouched(verdict_of(manifest, fleet=example_fleet_with(classes=classes)))
    assert (
        exactly(verdict_of(manifest, fleet=example_fleet_with(classes=classes), classes={"nic": "b"}))[0]["class"]
        == "b"
    )


def nic_slice(name: str, **attributes: str) -> ResourceSlice:
    device = {"name": "eth1", "attributes": {key: {"string": value} for key, value in attributes.items()}}
    return typed(resource_slice(f"{name}-nic", device, driver="dra.net", pool=name, nodeName=name))


def test_a_class_of_one_node_causes_no_ambiguity():
    used_class = typed_class("our-nics", "device.driver == 'dra.net' && !has(device.attributes['dra.net'].lab)")
    unused_class = typed_class("lab-nics", "device.driver == 'dra.net' && has(device.attributes['dra.net'].lab)")
    common_slices = [nic_slice(name) for name in ("a", "b", "c")]
    manifest = pod({"koordinator.sh/rdma": 100})
    classes, slices = [used_class, unused_class], [*common_slices, nic_slice("d", lab="x")]
    verdict = verdict_of(manifest, fleet=example_fleet_with(classes=classes, slices=slices))
    assert exactly(verdict)[0]["class"] == "our-nics"
    slices.append(nic_slice("e", lab="x"))
    assert untouched(verdict_of(manifest, fleet=example_fleet_with(classes=classes, slices=slices)))


def test_a_pod_for_a_missing_declared_class_is_left_unchanged():
    verdict = verdict_of(pod({"nvidia.com/gpumem": 1}), fleet=example_fleet(), classes={"vgpu": "missing"})
    assert untouched(verdict)
    assert "missing" in verdict.warnings[0]


@pytest.mark.parametrize("broken", ["device.nope", "device.driver ==", "device.attributes['dra.net'].missing == 'x'"])
def test_a_class_with_an_invalid_selector_has_no_devices(broken):
    assert example_fleet_with(classes=[typed_class("c", broken)]).classes["c"].devices == 0


def test_a_class_selector_may_read_every_field():
    class_reading_one = typed_class("c", "device.attributes['dra.net'].ifName == 'eth1'")
    assert example_fleet_with(classes=[class_reading_one]).classes["c"].devices == 2
    class_reading_all = typed_class("c", "device.attributes['dra.net'].exists(name, name == 'rdma')")
    assert example_fleet_with(classes=[class_reading_all]).classes["c"].devices == 8


def test_the_newest_then_alphabetically_first_class_serves_an_extended_resource():
    older, newer, same_time = (
        typed_class(name, creationTimestamp=f"2026-{month}-01T00:00:00Z", extendedResourceName="x/y")
        for name, month in (("a", "01"), ("b", "02"), ("aa", "02"))
    )
    assert example_fleet_with(classes=[newer, older]).extended["x/y"] == "b"
    assert example_fleet_with(classes=[newer, same_time, older]).extended["x/y"] == "aa"


def test_a_capacity_has_the_name_that_most_devices_publish():
    assert Served(name="c", driver="d", capacities={"d/memory": 1}).spelling("memory") == "d/memory"
    assert Served(name="c", driver="d", capacities={"d/memory": 1, "memory": 1}).spelling("memory") == "memory"
    assert Served(name="c", driver="d", capacities={"d/memory": 2, "memory": 1}).spelling("memory") == "d/memory"
    assert Served(name="c", driver="d").spelling("memory") == "memory"


def test_a_class_of_unshared_devices_gets_no_request_for_shares():
    classes = [typed_class(HAMI, "device.driver == 'gpu.nvidia.com'")]
    assert untouched(verdict_of(pod({"nvidia.com/gpumem": 1}), fleet=example_fleet_with(classes=classes)))


def test_an_incremental_inventory_equals_a_new_one():
    example = example_objects()
    classes, nodes, slices = example.of_type(DeviceClass), example.of_type(Node), example.of_type(ResourceSlice)
    earlier = Inventory.gather(classes, slices, nodes)
    for changed in (slices[1:], [*slices[2:], slices[0]], slices_without("dra.net", PCIE_ROOT), []):
        for more_classes in (classes, [*classes, typed_class("c", "device.attributes['dra.net'].ifName == 'eth1'")]):
            incremental, fresh = (
                Inventory.gather(more_classes, changed, nodes, earlier),
                Inventory.gather(more_classes, changed, nodes),
            )
            assert incremental.classes == fresh.classes


def test_attribute_names_may_include_the_domain_of_the_driver():
    example = example_objects()
    slices = [
        wire.decode(wire.encode(slice_).replace(b'"type":', b'"gpu.nvidia.com/type":'), ResourceSlice)
        for slice_ in example.of_type(ResourceSlice)
        if slice_.spec.driver == "gpu.nvidia.com"
    ]
    assert example_fleet_with(slices=slices).classes["gpu.nvidia.com"].devices == 10
    assert example_fleet_with(slices=slices).classes["mig.nvidia.com"].devices == 24


@pytest.mark.parametrize(
    ("config", "selector", "basis"),
    [
        ({}, {}, "3 of 3 nodes publish it as a whole GPU (class gpu.nvidia.com)"),
        ({"meanings": {"nvidia.com/gpu": "whole"}}, {}, "declared to be whole (`meanings`)"),
        (
            {},
            {"cloud.google.com/gke-gpu-partition-size": "3g.20gb"},
            "the pod selects cloud.google.com/gke-gpu-partition-size=3g.20gb",
        ),
    ],
)
def test_a_decision_names_the_evidence_for_its_meaning(config, selector, basis):
    verdict = verdict_of(pod({"nvidia.com/gpu": 1}, nodeSelector=selector), fleet=example_fleet(), **config)
    assert [decision.basis for decision in verdict.decisions] == [basis]


def test_all_pools_without_a_node_together_count_as_one_node():
    def slice_for_all_nodes(name: str) -> ResourceSlice:
        text = wire.encode(hami_slice(name, ("X", "1Mi"))).replace(f'"nodeName":"{name}"'.encode(), b'"allNodes":true')
        return wire.decode(text, ResourceSlice)

    node_slices = [hami_slice(name, ("X", "40Gi")) for name in ("a", "b")]
    fleet = example_fleet_with(slices=[*node_slices, *(slice_for_all_nodes(f"all-{i}") for i in range(9))])
    assert memory_alternatives(verdict_of(HALF_GPU_POD, fleet=fleet)) == ["20Gi"]
    [product] = fleet.classes[HAMI].products
    assert (product.memory, product.others, product.sizes) == (40 << 30, (), 2)


@pytest.mark.parametrize(("key", "offered"), [("by/plugin", True), ("by/class", True), ("by/template", True), ("by/empty-plugin", False), ("by/nobody", False)])  # fmt: skip
def test_classes_device_plugins_and_node_templates_offer_resources(key, offered):
    configuration = configured(nodeTemplates=[{"name": "t", "allocatable": {"by/template": "1"}}])
    inventory = Inventory.gather([typed_class("c", extendedResourceName="by/class")], [], [old_node(allocatable={"by/plugin": 1, "by/empty-plugin": 0})])  # fmt: skip
    assert State(configuration=configuration, fleet=inventory).offers(key) is offered
