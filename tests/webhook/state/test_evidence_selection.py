"""Which nodes and drivers count as evidence, and the budget of a costly class."""

import msgspec
import pytest

from dra import wire
from dra.objects.claim import DeviceClass
from dra.objects.device import ResourceSlice
from dra.objects.node import Node
from tests.webhook.pods import HAMI, configured, untouched, verdict_of
from tests.webhook.state.fleets import GPU, OLD, fleet, given, old_node, shares, typed_class
from webhook.state.inventory import Inventory

# Which nodes and drivers count


VOUCHED = {"node-restriction.kubernetes.io/vouched": "yes"}


def believed(*, evidence, slices=None, nodes=()):
    """Return the example fleet, in which only the nodes of `evidence` count."""
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
    """Most nodes are old: if all nodes counted, they would decide."""
    names = sorted({s.spec.node_name for s in given().of_type(ResourceSlice)})
    honest = [vouched(name) for name in names]
    stolen = [old_node(f"stolen-{i}", **old) for i in range(20)]
    assert untouched(verdict_of(GPU, fleet=believed(evidence={}, nodes=[*honest, *stolen])))
    facts = believed(evidence={"nodeSelector": VOUCHED}, nodes=[*honest, *stolen])
    done = verdict_of(GPU, fleet=facts)
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
    assert verdict_of(GPU, fleet=facts).changed


def test_an_unnamed_driver_is_not_evidence():
    facts = believed(evidence={"drivers": ["gpu.nvidia.com"]})
    assert facts.classes["gpu.nvidia.com"].devices == 10
    assert facts.classes[HAMI].devices == 0
    done = verdict_of(GPU, fleet=believed(evidence={"drivers": ["dra.net"]}))
    assert untouched(done)
    assert "among the nodes and drivers that count (`evidence`)" in done.warnings[0]


@pytest.mark.parametrize(("drivers", "heard"), [((), False), (("dra.net",), True)])
def test_devices_without_a_node_count_if_their_driver_is_named(drivers, heard):
    slices = [
        msgspec.structs.replace(slice_, spec=msgspec.structs.replace(slice_.spec, node_name=None, all_nodes=True))
        for slice_ in given().of_type(ResourceSlice)
        if slice_.spec.driver == "dra.net"
    ]
    facts = believed(evidence={"nodeSelector": VOUCHED, "drivers": list(drivers)}, slices=slices)
    assert bool(facts.classes["dranet"].devices) is heard


NINE = "[1, 2, 3, 4, 5, 6, 7, 8, 9]"
DEAR = f"{NINE}.all(a, {NINE}.all(b, {NINE}.all(c, {NINE}.all(d, a + b + c + d > 0))))"


def kinds(count: int) -> ResourceSlice:
    """Return a slice of one node with `count` kinds of device."""
    devices = [
        {"name": f"gpu-{number}", "attributes": {"productName": {"string": f"P{number}"}}} for number in range(count)
    ]
    pool = {"name": "made-up", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "made.up", "nodeName": "made-up", "pool": pool, "devices": devices}
    return wire.convert({"metadata": {"name": "made-up"}, "spec": spec}, ResourceSlice)


def test_a_costly_class_takes_no_budget_from_other_classes():
    """Without a limit a scan of 512 kinds and 32 such selectors takes 5.8 s, during which a starting webhook answers no review."""
    plain = "device.driver == 'made.up' && device.attributes['made.up'].productName.matches('^P[0-9]+$')"
    classes = [typed_class("dear", *[DEAR] * 32), typed_class("plain", plain)]
    facts = fleet(classes=classes, slices=[kinds(20_000)])
    assert facts.classes["dear"].devices == 0
    assert facts.classes["plain"].devices == 20_000
    assert "cost too much" in facts.classes["dear"].doubt
    assert "128 products" in facts.classes["plain"].doubt


def test_many_device_kinds_on_one_node_affect_no_other():
    """If the budget of the whole class paid for these kinds, the class would have no devices at all."""
    some = f"{NINE}.all(a, {NINE}.all(b, {NINE}.all(c, a + b + c > 0)))"
    honest = []
    for number in range(3):
        text = wire.encode(kinds(3)).replace(b'"made-up"', f'"n{number}"'.encode())
        honest.append(wire.decode(text, ResourceSlice))
    for slices in ([kinds(20_000), *honest], [*honest, kinds(20_000)]):
        served = fleet(classes=[typed_class("some", some)], slices=slices).classes["some"]
        # Devices of the made-up node count if they equal the honest ones.
        assert (served.devices, len(served.nodes), served.doubt) == (12, 4, "")
    cheap = fleet(classes=[typed_class("cheap", "true")], slices=[kinds(20_000), *honest]).classes["cheap"]
    assert (cheap.devices, cheap.doubt) == (20_009, "")
    assert {product.name for product in cheap.products[:3]} == {"P0", "P1", "P2"}


def test_a_costly_selector_is_evaluated_for_a_few_device_kinds():
    classes = [typed_class("some", f"{NINE}.all(a, {NINE}.all(b, a + b > 0))")]
    some = fleet(classes=classes, slices=[kinds(100)]).classes["some"]
    assert (some.devices, some.doubt) == (100, "")
