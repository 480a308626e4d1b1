"""Why a pod waits where devices are in use as well: what has nothing to do with devices is said first, and no claim is blamed in its place."""

import json

import pytest
from msgspec.structs import replace

from analysis.explain import pod_story
from analysis.loading import Unread, reading_of
from tests.cli.explain.scenes import (
    DRIVER,
    claim,
    device_class,
    explain,
    explain_json,
    fleet,
    full,
    node,
    phased,
    pod,
)
from webhook.state import Configuration, Features

ROOM = {"cpu": "8", "memory": "32Gi", "pods": "10"}
ANTI = {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "kubernetes.io/hostname"}]}


def big(*objects, **spec):
    """The same, and each node has room for eight cores."""
    return [node(obj["metadata"]["name"], allocatable=ROOM) | spec if obj["kind"] == "Node" else obj for obj in objects]


def waiting_pod(cpu="1", message="", **spec):
    """A pending pod with a claim, and the message of its scheduler."""
    container = {"name": "main", "image": "train", "resources": {"requests": {"cpu": cpu}}}
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return phased(pod("p", "c", containers=[container], **spec), "Pending", conditions=[condition] if message else [])


def selecting(*terms):
    required = {"nodeSelectorTerms": [{"matchExpressions": list(terms)}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


NOT_MATCHED = "2 node(s) didn't match Pod's node affinity/selector"
FIRST = "0/2 nodes are available: "
FULL = "2 cannot allocate all claims. no new claims to deallocate, preemption: 0/2 nodes are available"
# What keeps the pod beside devices: what it is, what is changed on the nodes, and what is said.
KEPT = {
    "node selector": (waiting_pod(nodeSelector={"disk": "ssd"}), {}, f"{NOT_MATCHED}: disk=ssd"),
    "node affinity": (waiting_pod(affinity=selecting({"key": "disk", "operator": "Exists"})), {}, NOT_MATCHED),
    "node name in affinity": (waiting_pod(affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n9"]}]}]}}}), {}, NOT_MATCHED),
    "taints": (waiting_pod(), {"spec": {"taints": [{"key": "gpu", "value": "x", "effect": "NoExecute"}]}}, "2 node(s) had untolerated taint(s): gpu=x:NoExecute"),
    "unschedulable": (waiting_pod(), {"spec": {"unschedulable": True}}, "2 node(s) were unschedulable"),
    "cpu": (waiting_pod("500"), {}, "2 Insufficient cpu"),
    "several": (waiting_pod("500", nodeSelector={"disk": "ssd"}), {"spec": {"unschedulable": True}}, f"2 node(s) were unschedulable and {NOT_MATCHED[2:]}: disk=ssd and Insufficient cpu"),
}  # fmt: skip
SAID = {
    "host ports": "2 node(s) didn't have free ports for the requested pod ports",
    "pod affinity": "2 node(s) didn't match pod affinity rules",
    "anti-affinity of others": "2 node(s) didn't satisfy existing pods anti-affinity rules",
    "topology spread": "1 node(s) didn't match pod topology spread constraints, 1 cannot allocate all claims",
    "missing PersistentVolumeClaim": 'persistentvolumeclaim "data" not found. not found',
    "unbound PersistentVolumeClaim": "pod has unbound immediate PersistentVolumeClaims. not found",
    "volume of another zone": "2 node(s) had no available volume zone",
    "volume node affinity": "2 node(s) didn't match PersistentVolume's node affinity",
    "volumes": "2 node(s) exceed max volume count",
}


def told_of(tmp_path, waiting, *objects):
    code, answer = explain_json(tmp_path, "pod p", *objects, claim("c"), waiting)
    assert code == 0
    return answer["pod"]["standing"]["message"], answer["pod"]["prospect"]


@pytest.mark.parametrize("case", KEPT)
def test_a_reason_that_excludes_every_node_is_reported_without_blocking_claims(case, tmp_path):
    waiting, nodes, reason = KEPT[case]
    message, prospect = told_of(tmp_path, waiting, *big(*full(), **nodes))
    assert message == f"no node could serve it, even with all devices free: {reason}"
    assert (prospect["outlook"], prospect["blockers"], prospect["nearest"]) == ("never", [], "")
    shown = explain(tmp_path, "pod p", *big(*full(), **nodes), claim("c"), waiting).stdout
    assert "freeing this one is enough" not in shown
    assert "would fit once" not in shown


@pytest.mark.parametrize("case", SAID)
def test_a_scheduler_reason_not_evaluated_here_is_quoted_without_a_prediction(case, tmp_path):
    waiting = waiting_pod(message=f"{FIRST}{SAID[case]}. {FULL}", schedulerName="default-scheduler")
    message, prospect = told_of(tmp_path, waiting, *big(*full()))
    assert message.startswith(f"default-scheduler says: {FIRST}{SAID[case]}")
    assert [blocker["alone"] for blocker in prospect["blockers"] if blocker["alone"] is True] == []
    assert prospect["nearest"] == ""


@pytest.mark.parametrize(
    "spec",
    [
        {"affinity": {"podAntiAffinity": ANTI}},
        {"topologySpreadConstraints": [{"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]},
        {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]},
    ],
)
def test_an_end_is_promised_once_the_scheduler_has_passed_all_that_is_not_judged_here(spec, tmp_path):
    for message, alone in (("", None), (f"{FIRST}{FULL}", True)):
        _, prospect = told_of(tmp_path, waiting_pod(message=message, **spec), *big(*full()))
        assert {blocker["alone"] for blocker in prospect["blockers"]} == {alone}


@pytest.mark.parametrize(
    "spec", [{"schedulingGates": [{"name": "later"}]}, {"schedulerName": "drawbrigde"}, {"resourceClaims": [{"name": "r", "resourceClaimName": "c"}, {"name": "s", "resourceClaimName": "lost"}]}]
)  # fmt: skip
def test_where_its_author_has_to_act_first_no_end_of_a_claim_is_enough(spec, tmp_path):
    _, prospect = told_of(tmp_path, waiting_pod(**spec), *big(*full()))
    assert [blocker["alone"] for blocker in prospect["blockers"] if blocker["alone"] is not None] == []
    assert prospect["nearest"] == ""


def test_a_class_without_devices_is_told_in_words_with_what_there_is(tmp_path):
    mig = device_class("mig.nvidia.com", selectors=[{"cel": {"expression": "device.driver == 'gpu.nvidia.com'"}}])
    code, answer = explain_json(
        tmp_path, "pod p", *big(*full()), mig, claim("c", class_name="mig.nvidia.com"), waiting_pod()
    )
    story = answer["pod"]
    assert code == 0
    assert "asks for class mig.nvidia.com, and no node has MIG devices" in story["standing"]["message"]
    assert "device.driver" not in json.dumps(story["standing"]) + story["prospect"]["message"]
    assert story["prospect"]["nearest"] == "it would fit with class gpu"


def test_files_are_judged_behind_the_fence_of_the_configuration(tmp_path):
    bridge = {"schedulerName": "drawbridge", "drivers": [DRIVER], "fence": True}
    config = {"apiVersion": "drawbridge.dev/v1alpha1", "kind": "DrawbridgeConfiguration", "bridge": bridge}
    path = tmp_path / "config.yaml"
    path.write_text(json.dumps(config))
    shown = explain(
        tmp_path, "pod p", *big(*fleet(2, 2)), claim("c"), waiting_pod(), more=("--config", str(path))
    ).stdout
    assert "are tainted" in shown
    assert "fit now\n" not in shown


def test_only_holders_on_nodes_that_it_may_go_to_are_in_the_way(tmp_path):
    objects = big(*full())
    ssd = next(obj for obj in objects if obj["kind"] == "Node" and obj["metadata"]["name"] == "n1")
    ssd["metadata"] = ssd["metadata"] | {"labels": {"disk": "ssd"}}
    message, prospect = told_of(tmp_path, waiting_pod(nodeSelector={"disk": "ssd"}), *objects)
    assert message == (
        "0 of 2 nodes can serve the claims: 1 request r: 2 of 2 devices are in use; "
        "1 node(s) didn't match Pod's node affinity/selector"
    )
    assert [(blocker["node"], blocker["alone"]) for blocker in prospect["blockers"]] == [("n1", True), ("n1", True)]
    assert prospect["nearest"] == "nearest is n1: would fit once default/c2 or default/c3 ends"


@pytest.mark.parametrize(("cpu", "alone"), [("4", [False, True]), ("8", [False, False])])
def test_a_holders_end_counts_with_the_cores_that_come_free_with_it(cpu, alone, tmp_path):
    """Eight cores, of which pods have 1 and 5: beside the first four fit, next to the second none do."""
    objects = big(*full())
    for obj in objects:
        if obj["kind"] == "Pod":
            cores = "1" if obj["metadata"]["name"] in ("p0", "p2") else "5"
            obj["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cores}}
    waiting = waiting_pod(cpu)
    message, prospect = told_of(tmp_path, waiting, *objects)
    assert message.startswith("2 Insufficient cpu; besides, 0 of 2 nodes can serve the claims: ")
    assert [blocker["alone"] for blocker in prospect["blockers"] if blocker["node"] == "n0"] == alone


def test_a_scheduler_that_no_pod_has_heard_of_is_named(tmp_path):
    message, _ = told_of(tmp_path, waiting_pod(schedulerName="volcano"), *full())
    assert message == "no scheduler is named volcano: none has tried a pod that names it"
    placed = phased(pod("other", schedulerName="volcano", nodeName="n0"), "Running")
    message, _ = told_of(tmp_path, waiting_pod(schedulerName="volcano"), *full(), placed)
    assert message.startswith("0 of 2 nodes")


def test_a_quota_that_lets_no_more_claims_in_is_named_where_a_claim_is_not_made(tmp_path):
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "t", "namespace": "default"},
        "spec": {"spec": claim("any")["spec"]},
    }
    key = "gpu.deviceclass.resource.k8s.io/devices"
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "few", "namespace": "default"},
        "status": {"hard": {key: "2", "count/resourceclaims.resource.k8s.io": "10"}, "used": {key: "2"}},
    }
    waiting = pod("p", resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "t"}])
    message, _ = told_of(tmp_path, waiting, *full(), template, quota)
    assert message == f"no claim gpu can be created: ResourceQuota few has {key} used up, 2 of 2"


def test_devices_are_not_reported_as_free_when_not_all_claims_can_be_read():
    scene = reading_of([*big(*fleet(2, 2)), claim("c"), waiting_pod(message=f"{FIRST}{FULL}")], Features())
    assert pod_story("default/p", scene, Configuration()).prospect.outlook == "fits"
    narrow = replace(scene, unread=(Unread("resourceclaims.resource.k8s.io", "forbidden"),))
    prospect = pod_story("default/p", narrow, Configuration()).prospect
    assert prospect.outlook == "undecided"
    assert prospect.message.startswith("the claims of other namespaces may not be read")
    assert "2 cannot allocate all claims" in prospect.message


@pytest.mark.parametrize(
    ("count", "used", "pinned", "message"),
    [
        (1, 4, {}, "devices for it are free, and default-scheduler has not placed it yet"),
        (3, 1, {}, "device plugins have room for it on n1, and default-scheduler has not placed it yet"),
        (3, 2, {}, "0 of 2 nodes can serve the claims: 1 request container-0-request-0: 2 of the 3 devices requested"),
        (5, 0, {}, "no node could serve it, even with all devices free: 0 of 2 nodes can serve the claims"),
        (3, 0, {"nodeSelector": {"to": "n0"}}, "no node could serve it, even with all devices free: 0 of 2 nodes"),
    ],
)
def test_a_pod_that_asks_by_name_stands_where_each_node_puts_it(count, used, pinned, message):
    """n0 has two devices, and n1 a device plugin with four."""
    limits = lambda number: [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": str(number)}}}]  # noqa: E731
    there = node("n1", allocatable=ROOM | {"nvidia.com/gpu": "4"})
    devices = [obj for obj in fleet(1, 2) if obj["kind"] != "DeviceClass"]
    devices = [device | {"metadata": device["metadata"] | {"labels": {"to": "n0"}}} for device in devices]
    served = device_class(extendedResourceName="nvidia.com/gpu")
    hog = phased(pod("hog", containers=limits(used), nodeName="n1"), "Running")
    waiting = waiting_pod(
        message="0/2 nodes are available", resourceClaims=[], schedulerName="default-scheduler", **pinned
    )
    waiting["spec"]["containers"] = limits(count)
    scene = reading_of([*devices, there, served, hog, waiting], Features(minor=37))
    assert pod_story("default/p", scene, Configuration()).next_step.message.startswith(message)


@pytest.mark.parametrize("mode", ["enforce", "warn", "observe", "off"])
@pytest.mark.parametrize("created", [True, False])
@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("nvdia.com/gpu", "no node has nvdia.com/gpu: did you mean nvidia.com/gpu?"),
        ("example.com/frobnicator", "no node has example.com/frobnicator: no DeviceClass serves it"),
    ],
)
def test_a_pod_with_a_misspelt_name_is_not_said_to_be_placed(mode, created, key, message):
    team = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default", "labels": {"drawbridge.dev/mode": mode}}}  # fmt: skip
    waiting = waiting_pod(message="0/1 nodes are available: 1 Insufficient nvdia.com/gpu" * created, resourceClaims=[])
    waiting["spec"]["containers"][0]["resources"] = {"limits": {key: "1"}}
    if not created:
        waiting["metadata"].pop("uid", None)
    scene = reading_of([team, node("n0"), device_class("gpu.nvidia.com"), waiting], Features())
    standing = pod_story("default/p", scene, Configuration()).next_step
    assert (standing.keeper, standing.message) == ("its author", message)


@pytest.mark.parametrize("mode", ["warn", "observe", "off"])
def test_a_pod_in_words_that_nothing_serves_waits_for_a_node_whatever_the_mode(mode):
    team = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default", "labels": {"drawbridge.dev/mode": mode}}}  # fmt: skip
    waiting = waiting_pod(message="0/1 nodes are available: 1 Insufficient nvidia.com/gpu", resourceClaims=[])
    waiting["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    scene = reading_of([team, node("n0"), device_class("gpu.nvidia.com"), waiting], Features())
    standing = pod_story("default/p", scene, Configuration()).next_step
    assert (
        standing.message
        == "no claim replaces nvidia.com/gpu: it waits for a node that has nvidia.com/gpu, and no node does"
    )


def test_a_pod_in_words_that_nothing_serves_is_not_said_to_wait_for_a_device_plugin(tmp_path):
    """The driver is gone and so are its slices; no node has a device plugin."""
    team = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default", "labels": {"drawbridge.dev/mode": "enforce"}}}  # fmt: skip
    waiting = waiting_pod(message="0/1 nodes are available: 1 Insufficient nvidia.com/gpu", resourceClaims=[])
    waiting["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    scene = reading_of([team, node("n0"), device_class("gpu.nvidia.com"), waiting], Features())
    standing = pod_story("default/p", scene, Configuration()).next_step
    assert standing.keeper == "driver"
    assert standing.message.startswith("no node has nvidia.com/gpu, and no claim can be created for it: ")
