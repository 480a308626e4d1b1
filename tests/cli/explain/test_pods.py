"""`drawbridge explain pod`: who has to act next in each phase of a pod, and what blocks it."""

import pytest

from analysis.explain.lone_claims import lone_claim_story
from analysis.loading import Unread, reading_of
from tests.cli.explain.scenes import (
    DRIVER,
    claim,
    explain,
    explain_json,
    fleet,
    full_fleet,
    held_claim,
    in_phase,
    pod,
    with_device_status,
)
from tests.dra.policy.quota_samples import scope, scoped_quota
from tests.objects import RESOURCE_API, claim_template, device_class, exactly, node, obj, owner, resource_slice
from webhook.state import Features

TEMPLATE = claim_template("drawbridge-1", exactly())
WHOLE_GPU = {"resources": {"limits": {"nvidia.com/gpu": 1}}}
GPU_FLEET = [
    node("n"),
    device_class("gpu.nvidia.com", "device.driver == 'gpu.nvidia.com'"),
    resource_slice("s", "gpu-0", driver="gpu.nvidia.com", pool="n", nodeName="n"),
]
FRACTIONAL_GPU = {"resources": {"limits": {"nvidia.com/gpu": "1.5"}}}
TAINT = {"key": "ill", "effect": "NoSchedule"}
TAINT_RULE = obj("DeviceTaintRule", "broken", RESOURCE_API, deviceSelector={"driver": DRIVER}, taint=TAINT)


IMAGE_PULL_BACK_OFF = {"name": "main", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "403 Forbidden"}}}
CRASH_LOOP = {"name": "main", "restartCount": 80, "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": {"reason": "Error", "message": "no such model"}}}  # fmt: skip
CONTAINER_CREATING = {"name": "main", "state": {"waiting": {"reason": "ContainerCreating"}}}


def pod_with_template(template):
    """Return a pod that requests a claim from this template."""
    return pod("p", resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": template}])


def with_claim_created(waiting_pod, claim_name):
    """Return the pod with a status that names the claim created for it."""
    statuses = [{"name": "gpu", "resourceClaimName": claim_name}]
    return in_phase(waiting_pod, "Pending", resourceClaimStatuses=statuses)


def pod_of_default_scheduler(**spec):
    return pod("p", "c", schedulerName="default-scheduler", **spec)


def tainted_if_node(obj):
    return obj | {"spec": {"taints": [{"key": "gpu", "effect": "NoSchedule"}]}} if obj["kind"] == "Node" else obj


def unstored_pod(**container):
    """Return a pod that no server has stored yet, with these fields of its container."""
    obj = pod("p", containers=[{"name": "main", "image": "train", **container}])
    del obj["metadata"]["uid"]
    return obj


def warning(reason, message, at="2026-11-20T10:00:00Z", uid="pod-p", writer="kubelet"):
    """Return an event about the pod."""
    about = {"kind": "Pod", "namespace": "default", "name": "p", "uid": uid}
    fields = {"involvedObject": about, "type": "Warning", "reason": reason, "message": message, "lastTimestamp": at}
    fields["source"] = {"component": writer}
    return obj("Event", f"{reason}-{uid}", namespace="default") | fields


BOUND = [*fleet(), with_device_status(held_claim("c", "p")), in_phase(pod("p", "c", nodeName="n0"), "Pending")]
NO_SANDBOX = warning("FailedCreatePodSandBox", 'no runtime for "nvidia" is configured')
NOT_PREPARED = warning("FailedPrepareDynamicResources", "driver is gone")

UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "cannot allocate all claims",
}

# For each state of a pod: the objects, the actor that has to act next ("" for none), and a part of the message.
# The bridge is the part of drawbridge that allocates devices.
NEXT_STEPS = {
    "runs": ([*fleet(), with_device_status(held_claim("c", "p")), in_phase(pod("p", "c", nodeName="n0"), "Running")], "", "it runs on n0"),
    "has ended": ([*fleet(), claim("c"), in_phase(pod("p", "c", nodeName="n0"), "Succeeded")], "", "it has ended (Succeeded)"),
    "waits for devices in use": ([*full_fleet(), claim("c"), pod("p", "c")], "bridge", "pod default/p1 holds gpu-1 of node n0 since 2026-11-20T01:00:00Z; 1 more node could serve it, too"),
    "is for another scheduler": ([*full_fleet(), claim("c"), pod_of_default_scheduler()], "scheduler", "pod default/p1 holds gpu-1 of node n0"),
    "fits no node": ([*fleet(), claim("c", 3), pod("p", "c")], "user", "claim c, request r requests 3 devices"),
    "requests a missing class": ([*fleet(), claim("c", class_name="none"), pod("p", "c")], "user", "claim c: DeviceClass none does not exist"),
    "fits and is not placed yet": ([*fleet(), claim("c"), pod("p", "c")], "bridge", "devices for it are free, and drawbridge has not placed it yet"),
    "fits and was refused a moment ago": ([*fleet(), claim("c"), in_phase(pod_of_default_scheduler(), "Pending", conditions=[UNSCHEDULABLE])], "scheduler", "default-scheduler has not placed it yet; it tries a refused pod again within five minutes"),
    "fits only on tainted nodes": ([*map(tainted_if_node, fleet()), claim("c"), pod("p", "c")], "user", "nodes n0, n1 could serve it, but the pod does not tolerate taint gpu:NoSchedule"),
    "fits only tainted devices": ([*fleet(), TAINT_RULE, claim("c"), pod("p", "c")], "user", "could serve it, have taint ill:NoSchedule of DeviceTaintRule broken"),
    "waits for the template controller": ([*fleet(), pod_with_template("drawbridge-1")], "template controller", "ResourceClaimTemplate drawbridge-1 does not exist"),
    "waits for the author's template": ([*fleet(), pod_with_template("own")], "user", "ResourceClaimTemplate own does not exist"),
    "copies a translated pod": ([*fleet(), pod_with_template(f"drawbridge-{'0' * 32}")], "user", "a copy of a translated pod"),
    "waits for the claim controller": ([*fleet(), TEMPLATE, pod_with_template("drawbridge-1")], "claim controller", "kube-controller-manager has not created claim gpu yet"),
    "names a claim of another owner": ([*fleet(), TEMPLATE, claim("c"), with_claim_created(pod_with_template("drawbridge-1"), "c")], "bridge", "claim c was not created"),
    "names a missing claim": ([*fleet(), pod("p", "c")], "user", "ResourceClaim c does not exist"),
    "has scheduling gates": ([*fleet(), claim("c"), pod("p", "c", schedulingGates=[{"name": "kueue"}])], "user", "scheduling gates hold it: kueue"),
    "is being deleted on a node": ([*fleet(), held_claim("c", "p"), in_phase(pod("p", "c", nodeName="n0") | {"metadata": {**pod("p")["metadata"], "deletionTimestamp": "2026-11-20T09:00:00Z"}}, "Running")], "kubelet", "it is being deleted since 2026-11-20T09:00:00Z"),
    "names a claim being deleted": ([*fleet(), claim("c") | {"metadata": claim("c")["metadata"] | {"deletionTimestamp": "2026-11-20T09:00:00Z"}}, pod("p", "c")], "claim controller", "claim default/c is being deleted"),
    "is not bound yet": ([*fleet(), held_claim("c", "p"), pod("p", "c")], "bridge", "its claims are allocated; drawbridge has not bound it yet"),
    "waits for prepared devices": ([*fleet(), held_claim("c", "p"), in_phase(pod("p", "c", nodeName="n0"), "Pending")], "driver", f"waits for {DRIVER} to prepare its devices"),
    "has a device that is not ready": ([*fleet(), with_device_status(held_claim("c", "p"), status="False", reason="Broken"), in_phase(pod("p", "c", nodeName="n0"), "Pending")], "driver", "gpu-0 reports Ready=False (Broken)"),
    "has an image that cannot be pulled": ([*fleet(), held_claim("c", "p"), in_phase(pod("p", "c", nodeName="n0"), "Pending", containerStatuses=[IMAGE_PULL_BACK_OFF])], "kubelet", "it is bound to n0, and container main: ImagePullBackOff: 403 Forbidden"),
    "restarts again and again": ([*fleet(), with_device_status(held_claim("c", "p")), in_phase(pod("p", "c", nodeName="n0"), "Running", containerStatuses=[CRASH_LOOP])], "kubelet", "container main: CrashLoopBackOff, Error after 80 restarts: no such model"),
    "is creating containers and waits for devices": ([*fleet(), held_claim("c", "p"), in_phase(pod("p", "c", nodeName="n0"), "Pending", containerStatuses=[CONTAINER_CREATING])], "driver", f"waits for {DRIVER} to prepare its devices"),
    "has prepared devices and is not started": ([*fleet(), with_device_status(held_claim("c", "p")), in_phase(pod("p", "c", nodeName="n0"), "Pending")], "kubelet", "whose kubelet starts it"),
    "has a warning of the kubelet": ([*BOUND, NO_SANDBOX], "kubelet", 'FailedCreatePodSandBox at 2026-11-20T10:00:00Z: no runtime for "nvidia"'),
    "has a newer warning of a driver": ([*BOUND, NOT_PREPARED, warning("FailedMount", "m", "2026-11-20T09:00:00Z")], "driver", "driver is gone"),
    "has warnings of a former pod and a former state of its node": ([*BOUND, warning("FailedMount", "m", uid="other"), warning("NodeNotReady", "n", writer="node-controller")], "kubelet", "whose kubelet starts it"),
    "would be refused": ([*fleet(), unstored_pod(**FRACTIONAL_GPU)], "webhook", "it would be refused:"),
    "would be translated": ([*GPU_FLEET, unstored_pod(**WHOLE_GPU)], "webhook", "no claim replaces nvidia.com/gpu yet; as the webhook would admit it, n has room for it"),
    "has a phase, so a server has stored it": ([*GPU_FLEET, in_phase(unstored_pod(**WHOLE_GPU), "Pending")], "bridge", "no claim replaces nvidia.com/gpu: it waits for a node"),
    "requests nothing": ([*fleet(), pod("p")], "bridge", "it has no claims"),
}  # fmt: skip


@pytest.mark.parametrize("case", NEXT_STEPS)
def test_explain_says_which_actor_has_to_act_next(case, tmp_path):
    objects, actor, message = NEXT_STEPS[case]
    code, answer = explain_json(tmp_path, "pod p", *objects)
    assert code == 0
    assert answer["pod"]["state"]["reasons"][0]["actor"] == actor
    assert message in answer["pod"]["state"]["reasons"][0]["text"]
    result = explain(tmp_path, "pod p", *objects)
    assert result.exit_code == 0
    assert answer["pod"]["state"]["reasons"][0]["text"] in result.stdout


def test_of_the_holders_one_whose_end_suffices_is_named(tmp_path):
    _, answer = explain_json(tmp_path, "pod p", *full_fleet(), claim("c"), pod("p", "c"))
    prospect = answer["pod"]["prospect"]
    assert prospect["outlook"] == "full"  # the devices that the pod could use are in use
    [group] = prospect["groups"]
    assert group["nodes"] == ["n0", "n1"]
    assert [stage["stage"] for stage in group["stages"]] == ["in use"]
    assert prospect["wayOut"]["node"] == "n0"
    assert prospect["wayOut"]["obstacles"] == [
        {
            "kind": "holder",
            "subject": "Pod/default/p1",
            "cost": 4,
            "actor": "",
            "text": "pod default/p1 holds gpu-1 of node n0 since 2026-11-20T01:00:00Z",
            "remedy": "",
        }
    ]


@pytest.mark.parametrize(
    ("count", "degree", "subjects"),
    [(2, "waits", ["Pod/default/p0", "Pod/default/p1"]), (3, "never", ["Pod/default/p"])],
)
def test_all_holders_in_the_way_are_named(count, degree, subjects, tmp_path):
    """A node has two devices, so a claim for three is its author's fault."""
    _, answer = explain_json(tmp_path, "pod p", *full_fleet(), claim("c", count), pod("p", "c"))
    way_out = answer["pod"]["prospect"]["wayOut"]
    assert (way_out["degree"], [obstacle["subject"] for obstacle in way_out["obstacles"]]) == (degree, subjects)


def test_a_reservation_for_a_deleted_pod_is_reported(tmp_path):
    claim_of_deleted_pod = held_claim("c0", "gone")
    objects = [*full_fleet("c0"), claim_of_deleted_pod, claim("c"), pod("p", "c")]
    code, answer = explain_json(tmp_path, "claim c0", *objects)
    assert code == 0
    assert answer["claim"]["claim"]["remarks"] == [
        "claim default/c0 is reserved for pod gone, which has ended or no longer exists"
    ]
    text = explain(tmp_path, "pod p", *objects).stdout
    assert "claim default/c0 holds gpu-0 of node n0 since 2026-11-20T08:00:00Z, and no pod uses it" in text


def test_without_any_pods_no_consumer_is_reported_as_missing(tmp_path):
    _, answer = explain_json(tmp_path, "claim c", *fleet(), held_claim("c", "p"))
    assert answer["claim"]["claim"]["remarks"] == []


def test_without_access_to_all_pods_no_consumer_is_reported_missing():
    unread = [Unread("pods", "forbidden")]
    scene = reading_of([*fleet(), held_claim("c", "p"), pod("another")], Features(minor=37), unread=unread)
    story = lone_claim_story("default/c", scene)
    assert story.claim.remarks == ()
    assert [consumer.phase for consumer in story.claim.reserved_for] == ["unknown"]
    scene_with_all_pods = reading_of([*fleet(), held_claim("c", "p"), pod("another")], Features(minor=37))
    assert "no longer exists" in lone_claim_story("default/c", scene_with_all_pods).claim.remarks[0]


def test_the_quota_of_the_namespace_shows_used_and_requested_amounts(tmp_path):
    objects = [
        *fleet(),
        scoped_quota({"gpu/devices": "1"}, name="few", namespace="default"),
        held_claim("a", "q"),
        in_phase(pod("q", "a", nodeName="n0"), "Running"),
        claim("c"),
        pod("p", "c"),
    ]
    _, answer = explain_json(tmp_path, "pod p", *objects)
    [line] = answer["pod"]["quota"]
    assert line == {
        "line": "default/few: gpu/devices",
        "hard": "1",
        "used": "1",
        "requested": "1",
        "remaining": "0",
        "exceeded": True,
    }
    text = explain(tmp_path, "pod p", *objects).stdout
    assert "default/few: gpu/devices: 1 of 1 used, 1 more requested: too much, at most 0 can be requested" in text


def test_only_the_quota_lines_that_limit_the_pod_are_shown(tmp_path):
    """A line of a quota limits the amount of one key."""
    quotas = [
        scoped_quota({"gpu/devices": 2, "other/devices": 3}, name="q", namespace="default"),
        scoped_quota({"gpu/devices": 4}, scope("In", "high"), name="high", namespace="default"),
        scoped_quota({"gpu/devices": 5}, scope("NotIn", "high"), name="rest", namespace="default"),
        scoped_quota({"gpu/devices": 6}, name="elsewhere", namespace="elsewhere"),
    ]
    _, answer = explain_json(tmp_path, "pod p", *fleet(), *quotas, claim("c"), pod("p", "c"))
    assert [(line["line"], line["requested"], line["hard"]) for line in answer["pod"]["quota"]] == [
        ("default/q: gpu/devices", "1", "2"),
        ("default/q: other/devices", "0", "3"),
        ("default/rest: gpu/devices", "1", "5"),
    ]


def test_the_message_of_the_scheduler_is_shown_with_its_time(tmp_path):
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/2 nodes",
        "lastTransitionTime": "2026-11-20T07:00:00Z",
    }
    waiting_pod = in_phase(pod("p", "c"), "Pending", conditions=[condition])
    text = explain(tmp_path, "pod p", *full_fleet(), claim("c"), waiting_pod).stdout
    assert "PodScheduled=False (Unschedulable): 0/2 nodes since 2026-11-20T07:00:00Z" in text


def test_owners_are_listed_once_even_in_a_cycle(tmp_path):
    replica_set, deployment = (
        obj(kind, name, "apps/v1", namespace="default", ownerReferences=[owner(*controller, "apps/v1")])
        for kind, name, *controller in (("ReplicaSet", "r", "Deployment", "d"), ("Deployment", "d", "ReplicaSet", "r"))
    )
    owned_pod = pod("p") | {
        "metadata": pod("p")["metadata"] | {"ownerReferences": [owner("ReplicaSet", "r", "apps/v1")]}
    }
    _, answer = explain_json(tmp_path, "pod p", owned_pod, replica_set, deployment)
    assert answer["pod"]["owners"] == ["ReplicaSet r", "Deployment d"]


def test_the_interface_of_a_network_driver_is_shown(tmp_path):
    prepared_claim = with_device_status(held_claim("c", "p"))
    [device_status] = prepared_claim["status"]["devices"]
    device_status["networkData"] = {
        "interfaceName": "net1",
        "ips": ["10.0.0.3/24"],
        "hardwareAddress": "02:00:00:00:00:01",
    }
    device_status["data"] = {"rate": 100}
    objects = (*fleet(), prepared_claim, in_phase(pod("p", "c", nodeName="n0"), "Running"))
    _, answer = explain_json(tmp_path, "pod/p", *objects)
    [network_device] = answer["pod"]["claims"][0]["devices"]
    assert network_device["network"] == "net1 10.0.0.3/24 02:00:00:00:00:01"
    assert (network_device["data"], network_device["sharing"]) == ({"rate": 100}, "exclusive")
    assert "network net1 10.0.0.3/24" in explain(tmp_path, "pod/p", *objects).stdout


def test_an_interface_that_a_driver_made_for_a_claim_is_no_share(tmp_path):
    provisioned = held_claim("c", "p", share={"bandwidth": "10G"})
    [result] = provisioned["status"]["allocation"]["devices"]["results"]
    device_status = {name: result[name] for name in ("driver", "pool", "device", "shareID")}
    provisioned["status"]["devices"] = [device_status | {"networkData": {"interfaceName": "net1"}}]
    objects = (*fleet(), provisioned, in_phase(pod("p", "c", nodeName="n0"), "Running"))
    _, answer = explain_json(tmp_path, "pod/p", *objects)
    assert answer["pod"]["claims"][0]["devices"][0]["sharing"] == "interface"
    assert ", interface, 10G bandwidth" in explain(tmp_path, "pod/p", *objects).stdout


@pytest.mark.parametrize(
    ("share", "counters", "sharing", "text"),
    [
        ({"memory": "10Gi"}, [], "share", ", share of "),
        (None, [{"counterSet": "gpu", "counters": {"memory": {"value": "1"}}}], "partition", ", partition"),
    ],
)
def test_how_a_claim_has_its_device_is_shown(share, counters, sharing, text, tmp_path):
    first_device = {"name": "gpu-0"} | ({"consumesCounters": counters} if counters else {})
    class_, node_, _ = fleet(1, 1)
    devices = resource_slice("n0-gpus", first_device, driver=DRIVER, pool="n0", nodeName="n0")
    running = in_phase(pod("p", "c", nodeName="n0"), "Running")
    objects = (class_, node_, devices, held_claim("c", "p", share=share), running)
    _, answer = explain_json(tmp_path, "pod/p", *objects)
    assert answer["pod"]["claims"][0]["devices"][0]["sharing"] == sharing
    assert text in explain(tmp_path, "pod/p", *objects).stdout
