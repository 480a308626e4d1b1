"""Pods in a cluster with device plugins, DRA drivers and an autoscaler."""

import base64
import json

import msgspec
import pytest

from tests.objects import node, typed, workload
from tests.webhook.admission.pods_with_claims import review_outcome, slice_of, state_with_plugin_node, workload_outcome
from tests.webhook.admission.reviews import CLASS, ENFORCE, NODE, SLICE, answer, gpu_pod, review
from tests.webhook.pods import configured
from webhook.admission import decide_object
from webhook.admission import review as admission
from webhook.state import Configuration
from webhook.state.inventory import Inventory

# Three nodes publish GPUs of the driver; on the node `old`, the device plugin has 16.
SLICES = [SLICE, slice_of("m"), slice_of("o")]
OTHER_NODES = [typed(node("m")), typed(node("o")), typed(node("old", allocatable={"nvidia.com/gpu": "16"}))]


def test_a_pod_that_only_device_plugins_serve_is_not_translated():
    """No node with a DRA driver has sixteen GPUs, but a node with the device plugin has."""
    mixed = msgspec.structs.replace(ENFORCE, fleet=Inventory.gather([CLASS], SLICES, [NODE, *OTHER_NODES]))
    forged = gpu_pod(limits={"nvidia.com/gpu": "16"}, annotations={"drawbridge.dev/devices": "[]"})
    outcome = review_outcome(forged, mixed)
    response = answer(outcome)
    assert response["allowed"]
    assert "node old still serves nvidia.com/gpu" in response["warnings"][0]
    assert (outcome.record.outcome, {decision.outcome for decision in outcome.record.decisions}) == ("left", {"left"})
    [removal] = json.loads(base64.b64decode(response["patch"]))
    assert removal["path"].startswith("/metadata/annotations"), "the forged annotation stays on the pod"
    assert "left as it is: node old still serves" in " ".join(answer(workload_outcome(forged, mixed))["warnings"])
    assert answer(review_outcome(gpu_pod(limits={"nvidia.com/gpu": "2"}), mixed))["patch"], (
        "a pod that a DRA node can serve is not translated"
    )
    file_verdict = decide_object(forged | {"metadata": {"name": "p", "namespace": "ns"}}, mixed)
    assert not file_verdict.refusals, "a file gets another decision than the pod"
    assert {decision.outcome for decision in file_verdict.decisions} == {"left"}


def in_autoscaled_pool(world, **changes):
    """Put the nodes into a pool that an autoscaler manages, and change settings of the configuration."""
    nodes = []
    for existing in world.fleet.nodes.values():
        metadata = msgspec.structs.replace(existing.metadata, labels={"cloud.google.com/gke-nodepool": "a"})
        nodes.append(msgspec.structs.replace(existing, metadata=metadata))
    fleet = Inventory.gather([CLASS], SLICES, nodes)
    file = msgspec.structs.replace(world.configuration.file, **changes)
    return msgspec.structs.replace(world, fleet=fleet, configuration=Configuration(file))


@pytest.mark.parametrize("count", [16, 5])
def test_a_pod_waits_for_an_autoscaler(count):
    pod_ = gpu_pod(limits={"nvidia.com/gpu": str(count)})
    autoscaled = in_autoscaled_pool(ENFORCE)
    response = answer(review_outcome(pod_, autoscaled))
    assert "patch" in response
    assert "autoscaler may create another node (cloud.google.com/gke-nodepool)" in response["warnings"][0]
    assert "autoscaler" in " ".join(answer(workload_outcome(pod_, autoscaled))["warnings"])
    verdict = decide_object(pod_ | {"metadata": {"name": "p", "namespace": "ns"}}, autoscaled)
    assert verdict.templates
    assert not verdict.refusals
    assert [(decision.outcome, decision.code, decision.container) for decision in verdict.decisions] == [
        ("translated", "R023", "main")
    ]
    assert not answer(review_outcome(pod_, in_autoscaled_pool(ENFORCE, impossible="refuse")))["allowed"]
    small_templates = configured(
        nodeTemplates=[{"name": "t", "allocatable": {"nvidia.com/gpu": "4"}}]
    ).file.node_templates
    assert not answer(review_outcome(pod_, in_autoscaled_pool(ENFORCE, node_templates=small_templates)))["allowed"], (
        "the pod is admitted although no declared node template has enough devices"
    )


def test_a_missing_class_is_refused_even_with_an_autoscaler():
    autoscaled = in_autoscaled_pool(ENFORCE)
    absent = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "absent"}}]}}
    claim = {"kind": "ResourceClaim", "metadata": {"name": "c"}, "spec": absent}
    body = review(claim, resource="resourceclaims", group="resource.k8s.io")
    assert (
        "DeviceClass absent does not exist"
        in answer(admission.decide_review("validate", body, autoscaled))["status"]["message"]
    )


@pytest.mark.parametrize("impossible", ["auto", "warn"])
def test_a_device_plugin_is_preferred_to_a_waiting_claim(impossible):
    autoscaled = msgspec.structs.replace(
        in_autoscaled_pool(state_with_plugin_node(), impossible=impossible), stock=ENFORCE.stock
    )
    response = answer(review_outcome(gpu_pod(limits={"nvidia.com/gpu": "16"}), autoscaled))
    assert "patch" not in response
    assert "node old still serves nvidia.com/gpu" in response["warnings"][0]


def test_a_pod_impossible_for_both_mechanisms_is_refused():
    mixed = msgspec.structs.replace(ENFORCE, fleet=Inventory.gather([CLASS], SLICES, [NODE, *OTHER_NODES]))
    mixed = msgspec.structs.replace(mixed, stock=mixed.stock.with_all(OTHER_NODES))
    pod_ = gpu_pod(limits={"nvidia.com/gpu": "17"})
    message = answer(review_outcome(pod_, mixed))["status"]["message"]
    assert "requests 17 devices of class" in message
    assert "more than 16 (node old)" in message
    assert len(decide_object(pod_, mixed).refusals) == 2
    assert "its pods will be refused" in " ".join(answer(workload_outcome(pod_, mixed))["warnings"])


def test_plugin_keys_and_claims_are_judged_together():
    mixed = state_with_plugin_node()
    message = answer(review_outcome(gpu_pod(limits={"nvidia.com/gpu": "2", "rdma/hca": "2"}), mixed))["status"][
        "message"
    ]
    assert message.count("container main requests 2 rdma/hca, but no device plugin offers more than 1 (node old)") == 1
    assert "nvidia.com/gpu" not in message


@pytest.mark.parametrize(("count", "refused"), [("16", False), ("17", True)])
def test_a_daemon_set_is_refused_only_if_no_node_serves(count, refused):
    daemon_set = workload("DaemonSet", "d", gpu_pod(limits={"nvidia.com/gpu": count})["spec"])
    assert bool(decide_object(daemon_set, state_with_plugin_node()).refusals) is refused


@pytest.mark.parametrize(("count", "allowed"), [("16", True), ("17", False)])
def test_a_pod_for_plugin_nodes_is_judged_by_their_plugins(count, allowed):
    mixed = state_with_plugin_node()
    pod = gpu_pod(limits={"nvidia.com/gpu": count})
    pod["spec"]["nodeSelector"] = {"of": "old"}
    assert answer(review_outcome(pod, mixed))["allowed"] is allowed
    assert bool(decide_object(pod, mixed).refusals) is not allowed
