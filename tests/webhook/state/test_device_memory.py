"""Percentages of a GPU's memory, by the sizes that nodes publish."""

import pytest

from allocator import allocate
from dra import wire
from dra.objects.claim import DeviceClass, ResourceClaim
from dra.objects.device import ResourceSlice
from dra.stock import Stock
from tests.webhook.pods import HAMI, pod, verdict_of
from tests.webhook.state.fleets import HALF, amounts, fleet, given, old_node, shares


def share_on(done, where: str, slices) -> str:
    """Return the memory that a claim gets on a node of a fleet."""
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
    """A majority of nodes cannot decide the size: for a product on a single node, another node could publish any size."""
    good = [shares(f"n{number}", ("X", "40Gi"), ("Y", "80Gi")) for number in range(honest)]
    slices = [*good, shares("evil", *lies)]
    done = verdict_of(HALF, fleet=fleet(slices=slices))
    assert share_on(done, "n0", slices) == "20Gi"
    only_y = [shares("n0", ("Y", "80Gi")), *slices[1:]]
    assert share_on(done, "n0", only_y) == "40Gi"


def test_a_product_has_the_size_that_most_nodes_publish():
    nodes = [shares("a", ("X", "40Gi")), shares("b", ("X", "40Gi")), shares("evil", ("X", "1Mi"))]
    done = verdict_of(HALF, fleet=fleet(slices=nodes))
    assert amounts(done) == ["20Gi"]
    assert any("nodes publish 2 sizes" in warning for warning in done.warnings)
    assert done.templates == verdict_of(HALF, fleet=fleet(slices=nodes[:2])).templates


def test_two_equally_common_sizes_are_alternatives():
    nodes = [shares("a", ("X", "40Gi")), shares("b", ("X", "38Gi"))]
    done = verdict_of(HALF, fleet=fleet(slices=nodes))
    assert amounts(done) == ["19Gi", "20Gi"]
    assert any("50 % is 20480 MiB on X of 40960 MiB" in warning for warning in done.warnings)
    assert [share_on(done, where, nodes) for where in "ab"] == ["20Gi", "19Gi"]


def test_invented_products_of_one_node_displace_no_real_one():
    honest = [shares(f"n{i}", (f"real {i}", f"{40 + i}Gi")) for i in range(4)]
    evil = shares("evil", *((f"a tiny {i}", f"{i + 1}Mi") for i in range(12)))
    done = verdict_of(HALF, fleet=fleet(slices=[evil, *honest]))
    assert amounts(done)[-4:] == ["20Gi", "20992Mi", "21Gi", "22016Mi"]
    assert len(amounts(done)) == 8


def test_odd_attributes_of_one_node_do_not_affect_others():
    value = pod({"koordinator.sh/rdma": 100}, {"nvidia.com/gpumem": 1000})
    example = given().of_type(ResourceSlice)
    text = wire.encode(next(slice_ for slice_ in example if slice_.spec.driver == "dra.net"))
    odd = text.replace(b'"rdma":', b'"rdmaCapable":').replace(b'"train-', b'"evil-')
    spelled = wire.encode(shares("evil", ("X", "40Gi"))).replace(b'"memory"', f'"{HAMI}/memory"'.encode())
    evil = [wire.decode(odd, ResourceSlice), wire.decode(spelled, ResourceSlice)]
    for part in value["spec"]["containers"]:
        alone = {**value, "spec": {"containers": [part]}}
        before, after = (verdict_of(alone, fleet=fleet(slices=slices)) for slices in (example, [*example, *evil]))
        assert before.templates == after.templates
        assert before.templates
