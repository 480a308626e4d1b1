"""Only if the webhook would otherwise refuse a pod, it considers the nodes that an autoscaler could add (the prospects)."""

import msgspec
import pytest

from dra import wire
from dra.objects.device import Device
from dra.objects.node import Node
from dra.stock import Stock
from tests.loops import every
from tests.webhook.admission.fleets import DRIVER, claim_for, gpu_slice, typed_class, typed_node
from tests.webhook.state.configurations import HEAD, mistakes
from webhook.placement import Feasibility, can_any_node_serve
from webhook.refusals import Code
from webhook.state import prospects, read_configuration
from webhook.state.schema import TemplateDevices

EIGHT_GPUS = {"driver": DRIVER, "count": 8, "capacity": {"memory": {"value": "141Gi"}}}
BIG_NODE = {"name": "big", "labels": {"pool": "big"}, "maxNodes": 3, "devices": [EIGHT_GPUS]}


# Fields of a device that a template cannot declare: no device of a future node has them, or its slice sets them.
FIELDS_NOT_IN_TEMPLATES = {
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
    assert set(Device.__struct_fields__) - FIELDS_NOT_IN_TEMPLATES == set(TemplateDevices.__struct_fields__) - {
        "driver",
        "count",
    }


def read_templates(*values):
    configuration, findings = read_configuration({**HEAD, "nodeTemplates": list(values)})
    assert findings == []
    return configuration.file.node_templates


def labelled_node(name, **labels):
    return wire.convert({"metadata": {"name": name, "labels": labels}}, Node)


def stock_with_nodes(*nodes):
    """Return a stock of two nodes with four GPUs each, and of these other nodes without GPUs."""
    return Stock.of(
        nodes=[typed_node("n0"), typed_node("n1"), *nodes],
        slices=[gpu_slice("n0", 4), gpu_slice("n1", 4)],
        classes=[typed_class()],
    )


def answer_for(claim, *node_templates, stock=None):
    stock = stock or stock_with_nodes()
    return can_any_node_serve(stock, [claim], prospects=prospects(read_templates(*node_templates), stock))


def test_a_pod_waits_for_the_named_node_template():
    assert answer_for(claim_for(8)).code is Code.TOO_MANY
    answer = answer_for(claim_for(8), BIG_NODE)
    assert answer.verdict is Feasibility.BUSY
    assert "a node of template big could (`nodeTemplates`)" in answer.text


def test_a_pod_that_no_node_template_serves_is_refused():
    refusal = answer_for(claim_for(9), BIG_NODE)
    assert (refusal.verdict, refusal.text) == (Feasibility.NEVER, answer_for(claim_for(9)).text)
    assert refusal.remedy == "request at most 8 devices in claim c, request r, which a node of `nodeTemplates` has"
    assert answer_for(claim_for(1, cel="device.capacity['gpu.nvidia.com'].memory.isGreaterThan(quantity('200Gi'))"), BIG_NODE).verdict is Feasibility.NEVER  # fmt: skip


def test_no_template_is_named_if_the_fleet_serves_the_pod():
    assert answer_for(claim_for(4), BIG_NODE).verdict is Feasibility.FITS
    busy_stock = Stock.of(
        nodes=[typed_node("n0")], slices=[gpu_slice("n0", 4)], classes=[typed_class()], claims=[claim_for(4, held_devices=[f"gpu-{i}" for i in range(4)])]
    )  # fmt: skip
    answer = answer_for(claim_for(4, name="other"), BIG_NODE, stock=busy_stock)
    assert answer.verdict is Feasibility.BUSY
    assert "template" not in answer.text


@pytest.mark.parametrize(
    ("existing_nodes", "verdict"),
    [(0, Feasibility.BUSY), (2, Feasibility.BUSY), (3, Feasibility.NEVER), (4, Feasibility.NEVER)],
)
def test_a_node_template_at_its_limit_adds_no_node(existing_nodes, verdict):
    nodes = [labelled_node(f"b{i}", pool="big") for i in range(existing_nodes)]
    assert answer_for(claim_for(8), BIG_NODE, stock=stock_with_nodes(*nodes)).verdict is verdict


def test_an_unlimited_node_template_can_always_add_a_node():
    unlimited = {name: value for name, value in BIG_NODE.items() if name not in ("maxNodes", "labels")}
    assert answer_for(claim_for(8), unlimited).verdict is Feasibility.BUSY
    assert answer_for(claim_for(8), BIG_NODE | {"maxNodes": 0}).verdict is Feasibility.NEVER


def test_the_first_sufficient_node_template_is_named():
    small = {"name": "small", "devices": [EIGHT_GPUS | {"count": 6}]}
    assert "of template big " in answer_for(claim_for(8), small, BIG_NODE).text
    assert "of template small " in answer_for(claim_for(6), small, BIG_NODE).text


def test_several_entries_of_a_driver_form_one_pool():
    two = {"name": "two", "devices": [EIGHT_GPUS | {"count": 3}, EIGHT_GPUS | {"count": 4, "capacity": {}}]}
    assert answer_for(claim_for(7), two).verdict is Feasibility.BUSY
    assert answer_for(claim_for(8), two).verdict is Feasibility.NEVER


def test_devices_without_a_node_also_serve_new_nodes():
    """The pod needs GPUs of a node and a network device that is published for all nodes."""
    nic = gpu_slice("net", 1)
    nic = msgspec.structs.replace(nic, spec=msgspec.structs.replace(nic.spec, driver="nic.example.com", node_name=None, all_nodes=True))  # fmt: skip
    nic_class = typed_class("nic", "device.driver == 'nic.example.com'")
    stock = Stock.of(nodes=[typed_node("n0")], slices=[gpu_slice("n0", 4), nic], classes=[typed_class(), nic_class])
    claims = [claim_for(8, name="gpus"), claim_for(1, name="nics", class_="nic")]
    assert can_any_node_serve(stock, claims).verdict is Feasibility.NEVER
    assert (
        can_any_node_serve(stock, claims, prospects=prospects(read_templates(BIG_NODE), stock)).verdict
        is Feasibility.BUSY
    )


def test_without_node_templates_there_are_no_prospects():
    assert prospects((), stock_with_nodes()) is None


@every(
    ("value", "pointer"),
    [
        ({"name": "Not A Name", "devices": [EIGHT_GPUS]}, "/nodeTemplates/0/name"),
        ({"name": "a"}, "/nodeTemplates/0/devices"),
        ({"name": "a", "devices": [EIGHT_GPUS | {"driver": "no driver"}]}, "/nodeTemplates/0/devices/0/driver"),
        ({"name": "a", "devices": [EIGHT_GPUS | {"count": 0}]}, "/nodeTemplates/0/devices/0/count"),
        ({"name": "a", "devices": [EIGHT_GPUS | {"count": 10**9}]}, "/nodeTemplates/0/devices/0/count"),
        ({"name": "a", "devices": [EIGHT_GPUS | {"count": 100}] * 2}, "/nodeTemplates/0/devices"),
        ({"name": "a", "maxNodes": -1, "devices": [EIGHT_GPUS]}, "/nodeTemplates/0/maxNodes"),
        ({"name": "a", "maxNodes": 2, "devices": [EIGHT_GPUS]}, "/nodeTemplates/0/labels"),
        ({"name": "a", "devices": [EIGHT_GPUS | {"attributes": {"model": {}}}]}, "/nodeTemplates/0/devices/0/attributes/model"),
        ({"name": "a", "devices": [EIGHT_GPUS | {"attributes": {"model": "A"}}]}, "/nodeTemplates/0/devices/0/attributes/model"),
        ({"name": "a", "devices": [{"count": 1}]}, "/nodeTemplates/0/devices/0"),
        ({"name": "a", "gpus": 8}, "/nodeTemplates/0/gpus"),
    ],
)  # fmt: skip
def test_an_impossible_node_template_is_rejected_at_its_path(value, pointer):
    assert pointer in mistakes(nodeTemplates=[value])


def test_duplicate_and_excessive_node_templates_are_rejected():
    assert "/nodeTemplates/1/name" in mistakes(nodeTemplates=[BIG_NODE, BIG_NODE])
    too_many = [BIG_NODE | {"name": f"t{i}"} for i in range(17)]
    assert list(mistakes(nodeTemplates=too_many)) == ["/nodeTemplates"]
