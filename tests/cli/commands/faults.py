"""A healthy fleet, and the objects of each fault that `drawbridge doctor` reports."""

from datetime import UTC, datetime, timedelta

from analysis.doctor import diagnose, survey
from tests import objects
from tests.allocator.service.sidecar import DRIVER, claim, device_class, gpus, node, pod
from webhook.claims import taint_rule, template

# The finalizer that a claim has while it is allocated.
FINALIZER = "resource.kubernetes.io/delete-protection"
BRIDGE_SETTINGS = {"schedulerName": "drawbridge", "drivers": [DRIVER], "fence": True}
CONFIGURATION = {"apiVersion": "drawbridge.dev/v1alpha1", "kind": "DrawbridgeConfiguration", "bridge": BRIDGE_SETTINGS}
# A class, and a node with two GPUs.
FLEET = [device_class(), node("n0"), gpus("n0", 2)]


def allocated_claim(name, *pods, device="gpu-0", **fields):
    """An allocated claim that is reserved for these pods. `fields` are those of the allocation's result."""
    result = {"request": "r", "driver": DRIVER, "pool": "n0", "device": device} | fields
    consumers = [{"resource": "pods", "name": consumer, "uid": f"pod-{consumer}"} for consumer in pods]
    obj = claim(name) | {"status": {"allocation": {"devices": {"results": [result]}}, "reservedFor": consumers}}
    obj["metadata"]["finalizers"] = [FINALIZER]
    return obj


def claim_of_pod(name, owner):
    obj = claim(name)
    reference = {"apiVersion": "v1", "kind": "Pod", "name": owner, "uid": f"pod-{owner}", "controller": True}
    obj["metadata"]["ownerReferences"] = [reference]
    return obj


def claim_with_finalizer(name):
    obj = claim(name)
    obj["metadata"]["finalizers"] = [FINALIZER]
    return obj


def unowned_claim(name, minutes=60, **metadata):
    """A claim without an owner that was created this many minutes ago."""
    obj = claim(name)
    creation_time = (datetime.now(UTC) - timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")
    obj["metadata"] |= {"creationTimestamp": creation_time} | metadata
    return obj


def lease(age):
    """The allocator's Lease, renewed this many seconds ago."""
    renewal = (datetime.now(UTC) - timedelta(seconds=age)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": "allocator-0", "leaseDurationSeconds": 15, "renewTime": renewal}
    meta = {"name": "drawbridge-allocator", "namespace": "drawbridge-system"}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec}


def unused_template():
    """A ResourceClaimTemplate of the webhook, which no object in FLEET uses."""
    spec = {"spec": claim("any")["spec"]}
    obj = template.object_of(template.name_of(spec), spec, "default")
    obj["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    return obj


def pod_without_sandbox(minutes, driver="hami-core-gpu.project-hami.io", status="False"):
    """A pod on a node that has had no sandbox for this many minutes (with status "True": a sandbox), its claim, and the driver's slice."""
    since = (datetime.now(UTC) - timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")
    bound_pod, bound_claim = pod("p", "a"), allocated_claim("a", "p")
    bound_pod["spec"]["nodeName"] = "n0"
    bound_pod["status"] = {
        "conditions": [{"type": "PodReadyToStartContainers", "status": status, "lastTransitionTime": since}]
    }
    bound_claim["status"]["allocation"]["devices"]["results"][0]["driver"] = driver
    driver_slice = gpus("n0", 2)
    driver_slice["metadata"]["name"] = "of-the-driver"
    driver_slice["spec"]["driver"] = driver
    return [driver_slice, bound_claim, bound_pod]


def audit_event(reason, message, age=60, kind="Node"):
    """An Event that an audit agent wrote this many seconds ago."""
    stamp = (datetime.now(UTC) - timedelta(seconds=age)).strftime("%Y-%m-%dT%H:%M:%SZ")
    meta = {"name": f"{reason}-{age}-{kind}".lower(), "namespace": "default"}
    fields = {
        "reason": reason,
        "message": message,
        "lastTimestamp": stamp,
        "reportingComponent": "drawbridge-node-agent",
    }
    return {"apiVersion": "v1", "kind": "Event", "metadata": meta, "involvedObject": {"kind": kind, "name": "n0"}, **fields}  # fmt: skip


def waiting_pod(*claims, **fields):
    """A pod that is unschedulable."""
    obj = pod("p", *claims, **fields)
    obj["status"] = {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}
    return obj


def tolerating_claim(name, key="drawbridge.dev/fence"):
    """A claim that tolerates a taint with this key."""
    obj = claim(name)
    [request] = obj["spec"]["devices"]["requests"]
    request["exactly"]["tolerations"] = [{"key": key, "operator": "Exists", "effect": "NoSchedule"}]
    return obj


def agent_taint_rule(age):
    """The DeviceTaintRule of an audit agent, renewed this many seconds ago."""
    renewal = (datetime.now(UTC) - timedelta(seconds=age)).isoformat(timespec="seconds")
    node_reference = {"apiVersion": "v1", "kind": "Node", "name": "n0", "uid": "u"}
    meta = {"name": "drawbridge-held-x", "labels": {"drawbridge.dev/marked-on": "n"}, "annotations": {"drawbridge.dev/seen": renewal}, "ownerReferences": [node_reference]}  # fmt: skip
    spec = {"deviceSelector": {"driver": DRIVER, "pool": "n0", "device": "gpu-0"}, "taint": {"key": "drawbridge.dev/device-plugin", "effect": "NoSchedule"}}  # fmt: skip
    return {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRule", "metadata": meta, "spec": spec}


def node_with_condition(age, name="n0", **condition):
    """A node with the condition that an audit agent wrote this many seconds ago; `condition` changes fields of it."""
    heartbeat = (datetime.now(UTC) - timedelta(seconds=age)).strftime("%Y-%m-%dT%H:%M:%SZ")
    node_condition = {
        "type": "DrawbridgeDevicesConsistent",
        "status": "False",
        "lastHeartbeatTime": heartbeat,
    } | condition
    return node(name, conditions=[{"type": "Ready", "status": "True"}, node_condition])


def bound_pod(name, *claims, minutes=6):
    """A pod on n0 that was bound this many minutes ago."""
    since = (datetime.now(UTC) - timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")
    obj = pod(name, *claims, nodeName="n0")
    obj["status"] = {"conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": since}]}
    return obj


def old_autoscaler():
    """A cluster-autoscaler that does not consider claims."""
    containers = [{"name": "main", "image": "registry.k8s.io/autoscaling/cluster-autoscaler:v1.31.2"}]
    return objects.workload("Deployment", "autoscaler", {"containers": containers}, namespace="kube-system")


def faults():
    """By the code of a finding: the objects that cause it now, the object that it names, and its repair."""
    return {
        "O209": ([allocated_claim("a", "p"), allocated_claim("b", "q"), pod("p", "a"), pod("q", "b")], "ResourceClaim/default/a", "deallocate default/b, whose pods are on no node yet, so that schedulers place these pods again"),
        "O210": ([allocated_claim("a", "gone"), pod("p")], "ResourceClaim/default/a", "remove its allocation and its reservations"),
        "O211": ([claim_of_pod("a", "gone"), pod("p")], "ResourceClaim/default/a", "delete it"),
        "O212": ([claim_with_finalizer("a"), pod("p")], "ResourceClaim/default/a", "remove its finalizer"),
        "O113": (pod_without_sandbox(minutes=6), "Pod/default/p", ""),
        "O114": ([claim_of_pod("a", "p"), bound_pod("p", "a")], "Pod/default/p", ""),
        "O110": ([taint_rule(DRIVER), claim("a"), waiting_pod("a")], "Pod/default/p", ""),
        "O108": ([device_class("hollow", selectors=[{"cel": {"expression": "false"}}]), claim("a", class_name="hollow"), pod("p", "a")], "DeviceClass/hollow", ""),
        "O204": ([gpus("gone", 2), pod("p")], "ResourceSlice/gone-gpus", ""),
        "O107": ([claim("a", class_name="none"), pod("p", "a")], "DeviceClass/none", ""),
        "O218": ([allocated_claim("a", "p", device="gpu-99"), pod("p", "a")], "ResourceClaim/default/a", ""),
        "O219": ([allocated_claim("a", "p", consumedCapacity={"memory": "-1Gi"}), pod("p", "a")], "ResourceClaim/default/a", ""),
        "O221": ([audit_event("DeviceGivenTwice", "device x: two have it"), pod("p")], "Node/n0", ""),
        "O213": ([agent_taint_rule(3600), pod("p")], "DeviceTaintRule/drawbridge-held-x", "delete it"),
        "O214": ([node_with_condition(3600, "n9"), pod("p")], "Node/n9", "remove it from the node"),
        "O017": ([lease(120), pod("p")], "Lease/drawbridge-system/drawbridge-allocator", ""),
        "O217": ([unowned_claim("a"), unowned_claim("b", minutes=30), unowned_claim("new", minutes=1), pod("p")], "ResourceClaim/default/a", ""),
        "S008": ([old_autoscaler(), claim("a"), waiting_pod("a")], "Deployment/kube-system/autoscaler", ""),
        "O216": ([unused_template(), pod("p")], f"ResourceClaimTemplate/default/{unused_template()['metadata']['name']}", "delete it"),
    }  # fmt: skip


FAULTS = tuple(faults())  # their codes


async def diagnosis_of(cluster):
    """The findings about this cluster, each with its repair."""
    return diagnose(await survey(cluster, datetime.now(UTC)))
