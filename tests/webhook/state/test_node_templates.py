"""Nodes that an autoscaler can add count only when a pod would otherwise be refused."""

import msgspec
import pytest

from dra import wire
from dra.objects.device import Device
from dra.objects.node import Node
from dra.stock import Stock
from tests.webhook.admission.fleets import DRIVER, claim_for, gpu_slice, typed_class, typed_node
from tests.webhook.state.configurations import HEAD, mistakes
from webhook.admission import Feasibility, judge
from webhook.refusals import Code
from webhook.state import prospects, read_configuration
from webhook.state.schema import TemplateDevices

EIGHT = {"driver": DRIVER, "count": 8, "capacity": {"memory": {"value": "141Gi"}}}
BIG = {"name": "big", "labels": {"pool": "big"}, "maxNodes": 3, "devices": [EIGHT]}


# Fields of a device that a future node cannot have, or that its slice sets.
ELSEWHERE = {
    "name",
    "consumes_counters",  # counter sets are not declared in a template
    "node_name",
    "node_selector",
    "all_nodes",
    "taints",
    "binds_to_node",
    "binding_conditions",
    "binding_failure_conditions",
    "node_allocatable_resources",
}


def test_a_node_template_can_declare_every_field_of_a_device():
    assert set(Device.__struct_fields__) - ELSEWHERE == set(TemplateDevices.__struct_fields__) - {"driver", "count"}


def templates(*values):
    configuration, findings = read_configuration({**HEAD, "nodeTemplates": list(values)})
    assert findings == []
    return configuration.file.node_templates


def labelled(name, **labels):
    return wire.convert({"metadata": {"name": name, "labels": labels}}, Node)


def fleet(*nodes):
    """Two nodes with four GPUs each, and other nodes without any."""
    return Stock.of(
        nodes=[typed_node("n0"), typed_node("n1"), *nodes],
        slices=[gpu_slice("n0", 4), gpu_slice("n1", 4)],
        classes=[typed_class()],
    )


def judged(claim, *values, stock=None):
    stock = stock or fleet()
    return judge(stock, [claim], prospects=prospects(templates(*values), stock))


def test_a_pod_waits_for_the_named_node_template():
    assert judged(claim_for(8)).code is Code.TOO_MANY
    answer = judged(claim_for(8), BIG)
    assert answer.verdict is Feasibility.BUSY
    assert answer.text == (
        "none of the 2 nodes can serve this pod, even with all devices free, but a node of template big could (`nodeTemplates`): "
        "the pod waits until such a node exists"
    )


def test_a_pod_that_no_node_template_serves_is_refused():
    assert judged(claim_for(9), BIG) == judged(claim_for(9))
    assert judged(claim_for(1, cel="device.capacity['gpu.nvidia.com'].memory.isGreaterThan(quantity('200Gi'))"), BIG).verdict is Feasibility.NEVER  # fmt: skip


def test_no_template_is_named_if_the_fleet_serves_the_pod():
    assert judged(claim_for(4), BIG).verdict is Feasibility.FITS
    held = Stock.of(
        nodes=[typed_node("n0")], slices=[gpu_slice("n0", 4)], classes=[typed_class()], claims=[claim_for(4, held_devices=[f"gpu-{i}" for i in range(4)])]
    )  # fmt: skip
    answer = judged(claim_for(4, name="other"), BIG, stock=held)
    assert answer.verdict is Feasibility.BUSY
    assert "template" not in answer.text


@pytest.mark.parametrize(
    ("there", "verdict"), [(0, Feasibility.BUSY), (2, Feasibility.BUSY), (3, Feasibility.NEVER), (4, Feasibility.NEVER)]
)
def test_a_node_template_at_its_limit_adds_no_node(there, verdict):
    nodes = [labelled(f"b{i}", pool="big") for i in range(there)]
    assert judged(claim_for(8), BIG, stock=fleet(*nodes)).verdict is verdict


def test_an_unlimited_node_template_can_always_add_a_node():
    endless = {name: value for name, value in BIG.items() if name not in ("maxNodes", "labels")}
    assert judged(claim_for(8), endless).verdict is Feasibility.BUSY
    assert judged(claim_for(8), BIG | {"maxNodes": 0}).verdict is Feasibility.NEVER


def test_the_first_sufficient_node_template_is_named():
    small = {"name": "small", "devices": [EIGHT | {"count": 6}]}
    assert "of template big " in judged(claim_for(8), small, BIG).text
    assert "of template small " in judged(claim_for(6), small, BIG).text


def test_several_entries_of_a_driver_form_one_pool():
    two = {"name": "two", "devices": [EIGHT | {"count": 3}, EIGHT | {"count": 4, "capacity": {}}]}
    assert judged(claim_for(7), two).verdict is Feasibility.BUSY
    assert judged(claim_for(8), two).verdict is Feasibility.NEVER


def test_devices_without_a_node_also_serve_new_nodes():
    """The pod needs GPUs of a node and a network device that is published for all nodes."""
    nic = gpu_slice("net", 1)
    nic = msgspec.structs.replace(nic, spec=msgspec.structs.replace(nic.spec, driver="nic.example.com", node_name=None, all_nodes=True))  # fmt: skip
    net = typed_class("nic", "device.driver == 'nic.example.com'")
    stock = Stock.of(nodes=[typed_node("n0")], slices=[gpu_slice("n0", 4), nic], classes=[typed_class(), net])
    claims = [claim_for(8, name="gpus"), claim_for(1, name="nics", class_="nic")]
    assert judge(stock, claims).verdict is Feasibility.NEVER
    assert judge(stock, claims, prospects=prospects(templates(BIG), stock)).verdict is Feasibility.BUSY


def test_without_node_templates_nothing_is_simulated():
    assert prospects((), fleet()) is None


@pytest.mark.parametrize(
    ("value", "pointer"),
    [
        ({"name": "Not A Name", "devices": [EIGHT]}, "/nodeTemplates/0/name"),
        ({"name": "a"}, "/nodeTemplates/0/devices"),
        ({"name": "a", "devices": [EIGHT | {"driver": "no driver"}]}, "/nodeTemplates/0/devices/0/driver"),
        ({"name": "a", "devices": [EIGHT | {"count": 0}]}, "/nodeTemplates/0/devices/0/count"),
        ({"name": "a", "devices": [EIGHT | {"count": 10**9}]}, "/nodeTemplates/0/devices/0/count"),
        ({"name": "a", "devices": [EIGHT | {"count": 100}] * 2}, "/nodeTemplates/0/devices"),
        ({"name": "a", "maxNodes": -1, "devices": [EIGHT]}, "/nodeTemplates/0/maxNodes"),
        ({"name": "a", "maxNodes": 2, "devices": [EIGHT]}, "/nodeTemplates/0/labels"),
        ({"name": "a", "devices": [EIGHT | {"attributes": {"model": {}}}]}, "/nodeTemplates/0/devices/0/attributes/model"),
        ({"name": "a", "devices": [EIGHT | {"attributes": {"model": "A"}}]}, "/nodeTemplates/0/devices/0/attributes/model"),
        ({"name": "a", "devices": [{"count": 1}]}, "/nodeTemplates/0/devices/0"),
        ({"name": "a", "gpus": 8}, "/nodeTemplates/0/gpus"),
    ],
)  # fmt: skip
def test_an_impossible_node_template_is_rejected_at_its_path(value, pointer):
    assert pointer in mistakes(nodeTemplates=[value])


def test_duplicate_and_excessive_node_templates_are_rejected():
    assert "/nodeTemplates/1/name" in mistakes(nodeTemplates=[BIG, BIG])
    many = [BIG | {"name": f"t{i}"} for i in range(17)]
    assert list(mistakes(nodeTemplates=many)) == ["/nodeTemplates"]
