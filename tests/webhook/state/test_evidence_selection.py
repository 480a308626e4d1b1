"""Which nodes and drivers are evidence of what keys mean, and the budget of a costly class."""

import msgspec
import pytest

from dra import wire
from dra.objects.claim import DeviceClass
from dra.objects.device import ResourceSlice
from dra.objects.node import Node
from tests.objects import resource_slice, typed
from tests.webhook.pods import HAMI, configured, untouched, verdict_of
from tests.webhook.state.fleets import (
    GPU_POD,
    OLD_NODES,
    example_fleet_with,
    example_objects,
    hami_slice,
    old_node,
    typed_class,
)
from webhook.state.inventory import Inventory

VOUCHED_LABELS = {"node-restriction.kubernetes.io/vouched": "yes"}


def fleet_by_evidence(*, evidence, slices=None, nodes=()):
    """Return the example fleet, in which only the nodes and drivers of `evidence` are evidence."""
    example = example_objects()
    return Inventory.gather(
        example.of_type(DeviceClass),
        example.of_type(ResourceSlice) if slices is None else slices,
        [*example.of_type(Node), *nodes],
        evidence=configured(evidence=evidence).file.evidence,
    )


def vouched_nodes():
    """Return the nodes of the example fleet with the labels of nodes that are evidence."""
    names = sorted({slice_.spec.node_name for slice_ in example_objects().of_type(ResourceSlice)})
    return [old_node(name, labels=VOUCHED_LABELS) for name in names]


@pytest.mark.parametrize("old", OLD_NODES)
def test_old_nodes_outside_the_evidence_selector_do_not_stop_translation(old):
    """Most nodes are old. If all nodes were evidence, the old ones would prevent translation."""
    nodes = [*vouched_nodes(), *(old_node(f"unvouched-{i}", **old) for i in range(20))]
    assert untouched(verdict_of(GPU_POD, fleet=fleet_by_evidence(evidence={}, nodes=nodes)))
    fleet = fleet_by_evidence(evidence={"nodeSelector": VOUCHED_LABELS}, nodes=nodes)
    verdict = verdict_of(GPU_POD, fleet=fleet)
    assert verdict.changed
    (basis,) = [decision.basis for decision in verdict.decisions]
    assert basis == "3 of 3 nodes that count (`evidence`) publish it as a whole GPU (class gpu.nvidia.com)"


def test_slices_outside_the_evidence_selector_are_ignored():
    unvouched_slices = [hami_slice(f"unvouched-{i}", ("Made up", "1Mi")) for i in range(20)]
    nodes = [*vouched_nodes(), *(old_node(f"unvouched-{i}") for i in range(20))]
    slices = [*example_objects().of_type(ResourceSlice), *unvouched_slices]
    with_unvouched_nodes = fleet_by_evidence(evidence={"nodeSelector": VOUCHED_LABELS}, slices=slices, nodes=nodes)
    vouched_only = fleet_by_evidence(evidence={"nodeSelector": VOUCHED_LABELS}, nodes=vouched_nodes())
    assert with_unvouched_nodes.classes == vouched_only.classes
    every_node = fleet_by_evidence(evidence={}, slices=slices, nodes=nodes)
    assert every_node.classes[HAMI].products != vouched_only.classes[HAMI].products


def test_one_old_node_among_the_evidence_allows_translation():
    old_vouched_node = old_node("old", labels=VOUCHED_LABELS, allocatable={"nvidia.com/gpu": "8"})
    fleet = fleet_by_evidence(evidence={"nodeSelector": VOUCHED_LABELS}, nodes=[*vouched_nodes(), old_vouched_node])
    assert verdict_of(GPU_POD, fleet=fleet).changed


def test_devices_of_a_driver_not_in_evidence_are_ignored():
    fleet = fleet_by_evidence(evidence={"drivers": ["gpu.nvidia.com"]})
    assert fleet.classes["gpu.nvidia.com"].devices == 10
    assert fleet.classes[HAMI].devices == 0
    verdict = verdict_of(GPU_POD, fleet=fleet_by_evidence(evidence={"drivers": ["dra.net"]}))
    assert untouched(verdict)
    assert "among the nodes and drivers that count (`evidence`)" in verdict.warnings[0]


@pytest.mark.parametrize(("drivers", "counts"), [((), False), (("dra.net",), True)])
def test_devices_without_a_node_count_if_evidence_names_them(drivers, counts):
    slices = [
        msgspec.structs.replace(slice_, spec=msgspec.structs.replace(slice_.spec, node_name=None, all_nodes=True))
        for slice_ in example_objects().of_type(ResourceSlice)
        if slice_.spec.driver == "dra.net"
    ]
    fleet = fleet_by_evidence(evidence={"nodeSelector": VOUCHED_LABELS, "drivers": list(drivers)}, slices=slices)
    assert bool(fleet.classes["dranet"].devices) is counts


NINE = "[1, 2, 3, 4, 5, 6, 7, 8, 9]"
COSTLY_SELECTOR = f"{NINE}.all(a, {NINE}.all(b, {NINE}.all(c, {NINE}.all(d, a + b + c + d > 0))))"


def slice_with_kinds(count: int) -> ResourceSlice:
    """Return a slice of one node with `count` kinds of device."""
    devices = [
        {"name": f"gpu-{number}", "attributes": {"productName": {"string": f"P{number}"}}} for number in range(count)
    ]
    return typed(resource_slice("made-up", *devices, driver="made.up", pool="made-up", nodeName="made-up"))


def test_a_costly_class_takes_no_budget_from_other_classes():
    """Without a limit, a scan of 512 kinds of device with 32 such selectors takes 5.8 s. Meanwhile a starting webhook answers no review."""
    plain = "device.driver == 'made.up' && device.attributes['made.up'].productName.matches('^P[0-9]+$')"
    classes = [typed_class("costly", *[COSTLY_SELECTOR] * 32), typed_class("plain", plain)]
    fleet = example_fleet_with(classes=classes, slices=[slice_with_kinds(5_000)])
    assert fleet.classes["costly"].devices == 0
    assert fleet.classes["plain"].devices == 5_000
    assert "cost too much" in fleet.classes["costly"].doubt
    assert "128 products" in fleet.classes["plain"].doubt


def test_many_device_kinds_on_one_node_affect_no_other_node():
    """If the budget of the whole class paid for these kinds, the class would have no devices at all."""
    costly_selector = f"{NINE}.all(a, {NINE}.all(b, {NINE}.all(c, a + b + c > 0)))"
    other_slices = []
    for number in range(3):
        text = wire.encode(slice_with_kinds(3)).replace(b'"made-up"', f'"n{number}"'.encode())
        other_slices.append(wire.decode(text, ResourceSlice))
    for slices in ([slice_with_kinds(5_000), *other_slices], [*other_slices, slice_with_kinds(5_000)]):
        served_class = example_fleet_with(classes=[typed_class("some", costly_selector)], slices=slices).classes["some"]
        # Devices of the made-up node are counted if they equal devices of the other nodes.
        assert (served_class.devices, len(served_class.nodes), served_class.doubt) == (12, 4, "")
    cheap_class = example_fleet_with(
        classes=[typed_class("cheap", "true")], slices=[slice_with_kinds(5_000), *other_slices]
    ).classes["cheap"]
    assert (cheap_class.devices, cheap_class.doubt) == (5_009, "")
    assert {product.name for product in cheap_class.products[:3]} == {"P0", "P1", "P2"}


def test_a_costly_selector_is_evaluated_for_a_hundred_device_kinds():
    classes = [typed_class("some", f"{NINE}.all(a, {NINE}.all(b, a + b > 0))")]
    costly_class = example_fleet_with(classes=classes, slices=[slice_with_kinds(100)]).classes["some"]
    assert (costly_class.devices, costly_class.doubt) == (100, "")
