"""A verdict depends only on the nodes on which the pod can run."""

import msgspec
import pytest

from dra.stock.stock import Stock
from tests.objects import node, owner, typed, workload
from tests.webhook.admission.pods_with_claims import review_outcome, slice_of, state_with_plugin_node
from tests.webhook.admission.reviews import CLASS, ENFORCE, GPU, NODE, SLICE, STOCK, answer, gpu_pod
from tests.webhook.pods import configured, expression, required_affinity
from webhook.admission import decide_object
from webhook.state.inventory import Inventory
from webhook.state.node_templates import prospects

DAEMON_SET = owner("DaemonSet", "d", "apps/v1")


def _slice_with(count, name):
    spec = msgspec.structs.replace(slice_of(name).spec, devices=SLICE.spec.devices[:count])
    return msgspec.structs.replace(slice_of(name), spec=spec)


def state_with_nodes(*, plugins=0, **fields):
    """Return a state with nodes `small` (2 GPUs), `large` (4), `bare` (none published yet) and, with `plugins`, `old` (`plugins` GPUs of a device plugin)."""
    nodes = {name: typed(node(name, labels={"of": name})) for name in ("small", "large", "bare")}
    if plugins:
        nodes["old"] = typed(node("old", labels={"of": "old"}, allocatable={"nvidia.com/gpu": str(plugins)}))
    slices = [_slice_with(2, "small"), _slice_with(4, "large")]
    configuration = configured(mode="enforce", **fields)
    fleet = Inventory.gather([CLASS], slices, nodes.values())
    stock = Stock.of(slices=slices, classes=[CLASS], nodes=nodes.values())
    coming = prospects(configuration.file.node_templates, stock)
    return msgspec.structs.replace(ENFORCE, configuration=configuration, fleet=fleet, stock=stock, prospects=coming)


def pod_restricted_to(count, *nodes, by="selector", **metadata):
    pod = gpu_pod(limits={"nvidia.com/gpu": str(count)}, **metadata)
    if by == "selector":
        pod["spec"]["nodeSelector"] = {"of": nodes[0]}
        return pod
    term = expression("of", "In", *nodes)
    if by == "name":
        term = {"matchFields": expression("metadata.name", "In", *nodes)["matchExpressions"]}
    pod["spec"]["affinity"] = required_affinity(term)
    return pod


def response_and_file_check(pod, world):
    """Return the webhook's answer. Check that a file gets the same refusals and warnings."""
    response, file_verdict = answer(review_outcome(pod, world)), decide_object(pod, world)
    assert response["allowed"] is not bool(file_verdict.refusals)
    message = response.get("status", {}).get("message", "").partition("; to bypass")[0]
    assert message == "; ".join(map(str, file_verdict.refusals))
    for text in response.get("warnings", ()):
        assert any(warning.startswith(text.partition("…")[0]) for warning in file_verdict.warnings)
    return response


@pytest.mark.parametrize("by", ["selector", "affinity", "name"])
def test_a_pod_is_refused_if_reachable_nodes_are_too_small(by):
    message = response_and_file_check(pod_restricted_to(3, "small", by=by), state_with_nodes())["status"]["message"]
    opening = "the only node that this pod can run on cannot serve it, even with all devices free; nearest is small: "
    assert message.startswith(opening)
    assert (
        "node large can serve it, but the pod cannot run there (request at most 2 devices in container main" in message
    )
    assert "[R020]" in message
    assert response_and_file_check(pod_restricted_to(2, "small", by=by), state_with_nodes()).get("warnings", []) == []
    assert response_and_file_check(pod_restricted_to(4, "large", by=by), state_with_nodes()).get("warnings", []) == []
    assert (
        "[R023]"
        in response_and_file_check(pod_restricted_to(5, "small", by=by), state_with_nodes())["status"]["message"]
    )


def test_a_node_without_devices_does_not_prevent_refusal():
    response = response_and_file_check(pod_restricted_to(3, "small", "bare", by="affinity"), state_with_nodes())
    message = response["status"]["message"]
    assert message.startswith("none of the 2 nodes that this pod can run on can serve it")


@pytest.mark.parametrize("by", ["selector", "affinity"])
def test_a_pod_waits_for_a_driver_that_may_start(by):
    response = response_and_file_check(pod_restricted_to(3, "bare", by=by), state_with_nodes())
    assert response["allowed"]
    [warning] = response["warnings"]
    opening = (
        "the pod waits until a node publishes such devices: the only node that this pod can run on cannot serve it"
    )
    assert warning.startswith(opening)
    assert "requests class gpu.nvidia.com, but no such node has a whole GPU" in warning
    [decision] = decide_object(pod_restricted_to(3, "bare", by=by), state_with_nodes()).decisions
    assert (decision.code, decision.remedy) == (
        "R020",
        "correct the pod's node selector or affinity, or request what these nodes have",
    )


def test_a_pod_gets_claims_if_a_driver_may_serve():
    mixed = state_with_nodes(plugins=8)
    for count, name, is_translated in ((3, "small", False), (3, "bare", True), (2, "small", True)):
        response = response_and_file_check(pod_restricted_to(count, name), mixed)
        assert (response["allowed"], "patch" in response) == (True, is_translated)
        assert bool(response.get("warnings")) is (count == 3)


def test_a_pod_that_reaches_no_existing_node_is_admitted():
    assert response_and_file_check(pod_restricted_to(3, "elsewhere"), state_with_nodes())["allowed"]


@pytest.mark.parametrize(("count", "allowed"), [(4, True), (16, False)])
def test_a_declared_node_that_the_pod_can_reach_counts(count, allowed):
    devices = [{"driver": GPU, "count": 8, "attributes": {"type": {"string": "gpu"}}}]
    world = state_with_nodes(nodeTemplates=[{"name": "t", "labels": {"of": "small"}, "devices": devices}])
    assert response_and_file_check(pod_restricted_to(count, "small"), world)["allowed"] is allowed
    elsewhere = state_with_nodes(nodeTemplates=[{"name": "t", "labels": {"of": "other"}, "devices": devices}])
    message = response_and_file_check(pod_restricted_to(16, "small"), world)["status"]["message"]
    assert "request at most 8 devices" in message
    assert not response_and_file_check(pod_restricted_to(count, "small"), elsewhere)["allowed"]


def test_a_daemon_set_tolerates_nodes_with_too_few_devices():
    pod = pod_restricted_to(3, "small", by="name", ownerReferences=[DAEMON_SET])
    response = answer(review_outcome(pod, state_with_nodes()))
    assert response["allowed"]
    assert [warning.startswith("its pods for such nodes wait: ") for warning in response["warnings"]] == [True]
    daemon_set = workload("DaemonSet", "d", pod_restricted_to(3, "small")["spec"])
    verdict = decide_object(daemon_set, state_with_nodes())
    assert (verdict.refusals, [decision.code for decision in verdict.decisions]) == ((), ["R020"])


def test_a_daemon_set_tolerates_nodes_with_too_few_plugin_devices():
    mixed = state_with_plugin_node()
    small, large = (
        typed(node(name, allocatable={"rdma/hca": amount})) for name, amount in (("less", "1"), ("more", "2"))
    )
    fleet = Inventory.gather([CLASS], [SLICE], [NODE, small, large])
    world = msgspec.structs.replace(mixed, fleet=fleet, stock=STOCK.with_all([small, large]))
    pod = pod_restricted_to(1, "less", by="name")
    pod["spec"]["containers"][0]["resources"]["limits"] = {"rdma/hca": "2"}
    assert not answer(review_outcome(pod, world))["allowed"]
    pod["metadata"]["ownerReferences"] = [DAEMON_SET]
    assert answer(review_outcome(pod, world))["allowed"]


@pytest.mark.parametrize("prefer", ["plugin", "dra"])
def test_a_daemon_set_tolerates_nodes_of_a_mixed_fleet(prefer):
    """On a node whose device plugin has too few devices, the pod of a DaemonSet is admitted; any other pod is refused."""
    mixed = state_with_nodes(plugins=2, mixed={"nvidia.com/gpu": {"prefer": prefer}})
    nodes = [*mixed.stock.nodes.values(), typed(node("more", allocatable={"nvidia.com/gpu": "8"}))]
    fleet = Inventory.gather([CLASS], [_slice_with(2, "small"), _slice_with(4, "large")], nodes)
    world = msgspec.structs.replace(mixed, fleet=fleet, stock=mixed.stock.with_all(nodes))
    assert not answer(review_outcome(pod_restricted_to(3, "old"), world))["allowed"]
    assert answer(review_outcome(pod_restricted_to(3, "old", ownerReferences=[DAEMON_SET]), world))["allowed"]


def test_the_answer_to_a_warned_pod_awaits_its_templates():
    job = owner("Job", "j", "batch/v1")
    outcome = review_outcome(pod_restricted_to(3, "bare", ownerReferences=[job]), state_with_nodes())
    assert answer(outcome)["warnings"]
    assert outcome.record.outcome == "translated"
    assert [name for _, name in outcome.awaited_templates] == list(outcome.record.templates) != []
