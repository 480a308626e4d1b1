"""What a cluster shows, and when that is not enough."""

import msgspec
import pytest

from allocator import allocate
from cluster import manifests
from dra import wire
from dra.objects.claim import DeviceClass, ResourceClaim
from dra.objects.device import ResourceSlice
from dra.objects.node import Node
from dra.stock import Stock
from tests.objects import device_class, node, typed
from tests.webhook.pods import (
    EXAMPLES,
    HAMI,
    became,
    configured,
    exactly,
    example_fleet,
    outcomes,
    pod,
    read_objects,
    untouched,
)
from webhook.dialects import Served
from webhook.dialects.targets import NUMA_NODE, PCIE_ROOT, TARGETS
from webhook.state import State
from webhook.state.inventory import Inventory

GPU = pod({"nvidia.com/gpu": 1})


def given():
    return read_objects(manifests.read([EXAMPLES / "fleet"]))


def fleet(*, classes=None, slices=None, nodes=()) -> Inventory:
    """The example fleet with parts replaced and nodes added."""
    example = given()
    return Inventory.gather(
        example.of_type(DeviceClass) if classes is None else classes,
        example.of_type(ResourceSlice) if slices is None else slices,
        [*example.of_type(Node), *nodes],
    )


def old_node(name="old", *, labels=None, allocatable=None) -> Node:
    return typed(node(name, labels=labels, allocatable=allocatable))


def typed_class(name: str, *expressions: str, **fields: str) -> DeviceClass:
    return typed(device_class(name, *expressions, **fields))


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


OLD = [
    {"allocatable": {"nvidia.com/gpu": "8"}},
    {"labels": {"nvidia.com/gpu.sharing-strategy": "time-slicing"}},
    {"labels": {"nvidia.com/gpu.replicas": "4"}},
    {"labels": {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-SHARED"}},
    {"labels": {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"}},
    {"labels": {"cloud.google.com/gke-gpu-sharing-strategy": "mps"}},
]


@pytest.mark.parametrize("old", OLD)
def test_one_old_node_does_not_decide_for_the_fleet(old):
    assert became(GPU, fleet=fleet(nodes=[old_node(**old)])).changed


@pytest.mark.parametrize("old", OLD)
def test_a_bare_count_is_left_with_equally_many_old_nodes(old):
    nodes = [old_node(name, **old) for name in ("old", "older", "oldest")]  # the example has whole GPUs on three
    done = became(GPU, fleet=fleet(nodes=nodes))
    assert untouched(done)
    assert "such as old, which" in done.warnings[0]
    assert "3 of 6 nodes" in done.warnings[0]
    assert became(GPU, fleet=fleet(nodes=nodes), meanings={"nvidia.com/gpu": "whole"}).changed


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
    done = became(pod({"nvidia.com/gpu": 1}, **place), fleet=pools)
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
    assert became(GPU, fleet=fleet(nodes=[harmless])).changed


def test_without_the_class_a_count_is_left():
    assert untouched(became(GPU, fleet=fleet(classes=[])))
    assert untouched(became(pod({"nvidia.com/gpumem": 1}), fleet=fleet(classes=[])))


def test_an_incomplete_pool_is_not_evidence():
    incomplete = [s for s in given().of_type(ResourceSlice) if s.metadata.name == "slice-1-gpu-devices"]
    assert untouched(became(GPU, fleet=fleet(slices=incomplete)))


def test_a_pool_with_duplicate_device_names_is_not_evidence():
    """It is complete, and no node can use it: what asks for a whole GPU would wait forever."""
    slices = [s for s in given().of_type(ResourceSlice) if s.spec.driver == "gpu.nvidia.com"]
    assert fleet(slices=slices).classes["gpu.nvidia.com"].devices
    doubled = []
    for slice_ in slices:
        devices = (*slice_.spec.devices, *slice_.spec.devices[:1])
        doubled.append(msgspec.structs.replace(slice_, spec=msgspec.structs.replace(slice_.spec, devices=devices)))
    facts = fleet(slices=doubled)
    assert facts.classes["gpu.nvidia.com"].devices == 0
    assert untouched(became(GPU, fleet=facts))


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


def test_a_network_class_is_found_by_what_it_picks():
    classes = [typed_class("our-nics", "device.driver == 'dra.net' && device.attributes['dra.net'].rdma")]
    done = became(pod({"koordinator.sh/rdma": 100}), fleet=fleet(classes=classes))
    (request,) = exactly(done)
    assert request["class"] == "our-nics"
    assert request["cel"] == ['device.attributes["dra.net"].?rdma.orValue(false)']


def test_two_network_classes_need_a_declaration():
    classes = [typed_class(name, "device.driver == 'dra.net'") for name in ("a", "b")]
    value = pod({"koordinator.sh/rdma": 100})
    assert untouched(became(value, fleet=fleet(classes=classes)))
    assert exactly(became(value, fleet=fleet(classes=classes), classes={"nic": "b"}))[0]["class"] == "b"


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
    done = became(value, fleet=fleet(classes=[ours, unused], slices=[*honest, nics("evil", lab="x")]))
    assert exactly(done)[0]["class"] == "our-nics"
    doubtful = [*honest, nics("d", lab="x"), nics("e", lab="x")]
    assert untouched(became(value, fleet=fleet(classes=[ours, unused], slices=doubtful)))


def test_a_declared_class_that_is_not_there_is_left():
    done = became(pod({"nvidia.com/gpumem": 1}), fleet=example_fleet(), classes={"vgpu": "missing"})
    assert untouched(done)
    assert "missing" in done.warnings[0]


@pytest.mark.parametrize("broken", ["device.nope", "device.driver ==", "device.attributes['dra.net'].missing == 'x'"])
def test_a_class_with_a_broken_selector_picks_nothing(broken):
    assert fleet(classes=[typed_class("c", broken)]).classes["c"].devices == 0


def test_a_class_may_look_at_everything():
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
    assert untouched(became(pod({"nvidia.com/gpumem": 1}), fleet=fleet(classes=classes)))


def stripped(driver: str, *names: str) -> list[ResourceSlice]:
    """The example slices, with these attributes gone from one driver's devices."""

    def bare(one: ResourceSlice) -> ResourceSlice:
        devices = tuple(
            msgspec.structs.replace(d, attributes={k: v for k, v in d.attributes.items() if k not in names})
            for d in one.spec.devices
        )
        return msgspec.structs.replace(one, spec=msgspec.structs.replace(one.spec, devices=devices))

    return [bare(one) if one.spec.driver == driver else one for one in given().of_type(ResourceSlice)]


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
    done = became(value, fleet=fleet(slices=stripped("dra.net", PCIE_ROOT)), **JOINT)
    (spec,) = done.templates.values()
    assert spec["spec"]["devices"]["constraints"][0]["matchAttribute"] == NUMA_NODE
    assert any("pcieRoot" in warning and "dranet" in warning for warning in done.warnings)


def test_an_attribute_missing_on_one_device_is_not_published():
    """A constraint on it would lose the card: so many say it, of all nodes, of each of their devices."""
    root = {PCIE_ROOT: {"string": "pci0000:10"}}
    every, some = [root, root], [root, {}]

    def published(*nodes: list[dict]) -> bool:
        slices = []
        for number, cards in enumerate(nodes):
            devices = [{"name": f"card-{i}", "attributes": one} for i, one in enumerate(cards)]
            pool = {"name": f"n{number}", "generation": 1, "resourceSliceCount": 1}
            spec = {"driver": "dra.net", "nodeName": f"n{number}", "pool": pool, "devices": devices}
            slices.append(wire.convert({"metadata": {"name": f"n{number}"}, "spec": spec}, ResourceSlice))
        classes = [typed_class("dranet", "device.driver == 'dra.net'")]
        [served] = fleet(classes=classes, slices=slices).classes.values()
        return served.publishes(PCIE_ROOT)

    assert published(every, every, some)
    assert not published(every, some)
    assert not published(some)


def test_without_any_common_attribute_joint_requests_are_left():
    value = pod({"nvidia.com/gpu": 1, "example.com/nic": 1})
    done = became(value, fleet=fleet(slices=stripped("dra.net", PCIE_ROOT, NUMA_NODE)), **JOINT)
    assert untouched(done)
    assert outcomes(done) == {"nvidia.com/gpu": "left", "example.com/nic": "left"}


def test_an_empty_root_is_told_apart():
    slices = given().of_type(ResourceSlice)
    text = wire.encode(next(s for s in slices if s.metadata.name == "train-1-dra"))
    blank = wire.decode(text.replace(b'"pci0000:15"', b'""'), ResourceSlice)
    facts = fleet(slices=[*(s for s in slices if s.metadata.name != "train-1-dra"), blank])
    assert facts.classes["dranet"].rootless == 1
    done = became(pod({"nvidia.com/gpu": 1, "example.com/nic": 1}), fleet=facts, **JOINT)
    assert exactly(done)[1]["cel"] == ['device.attributes["resource.kubernetes.io"].?pcieRoot.orValue("") != ""']


def test_targets_without_an_inventory_are_the_vendors_own():
    assert Inventory().find(TARGETS["gpu"]) is None
    assert exactly(became(pod({"nvidia.com/gpumem": 1})))[0]["class"] == HAMI


def test_koordinators_pairs_fall_back_to_the_numa_node_too():
    same = '{"deviceTypes":["gpu","rdma"],"requiredScope":"SamePCIe"}'
    value = pod(
        {"koordinator.sh/gpu": 200, "koordinator.sh/rdma": 200},
        annotations={"scheduling.koordinator.sh/device-joint-allocate": same},
    )
    done = became(value, fleet=fleet(slices=stripped("dra.net", PCIE_ROOT)))
    (spec,) = done.templates.values()
    assert {one["matchAttribute"] for one in spec["spec"]["devices"]["constraints"]} == {NUMA_NODE}
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
    done = became(value, fleet=fleet(slices=partitioned))
    (spec,) = done.templates.values()
    ties = [{"requests": ["gpu"], "matchAttribute": "gpu.nvidia.com/partition2"}]
    assert spec["spec"]["devices"]["constraints"] == ties
    assert untouched(became(value, fleet=example_fleet()))


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
        wire.decode(wire.encode(one).replace(b'"type":', b'"gpu.nvidia.com/type":'), ResourceSlice)
        for one in example.of_type(ResourceSlice)
        if one.spec.driver == "gpu.nvidia.com"
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
def test_a_decision_says_what_its_meaning_rests_on(config, selector, basis):
    done = became(pod({"nvidia.com/gpu": 1}, nodeSelector=selector), fleet=example_fleet(), **config)
    assert [decision.basis for decision in done.decisions] == [basis]


def test_pools_without_a_node_count_as_one_node():
    def homeless(name: str) -> ResourceSlice:
        text = wire.encode(shares(name, ("X", "1Mi"))).replace(f'"nodeName":"{name}"'.encode(), b'"allNodes":true')
        return wire.decode(text, ResourceSlice)

    honest = [shares(name, ("X", "40Gi")) for name in ("a", "b")]
    evil = [homeless(f"evil-{i}") for i in range(9)]
    assert amounts(became(HALF, fleet=fleet(slices=[*honest, *evil]))) == ["20Gi"]
    [product] = fleet(slices=[*honest, *evil]).classes[HAMI].products
    assert (product.memory, product.others, product.sizes) == (40 << 30, (), 2)


def shares(name: str, *sizes: tuple[str, str]) -> ResourceSlice:
    """A node whose HAMi driver publishes these products with these amounts of memory."""
    devices = [
        {
            "name": f"gpu-{i}",
            "allowMultipleAllocations": True,
            "attributes": {"type": {"string": "hami-gpu"}, "productName": {"string": product}},
            "capacity": {"memory": {"value": memory}, "cores": {"value": "100"}},
        }
        for i, (product, memory) in enumerate(sizes)
    ]
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": HAMI, "nodeName": name, "pool": pool, "devices": devices}
    return wire.convert({"metadata": {"name": f"{name}-hami"}, "spec": spec}, ResourceSlice)


def amounts(done) -> list[str]:
    (spec,) = done.templates.values()
    (request,) = spec["spec"]["devices"]["requests"]
    return [one["capacity"]["requests"]["memory"] for one in request["firstAvailable"]]


HALF = pod({"nvidia.com/gpumem-percentage": 50})


def share_on(done, where: str, slices) -> str:
    """How much memory a claim is given on a node of a fleet."""
    (spec,) = done.templates.values()
    claim = wire.convert({"metadata": {"name": "c", "namespace": "d"}, **spec}, ResourceClaim)
    stock = Stock.of(slices=slices, classes=given().of_type(DeviceClass), nodes=[old_node(where)])
    answer = allocate(stock, where, [claim])
    [result] = answer.allocations[0].allocation.devices.results
    return str(result.consumed_capacity["memory"])


@pytest.mark.parametrize(
    "lies",
    [
        [("X", "1Mi")],
        [("X", "1000Ti")],
        [("X", f"{size}Gi") for size in range(1, 129)],
        [("X", "1Gi"), ("X", "2Gi"), ("Y", "40Gi")],
        [("X", "-40Gi")],
        [("X", "0")],
    ],
)
@pytest.mark.parametrize("honest", [1, 2])
def test_a_percentage_refers_to_the_memory_of_the_device(honest, lies):
    """Not of what most nodes say: of a product that is on one node, another would say as much."""
    good = [shares(f"n{number}", ("X", "40Gi"), ("Y", "80Gi")) for number in range(honest)]
    slices = [*good, shares("evil", *lies)]
    done = became(HALF, fleet=fleet(slices=slices))
    assert share_on(done, "n0", slices) == "20Gi"
    only_y = [shares("n0", ("Y", "80Gi")), *slices[1:]]
    assert share_on(done, "n0", only_y) == "40Gi"


def test_a_product_has_the_size_that_most_nodes_publish():
    nodes = [shares("a", ("X", "40Gi")), shares("b", ("X", "40Gi")), shares("evil", ("X", "1Mi"))]
    done = became(HALF, fleet=fleet(slices=nodes))
    assert amounts(done) == ["20Gi"]
    assert any("nodes publish 2 sizes" in warning for warning in done.warnings)
    assert done.templates == became(HALF, fleet=fleet(slices=nodes[:2])).templates


def test_two_equally_common_sizes_are_alternatives():
    nodes = [shares("a", ("X", "40Gi")), shares("b", ("X", "38Gi"))]
    done = became(HALF, fleet=fleet(slices=nodes))
    assert amounts(done) == ["19Gi", "20Gi"]
    assert any("50 % is 20480 MiB on X of 40960 MiB" in warning for warning in done.warnings)
    assert [share_on(done, where, nodes) for where in "ab"] == ["20Gi", "19Gi"]


def test_invented_products_of_one_node_displace_no_real_one():
    honest = [shares(f"n{i}", (f"real {i}", f"{40 + i}Gi")) for i in range(4)]
    evil = shares("evil", *((f"a tiny {i}", f"{i + 1}Mi") for i in range(12)))
    done = became(HALF, fleet=fleet(slices=[evil, *honest]))
    assert amounts(done)[-4:] == ["20Gi", "20992Mi", "21Gi", "22016Mi"]
    assert len(amounts(done)) == 8


def test_odd_attributes_of_one_node_do_not_affect_others():
    value = pod({"koordinator.sh/rdma": 100}, {"nvidia.com/gpumem": 1000})
    example = given().of_type(ResourceSlice)
    text = wire.encode(next(one for one in example if one.spec.driver == "dra.net"))
    odd = text.replace(b'"rdma":', b'"rdmaCapable":').replace(b'"train-', b'"evil-')
    spelled = wire.encode(shares("evil", ("X", "40Gi"))).replace(b'"memory"', f'"{HAMI}/memory"'.encode())
    evil = [wire.decode(odd, ResourceSlice), wire.decode(spelled, ResourceSlice)]
    for part in value["spec"]["containers"]:
        alone = {**value, "spec": {"containers": [part]}}
        before, after = (became(alone, fleet=fleet(slices=slices)) for slices in (example, [*example, *evil]))
        assert before.templates == after.templates
        assert before.templates


# Whose word counts


VOUCHED = {"node-restriction.kubernetes.io/vouched": "yes"}


def believed(*, evidence, slices=None, nodes=()):
    """The example fleet as it is seen where only some nodes count."""
    example = given()
    return Inventory.gather(
        example.of_type(DeviceClass),
        example.of_type(ResourceSlice) if slices is None else slices,
        [*example.of_type(Node), *nodes],
        evidence=configured(evidence=evidence).file.evidence,
    )


def vouched(name):
    return old_node(name, labels=VOUCHED)


@pytest.mark.parametrize("old", OLD)
def test_old_nodes_outside_the_evidence_selector_do_not_stop_translation(old):
    """More of them than there are others: if all nodes counted they would decide."""
    names = sorted({s.spec.node_name for s in given().of_type(ResourceSlice)})
    honest = [vouched(name) for name in names]
    stolen = [old_node(f"stolen-{i}", **old) for i in range(20)]
    assert untouched(became(GPU, fleet=believed(evidence={}, nodes=[*honest, *stolen])))
    facts = believed(evidence={"nodeSelector": VOUCHED}, nodes=[*honest, *stolen])
    done = became(GPU, fleet=facts)
    assert done.changed
    (basis,) = [decision.basis for decision in done.decisions]
    assert basis == "3 of 3 nodes that count (`evidence`) publish it as a whole GPU (class gpu.nvidia.com)"


def test_slices_outside_the_evidence_selector_are_ignored():
    names = sorted({s.spec.node_name for s in given().of_type(ResourceSlice)})
    stolen = [shares(f"stolen-{i}", ("Made up", "1Mi")) for i in range(20)]
    nodes = [*(vouched(name) for name in names), *(old_node(f"stolen-{i}") for i in range(20))]
    slices = [*given().of_type(ResourceSlice), *stolen]
    heard = believed(evidence={"nodeSelector": VOUCHED}, slices=slices, nodes=nodes)
    alone = believed(evidence={"nodeSelector": VOUCHED}, nodes=[vouched(name) for name in names])
    assert heard.classes == alone.classes
    every_node = believed(evidence={}, slices=slices, nodes=nodes)
    assert every_node.classes[HAMI].products != alone.classes[HAMI].products


def test_one_counted_node_does_not_decide_for_the_others():
    names = sorted({s.spec.node_name for s in given().of_type(ResourceSlice)})
    one_of_them = old_node("old", labels=VOUCHED, allocatable={"nvidia.com/gpu": "8"})
    facts = believed(evidence={"nodeSelector": VOUCHED}, nodes=[*(vouched(name) for name in names), one_of_them])
    assert became(GPU, fleet=facts).changed


def test_a_driver_that_is_not_named_shows_nothing():
    facts = believed(evidence={"drivers": ["gpu.nvidia.com"]})
    assert facts.classes["gpu.nvidia.com"].devices == 10
    assert facts.classes[HAMI].devices == 0
    done = became(GPU, fleet=believed(evidence={"drivers": ["dra.net"]}))
    assert untouched(done)
    assert "on the nodes and of the drivers that count (`evidence`)" in done.warnings[0]


@pytest.mark.parametrize(("drivers", "heard"), [((), False), (("dra.net",), True)])
def test_devices_without_a_node_count_if_their_driver_is_named(drivers, heard):
    slices = [
        msgspec.structs.replace(one, spec=msgspec.structs.replace(one.spec, node_name=None, all_nodes=True))
        for one in given().of_type(ResourceSlice)
        if one.spec.driver == "dra.net"
    ]
    facts = believed(evidence={"nodeSelector": VOUCHED, "drivers": list(drivers)}, slices=slices)
    assert bool(facts.classes["dranet"].devices) is heard


NINE = "[1, 2, 3, 4, 5, 6, 7, 8, 9]"
DEAR = f"{NINE}.all(a, {NINE}.all(b, {NINE}.all(c, {NINE}.all(d, a + b + c + d > 0))))"


def kinds(count: int) -> ResourceSlice:
    """So many kinds of device on one node."""
    devices = [
        {"name": f"gpu-{number}", "attributes": {"productName": {"string": f"P{number}"}}} for number in range(count)
    ]
    pool = {"name": "made-up", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "made.up", "nodeName": "made-up", "pool": pool, "devices": devices}
    return wire.convert({"metadata": {"name": "made-up"}, "spec": spec}, ResourceSlice)


def test_a_costly_class_takes_no_budget_from_other_classes():
    """Without a bound a look took 5.8 s for 512 kinds and 32 such selectors, and the webhook answers no review meanwhile at its start."""
    plain = "device.driver == 'made.up' && device.attributes['made.up'].productName.matches('^P[0-9]+$')"
    classes = [typed_class("dear", *[DEAR] * 32), typed_class("plain", plain)]
    facts = fleet(classes=classes, slices=[kinds(20_000)])
    assert facts.classes["dear"].devices == 0
    assert facts.classes["plain"].devices == 20_000
    assert "cost too much" in facts.classes["dear"].doubt
    assert "128 products" in facts.classes["plain"].doubt


def test_many_device_kinds_on_one_node_affect_no_other():
    """What they cost was taken from what all kinds of a class may cost: then the class had no devices at all."""
    some = f"{NINE}.all(a, {NINE}.all(b, {NINE}.all(c, a + b + c > 0)))"
    honest = []
    for number in range(3):
        text = wire.encode(kinds(3)).replace(b'"made-up"', f'"n{number}"'.encode())
        honest.append(wire.decode(text, ResourceSlice))
    for slices in ([kinds(20_000), *honest], [*honest, kinds(20_000)]):
        found = fleet(classes=[typed_class("some", some)], slices=slices).classes["some"]
        assert (found.devices, len(found.nodes), found.doubt) == (12, 4, "")  # of the other, what is as theirs
    cheap = fleet(classes=[typed_class("cheap", "true")], slices=[kinds(20_000), *honest]).classes["cheap"]
    assert (cheap.devices, cheap.doubt) == (20_009, "")
    assert {product.name for product in cheap.products[:3]} == {"P0", "P1", "P2"}


def test_a_selector_that_costs_something_is_asked_about_every_kind_as_long_as_there_are_few():
    classes = [typed_class("some", f"{NINE}.all(a, {NINE}.all(b, a + b > 0))")]
    some = fleet(classes=classes, slices=[kinds(100)]).classes["some"]
    assert (some.devices, some.doubt) == (100, "")


@pytest.mark.parametrize(("key", "offered"), [("by/plugin", True), ("by/class", True), ("by/template", True), ("by/none", False), ("by/nobody", False)])  # fmt: skip
def test_classes_device_plugins_and_node_templates_offer_resources(key, offered):
    configuration = configured(nodeTemplates=[{"name": "t", "allocatable": {"by/template": "1"}}])
    served = Inventory.gather([typed_class("c", extendedResourceName="by/class")], [], [old_node(allocatable={"by/plugin": 1, "by/none": 0})])  # fmt: skip
    assert State(configuration=configuration, fleet=served).offers(key) is offered
