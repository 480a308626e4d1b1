"""Percentages of a GPU's memory become amounts by the memory sizes that nodes publish."""

from allocator import allocate
from dra import wire
from dra.objects.claim import DeviceClass, ResourceClaim
from dra.objects.device import ResourceSlice
from dra.stock import Stock
from tests.loops import every
from tests.webhook.pods import HAMI, pod, verdict_of
from tests.webhook.state.fleets import (
    HALF_GPU_POD,
    example_fleet_with,
    example_objects,
    hami_slice,
    memory_alternatives,
    old_node,
)


def share_on(verdict, node_name: str, slices) -> str:
    """Return the memory that the claim of a verdict gets on a node."""
    (spec,) = verdict.templates.values()
    claim = wire.convert({"metadata": {"name": "c", "namespace": "d"}, **spec}, ResourceClaim)
    stock = Stock.of(slices=slices, classes=example_objects().of_type(DeviceClass), nodes=[old_node(node_name)])
    answer = allocate(stock, node_name, [claim])
    [result] = answer.allocations[0].allocation.devices.results
    return str(result.consumed_capacity["memory"])


@every(
    "false_devices",
    [
        [("X", "1Mi")],
        [("X", "1000Ti")],
        [("X", f"{size}Gi") for size in range(1, 129)],
        [("X", "1Gi"), ("X", "2Gi"), ("Y", "40Gi")],
        [("X", "-40Gi")],
        [("X", "0")],
    ],
)
@every("honest_nodes", [1, 2])
def test_a_percentage_refers_to_the_memory_of_the_device(honest_nodes, false_devices):
    """The size that most nodes publish cannot be relied on. For a product on a single node, another node could publish any size."""
    honest_slices = [hami_slice(f"n{number}", ("X", "40Gi"), ("Y", "80Gi")) for number in range(honest_nodes)]
    slices = [*honest_slices, hami_slice("evil", *false_devices)]
    verdict = verdict_of(HALF_GPU_POD, fleet=example_fleet_with(slices=slices))
    assert share_on(verdict, "n0", slices) == "20Gi"
    only_y = [hami_slice("n0", ("Y", "80Gi")), *slices[1:]]
    assert share_on(verdict, "n0", only_y) == "40Gi"


def test_a_product_has_the_size_that_most_nodes_publish():
    nodes = [hami_slice("a", ("X", "40Gi")), hami_slice("b", ("X", "40Gi")), hami_slice("evil", ("X", "1Mi"))]
    verdict = verdict_of(HALF_GPU_POD, fleet=example_fleet_with(slices=nodes))
    assert memory_alternatives(verdict) == ["20Gi"]
    assert any("nodes publish 2 sizes" in warning for warning in verdict.warnings)
    assert verdict.templates == verdict_of(HALF_GPU_POD, fleet=example_fleet_with(slices=nodes[:2])).templates


def test_two_equally_common_sizes_are_alternatives():
    nodes = [hami_slice("a", ("X", "40Gi")), hami_slice("b", ("X", "38Gi"))]
    verdict = verdict_of(HALF_GPU_POD, fleet=example_fleet_with(slices=nodes))
    assert memory_alternatives(verdict) == ["19Gi", "20Gi"]
    assert any("50 % is 20480 MiB on X of 40960 MiB" in warning for warning in verdict.warnings)
    assert [share_on(verdict, node_name, nodes) for node_name in "ab"] == ["20Gi", "19Gi"]


def test_invented_products_of_one_node_displace_no_real_one():
    honest = [hami_slice(f"n{i}", (f"real {i}", f"{40 + i}Gi")) for i in range(4)]
    evil = hami_slice("evil", *((f"a tiny {i}", f"{i + 1}Mi") for i in range(12)))
    verdict = verdict_of(HALF_GPU_POD, fleet=example_fleet_with(slices=[evil, *honest]))
    assert memory_alternatives(verdict)[-4:] == ["20Gi", "20992Mi", "21Gi", "22016Mi"]
    assert len(memory_alternatives(verdict)) == 8


def test_unusual_names_on_one_node_do_not_affect_claims():
    manifest = pod({"koordinator.sh/rdma": 100}, {"nvidia.com/gpumem": 1000})
    example = example_objects().of_type(ResourceSlice)
    encoded = wire.encode(next(slice_ for slice_ in example if slice_.spec.driver == "dra.net"))
    renamed_attribute = encoded.replace(b'"rdma":', b'"rdmaCapable":').replace(b'"train-', b'"other-')
    qualified_capacity = wire.encode(hami_slice("other", ("X", "40Gi"))).replace(
        b'"memory"', f'"{HAMI}/memory"'.encode()
    )
    unusual_slices = [wire.decode(renamed_attribute, ResourceSlice), wire.decode(qualified_capacity, ResourceSlice)]
    for container in manifest["spec"]["containers"]:
        single_container_pod = {**manifest, "spec": {"containers": [container]}}
        usual_verdict, verdict = (
            verdict_of(single_container_pod, fleet=example_fleet_with(slices=slices))
            for slices in (example, [*example, *unusual_slices])
        )
        assert usual_verdict.templates == verdict.templates
        assert usual_verdict.templates
