"""Pods that only device plugins can serve. If no node could ever serve them, the webhook refuses them, in reviews and in files."""

import random

import msgspec
import pytest

from dra import wire
from dra.objects import DeviceClass, Node
from tests.loops import every
from tests.objects import node
from tests.webhook.admission.extended_resources import CLASS, with_mode
from tests.webhook.admission.reviews import answer, gpu_pod, review
from tests.webhook.pods import configured
from webhook.admission import decide_object
from webhook.admission import review as admission
from webhook.dialects import Outcome
from webhook.placement.plugin_requests import plugin_request
from webhook.state import StateBuilder
from webhook.state.autoscalers import POOLS, Autoscaler
from webhook.state.features import Features
from webhook.state.installed import Installed
from webhook.translate import Decision

GPU, NIC = "nvidia.com/gpu", "rdma/hca_shared_devices_a"
UNKNOWN = "example.com/thing"


def plugin_node(name, allocatable=None, capacity=None, **spec):
    amounts = {"cpu": "64"} | {key: str(amount) for key, amount in (allocatable or {}).items()}
    sizes = {key: str(amount) for key, amount in (capacity or {}).items()}
    labels = {"kubernetes.io/hostname": name}
    return node(name, allocatable=amounts, capacity=sizes, labels=labels, **spec)


def builder_with(*nodes, classes=(), installed=None, **fields):
    builder = StateBuilder(configured(mode="enforce", **fields), keys=(b"key",))
    builder.learn(features=Features(minor=37), installed=installed)
    builder.update_objects(
        [wire.convert(node, Node) for node in nodes]
        + [wire.convert(device_class, DeviceClass) for device_class in classes]
    )
    builder.settle()
    return builder


def world(*nodes, **options):
    return builder_with(*nodes, **options).state(fresh=True)


THREE_NODES = (plugin_node("small", {GPU: 4}), plugin_node("large", {GPU: 8}), plugin_node("bare"))


def pod_requesting(count, key=GPU, **spec):
    pod_ = gpu_pod(limits={key: str(count)})
    pod_["spec"] |= spec
    return pod_


def selecting_node(name):
    return {"nodeSelector": {"kubernetes.io/hostname": name}}


def response_to(obj, state):
    """Return the webhook's answer. Check that a file gets the same decision."""
    response = answer(admission.decide_review("mutate", review(obj), state))
    file_verdict = decide_object(obj, state)
    if response["allowed"]:
        assert not file_verdict.refusals
    else:
        assert [str(refusal) in response["status"]["message"] for refusal in file_verdict.refusals] == [True]
        [decision] = [decision for decision in file_verdict.decisions if decision.code.startswith("R")]
        assert (decision.container, decision.key) == ("main", GPU)
    return response


@pytest.mark.parametrize("label", POOLS)
def test_a_pod_is_warned_if_a_pool_may_grow(label):
    pooled = [plugin_node("small", {GPU: 4}), plugin_node("large", {GPU: 8})]
    pooled[0]["metadata"]["labels"][label] = "a"
    assert_warning_of_autoscaler(label, world(*pooled))
    assert refusal_message(pod_requesting(9), world(*pooled, impossible="refuse"))
    template = {"name": "t", "allocatable": {GPU: "8"}}
    assert refusal_message(pod_requesting(9), world(*pooled, nodeTemplates=[template]))
    elsewhere = {"nodeSelector": {"kubernetes.io/hostname": "large"}}
    assert refusal_message(pod_requesting(9), world(*pooled, evidence=elsewhere)), (
        "a pool counts although the configuration excludes its nodes"
    )


def test_a_pod_gets_a_warning_if_an_autoscaler_is_installed():
    assert_warning_of_autoscaler(
        "Karpenter", world(*THREE_NODES, installed=Installed(autoscalers=(Autoscaler(name="Karpenter"),)))
    )


def assert_warning_of_autoscaler(autoscaler, state):
    response = response_to(pod_requesting(9), state)
    assert response["allowed"]
    opening = f"this may never work, but an autoscaler may create another node ({autoscaler}): none of"
    assert [warning.startswith(opening) for warning in response["warnings"]].count(True) == 1


def refusal_message(obj, state):
    return response_to(obj, state).get("status", {}).get("message", "")


def test_a_request_above_the_largest_advertised_amount_is_refused():
    message = refusal_message(pod_requesting(9), world(*THREE_NODES))
    offers = "no device plugin offers more than 8 (node large)"
    assert f"container main requests 9 {GPU}, but {offers}" in message
    assert "(request at most 8 in container main) [R023]" in message
    assert other_warnings(pod_requesting(8), world(*THREE_NODES)) == []


@pytest.mark.parametrize("restriction", [selecting_node("small"), {"nodeName": "small"}], ids=["selector", "nodeName"])
def test_a_request_for_more_than_reachable_nodes_advertise_is_refused(restriction):
    message = refusal_message(pod_requesting(5, **restriction), world(*THREE_NODES))
    assert "no device plugin on a node that the pod can run on offers more than 4 (node small)" in message
    assert "node large offers 8, but the pod cannot run there (request at most 4 in container main)" in message
    assert "[R020]" in message
    assert not refusal_message(pod_requesting(4, **restriction), world(*THREE_NODES))
    assert "[R023]" in refusal_message(pod_requesting(9, **restriction), world(*THREE_NODES))


def other_warnings(obj, state):
    """Return the warnings, except the warning that a key is not translated."""
    return [warning for warning in response_to(obj, state).get("warnings", []) if "left as it is" not in warning]


NOT_REFUSED = {
    "a device is unhealthy": (pod_requesting(8), (plugin_node("a", {GPU: 7}, {GPU: 8}),), {}),
    "all devices of the largest node are unhealthy": (pod_requesting(9), (plugin_node("a", {GPU: 0}, {GPU: 8}), plugin_node("b", {GPU: 4})), {}),
    "a device plugin is starting": (pod_requesting(9), (plugin_node("a", {GPU: 0}), plugin_node("b", {GPU: 4})), {}),
    "no node advertises the resource": (pod_requesting(9), (plugin_node("a"), plugin_node("b", {GPU: 0})), {}),
    "no reachable node advertises the resource": (pod_requesting(9, **selecting_node("bare")), THREE_NODES, {}),
    "no node is known": (pod_requesting(9), (), {}),
    "a taint may be removed": (pod_requesting(8), (plugin_node("a", {GPU: 4}), plugin_node("b", {GPU: 8}, taints=[{"key": "k", "effect": "NoSchedule"}])), {}),
    "no dialect has the key": (pod_requesting(9, UNKNOWN), (plugin_node("a", {UNKNOWN: 4}),), {}),
    "a class serves the resource": (pod_requesting(9), (plugin_node("a", {GPU: 4}),), {"classes": (CLASS,)}),
    "an autoscaler can create a node": (pod_requesting(9), THREE_NODES, {"nodeTemplates": [{"name": "t", "labels": {"a": "b"}, "allocatable": {GPU: "16"}}]}),
    "another scheduler": (pod_requesting(9, schedulerName="volcano"), THREE_NODES, {}),
    "zero devices are requested": (pod_requesting(0), THREE_NODES, {}),
}  # fmt: skip


@every(("obj", "nodes", "options"), NOT_REFUSED.values())
def test_a_pod_that_may_be_served_is_not_refused(obj, nodes, options):
    state = world(*nodes, **options)
    assert response_to(obj, state)["allowed"]
    assert other_warnings(obj, state) == []


def test_an_unusable_node_template_does_not_prevent_refusal():
    small = {"name": "t", "labels": {"a": "b"}, "allocatable": {GPU: "8"}}
    installed = Installed(autoscalers=(Autoscaler(name="Karpenter"),))
    assert refusal_message(pod_requesting(9), world(*THREE_NODES, installed=installed, nodeTemplates=[small]))
    large = small | {"allocatable": {GPU: "9"}}
    assert refusal_message(pod_requesting(9, **selecting_node("large")), world(*THREE_NODES, nodeTemplates=[large]))


def test_a_new_node_may_have_devices_until_the_next_refresh():
    builder = builder_with(*THREE_NODES)
    builder.update_objects([wire.convert(plugin_node("large", {GPU: 8}, {GPU: 9}), Node)])
    assert not refusal_message(pod_requesting(9), builder.state(fresh=True))
    builder.update_objects([wire.convert(plugin_node("new"), Node)])
    assert not refusal_message(pod_requesting(10), builder.state(fresh=True))
    builder.refresh()
    assert refusal_message(pod_requesting(10), builder.state(fresh=True))


def test_a_running_pod_of_a_dump_is_not_refused():
    pending, running = [
        pod_requesting(5, nodeName="small") | {"status": {"phase": phase}} for phase in ("Pending", "Running")
    ]
    assert decide_object(pending, world(*THREE_NODES)).refusals
    assert not decide_object(running, world(*THREE_NODES)).refusals


def test_skipped_and_mirror_pods_and_stale_states_cause_no_refusal():
    state = world(*THREE_NODES)
    skipped, mirror = pod_requesting(9), pod_requesting(9, nodeName="small")
    skipped["metadata"]["labels"] = {"drawbridge.dev/skip": "true"}
    mirror["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    assert response_to(skipped, state)["allowed"]
    assert response_to(mirror, state)["allowed"]
    assert response_to(pod_requesting(9), msgspec.structs.replace(state, confirmed=False, stock=None))["allowed"]
    unread = response_to(pod_requesting(9), msgspec.structs.replace(state, incomplete=frozenset({"Node"})))
    assert unread["warnings"][0].startswith("this may never work, but some Node objects could not be read: ")


def test_mode_warn_and_impossible_warn_only_return_a_warning():
    assert response_to(pod_requesting(9), world(*THREE_NODES, impossible="warn"))["warnings"][0].startswith(
        "this can never work: none of the 3"
    )
    warned = with_mode(world(*THREE_NODES), "warn")
    response = answer(admission.decide_review("mutate", review(pod_requesting(9)), warned))
    assert response["allowed"]
    assert response["warnings"][0].startswith("drawbridge would refuse this Pod in mode enforce: none of the 3 nodes")
    obj = pod_requesting(9)
    obj["metadata"]["namespace"] = "ns"
    assert decide_object(obj, warned).warnings[1].startswith("mode enforce would refuse it: none of the 3 nodes")


def test_containers_are_added_up_as_the_scheduler_does():
    with_two_containers = pod_requesting(5)
    main = with_two_containers["spec"]["containers"][0]
    with_two_containers["spec"]["containers"].append(main | {"name": "other"})
    assert f"the pod's containers together request 10 {GPU}" in refusal_message(
        with_two_containers, world(*THREE_NODES)
    )
    with_init_container = pod_requesting(4)
    with_init_container["spec"]["initContainers"] = [main | {"name": "first"}]
    assert not refusal_message(with_init_container, world(*THREE_NODES))
    with_init_container["spec"]["initContainers"][0]["restartPolicy"] = "Always"
    assert (
        f"the pod's containers together request 9 {GPU}"
        in answer(review_outcome(with_init_container, world(*THREE_NODES)))["status"]["message"]
    )


def review_outcome(obj, state):
    return admission.decide_review("mutate", review(obj), state)


def test_a_request_removed_by_translation_is_not_counted():
    with_two_containers = pod_requesting(5)
    with_two_containers["spec"]["containers"].append(with_two_containers["spec"]["containers"][0] | {"name": "other"})
    decision = Decision("", "other", "nvidia", GPU, Outcome.TRANSLATED, "")
    request = plugin_request(with_two_containers, world(*THREE_NODES), (decision,))
    assert (request.amounts, request.subjects) == ({GPU: 5 * 10**9}, {GPU: "container main"})
    two_decisions = (decision, msgspec.structs.replace(decision, container="main"))
    assert plugin_request(with_two_containers, world(*THREE_NODES), two_decisions) is None


def test_a_node_needs_enough_of_both_requested_names():
    pod_ = gpu_pod(limits={GPU: "8", NIC: "2"})
    nodes = plugin_node("a", {GPU: 8, NIC: 1}), plugin_node("b", {GPU: 4, NIC: 2})
    message = refusal_message(pod_, world(*nodes))
    assert f"no node that the pod can run on has enough of each; node a has 8 {GPU} and 1 {NIC} [R020]" in message
    assert not refusal_message(pod_, world(*nodes, plugin_node("c", {GPU: 8, NIC: 2})))
    assert not refusal_message(pod_, world(*nodes, plugin_node("c", {GPU: 8})))


def test_a_full_fleet_is_reported_if_usage_is_known():
    state = world(*THREE_NODES)
    # Amounts in use are in billionths.
    use = {"large": {GPU: 6 * 10**9}, "small": {GPU: 10**9}}
    full_state = msgspec.structs.replace(state, uses=use)
    waits = f"this pod waits until devices are free: container main requests 4 {GPU}, but the device plugin on node small has 3 left, and no other node has more"
    assert other_warnings(pod_requesting(4), full_state) == [waits]
    assert waits in decide_object(pod_requesting(4), full_state).warnings
    assert other_warnings(pod_requesting(3), full_state) == []
    assert refusal_message(pod_requesting(9), full_state)


@every("seed", range(60))
def test_a_pod_is_refused_exactly_if_every_kubelet_refuses(seed):
    rng = random.Random(f"plugins {seed}")
    nodes = []
    for name in "abc":
        sizes = {key: rng.randrange(1, 9) for key in (GPU, NIC)}
        has_unhealthy_device = rng.random() < 0.3
        nodes.append(
            plugin_node(
                name, {GPU: sizes[GPU] - (1 if has_unhealthy_device and sizes[GPU] > 1 else 0), NIC: sizes[NIC]}, sizes
            )
        )
    amounts = {key: rng.randrange(1, 10) for key in rng.sample((GPU, NIC), rng.randrange(1, 3))}
    restriction = selecting_node(rng.choice("abc")) if rng.random() < 0.5 else {}
    obj = gpu_pod(limits={key: str(amount) for key, amount in amounts.items()})
    obj["spec"] |= restriction
    reachable = [node for node in nodes if not restriction or node["metadata"]["labels"] == restriction["nodeSelector"]]
    is_admitted_by_kubelet = any(
        all(int(node["status"]["capacity"][key]) >= amount for key, amount in amounts.items()) for node in reachable
    )
    assert answer(review_outcome(obj, world(*nodes)))["allowed"] is is_admitted_by_kubelet
