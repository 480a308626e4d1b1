"""Why a pod waits while devices are in use. A claim is a blocker if the pod could use the claim's devices.

No claim is a blocker if no node could serve the pod even with all devices free, for example because of its node selector.
"""

import json
import re
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from analysis.explain import pod_story
from analysis.loading import Unread, reading_of
from tests import objects as api_objects
from tests.cli.explain.scenes import (
    DRIVER,
    claim,
    device_class,
    explain,
    explain_json,
    fleet,
    full_fleet,
    in_phase,
    node,
    pod,
)
from tests.loops import every
from tests.objects import exactly, obj
from webhook.state import Features

NODE_ALLOCATABLE = {"cpu": "8", "memory": "32Gi", "pods": "10"}
POD_ANTI_AFFINITY = {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "kubernetes.io/hostname"}]}


def with_large_nodes(*objects, **node_fields):
    """Return the objects; each node has eight cores and these fields."""
    return [
        node(obj["metadata"]["name"], allocatable=NODE_ALLOCATABLE) | node_fields if obj["kind"] == "Node" else obj
        for obj in objects
    ]


def waiting_pod(cpu="1", message="", **spec):
    """Return a pending pod with a claim and this message of its scheduler."""
    container = {"name": "main", "image": "train", "resources": {"requests": {"cpu": cpu}}}
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return in_phase(pod("p", "c", containers=[container], **spec), "Pending", conditions=[condition] if message else [])


def node_affinity(*terms):
    selector = {"nodeSelectorTerms": [{"matchExpressions": list(terms)}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": selector}}


NO_LABELS = "no node matches the pod's nodeAffinity: the pod waits until one does"
NO_NODE_AVAILABLE = "0/2 nodes are available: "
NO_CLAIM_ALLOCATED = "2 cannot allocate all claims. no new claims to deallocate, preemption: 0/2 nodes are available"
# Pods that no node can serve for reasons other than devices: the pod, changed fields of the nodes, and the reason.
EXCLUDED_PODS = {
    "node selector": (waiting_pod(nodeSelector={"disk": "ssd"}), {}, "no node has disk=ssd: the pod waits until one does; no node has this label"),
    "node affinity": (waiting_pod(affinity=node_affinity({"key": "disk", "operator": "Exists"})), {}, NO_LABELS),
    "node name in affinity": (waiting_pod(affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n9"]}]}]}}}), {}, NO_LABELS),
    "taints": (waiting_pod(), {"spec": {"taints": [{"key": "gpu", "value": "x", "effect": "NoExecute"}]}}, "nodes n0, n1 could serve it, but the pod does not tolerate taint gpu=x:NoExecute"),
        "insufficient cpu": (waiting_pod("500"), {}, "it requests 500 cpu, and the largest node that could serve it has 8"),
    "several reasons": (waiting_pod("500", nodeSelector={"disk": "ssd"}), {"spec": {"unschedulable": True}}, "no node has disk=ssd: the pod waits until one does; no node has this label"),
}  # fmt: skip
# Reasons in a scheduler's message that `explain` quotes, but does not evaluate.
UNEVALUATED_REASONS = {
    "host ports": "2 node(s) didn't have free ports for the requested pod ports",
    "pod affinity": "2 node(s) didn't match pod affinity rules",
    "anti-affinity of other pods": "2 node(s) didn't satisfy existing pods anti-affinity rules",
    "topology spread": "1 node(s) didn't match pod topology spread constraints, 1 cannot allocate all claims",
    "missing PersistentVolumeClaim": 'persistentvolumeclaim "data" not found. not found',
    "unbound PersistentVolumeClaim": "pod has unbound immediate PersistentVolumeClaims. not found",
    "volume of another zone": "2 node(s) had no available volume zone",
    "volume node affinity": "2 node(s) didn't match PersistentVolume's node affinity",
    "volume count": "2 node(s) exceed max volume count",
}


def message_and_prospect(tmp_path, pending_pod, *objects):
    """Return why the pod waits, and what would have to change, as `explain` prints them in JSON."""
    code, answer = explain_json(tmp_path, "pod p", *objects, claim("c"), pending_pod)
    assert code == 0
    return answer["pod"]["state"]["reasons"][0]["text"], answer["pod"]["prospect"]


@pytest.mark.parametrize("case", EXCLUDED_PODS)
def test_no_claim_blocks_a_pod_that_no_node_can_serve(case, tmp_path):
    pending_pod, node_fields, reason = EXCLUDED_PODS[case]
    message, prospect = message_and_prospect(tmp_path, pending_pod, *with_large_nodes(*full_fleet(), **node_fields))
    assert message.endswith(reason)
    assert {obstacle["actor"] for obstacle in prospect["wayOut"]["obstacles"]} == {"user"}
    text = explain(tmp_path, "pod p", *with_large_nodes(*full_fleet(), **node_fields), claim("c"), pending_pod).stdout
    assert not re.search("in the way .*default/p[0-3]", text)


@pytest.mark.parametrize("case", UNEVALUATED_REASONS)
def test_an_unevaluated_scheduler_reason_is_quoted_without_a_prediction(case, tmp_path):
    scheduler_message = f"{NO_NODE_AVAILABLE}{UNEVALUATED_REASONS[case]}. {NO_CLAIM_ALLOCATED}"
    pending_pod = waiting_pod(message=scheduler_message, schedulerName="default-scheduler")
    message, prospect = message_and_prospect(tmp_path, pending_pod, *with_large_nodes(*full_fleet()))
    assert message.startswith(f"default-scheduler says: {NO_NODE_AVAILABLE}{UNEVALUATED_REASONS[case]}")
    assert [obstacle["remedy"] for obstacle in prospect["wayOut"]["obstacles"]] == [""]
    assert prospect["wayOut"]["remedy"] == ""


@pytest.mark.parametrize(
    "spec",
    [
        {"affinity": {"podAntiAffinity": POD_ANTI_AFFINITY}},
        {"topologySpreadConstraints": [{"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]},
        {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]},
    ],
)
def test_freeing_a_claim_suffices_once_other_scheduler_filters_passed(spec, tmp_path):
    """Without a message of the scheduler, it is unknown whether freeing a claim suffices."""
    objects = [obj for obj in with_large_nodes(*full_fleet()) if obj["metadata"]["name"] != "p0"]
    for message, remedy in (("", ""), (f"{NO_NODE_AVAILABLE}{NO_CLAIM_ALLOCATED}", "delete claim default/c0")):
        _, prospect = message_and_prospect(tmp_path, waiting_pod(message=message, **spec), *objects)
        assert prospect["wayOut"]["remedy"] == remedy


@pytest.mark.parametrize(
    "spec", [{"schedulingGates": [{"name": "later"}]}, {"schedulerName": "drawbrigde"}, {"resourceClaims": [{"name": "r", "resourceClaimName": "c"}, {"name": "s", "resourceClaimName": "lost"}]}]
)  # fmt: skip
def test_whether_freeing_suffices_is_unknown_while_the_author_must_act(spec, tmp_path):
    _, prospect = message_and_prospect(tmp_path, waiting_pod(**spec), *with_large_nodes(*full_fleet()))
    way_out = prospect["wayOut"]  # there is none while a claim is missing
    assert way_out is None or {way_out["remedy"], way_out["obstacles"][0]["remedy"]} == {""}


def test_for_a_class_without_devices_no_class_of_another_driver_is_suggested(tmp_path):
    mig = device_class("mig.nvidia.com", selectors=[{"cel": {"expression": "device.driver == 'gpu.nvidia.com'"}}])
    code, answer = explain_json(
        tmp_path, "pod p", *with_large_nodes(*full_fleet()), mig, claim("c", class_name="mig.nvidia.com"), waiting_pod()
    )
    pod_answer = answer["pod"]
    assert code == 0
    assert "requests class mig.nvidia.com, but no node has MIG devices" in pod_answer["state"]["reasons"][0]["text"]
    assert (
        "device.driver" not in json.dumps(pod_answer["state"]["reasons"][0]) + pod_answer["prospect"]["reason"]["text"]
    )
    [remedy] = pod_answer["state"]["reasons"][0]["remedies"]
    assert "DeviceClass gpu" not in remedy, "the class gpu has devices of another driver"


def test_a_fence_in_the_configuration_blocks_pods_in_files(tmp_path):
    """A fence is a DeviceTaintRule that keeps other schedulers from the devices of the bridge. The files contain no such rule."""
    bridge = {"schedulerName": "drawbridge", "drivers": [DRIVER], "fence": True}
    config = {"apiVersion": "drawbridge.dev/v1alpha1", "kind": "DrawbridgeConfiguration", "bridge": bridge}
    path = tmp_path / "config.yaml"
    path.write_text(json.dumps(config))
    text = explain(
        tmp_path, "pod p", *with_large_nodes(*fleet(2, 2)), claim("c"), waiting_pod(), options=("--config", str(path))
    ).stdout
    assert "have a taint" in text
    assert "fit now\n" not in text


CORDONED = [obj | {"spec": {"unschedulable": True}} if obj["kind"] == "Node" else obj for obj in fleet(1, 2)]
NO_SUCH_ATTRIBUTE = {"cel": {"expression": "device.attributes['gpu.example.com'].nope == 'x'"}}
FAULTY = api_objects.claim("c", exactly("gpu", selectors=[NO_SUCH_ATTRIBUTE]), uid="claim-c")
KEYED = {"name": "c", "image": "i", "resources": {"limits": {"a.example/x": 1}}}


@pytest.mark.parametrize(
    ("all_objects", "line"),
    [
        ([*CORDONED, claim("c"), pod("p", "c")], "degree      needs a change"),
        ([*fleet(1, 2), claim("c"), pod("p", "c", nodeSelector={"a": "b"})], "degree      needs a change"),
        ([*fleet(1, 2), claim("c"), pod("p", "c", containers=[KEYED])], "degree      never"),
        ([*fleet(1, 2), FAULTY, pod("p", "c")], "outlook     an error ends the scheduler's search"),
    ],
    ids=("cordoned node", "label of no node", "second key", "selector that ends with an error"),
)
def test_no_line_says_that_a_pod_fits_which_fits_nowhere(all_objects, line, tmp_path):
    text = explain(tmp_path, "pod p", *all_objects).stdout
    assert f"  {line}" in text
    assert "fit now" not in text


def test_only_claims_on_eligible_nodes_block_the_pod(tmp_path):
    objects = with_large_nodes(*full_fleet())
    ssd_node = next(obj for obj in objects if obj["kind"] == "Node" and obj["metadata"]["name"] == "n1")
    ssd_node["metadata"] = ssd_node["metadata"] | {"labels": {"disk": "ssd"}}
    message, prospect = message_and_prospect(tmp_path, waiting_pod(nodeSelector={"disk": "ssd"}), *objects)
    assert message == prospect["wayOut"]["text"] == "pod default/p3 holds gpu-1 of node n1 since 2026-11-20T03:00:00Z"
    assert [obstacle["subject"] for obstacle in prospect["wayOut"]["obstacles"]] == ["Pod/default/p3"]


@pytest.mark.parametrize(("cpu", "kinds"), [("4", ["holder"]), ("8", ["amount", "holder"])])
def test_freeing_a_claim_also_frees_the_cpu_of_its_pod(cpu, kinds, tmp_path):
    """A node has eight cores, and its two pods request 1 and 5."""
    objects = with_large_nodes(*full_fleet())
    for stored in objects:
        if stored["kind"] == "Pod":
            cores = "1" if stored["metadata"]["name"] in ("p0", "p2") else "5"
            stored["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cores}}
    pending_pod = waiting_pod(cpu)
    _, prospect = message_and_prospect(tmp_path, pending_pod, *objects)
    assert sorted(obstacle["kind"] for obstacle in prospect["wayOut"]["obstacles"]) == kinds
    assert prospect["otherReasons"][0]["text"] == "Insufficient cpu"


def test_a_scheduler_name_that_no_scheduler_serves_is_reported(tmp_path):
    message, _ = message_and_prospect(tmp_path, waiting_pod(schedulerName="volcano"), *full_fleet())
    assert message == "no scheduler called volcano has tried to place it"
    bound_pod = in_phase(pod("other", schedulerName="volcano", nodeName="n0"), "Running")
    message, _ = message_and_prospect(tmp_path, waiting_pod(schedulerName="volcano"), *full_fleet(), bound_pod)
    assert message.startswith("pod default/p1 holds gpu-1 of node n0")


@pytest.mark.parametrize(("seconds", "is_reported"), [(5, False), (60, True)])
def test_a_scheduler_has_half_a_minute_to_try_a_pod(seconds, is_reported, tmp_path):
    young_pod = waiting_pod(schedulerName="volcano")
    created = datetime.now(UTC) - timedelta(seconds=seconds)
    young_pod["metadata"]["creationTimestamp"] = created.strftime("%Y-%m-%dT%H:%M:%SZ")
    message, _ = message_and_prospect(tmp_path, young_pod, *full_fleet())
    assert ("no scheduler called volcano" in message) is is_reported


@pytest.mark.parametrize("class_name", ["gpu", "other"])
def test_an_exhausted_quota_explains_a_missing_claim(class_name, tmp_path):
    """A quota of another class does not."""
    template = obj("ResourceClaimTemplate", "t", "resource.k8s.io/v1", namespace="default", spec=claim("any")["spec"])
    key = f"{class_name}.deviceclass.resource.k8s.io/devices"
    quota = obj(
        "ResourceQuota",
        "few",
        namespace="default",
        status={"hard": {key: "2", "count/resourceclaims.resource.k8s.io": "10"}, "used": {key: "2"}},
    )
    pending_pod = pod("p", resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "t"}])
    message, _ = message_and_prospect(tmp_path, pending_pod, *full_fleet(), template, quota)
    no_room = f"no claim gpu can be created: ResourceQuota default/few has {key} used up, 2 of 2"
    assert (message == no_room) is (class_name == "gpu")


def test_without_access_to_all_claims_the_outlook_is_undecided():
    pending_pod = waiting_pod(message=f"{NO_NODE_AVAILABLE}{NO_CLAIM_ALLOCATED}")
    scene = reading_of([*with_large_nodes(*fleet(2, 2)), claim("c"), pending_pod], Features())
    assert pod_story("default/p", scene).prospect.outlook == "fits"
    limited_scene = replace(scene, unread=(Unread("resourceclaims.resource.k8s.io", "forbidden"),))
    prospect = pod_story("default/p", limited_scene).prospect
    assert prospect.outlook == "undecided"
    assert prospect.reason.text.startswith("the claims of other namespaces cannot be read")
    assert "2 cannot allocate all claims" in prospect.reason.text


@pytest.mark.parametrize(
    ("count", "used_by_plugin", "pod_fields", "message"),
    [
        (1, 4, {}, "devices for it are free"),
        (3, 1, {}, "device plugins have room for it on n1, and default-scheduler has not placed it yet"),
        (
            3,
            2,
            {},
            "the pods on node n1 leave too little nvidia.com/gpu, of which pod default/hog requests the most",
        ),
        (5, 0, {}, "it requests 5 nvidia.com/gpu, and the largest node that could serve it has 4"),
        (
            3,
            0,
            {"nodeSelector": {"to": "n0"}},
            "none of the 2 nodes can serve this pod, even with all devices free",
        ),
    ],
)
def test_an_extended_resource_is_counted_on_driver_and_plugin_nodes(count, used_by_plugin, pod_fields, message):
    """Node n0 has a driver with two devices, and node n1 has a device plugin with four."""
    containers_with = lambda number: [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": str(number)}}}]  # noqa: E731
    plugin_node = node("n1", allocatable=NODE_ALLOCATABLE | {"nvidia.com/gpu": "4"})
    node_and_slice = [obj for obj in fleet(1, 2) if obj["kind"] != "DeviceClass"]
    node_and_slice = [obj | {"metadata": obj["metadata"] | {"labels": {"to": "n0"}}} for obj in node_and_slice]
    gpu_class = device_class(extendedResourceName="nvidia.com/gpu")
    plugin_pod = in_phase(pod("hog", containers=containers_with(used_by_plugin), nodeName="n1"), "Running")
    pending_pod = waiting_pod(
        message="0/2 nodes are available", resourceClaims=[], schedulerName="default-scheduler", **pod_fields
    )
    pending_pod["spec"]["containers"] = containers_with(count)
    scene = reading_of([*node_and_slice, plugin_node, gpu_class, plugin_pod, pending_pod], Features(minor=37))
    assert pod_story("default/p", scene).state.reasons[0].text.startswith(message)


def reason_for_key(key, mode, message="0/1 nodes are available", *, is_created=True):
    """Return why a pod with this key waits. A class has the name of a driver, but no node has a device of it or a device plugin."""
    namespace = api_objects.namespace("default", labels={"drawbridge.dev/mode": mode})
    pending_pod = waiting_pod(message=message * is_created, resourceClaims=[])
    pending_pod["spec"]["containers"][0]["resources"] = {"limits": {key: "1"}}
    if not is_created:
        pending_pod["metadata"].pop("uid", None)
    scene = reading_of([namespace, node("n0"), device_class("gpu.nvidia.com"), pending_pod], Features())
    return pod_story("default/p", scene).state.reasons[0]


@every("mode", ["enforce", "warn", "observe", "off"])
@every("is_created", [True, False])
@every(
    ("key", "message"),
    [
        ("nvdia.com/gpu", "no node has nvdia.com/gpu: did you mean nvidia.com/gpu?"),
        ("example.com/frobnicator", "no node has example.com/frobnicator: no DeviceClass serves it"),
    ],
)
def test_a_pod_with_an_unknown_key_waits_for_its_author(mode, is_created, key, message):
    reason = reason_for_key(key, mode, is_created=is_created)
    assert (reason.actor, reason.text) == ("user", message)


@pytest.mark.parametrize("mode", ["enforce", "warn", "observe", "off"])
def test_an_unserved_key_waits_for_the_driver_in_mode_enforce_and_else_for_plugin_nodes(mode):
    reason = reason_for_key("nvidia.com/gpu", mode, "0/1 nodes are available: 1 Insufficient nvidia.com/gpu")
    assert (reason.actor == "driver") is (mode == "enforce")
    beginning = (
        "no node has nvidia.com/gpu, and no claim" if mode == "enforce" else "no claim replaces nvidia.com/gpu: "
    )
    assert reason.text.startswith(beginning)
