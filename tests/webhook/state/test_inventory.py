"""The inventory of a cluster, and the decisions that rest on it."""

import msgspec
import pytest

from dra import wire
from dra.objects.claim import DeviceClass
from dra.objects.device import ResourceSlice
from dra.objects.node import Node
from tests.webhook.pods import HAMI, configured, exactly, example_fleet, pod, untouched, verdict_of
from tests.webhook.state.fleets import GPU, HALF, OLD, amounts, fleet, given, old_node, shares, stripped, typed_class
from webhook.dialects import Served
from webhook.dialects.targets import NUMA_NODE, PCIE_ROOT
from webhook.state import State
from webhook.state.inventory import Inventory


def test_the_example_fleet_is_described_as_it_is():
    facts = example_fleet()
    gpus, shares = facts.classes["gpu.nvidia.com"], facts.classes[HAMI]
    assert (gpus.devices, gpus.driver, gpus.shared) == (10, "gpu.nvidia.com", 0)
    assert [product.name for product in gpus.products] == ["NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-40GB"]
    assert gpus.publishes(PCIE_ROOT)
    assert gpus.publishes(NUMA_NODE)
    assert (shares.devices, shares.shared, set(shares.capacities)) == (4, 4, {"cores", "memory"})
    assert not shares.publishes(NUMA_NODE)
    assert facts.classes["mig-1g.5gb"].devices == 14
    implicit = {f"deviceclass.resource.kubernetes.io/{name}": name for name in facts.classes}
    assert facts.extended == {"nvidia.com/gpu": "gpu.nvidia.com", "nvidia.com/mig-1g.5gb": "mig-1g.5gb"} | implicit


@pytest.mark.parametrize("old", OLD)
def test_one_old_node_does_not_decide_for_the_fleet(old):
    assert verdict_of(GPU, fleet=fleet(nodes=[old_node(**old)])).changed


@pytest.mark.parametrize("old", OLD)
def test_a_bare_count_is_left_unchanged_with_equally_many_old_nodes(old):
    nodes = [old_node(name, **old) for name in ("old", "older", "oldest")]  # the example has whole GPUs on three
    done = verdict_of(GPU, fleet=fleet(nodes=nodes))
    assert untouched(done)
    assert "such as old, which" in done.warnings[0]
    assert "3 of 6 nodes" in done.warnings[0]
    assert verdict_of(GPU, fleet=fleet(nodes=nodes), meanings={"nvidia.com/gpu": "whole"}).changed


SHARED = {"nvidia.com/gpu.sharing-strategy": "time-slicing", "pool": "shared"}


@pytest.mark.parametrize(
    ("place", "changed", "shown"),
    [
        ({}, False, "6 of 9 nodes show no whole GPU"),
        ({"nodeSelector": {"pool": "shared"}}, False, "6 of 6 nodes that the pod can run on"),
        ({"pool": ["DoesNotExist"]}, True, "3 of 3 nodes that the pod can run on"),
        ({"pool": ["NotIn", "shared"]}, True, "3 of 3 nodes that the pod can run on"),
        ({"pool": ["In", "none there"]}, False, "6 of 9 nodes show no whole GPU"),
        ({"pool": ["In", "not a value/"]}, False, "6 of 9 nodes show no whole GPU"),
    ],
)
def test_nodes_outside_the_selector_of_a_pod_do_not_count(place, changed, shown):
    pools = fleet(nodes=[old_node(f"shared-{i}", labels=SHARED, allocatable={"nvidia.com/gpu": "4"}) for i in range(6)])
    if "pool" in place:
        operator, *values = place["pool"]
        term = {"matchExpressions": [{"key": "pool", "operator": operator, "values": values}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
        place = {"affinity": {"nodeAffinity": required}}
    done = verdict_of(pod({"nvidia.com/gpu": 1}, **place), fleet=pools)
    [decision] = done.decisions
    assert done.changed == changed
    assert shown in (decision.basis or decision.detail)


@pytest.mark.parametrize(
    "harmless",
    [
        old_node(allocatable={"nvidia.com/gpu": "0", "nvidia.com/hostdev": "4"}),
        old_node(labels={"nvidia.com/gpu.sharing-strategy": "none", "nvidia.com/gpu.replicas": "1"}),
        old_node(labels={"nvidia.com/gpu.replicas": "many"}),
    ],
)
def test_a_node_without_contrary_evidence_permits_translation(harmless):
    assert verdict_of(GPU, fleet=fleet(nodes=[harmless])).changed


def test_without_the_class_a_count_is_left_unchanged():
    assert untouched(verdict_of(GPU, fleet=fleet(classes=[])))
    assert untouched(verdict_of(pod({"nvidia.com/gpumem": 1}), fleet=fleet(classes=[])))


def test_an_incomplete_pool_is_not_evidence():
    incomplete = [s for s in given().of_type(ResourceSlice) if s.metadata.name == "slice-1-gpu-devices"]
    assert untouched(verdict_of(GPU, fleet=fleet(slices=incomplete)))


def test_a_pool_with_duplicate_device_names_is_not_evidence():
    """The pool is complete, and no node can use it: a request for a whole GPU would wait forever."""
    slices = [s for s in given().of_type(ResourceSlice) if s.spec.driver == "gpu.nvidia.com"]
    assert fleet(slices=slices).classes["gpu.nvidia.com"].devices
    doubled = []
    for slice_ in slices:
        devices = (*slice_.spec.devices, *slice_.spec.devices[:1])
        doubled.append(msgspec.structs.replace(slice_, spec=msgspec.structs.replace(slice_.spec, devices=devices)))
    facts = fleet(slices=doubled)
    assert facts.classes["gpu.nvidia.com"].devices == 0
    assert untouched(verdict_of(GPU, fleet=facts))


def test_only_the_newest_generation_counts():
    slices = [s for s in given().of_type(ResourceSlice) if s.spec.driver == "dra.net"]
    newer = [
        msgspec.structs.replace(
            s,
            spec=msgspec.structs.replace(
                s.spec, devices=s.spec.devices[:1], pool=msgspec.structs.replace(s.spec.pool, generation=2)
            ),
        )
        for s in slices
    ]
    assert fleet(slices=slices).classes["dranet"].devices == 8
    assert fleet(slices=[*slices, *newer]).classes["dranet"].devices == 2


def test_a_network_class_is_found_by_its_selected_devices():
    classes = [typed_class("our-nics", "device.driver == 'dra.net' && device.attributes['dra.net'].rdma")]
    done = verdict_of(pod({"koordinator.sh/rdma": 100}), fleet=fleet(classes=classes))
    (request,) = exactly(done)
    assert request["class"] == "our-nics"
    assert request["cel"] == ['device.attributes["dra.net"].?rdma.orValue(false)']


def test_two_network_classes_need_a_declaration():
    classes = [typed_class(name, "device.driver == 'dra.net'") for name in ("a", "b")]
    value = pod({"koordinator.sh/rdma": 100})
    assert untouched(verdict_of(value, fleet=fleet(classes=classes)))
    assert exactly(verdict_of(value, fleet=fleet(classes=classes), classes={"nic": "b"}))[0]["class"] == "b"


def nics(name: str, **attributes: str) -> ResourceSlice:
    devices = [{"name": "eth1", "attributes": {key: {"string": value} for key, value in attributes.items()}}]
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "dra.net", "nodeName": name, "pool": pool, "devices": devices}
    return wire.convert({"metadata": {"name": f"{name}-nic"}, "spec": spec}, ResourceSlice)


def test_a_class_of_one_node_causes_no_ambiguity():
    ours = typed_class("our-nics", "device.driver == 'dra.net' && !has(device.attributes['dra.net'].lab)")
    unused = typed_class("lab-nics", "device.driver == 'dra.net' && has(device.attributes['dra.net'].lab)")
    honest = [nics(name) for name in ("a", "b", "c")]
    value = pod({"koordinator.sh/rdma": 100})
    done = verdict_of(value, fleet=fleet(classes=[ours, unused], slices=[*honest, nics("evil", lab="x")]))
    assert exactly(done)[0]["class"] == "our-nics"
    doubtful = [*honest, nics("d", lab="x"), nics("e", lab="x")]
    assert untouched(verdict_of(value, fleet=fleet(classes=[ours, unused], slices=doubtful)))


def test_a_declared_class_that_is_not_there_is_left_unchanged():
    done = verdict_of(pod({"nvidia.com/gpumem": 1}), fleet=example_fleet(), classes={"vgpu": "missing"})
    assert untouched(done)
    assert "missing" in done.warnings[0]


@pytest.mark.parametrize("broken", ["device.nope", "device.driver ==", "device.attributes['dra.net'].missing == 'x'"])
def test_a_class_with_a_broken_selector_picks_nothing(broken):
    assert fleet(classes=[typed_class("c", broken)]).classes["c"].devices == 0


def test_a_class_selector_may_read_every_field():
    picky = typed_class("c", "device.attributes['dra.net'].ifName == 'eth1'")
    assert fleet(classes=[picky]).classes["c"].devices == 2
    whole = typed_class("c", "device.attributes['dra.net'].exists(name, name == 'rdma')")
    assert fleet(classes=[whole]).classes["c"].devices == 8


def test_the_newest_class_serves_an_extended_resource_then_by_name():
    old, new = (
        typed_class("a", creationTimestamp="2026-01-01T00:00:00Z", extendedResourceName="x/y"),
        typed_class("b", creationTimestamp="2026-02-01T00:00:00Z", extendedResourceName="x/y"),
    )
    same = typed_class("aa", creationTimestamp="2026-02-01T00:00:00Z", extendedResourceName="x/y")
    assert fleet(classes=[new, old]).extended["x/y"] == "b"
    assert fleet(classes=[new, same, old]).extended["x/y"] == "aa"


def test_capacities_are_spelled_as_published():
    assert Served(name="c", driver="d", capacities={"d/memory": 1}).spelling("memory") == "d/memory"
    assert Served(name="c", driver="d", capacities={"d/memory": 1, "memory": 1}).spelling("memory") == "memory"
    assert Served(name="c", driver="d", capacities={"d/memory": 2, "memory": 1}).spelling("memory") == "d/memory"
    assert Served(name="c", driver="d").spelling("memory") == "memory"


def test_a_class_whose_devices_are_not_shared_gets_no_shares():
    classes = [typed_class(HAMI, "device.driver == 'gpu.nvidia.com'")]
    assert untouched(verdict_of(pod({"nvidia.com/gpumem": 1}), fleet=fleet(classes=classes)))


def test_an_incremental_inventory_equals_a_new_one():
    example = given()
    classes, nodes, slices = example.of_type(DeviceClass), example.of_type(Node), example.of_type(ResourceSlice)
    first = Inventory.gather(classes, slices, nodes)
    for changed in (slices[1:], [*slices[2:], slices[0]], stripped("dra.net", PCIE_ROOT), []):
        for more in (classes, [*classes, typed_class("c", "device.attributes['dra.net'].ifName == 'eth1'")]):
            again, fresh = Inventory.gather(more, changed, nodes, first), Inventory.gather(more, changed, nodes)
            assert again.classes == fresh.classes


def test_a_driver_may_write_its_own_domain():
    example = given()
    slices = [
        wire.decode(wire.encode(slice_).replace(b'"type":', b'"gpu.nvidia.com/type":'), ResourceSlice)
        for slice_ in example.of_type(ResourceSlice)
        if slice_.spec.driver == "gpu.nvidia.com"
    ]
    assert fleet(slices=slices).classes["gpu.nvidia.com"].devices == 10
    assert fleet(slices=slices).classes["mig.nvidia.com"].devices == 24


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
    done = verdict_of(pod({"nvidia.com/gpu": 1}, nodeSelector=selector), fleet=example_fleet(), **config)
    assert [decision.basis for decision in done.decisions] == [basis]


def test_pools_without_a_node_count_as_one_node():
    def homeless(name: str) -> ResourceSlice:
        text = wire.encode(shares(name, ("X", "1Mi"))).replace(f'"nodeName":"{name}"'.encode(), b'"allNodes":true')
        return wire.decode(text, ResourceSlice)

    honest = [shares(name, ("X", "40Gi")) for name in ("a", "b")]
    evil = [homeless(f"evil-{i}") for i in range(9)]
    assert amounts(verdict_of(HALF, fleet=fleet(slices=[*honest, *evil]))) == ["20Gi"]
    [product] = fleet(slices=[*honest, *evil]).classes[HAMI].products
    assert (product.memory, product.others, product.sizes) == (40 << 30, (), 2)


@pytest.mark.parametrize(("key", "offered"), [("by/plugin", True), ("by/class", True), ("by/template", True), ("by/none", False), ("by/nobody", False)])  # fmt: skip
def test_classes_device_plugins_and_node_templates_offer_resources(key, offered):
    configuration = configured(nodeTemplates=[{"name": "t", "allocatable": {"by/template": "1"}}])
    served = Inventory.gather([typed_class("c", extendedResourceName="by/class")], [], [old_node(allocatable={"by/plugin": 1, "by/none": 0})])  # fmt: skip
    assert State(configuration=configuration, fleet=served).offers(key) is offered
