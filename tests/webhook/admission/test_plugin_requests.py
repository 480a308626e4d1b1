"""Pods that only device plugins can serve: refused if no node could ever serve them, at the webhook and in files."""

import random

import msgspec
import pytest

from dra import wire
from dra.objects import DeviceClass, Node
from tests.objects import node
from tests.webhook.admission.extended_resources import CLASS, with_mode
from tests.webhook.admission.reviews import answer, gpu_pod, review
from tests.webhook.pods import configured
from webhook.admission import decide_object
from webhook.admission import review as admission
from webhook.admission.plugin_requests import plugin_request
from webhook.dialects import Outcome
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


def built(*nodes, classes=(), installed=None, **fields):
    builder = StateBuilder(configured(mode="enforce", **fields), keys=(b"key",))
    builder.learn(features=Features(minor=37), installed=installed)
    builder.update_objects(
        [wire.convert(node, Node) for node in nodes]
        + [wire.convert(device_class, DeviceClass) for device_class in classes]
    )
    builder.settle()
    return builder


def world(*nodes, **more):
    return built(*nodes, **more).state(fresh=True)


TWO = (plugin_node("small", {GPU: 4}), plugin_node("large", {GPU: 8}), plugin_node("bare"))


def requesting(count, key=GPU, **spec):
    made = gpu_pod(limits={key: str(count)})
    made["spec"] |= spec
    return made


def on(name):
    return {"nodeSelector": {"kubernetes.io/hostname": name}}


def response_to(obj, state):
    """Return the webhook's answer, after a check that a file gets the same decision."""
    there = answer(admission.decide_review("mutate", review(obj), state))
    here = decide_object(obj, state)
    if there["allowed"]:
        assert not here.refusals
    else:
        assert [str(refusal) in there["status"]["message"] for refusal in here.refusals] == [True]
        [decision] = [decision for decision in here.decisions if decision.code.startswith("R")]
        assert (decision.container, decision.key) == ("main", GPU)
    return there


@pytest.mark.parametrize("label", POOLS)
def test_where_a_managed_pool_may_grow_a_pod_is_warned(label):
    pooled = [plugin_node("small", {GPU: 4}), plugin_node("large", {GPU: 8})]
    pooled[0]["metadata"]["labels"][label] = "a"
    warned_of(label, world(*pooled))
    assert refused(requesting(9), world(*pooled, impossible="refuse"))
    template = {"name": "t", "allocatable": {GPU: "8"}}
    assert refused(requesting(9), world(*pooled, nodeTemplates=[template]))
    elsewhere = {"nodeSelector": {"kubernetes.io/hostname": "large"}}
    assert refused(requesting(9), world(*pooled, evidence=elsewhere)), (
        "a node that does not count says nothing of pools"
    )


def test_where_an_autoscaler_is_installed_a_pod_is_warned():
    warned_of("Karpenter", world(*TWO, installed=Installed(autoscalers=(Autoscaler(name="Karpenter"),))))


def warned_of(autoscaler, state):
    there = response_to(requesting(9), state)
    assert there["allowed"]
    opening = f"this may never work, but an autoscaler may create another node ({autoscaler}): none of"
    assert [warning.startswith(opening) for warning in there["warnings"]].count(True) == 1


def refused(obj, state):
    return response_to(obj, state).get("status", {}).get("message", "")


def test_more_than_the_largest_node_advertises_is_refused():
    message = refused(requesting(9), world(*TWO))
    offers = "no device plugin offers more than 8 (node large)"
    assert (
        f"none of the 3 nodes can serve this pod, even with all devices free: container main requests 9 {GPU}, but {offers}"
        in message
    )
    assert "(request at most 8 in container main) [R023]" in message
    assert other_warnings(requesting(8), world(*TWO)) == []


@pytest.mark.parametrize("place", [on("small"), {"nodeName": "small"}], ids=["selector", "nodeName"])
def test_more_than_reachable_nodes_advertise_is_refused(place):
    message = refused(requesting(5, **place), world(*TWO))
    assert "no device plugin on a node that the pod can run on offers more than 4 (node small)" in message
    assert "node large offers 8, but the pod cannot run there (request at most 4 in container main)" in message
    assert "[R020]" in message
    assert not refused(requesting(4, **place), world(*TWO))
    assert "[R023]" in refused(requesting(9, **place), world(*TWO))


def other_warnings(obj, state):
    """Return the warnings except the one about the left key."""
    return [warning for warning in response_to(obj, state).get("warnings", []) if "left as it is" not in warning]


SILENT = {
    "a device is unhealthy": (requesting(8), (plugin_node("a", {GPU: 7}, {GPU: 8}),), {}),
    "all devices are": (requesting(9), (plugin_node("a", {GPU: 0}, {GPU: 8}), plugin_node("b", {GPU: 4})), {}),
    "a plugin begins": (requesting(9), (plugin_node("a", {GPU: 0}), plugin_node("b", {GPU: 4})), {}),
    "no node hands it out": (requesting(9), (plugin_node("a"), plugin_node("b", {GPU: 0})), {}),
    "none that it can reach does": (requesting(9, **on("bare")), TWO, {}),
    "no node is known": (requesting(9), (), {}),
    "a taint may go": (requesting(8), (plugin_node("a", {GPU: 4}), plugin_node("b", {GPU: 8}, taints=[{"key": "k", "effect": "NoSchedule"}])), {}),
    "no table has it": (requesting(9, UNKNOWN), (plugin_node("a", {UNKNOWN: 4}),), {}),
    "a class serves it": (requesting(9), (plugin_node("a", {GPU: 4}),), {"classes": (CLASS,)}),
    "a node can be made": (requesting(9), TWO, {"nodeTemplates": [{"name": "t", "labels": {"a": "b"}, "allocatable": {GPU: "16"}}]}),
    "another scheduler": (requesting(9, schedulerName="volcano"), TWO, {}),
    "none": (requesting(0), TWO, {}),
}  # fmt: skip


@pytest.mark.parametrize(("obj", "nodes", "more"), SILENT.values(), ids=SILENT)
def test_a_pod_that_may_be_served_is_not_refused(obj, nodes, more):
    state = world(*nodes, **more)
    assert response_to(obj, state)["allowed"]
    assert other_warnings(obj, state) == []


def test_an_unusable_node_template_does_not_prevent_refusal():
    small = {"name": "t", "labels": {"a": "b"}, "allocatable": {GPU: "8"}}
    seen = Installed(autoscalers=(Autoscaler(name="Karpenter"),))
    assert refused(requesting(9), world(*TWO, installed=seen, nodeTemplates=[small]))
    large = small | {"allocatable": {GPU: "9"}}
    assert refused(requesting(9, **on("large")), world(*TWO, nodeTemplates=[large]))


def test_a_node_counts_as_soon_as_it_is_read():
    builder = built(*TWO)
    builder.update_objects([wire.convert(plugin_node("large", {GPU: 8}, {GPU: 9}), Node)])
    assert not refused(requesting(9), builder.state(fresh=True))
    builder.update_objects([wire.convert(plugin_node("new"), Node)])
    assert not refused(requesting(10), builder.state(fresh=True))
    builder.refresh()
    assert refused(requesting(10), builder.state(fresh=True))


def test_a_running_pod_of_a_dump_is_not_refused():
    pending, running = [
        requesting(5, nodeName="small") | {"status": {"phase": phase}} for phase in ("Pending", "Running")
    ]
    assert decide_object(pending, world(*TWO)).refusals
    assert not decide_object(running, world(*TWO)).refusals


def test_skipped_pods_mirror_pods_and_old_copies_are_not_judged():
    state = world(*TWO)
    skipped, mirror = requesting(9), requesting(9, nodeName="small")
    skipped["metadata"]["labels"] = {"drawbridge.dev/skip": "true"}
    mirror["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    assert response_to(skipped, state)["allowed"]
    assert response_to(mirror, state)["allowed"]
    assert response_to(requesting(9), msgspec.structs.replace(state, confirmed=False, stock=None))["allowed"]
    unread = response_to(requesting(9), msgspec.structs.replace(state, incomplete=frozenset({"Node"})))
    assert unread["warnings"][0].startswith("this may never work, but some Node objects could not be read: ")


def test_modes_and_impossible_warn_as_for_claims():
    assert response_to(requesting(9), world(*TWO, impossible="warn"))["warnings"][0].startswith(
        "this can never work: none of the 3"
    )
    warned = with_mode(world(*TWO), "warn")
    there = answer(admission.decide_review("mutate", review(requesting(9)), warned))
    assert there["allowed"]
    assert there["warnings"][0].startswith("drawbridge would refuse this Pod in mode enforce: none of the 3 nodes")
    obj = requesting(9)
    obj["metadata"]["namespace"] = "ns"
    assert decide_object(obj, warned).warnings[1].startswith("mode enforce would refuse it: none of the 3 nodes")


def test_containers_count_as_the_scheduler_counts_them():
    several = requesting(5)
    main = several["spec"]["containers"][0]
    several["spec"]["containers"].append(main | {"name": "other"})
    assert f"the pod's containers together request 10 {GPU}" in refused(several, world(*TWO))
    first = requesting(4)
    first["spec"]["initContainers"] = [main | {"name": "first"}]
    assert not refused(first, world(*TWO))
    first["spec"]["initContainers"][0]["restartPolicy"] = "Always"
    assert f"the pod's containers together request 9 {GPU}" in answer(mutated(first, world(*TWO)))["status"]["message"]


def mutated(obj, state):
    return admission.decide_review("mutate", review(obj), state)


def test_a_request_removed_by_translation_is_not_counted():
    several = requesting(5)
    several["spec"]["containers"].append(several["spec"]["containers"][0] | {"name": "other"})
    taken = Decision("", "other", "nvidia", GPU, Outcome.TRANSLATED, "")
    request = plugin_request(several, world(*TWO), (taken,))
    assert (request.amounts, request.subjects) == ({GPU: 5 * 10**9}, {GPU: "container main"})
    both = (taken, msgspec.structs.replace(taken, container="main"))
    assert plugin_request(several, world(*TWO), both) is None


def test_a_node_needs_enough_of_both_requested_names():
    both = gpu_pod(limits={GPU: "8", NIC: "2"})
    apart = plugin_node("a", {GPU: 8, NIC: 1}), plugin_node("b", {GPU: 4, NIC: 2})
    message = refused(both, world(*apart))
    assert f"no node that the pod can run on has enough of each; node a has 8 {GPU} and 1 {NIC} [R020]" in message
    assert not refused(both, world(*apart, plugin_node("c", {GPU: 8, NIC: 2})))
    assert not refused(both, world(*apart, plugin_node("c", {GPU: 8})))


def test_a_full_fleet_is_reported_if_usage_is_known():
    state = world(*TWO)
    used = {"large": {GPU: 6 * 10**9}, "small": {GPU: 10**9}}
    full = msgspec.structs.replace(state, uses=used)
    waits = f"this pod waits until devices are free: container main requests 4 {GPU}, but the device plugin on node small has 3 left, and no other node has more"
    assert other_warnings(requesting(4), full) == [waits]
    assert waits in decide_object(requesting(4), full).warnings
    assert other_warnings(requesting(3), full) == []
    assert refused(requesting(9), full)


def test_a_workload_is_warned_about_its_pods():
    template = requesting(9)
    kind = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "namespace": "ns"}}
    workload = kind | {"spec": {"template": {key: template[key] for key in ("metadata", "spec")}}}
    request = review(workload, group="apps", resource="deployments")
    warning = answer(admission.decide_review("validate", request, world(*TWO)))["warnings"][0]
    assert warning.startswith(
        "its pods will be refused: none of the 3 nodes can serve this pod, even with all devices free: "
    )
    assert "[R023]" in str(decide_object(workload, world(*TWO)).refusals[0])


@pytest.mark.parametrize("seed", range(60))
def test_a_pod_is_refused_if_no_kubelet_admits_it(seed):
    rng = random.Random(f"plugins {seed}")
    nodes = []
    for name in "abc":
        sizes = {key: rng.randrange(1, 9) for key in (GPU, NIC)}
        ill = rng.random() < 0.3
        nodes.append(
            plugin_node(name, {GPU: sizes[GPU] - (1 if ill and sizes[GPU] > 1 else 0), NIC: sizes[NIC]}, sizes)
        )
    amounts = {key: rng.randrange(1, 10) for key in rng.sample((GPU, NIC), rng.randrange(1, 3))}
    place = on(rng.choice("abc")) if rng.random() < 0.5 else {}
    obj = gpu_pod(limits={key: str(amount) for key, amount in amounts.items()})
    obj["spec"] |= place
    there = [node for node in nodes if not place or node["metadata"]["labels"] == place["nodeSelector"]]
    could = any(all(int(obj["status"]["capacity"][key]) >= amount for key, amount in amounts.items()) for obj in there)
    assert answer(mutated(obj, world(*nodes)))["allowed"] is could
