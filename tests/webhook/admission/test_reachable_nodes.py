"""A verdict depends only on the nodes that a pod can reach."""

import msgspec
import pytest

from dra import wire
from dra.objects.node import Node
from dra.stock.stock import Stock
from tests.webhook.admission.pods_with_claims import _slice_of, given, with_old_node, workload_of
from tests.webhook.admission.reviews import CLASS, ENFORCE, GPU, NODE, SLICE, STOCK, answer, gpu_pod
from tests.webhook.pods import configured
from webhook.admission import decide_object
from webhook.state.inventory import Inventory
from webhook.state.node_templates import prospects

# Nodes that a pod can run on


def _slice_with(count, name):
    spec = msgspec.structs.replace(_slice_of(name).spec, devices=SLICE.spec.devices[:count])
    return msgspec.structs.replace(_slice_of(name), spec=spec)


def sized(*, plugins=0, **fields):
    """Return four nodes: with two GPUs, with four, without published devices yet, and with `plugins` GPUs of a device plugin."""
    named = {
        name: wire.convert({"metadata": {"name": name, "labels": {"of": name}}}, Node)
        for name in ("small", "large", "bare")
    }
    if plugins:
        amounts = {"allocatable": {"nvidia.com/gpu": str(plugins)}}
        named["old"] = wire.convert({"metadata": {"name": "old", "labels": {"of": "old"}}, "status": amounts}, Node)
    slices = [_slice_with(2, "small"), _slice_with(4, "large")]
    configuration = configured(mode="enforce", **fields)
    fleet = Inventory.gather([CLASS], slices, named.values())
    stock = Stock.of(slices=slices, classes=[CLASS], nodes=named.values())
    coming = prospects(configuration.file.node_templates, stock)
    return msgspec.structs.replace(ENFORCE, configuration=configuration, fleet=fleet, stock=stock, prospects=coming)


def confined(count, *nodes, by="selector", **metadata):
    pod = gpu_pod(limits={"nvidia.com/gpu": str(count)}, **metadata)
    if by == "selector":
        pod["spec"]["nodeSelector"] = {"of": nodes[0]}
        return pod
    place = {"key": "of", "operator": "In", "values": list(nodes)}
    terms = [{"matchExpressions": [place]}]
    if by == "name":
        terms = [{"matchFields": [{**place, "key": "metadata.name"}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    pod["spec"]["affinity"] = {"nodeAffinity": required}
    return pod


def everywhere(pod, world):
    """Return the webhook's answer, after a check that a file gets the same refusals and warnings."""
    there, here = answer(given(pod, world)), decide_object(pod, world)
    assert there["allowed"] is not bool(here.refusals)
    message = there.get("status", {}).get("message", "").partition("; to bypass")[0]
    assert message == "; ".join(map(str, here.refusals))
    for text in there.get("warnings", ()):
        assert any(warning.startswith(text.partition("…")[0]) for warning in here.warnings)
    return there


@pytest.mark.parametrize("by", ["selector", "affinity", "name"])
def test_a_pod_reaching_only_impossible_nodes_is_refused(by):
    message = everywhere(confined(3, "small", by=by), sized())["status"]["message"]
    opening = "the only node that this pod can run on cannot serve it, even with all devices free; nearest is small: "
    assert message.startswith(opening)
    assert (
        "node large can serve it, but the pod cannot run there (request at most 2 devices in container main" in message
    )
    assert "[R020]" in message
    assert everywhere(confined(2, "small", by=by), sized()).get("warnings", []) == []
    assert everywhere(confined(4, "large", by=by), sized()).get("warnings", []) == []
    assert "[R023]" in everywhere(confined(5, "small", by=by), sized())["status"]["message"]


def test_a_node_without_devices_does_not_prevent_refusal():
    message = everywhere(confined(3, "small", "bare", by="affinity"), sized())["status"]["message"]
    assert message.startswith(
        "none of the 2 nodes that this pod can run on can serve it, even with all devices free; nearest is small"
    )


@pytest.mark.parametrize("by", ["selector", "affinity"])
def test_a_pod_waits_where_its_driver_may_be_starting(by):
    there = everywhere(confined(3, "bare", by=by), sized())
    assert there["allowed"]
    [warning] = there["warnings"]
    opening = (
        "the pod waits until a node publishes such devices: the only node that this pod can run on cannot serve it"
    )
    assert warning.startswith(opening)
    assert "requests class gpu.nvidia.com, but no such node has a whole GPU" in warning
    [doubt] = decide_object(confined(3, "bare", by=by), sized()).decisions
    assert (doubt.code, doubt.remedy) == (
        "R020",
        "correct the pod's node selector or affinity, or request what these nodes have",
    )


def test_a_pod_stays_with_plugins_unless_a_driver_may_start():
    mixed = sized(plugins=8)
    for count, node, moves in ((3, "small", False), (3, "bare", True), (2, "small", True)):
        there = everywhere(confined(count, node), mixed)
        assert (there["allowed"], "patch" in there) == (True, moves)
        assert bool(there.get("warnings")) is (count == 3)


def test_a_pod_that_reaches_no_node_waits_for_one():
    assert everywhere(confined(3, "elsewhere"), sized())["allowed"]


@pytest.mark.parametrize(("count", "allowed"), [(4, True), (16, False)])
def test_a_declared_node_that_the_pod_can_reach_counts(count, allowed):
    devices = [{"driver": GPU, "count": 4, "attributes": {"type": {"string": "gpu"}}}]
    world = sized(nodeTemplates=[{"name": "t", "labels": {"of": "small"}, "devices": devices}])
    assert everywhere(confined(count, "small"), world)["allowed"] is allowed
    elsewhere = sized(nodeTemplates=[{"name": "t", "labels": {"of": "other"}, "devices": devices}])
    assert not everywhere(confined(count, "small"), elsewhere)["allowed"]


def test_a_daemon_set_runs_where_possible():
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u", "controller": True}
    pod = confined(3, "small", by="name", ownerReferences=[owner])
    response = answer(given(pod, sized()))
    assert response["allowed"]
    assert [warning.startswith("its pods for such nodes wait: ") for warning in response["warnings"]] == [True]
    template = {"metadata": {}, "spec": confined(3, "small")["spec"]}
    each = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "d"}, "spec": {"template": template}}
    done = decide_object(each, sized())
    assert (done.refusals, [decision.code for decision in done.decisions]) == ((), ["R020"])


def test_a_device_plugin_daemon_set_runs_where_possible():
    mixed = with_old_node()
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u", "controller": True}
    small = wire.convert({"metadata": {"name": "less"}, "status": {"allocatable": {"rdma/hca": "1"}}}, Node)
    large = wire.convert({"metadata": {"name": "more"}, "status": {"allocatable": {"rdma/hca": "2"}}}, Node)
    fleet = Inventory.gather([CLASS], [SLICE], [NODE, small, large])
    world = msgspec.structs.replace(mixed, fleet=fleet, stock=STOCK.with_all([small, large]))
    pod = confined(1, "less", by="name")
    pod["spec"]["containers"][0]["resources"]["limits"] = {"rdma/hca": "2"}
    assert not answer(given(pod, world))["allowed"]
    pod["metadata"]["ownerReferences"] = [owner]
    assert answer(given(pod, world))["allowed"]


@pytest.mark.parametrize("prefer", ["plugin", "dra"])
def test_a_daemon_set_of_a_mixed_fleet_runs_where_possible(prefer):
    """A DaemonSet's pod is admitted on a node whose device plugin has too few devices; any other pod is refused."""
    mixed = sized(plugins=2, mixed={"nvidia.com/gpu": {"prefer": prefer}})
    more = {"metadata": {"name": "more"}, "status": {"allocatable": {"nvidia.com/gpu": "8"}}}
    nodes = [*mixed.stock.nodes.values(), wire.convert(more, Node)]
    fleet = Inventory.gather([CLASS], [_slice_with(2, "small"), _slice_with(4, "large")], nodes)
    world = msgspec.structs.replace(mixed, fleet=fleet, stock=mixed.stock.with_all(nodes))
    assert not answer(given(confined(3, "old"), world))["allowed"]
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u", "controller": True}
    assert answer(given(confined(3, "old", ownerReferences=[owner]), world))["allowed"]


def test_the_answer_to_a_warned_pod_awaits_its_templates():
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": True}
    outcome = given(confined(3, "bare", ownerReferences=[owner]), sized())
    assert answer(outcome)["warnings"]
    assert outcome.record.outcome == "translated"
    assert [name for _, name in outcome.awaited_templates] == list(outcome.record.templates) != []


def test_a_job_is_told_that_reachable_nodes_are_too_small():
    [warning] = answer(workload_of(confined(3, "small"), sized()))["warnings"]
    assert warning.startswith("its pods will be refused: the only node that this pod can run on")
