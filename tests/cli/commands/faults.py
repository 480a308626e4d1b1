"""A healthy fleet, and the objects of each fault that `drawbridge doctor` reports."""

from datetime import UTC, datetime, timedelta

from analysis.doctor import diagnose, survey
from tests import objects
from tests.allocator.service.sidecar import DRIVER, claim, device_class, gpus, node, pod
from tests.cli.running import manifest, run_json
from webhook.claims import taint_rule, template

# The finalizer that a claim has while it is allocated.
FINALIZER = "resource.kubernetes.io/delete-protection"
BRIDGE_SETTINGS = {"schedulerName": "drawbridge", "drivers": [DRIVER], "fence": True}
CONFIGURATION = {"apiVersion": "drawbridge.dev/v1alpha1", "kind": "DrawbridgeConfiguration", "bridge": BRIDGE_SETTINGS}
# A class, and a node with two GPUs.
FLEET = [device_class(), node("n0"), gpus("n0", 2)]


def time_ago(**time):
    return (datetime.now(UTC) - timedelta(**time)).strftime("%Y-%m-%dT%H:%M:%SZ")


def allocated_claim(name, *pods, device="gpu-0", **fields):
    """An allocated claim that is reserved for these pods. `fields` are those of the allocation's result."""
    result = objects.result(device, **{"driver": DRIVER, "pool": "n0"} | fields)
    return claim_with_finalizer(name) | {"status": {"reservedFor": []} | objects.allocated(result, pods=pods)}


def claim_of_pod(name, owner):
    return with_metadata(claim(name), ownerReferences=[objects.owner("Pod", owner, uid=f"pod-{owner}")])


def claim_with_finalizer(name):
    return with_metadata(claim(name), finalizers=[FINALIZER])


def with_metadata(obj, **metadata):
    obj["metadata"] |= metadata
    return obj


def unowned_claim(name, minutes=60, **metadata):
    """A claim without an owner that was created this many minutes ago."""
    return with_metadata(claim(name), creationTimestamp=time_ago(minutes=minutes), **metadata)


def lease(age):
    """The allocator's Lease, renewed this many seconds ago."""
    spec = {"holderIdentity": "allocator-0", "leaseDurationSeconds": 15, "renewTime": time_ago(seconds=age)}
    return objects.obj("Lease", "drawbridge-allocator", "coordination.k8s.io/v1", namespace="drawbridge-system", **spec)


def unused_template():
    """A ResourceClaimTemplate of the webhook, which no object in FLEET uses."""
    spec = {"spec": claim("any")["spec"]}
    obj = template.object_of(template.name_of(spec), spec, "default")
    obj["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    return obj


def pod_without_sandbox(minutes, driver="hami-core-gpu.project-hami.io", status="False"):
    """A pod on a node that has had no sandbox for this many minutes (with status "True": a sandbox), its claim, and the driver's slice."""
    condition = {"type": "PodReadyToStartContainers", "status": status, "lastTransitionTime": time_ago(minutes=minutes)}
    driver_slice = with_metadata(gpus("n0", 2), name="of-the-driver")
    driver_slice["spec"]["driver"] = driver
    bound = pod("p", "a", nodeName="n0") | {"status": {"conditions": [condition]}}
    return [driver_slice, allocated_claim("a", "p", driver=driver), bound]


def audit_event(reason, message, age=60, kind="Node"):
    """An Event that an audit agent wrote this many seconds ago."""
    fields = {"reason": reason, "message": message, "lastTimestamp": time_ago(seconds=age)}
    fields |= {"reportingComponent": "drawbridge-node-agent", "involvedObject": {"kind": kind, "name": "n0"}}
    return objects.obj("Event", f"{reason}-{age}-{kind}".lower(), namespace="default") | fields


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
    annotations = {"drawbridge.dev/seen": time_ago(seconds=age)}
    metadata = {"labels": {"drawbridge.dev/marked-on": "n"}, "annotations": annotations}
    selector = {"driver": DRIVER, "pool": "n0", "device": "gpu-0"}
    taint = {"key": "drawbridge.dev/device-plugin", "effect": "NoSchedule"}
    owners = [objects.owner("Node", "n0", uid="u")]
    return objects.obj("DeviceTaintRule", "drawbridge-held-x", objects.RESOURCE_API, ownerReferences=owners, deviceSelector=selector, taint=taint, **metadata)  # fmt: skip


def node_with_condition(age, name="n0", **condition):
    """A node with the condition that an audit agent wrote this many seconds ago; `condition` changes fields of it."""
    written = {"type": "DrawbridgeDevicesConsistent", "status": "False", "lastHeartbeatTime": time_ago(seconds=age)}
    return node(name, conditions=[{"type": "Ready", "status": "True"}, written | condition])


def bound_pod(name, *claims, minutes=6):
    """A pod on n0 that was bound this many minutes ago."""
    condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": time_ago(minutes=minutes)}
    return pod(name, *claims, nodeName="n0") | {"status": {"conditions": [condition]}}


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
        "O230": ([device_class("named", extendedResourceName="example.com/named"), pod("p", limits={"example.com/named": "1"}, nodeName="n0")], "Pod/default/p", ""),
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


def findings_in(folder, *objects, options=()):
    """What doctor finds in a dump of the fleet and these objects."""
    return run_json("doctor", "-f", manifest(folder / "dump.yaml", *FLEET, *objects), *options)[1]["findings"]


def named(findings):
    """The code and the object of each finding."""
    return [(finding["code"], finding["object"]) for finding in findings]
