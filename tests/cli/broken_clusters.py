"""Makes dumps of clusters with several faults at once: a healthy fleet, and for each fault objects of its own.

Each fault has a namespace and nodes of its own, so any faults can be combined. A fault says which findings `drawbridge doctor` has about
it, and how a person mends it: by changes of objects, after which its pod runs.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from tests import objects
from tests.cli.installations import installation, object_named
from tests.objects import Object, exactly, owner, resource_slice, template_entries
from webhook.claims import template

DRIVER = "gpu.example.com"
KEY = "example.com/gpu"
NODE_DEVICES = 8
NOW = datetime.now(UTC).replace(microsecond=0)


def ago(minutes: float) -> str:
    return (NOW - timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")


class Fault(NamedTuple):
    """The objects of a fault, the findings that name it, and how it is mended."""

    objects: list[Object]
    # The code and the object of each finding.
    findings: set[tuple[str, str]]
    # New objects, or objects that replace those with their name.
    mended: list[Object] = []
    # Objects that are deleted.
    deleted: list[Object] = []
    # namespace/name of the pod that waits because of the fault, and runs once it is mended.
    pod: str = ""
    # Parts of the finding's message.
    words: tuple[str, ...] = ()
    # A part of the finding's remedy.
    remedy: str = ""


# ---- What the faults are made of


def node(name: str, *, ready: str = "True", allocatable: dict[str, str] | None = None, **fields: object) -> Object:
    """A node with room for pods; `pool` is its label."""
    conditions = [{"type": "Ready", "status": ready, "reason": "KubeletReady", "lastTransitionTime": ago(60)}]
    amounts = {"cpu": "64", "memory": "512Gi", "pods": "110"} | (allocatable or {})
    labels = {"kubernetes.io/hostname": name, "pool": name.rpartition("-")[0]} | dict(fields.pop("labels", {}))
    return objects.node(name, allocatable=amounts, capacity=amounts, labels=labels, status={"conditions": conditions}, **fields)  # fmt: skip


def gpus(node_name: str, count: int = NODE_DEVICES, *, model: str = "H100", memory: str = "80Gi", **fields: object) -> Object:  # fmt: skip
    attributes = {"model": {"string": model}}
    devices = [
        {"name": f"gpu-{number}", "attributes": attributes, "capacity": {"memory": {"value": memory}}}
        for number in range(count)
    ]
    changes = {"pool": node_name, "nodeName": node_name} | fields
    return resource_slice(f"{node_name}-gpus", *devices, **{"driver": DRIVER} | changes)


def claim(namespace: str, name: str, *requests: Object, pods: tuple[str, ...] = (), devices: tuple[str, ...] = (), node: str = "", minutes: float = 30, **fields: object) -> Object:  # fmt: skip
    """A claim; with `devices`, they are allocated on the node, and reserved for the pods."""
    status = None
    if devices:
        results = [objects.result(device, driver=DRIVER, pool=node) for device in devices]
        status = objects.allocated(*results, node=node)
        reserved = [{"resource": "pods", "name": pod, "uid": f"{namespace}-{pod}"} for pod in pods]
        status |= {"reservedFor": reserved} if reserved else {}
        fields = {"finalizers": ["resource.kubernetes.io/delete-protection"]} | fields
    requests = requests or (exactly(count=max(1, len(devices))),)
    return objects.claim(
        name, *requests, namespace=namespace, uid=f"{namespace}-{name}", creationTimestamp=ago(minutes), **fields
    ) | ({"status": status} if status else {})


def pod(namespace: str, name: str, *claims: str, minutes: float = 30, node: str = "", phase: str = "", conditions: tuple[Object, ...] = (), status: Object | None = None, **fields: object) -> Object:  # fmt: skip
    """A pod that was created some minutes ago; without a node, the scheduler has found none for it."""
    if node:
        fields["nodeName"] = node
        state = {"type": "PodScheduled", "status": "True", "lastTransitionTime": ago(minutes)}
    else:
        state = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": ago(minutes)}  # fmt: skip
    phase = phase or ("Running" if node else "Pending")
    state = {"phase": phase, "conditions": [state, *conditions]} | (status or {})
    claims_of = {"ownerReferences": []}
    return objects.pod(
        name,
        *claims,
        namespace=namespace,
        uid=f"{namespace}-{name}",
        creationTimestamp=ago(minutes),
        status=state,
        **claims_of | fields,
    )


def owned_claim(namespace: str, name: str, pod_name: str, *requests: Object, **fields: object) -> Object:
    """A claim that was created for a pod."""
    references = [owner("Pod", pod_name, uid=f"{namespace}-{pod_name}")]
    return claim(namespace, name, *requests, ownerReferences=references, **fields)


def event(namespace: str, kind: str, name: str, reason: str, message: str, *, minutes: float = 2, source: str = "kubelet") -> Object:  # fmt: skip
    meta = {"name": f"{name}.{reason}".lower(), "namespace": namespace or "default"}
    uid = f"{namespace}-{name}" if kind == "Pod" else ""
    involved = {"kind": kind, "namespace": namespace, "name": name, "uid": uid}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": meta,
        "involvedObject": involved,
        "type": "Warning",
        "reason": reason,
        "message": message,
        "lastTimestamp": ago(minutes),
        "source": {"component": source},
        "reportingComponent": source,
    }


def lease(namespace: str, name: str, minutes: float = 0) -> Object:
    spec = {"holderIdentity": "holder", "leaseDurationSeconds": 15, "renewTime": ago(minutes)}
    return objects.obj("Lease", name, "coordination.k8s.io/v1", namespace=namespace, **spec)


def replica_set(namespace: str, name: str, pod_spec: Object, *, desired: int = 1, created: int = 0) -> Object:
    return objects.workload("ReplicaSet", name, pod_spec, namespace=namespace, uid=f"{namespace}-{name}", replicas=desired, status={"replicas": created})  # fmt: skip


def healthy_fleet() -> list[Object]:
    """Nodes with free devices, pods that run, a pod that was created a moment ago, and pods that use no devices."""
    fleet: list[Object] = [objects.device_class("gpu", f"device.driver == '{DRIVER}'")]
    fleet += [lease("kube-node-lease", "healthy-0"), lease("kube-system", "kube-scheduler")]
    fleet += [lease("kube-system", "kube-controller-manager"), objects.namespace("healthy")]
    for number in range(4):
        name = f"healthy-{number}"
        devices = tuple(f"gpu-{device}" for device in range(number))
        fleet += [node(name), gpus(name), pod("healthy", f"plain-{number}", node=name)]
        if devices:
            fleet += [
                claim("healthy", f"held-{number}", pods=(f"runs-{number}",), devices=devices, node=name),
                pod("healthy", f"runs-{number}", f"held-{number}", node=name),
            ]
    fleet += installed()
    fleet += [claim("healthy", "new", minutes=0.1), pod("healthy", "new", "new", minutes=0.1)]
    return fleet


# ---- Faults. Each gets its name, which is the name of its namespace and the beginning of the names of its nodes

FAULTS: dict[str, Callable[[str], Fault]] = {}


def fault(make: Callable[[str], Fault]) -> Callable[[str], Fault]:
    FAULTS[make.__name__] = make
    return make


def waits(name: str, *requests: Object, **fields: object) -> list[Object]:
    """A pod that waits for its claim `c`."""
    return [claim(name, "c", *requests), pod(name, "p", "c", **fields)]


def of_pool(name: str) -> Object:
    """A pod's selector of the nodes of one fault."""
    return {"nodeSelector": {"pool": name}}


def place(name: str, count: int = NODE_DEVICES, **fields: object) -> list[Object]:
    """A node of one fault, with GPUs."""
    return [node(f"{name}-0", **fields), gpus(f"{name}-0", count)]


def of_pod(name: str, code: str, broken: list[Object], mended: list[Object], *words: str, remedy: str = "", deleted: tuple[Object, ...] = ()) -> Fault:  # fmt: skip
    """A fault because of which pod `p` waits."""
    return Fault(broken, {(code, f"Pod/{name}/p")}, mended, list(deleted), f"{name}/p", words, remedy)


def fault_about(code: str, object_name: str, broken: list[Object], *words: str, mended: tuple[Object, ...] = (), deleted: tuple[Object, ...] = ()) -> Fault:  # fmt: skip
    """A fault because of which no pod waits. Without `mended`, what is broken has to be deleted."""
    return Fault(broken, {(code, object_name)}, list(mended), list(deleted or ([] if mended else broken)), words=words)


NEVER = "O115"


@fault
def too_many_devices(name: str) -> Fault:
    return of_pod(name, NEVER, waits(name, exactly(count=16)), [claim(name, "c", exactly(count=8))], "but the largest node has 8")  # fmt: skip


@fault
def attribute_that_no_device_has(name: str) -> Fault:
    broken = waits(name, exactly(selector=f"device.attributes['{DRIVER}'].colour == 'red'"))
    return of_pod(name, NEVER, broken, [claim(name, "c")], "no such key: colour")


@fault
def value_that_no_device_has(name: str) -> Fault:
    broken, mended = (exactly(selector=f"device.attributes['{DRIVER}'].model == '{model}'") for model in ("H1000", "H100"))  # fmt: skip
    return of_pod(name, NEVER, waits(name, broken), [claim(name, "c", mended)], "model: H100")


@fault
def more_memory_than_any_device(name: str) -> Fault:
    return of_pod(name, NEVER, waits(name, exactly(memory="200Gi")), [claim(name, "c", exactly(memory="80Gi"))], "80Gi")


@fault
def label_that_no_node_has(name: str) -> Fault:
    return of_pod(name, "D212", waits(name, nodeSelector={"zone": "moon"}), [pod(name, "p", "c")], "no node has zone=moon")  # fmt: skip


@fault
def too_many_devices_on_the_only_nodes(name: str) -> Fault:
    """Other nodes have eight; the selected node has two."""
    broken = [*place(name, 2), *waits(name, exactly(count=4), **of_pool(name))]
    return of_pod(name, NEVER, broken, [claim(name, "c", exactly(count=2))])


def with_created_claim(name: str, entry: str, entries: list[Object], *others: Object, **fields: object) -> list[Object]:
    """The pod and the claim that was created for its entry, and other objects."""
    status = {"resourceClaimStatuses": [{"name": entry, "resourceClaimName": "p-x"}]}
    return [*others, owned_claim(name, "p-x", "p"), pod(name, "p", resourceClaims=entries, status=status, **fields)]


@fault
def missing_template(name: str) -> Fault:
    template, other = (objects.claim_template(title, exactly(), namespace=name) for title in ("gone", "other"))
    mended = with_created_claim(name, "gone", template_entries("gone"), template)
    broken = [pod(name, "p", resourceClaims=template_entries("gone")), other]
    return of_pod(name, NEVER, broken, mended, "ResourceClaimTemplate gone does not exist")


@fault
def missing_claim(name: str) -> Fault:
    return of_pod(name, NEVER, [pod(name, "p", "gone")], [claim(name, "gone")], "ResourceClaim gone does not exist")


def of_class(name: str, code: str, *broken: Object) -> Fault:
    mended = objects.device_class(f"class-{name}", f"device.driver == '{DRIVER}'")
    waiting = waits(name, exactly(f"class-{name}"))
    return Fault([*broken, *waiting], {(code, f"DeviceClass/class-{name}")}, [mended], pod=f"{name}/p")


@fault
def missing_class(name: str) -> Fault:
    return of_class(name, "O107")


@fault
def class_without_devices(name: str) -> Fault:
    return of_class(name, "O108", objects.device_class(f"class-{name}", "device.driver == 'none.example.com'"))


@fault
def constraint_that_no_devices_meet(name: str) -> Fault:
    tie = [{"requests": ["r"], "matchAttribute": f"{DRIVER}/island"}]
    broken = [claim(name, "c", exactly(count=2), constraints=tie), pod(name, "p", "c")]
    return of_pod(name, NEVER, broken, [claim(name, "c", exactly(count=2))], "island")


@fault
def missed_pod(name: str) -> Fault:
    """The pod was created while the webhook was down."""
    return fault_about("O104", f"Pod/{name}/p", [pod(name, "p", limits={"nvidia.com/gpu": "1"})], "nvidia.com/gpu")


@fault
def resource_that_nothing_offers(name: str) -> Fault:
    return fault_about("O104", f"Pod/{name}/p", [pod(name, "p", limits={f"{name}.example.com/npu": "1"})], "npu")


@fault
def no_scheduler(name: str) -> Fault:
    waiting = pod(name, "p", "c", schedulerName=f"nobody-{name}", status={"conditions": []})
    return of_pod(name, "O109", [claim(name, "c"), waiting], [pod(name, "p", "c")], f"nobody-{name}")


@fault
def full_quota_of_claims(name: str) -> Fault:
    message = f'resourceclaims "p-c" is forbidden: exceeded quota: few-{name}'
    entries = template_entries("c")
    broken = [
        objects.claim_template("c", exactly(), namespace=name),
        pod(name, "p", resourceClaims=entries),
        event(name, "Pod", "p", "FailedResourceClaimCreation", message, source="resource-claim-controller"),
    ]
    return of_pod(name, "O106", broken, with_created_claim(name, "c", entries), f"few-{name}")


def refused_pods(name: str, message: str, *words: str) -> Fault:
    """A ReplicaSet whose pods the API server refuses with this message."""
    spec = pod(name, "p", resourceClaims=template_entries("c"))["spec"]
    refusal = event(name, "ReplicaSet", "set", "FailedCreate", message, source="replicaset-controller")
    broken = [objects.claim_template("c", exactly(), namespace=name), replica_set(name, "set", spec), refusal]
    return fault_about("O101", f"ReplicaSet/{name}/set", broken, *words, mended=(replica_set(name, "set", spec, created=1),))  # fmt: skip


@fault
def controller_refused(name: str) -> Fault:
    return refused_pods(name, 'Error creating: pods "set-x" is forbidden: exceeded quota: pods', "exceeded quota: pods")


@fault
def template_of_ours_is_missing(name: str) -> Fault:
    missing = f"drawbridge-{'0' * 32}"
    fields = {"annotations": {"drawbridge.dev/templates": f'{{"{missing}":"x"}}'}}
    entry = [{"name": "gpu", "resourceClaimTemplateName": missing}]
    template = objects.claim_template(missing, exactly(), namespace=name)
    broken = [pod(name, "p", resourceClaims=entry, **fields)]
    return of_pod(name, "O105", broken, with_created_claim(name, "gpu", entry, template, **fields))


ALL_DEVICES = tuple(f"gpu-{number}" for number in range(NODE_DEVICES))


@fault
def devices_held_by_a_claim_of_a_gone_pod(name: str) -> Fault:
    dead = owned_claim(name, "dead", "gone", pods=("gone",), devices=ALL_DEVICES, node=f"{name}-0")
    broken = [*place(name), dead, *waits(name, **of_pool(name))]
    return Fault(broken, {("O211", f"ResourceClaim/{name}/dead")}, deleted=[dead], pod=f"{name}/p")


@fault
def node_is_not_ready(name: str) -> Fault:
    taints = [{"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}]
    broken = [*place(name, ready="Unknown", taints=taints), *waits(name, **of_pool(name))]
    return Fault(broken, {("O201", f"Node/{name}-0")}, [node(f"{name}-0")], pod=f"{name}/p")


@fault
def slice_of_a_gone_node(name: str) -> Fault:
    return fault_about("O204", f"ResourceSlice/{name}-0-gpus", [gpus(f"{name}-0")])


@fault
def node_without_its_driver(name: str) -> Fault:
    broken = node(f"{name}-0", labels={"nvidia.com/gpu.present": "true"})
    return fault_about("O203", f"Node/{name}-0", [broken], mended=(gpus(f"{name}-0"),))


# A pool that cannot have GPUs, so what is known about GPUs stays certain.
OF_A_NIC = {"driver": "nic.example.com"}


@fault
def incomplete_pool(name: str) -> Fault:
    broken = [node(f"{name}-0"), gpus(f"{name}-0", resourceSliceCount=2, **OF_A_NIC)]
    return fault_about("D401", f"ResourceSlice/{name}-0-gpus", broken, "1 of 2 slices of pool", mended=(gpus(f"{name}-0", **OF_A_NIC),))  # fmt: skip


@fault
def pool_lost_its_devices(name: str) -> Fault:
    newer = gpus(f"{name}-0", 0, generation=2, **OF_A_NIC)
    newer["metadata"]["name"] = f"{name}-newer"
    broken = [node(f"{name}-0"), gpus(f"{name}-0", **OF_A_NIC), newer]
    return fault_about("O208", f"ResourceSlice/{name}-newer", broken, "without devices in generation 2", deleted=(newer,))  # fmt: skip


@fault
def two_claims_hold_a_device(name: str) -> Fault:
    broken = place(name)
    for letter in "ab":
        broken += [claim(name, letter, pods=(letter,), devices=("gpu-0",), node=f"{name}-0"), pod(name, letter, letter, node=f"{name}-0")]  # fmt: skip
    return fault_about("O209", f"ResourceClaim/{name}/a", broken, deleted=tuple(broken[-2:]))


@fault
def claim_of_a_gone_pod(name: str) -> Fault:
    return fault_about("O211", f"ResourceClaim/{name}/a", [owned_claim(name, "a", "gone")])


@fault
def idle_finalizer(name: str) -> Fault:
    broken = claim(name, "a", finalizers=["resource.kubernetes.io/delete-protection"])
    return fault_about("O212", f"ResourceClaim/{name}/a", [broken])


@fault
def claim_kept_by_a_finalizer(name: str) -> Fault:
    kept = {"finalizers": ["x.example.com/y"], "deletionTimestamp": ago(10)}
    broken = claim(name, "a", devices=("gpu-0",), node=f"{name}-0", **kept)
    return fault_about("O215", f"ResourceClaim/{name}/a", [*place(name), broken], "finalizer x.example.com/y keeps it and its devices", deleted=(broken,))  # fmt: skip


@fault
def template_of_ours_that_no_pod_uses(name: str) -> Fault:
    spec = {"spec": claim(name, "any")["spec"]}
    broken = template.object_of(template.name_of(spec), spec, name)
    broken["metadata"]["creationTimestamp"] = ago(600)
    return fault_about("O216", f"ResourceClaimTemplate/{name}/{broken['metadata']['name']}", [broken])


@fault
def claim_that_nobody_uses(name: str) -> Fault:
    return fault_about("O217", f"ResourceClaim/{name}/a", [claim(name, "a", minutes=600)])


@fault
def claim_on_a_device_that_is_gone(name: str) -> Fault:
    broken = claim(name, "a", pods=("a",), devices=("gpu-99",), node=f"{name}-0")
    running = pod(name, "a", "a", node=f"{name}-0")
    return fault_about("O218", f"ResourceClaim/{name}/a", [*place(name), broken, running], deleted=(broken, running))


def on_its_node(name: str, *others: Object, **fields: object) -> list[Object]:
    """A pod on its node whose containers have not started, and other objects."""
    held = claim(name, "c", pods=("p",), devices=("gpu-0",), node=f"{name}-0")
    return [*place(name), held, pod(name, "p", "c", node=f"{name}-0", **{"phase": "Pending"} | fields), *others]


def held_on_its_node(name: str, code: str, reason: str, message: str, *words: str) -> Fault:
    """A fault that only an event of the kubelet shows."""
    broken = on_its_node(name, event(name, "Pod", "p", reason, message))
    return fault_about(code, f"Pod/{name}/p", broken, *words, mended=running_again(name))


def running_again(name: str) -> tuple[Object, ...]:
    return (pod(name, "p", "c", node=f"{name}-0"),)


@fault
def driver_is_not_registered(name: str) -> Fault:
    message = f"Failed to prepare dynamic resources: DRA driver {DRIVER} is not registered"
    return held_on_its_node(name, "O112", "FailedPrepareDynamicResources", message, "does not prepare its devices", "not registered")  # fmt: skip


@fault
def bound_without_devices(name: str) -> Fault:
    broken = [*place(name), owned_claim(name, "c", "p"), pod(name, "p", "c", node=f"{name}-0", phase="Pending")]
    with_devices = owned_claim(name, "c", "p", pods=("p",), devices=("gpu-0",), node=f"{name}-0")
    fault = fault_about("O114", f"Pod/{name}/p", broken, mended=(with_devices, *running_again(name)))
    return fault._replace(remedy="without nodeName")


@fault
def idle_lease_of_ours(name: str) -> Fault:
    broken, mended = (lease("drawbridge-system", "drawbridge-allocator", minutes) for minutes in (30, 0))
    return fault_about("O017", "Lease/drawbridge-system/drawbridge-allocator", [broken], mended=(mended,))


def audited(name: str, reason: str, code: str) -> Fault:
    broken = event("", "Node", f"{name}-0", reason, f"gpu-0 of {name}-0 is wrong", source="drawbridge-node-agent")
    return fault_about(code, f"Node/{name}-0", [*place(name), broken], deleted=(broken,))


@fault
def device_given_twice(name: str) -> Fault:
    return audited(name, "DeviceGivenTwice", "O221")


@fault
def device_moved(name: str) -> Fault:
    return audited(name, "DeviceMoved", "O229")


@fault
def device_in_doubt(name: str) -> Fault:
    return audited(name, "DeviceInDoubt", "O228")


@fault
def stale_mark_of_an_agent(name: str) -> Fault:
    meta = {"name": f"mark-{name}", "labels": {"drawbridge.dev/marked-on": "n"}, "annotations": {"drawbridge.dev/seen": ago(90)}, "ownerReferences": [owner("Node", f"{name}-0")]}  # fmt: skip
    spec = {"deviceSelector": {"driver": DRIVER, "pool": f"{name}-0", "device": "gpu-0"}, "taint": {"key": "drawbridge.dev/device-plugin", "effect": "NoSchedule"}}  # fmt: skip
    broken = {"apiVersion": objects.RESOURCE_API, "kind": "DeviceTaintRule", "metadata": meta, "spec": spec}
    return fault_about("O213", f"DeviceTaintRule/mark-{name}", [*place(name), broken], deleted=(broken,))


@fault
def stale_condition_of_an_agent(name: str) -> Fault:
    broken = place(name)
    condition = {"type": "DrawbridgeDevicesConsistent", "status": "False", "lastHeartbeatTime": ago(90)}
    broken[0]["status"]["conditions"].append(condition)
    return fault_about("O214", f"Node/{name}-0", broken, mended=(node(f"{name}-0"),))


# ---- Faults that hold one pod, and that only the pod's own state or events show

WAITS, DOES_NOT_START, NEEDS_A_CHANGE = "O116", "O117", "O119"


@fault
def no_runtime_class_on_the_node(name: str) -> Fault:
    message = 'rpc error: no runtime for "nvidia" is configured'
    return held_on_its_node(name, DOES_NOT_START, "FailedCreatePodSandBox", message, 'no runtime for "nvidia"')


@fault
def cdi_directory_is_missing(name: str) -> Fault:
    message = "Error: unresolvable CDI devices example.com/gpu=gpu-0"
    return held_on_its_node(name, DOES_NOT_START, "Failed", message, "unresolvable CDI devices")


@fault
def socket_of_the_driver_is_gone(name: str) -> Fault:
    message = f"Failed to prepare dynamic resources: prepare dynamic resources: connection error: dial unix /var/lib/kubelet/plugins/{DRIVER}/dra.sock: connect: no such file or directory"  # fmt: skip
    return held_on_its_node(name, "O112", "FailedPrepareDynamicResources", message, "dra.sock")


@fault
def image_is_missing(name: str) -> Fault:
    waiting = {"name": "main", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}}
    broken = on_its_node(name, status={"containerStatuses": [waiting]})
    return fault_about(DOES_NOT_START, f"Pod/{name}/p", broken, "ImagePullBackOff", mended=running_again(name))


@fault
def devices_held_by_running_pods(name: str) -> Fault:
    live = (claim(name, "live", pods=("live",), devices=ALL_DEVICES, node=f"{name}-0"), pod(name, "live", "live", node=f"{name}-0"))  # fmt: skip
    return of_pod(
        name, WAITS, [*place(name), *live, *waits(name, **of_pool(name))], [], f"{name}/live holds", deleted=live
    )


@fault
def only_node_is_cordoned(name: str) -> Fault:
    broken = [*place(name, unschedulable=True), *waits(name, **of_pool(name))]
    return of_pod(name, NEEDS_A_CHANGE, broken, [node(f"{name}-0")], "is cordoned", remedy="uncordon node")


@fault
def taint_of_the_node_is_not_tolerated(name: str) -> Fault:
    taints = [{"key": "example.com/team", "value": "other", "effect": "NoSchedule"}]
    broken = [*place(name, taints=taints), *waits(name, **of_pool(name))]
    return of_pod(
        name, NEEDS_A_CHANGE, broken, [node(f"{name}-0")], "example.com/team", remedy="tolerate example.com/team=other"
    )


@fault
def no_room_for_cpu(name: str) -> Fault:
    broken = [*place(name), *waits(name, requests={"cpu": "128"}, **of_pool(name))]
    mended = pod(name, "p", "c", requests={"cpu": "1"}, **of_pool(name))
    return of_pod(name, NEVER, broken, [mended], "cpu", remedy="request at most 64 cpu")


@fault
def scheduling_gate(name: str) -> Fault:
    gated = {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]}
    broken = waits(name, schedulingGates=[{"name": "example.com/budget"}], status=gated)
    return of_pod(name, WAITS, broken, [pod(name, "p", "c")], "example.com/budget", remedy="remove the gates")


def without_its_volume(name: str, *unbound: Object, words: str = "PersistentVolumeClaim", remedy: str = "") -> Fault:
    message = "0/9 nodes are available: pod has unbound immediate PersistentVolumeClaims"
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    broken = [*unbound, *waits(name, volumes=volumes, status={"conditions": [condition]})]
    return of_pod(name, "O118", broken, [pod(name, "p", "c")], words, remedy=remedy, deleted=unbound)


@fault
def volume_is_not_bound(name: str) -> Fault:
    return without_its_volume(name)


@fault
def volume_claim_is_pending(name: str) -> Fault:
    """The dump has the PersistentVolumeClaim, so the finding names it."""
    unbound = objects.obj("PersistentVolumeClaim", "data", namespace=name, status={"phase": "Pending"})
    return without_its_volume(name, unbound, words=f"PersistentVolumeClaim/{name}/data is Pending", remedy="kubectl describe pvc")  # fmt: skip


def gang(name: str, least: int) -> Object:
    policy = {"gang": {"minCount": least}}
    return objects.obj("PodGroup", "g", "scheduling.k8s.io/v1alpha1", namespace=name, schedulingPolicy=policy)


IN_GANG = {"schedulingGroup": {"podGroupName": "g"}}


@fault
def gang_is_incomplete(name: str) -> Fault:
    """The group places three pods together, and the controller has created one."""
    broken = [gang(name, 3), *waits(name, **IN_GANG)]
    return of_pod(name, NEEDS_A_CHANGE, broken, [gang(name, 1)], "places 3 of its pods together, and has 1")


@fault
def no_room_for_a_gang(name: str) -> Fault:
    """The only node has devices for one of the two pods."""
    second = [claim(name, "d"), pod(name, "q", "d", **IN_GANG | of_pool(name))]
    broken = [gang(name, 2), *place(name, 1), *waits(name, **IN_GANG | of_pool(name)), *second]
    sentence = f"no placement found for 2 pods of PodGroup {name}/g together: placed one by one, 1 gets a node"
    return of_pod(name, WAITS, broken, [gpus(f"{name}-0", 2)], sentence)


@fault
def certificate_of_the_webhook_has_expired(name: str) -> Fault:
    """The dump shows it by the event of a controller: the API server does not call the webhook."""
    message = 'Error creating: Internal error occurred: failed calling webhook "pods.drawbridge.dev": tls: failed to verify certificate: x509: certificate has expired or is not yet valid'  # fmt: skip
    return refused_pods(name, message, "x509: certificate has expired")


# ---- Faults of drawbridge's own installation. They replace its objects, so a cluster has one of them at a time

OF_THE_INSTALLATION: dict[str, Callable[[str], Fault]] = {}


def installed() -> list[Object]:
    found = installation()
    object_named(found, "Lease", "drawbridge")["spec"]["renewTime"] = ago(0)
    return found


def changed(kind: str, name: str, code: str, change: Callable[[Object], None], *words: str) -> Fault:
    """A fault of an installed object, which is mended by the object as it was."""
    whole, broken = (object_named(installed(), kind, name) for _ in range(2))
    change(broken)
    finding = (code, "/".join(filter(None, name_of(whole))))
    return Fault([broken], {finding}, [whole], words=words)


def fault_of_the_installation(make: Callable[[str], Fault]) -> Callable[[str], Fault]:
    OF_THE_INSTALLATION[make.__name__] = make
    return make


@fault_of_the_installation
def webhook_is_scaled_down(_: str) -> Fault:
    return changed("Deployment", "drawbridge-webhook", "O009", lambda obj: obj["spec"].update(replicas=0), "0 replicas")


@fault_of_the_installation
def webhook_has_no_ready_replica(_: str) -> Fault:
    return changed("Deployment", "drawbridge-webhook", "O009", lambda obj: obj["status"].update(readyReplicas=0))


@fault_of_the_installation
def one_replica_of_two(_: str) -> Fault:
    return changed("Deployment", "drawbridge-webhook", "O010", lambda obj: obj["status"].update(readyReplicas=1))


@fault_of_the_installation
def controller_of_another_version(_: str) -> Fault:
    def change(obj: Object) -> None:
        obj["spec"]["template"]["spec"]["containers"][0]["image"] = "registry.example.com/drawbridge:0"

    return changed("Deployment", "drawbridge-controller", "O011", change, "drawbridge:0")


@fault_of_the_installation
def controller_without_leader(_: str) -> Fault:
    return changed("Lease", "drawbridge", "O012", lambda obj: obj["spec"].update(holderIdentity=""), "no replica holds")


@fault_of_the_installation
def clock_of_a_replica_is_fast(_: str) -> Fault:
    return changed(
        "Lease", "drawbridge", "O013", lambda obj: obj["spec"].update(renewTime=ago(-60)), "is in the future"
    )


@fault_of_the_installation
def autoscaler_cannot_see_claims(name: str) -> Fault:
    containers = [{"name": "main", "image": "registry.k8s.io/autoscaling/cluster-autoscaler:v1.31.2"}]
    broken = objects.workload("Deployment", "autoscaler", {"containers": containers}, namespace="kube-system")
    cluster = [broken, *place(name, unschedulable=True), *waits(name, **of_pool(name))]
    return Fault(cluster, {("S008", "Deployment/kube-system/autoscaler")}, [node(f"{name}-0")], [broken], f"{name}/p", ("does not consider claims",))  # fmt: skip


def cluster_with(faults: dict[str, Fault]) -> list[Object]:
    """Return the objects of a cluster with these faults, and a namespace for each."""
    cluster = {name_of(obj): obj for obj in healthy_fleet()}
    for name, fault in faults.items():
        cluster |= {name_of(obj): obj for obj in (objects.namespace(name), *fault.objects)}
    return [*cluster.values()]


def name_of(obj: Object) -> tuple[str, str, str]:
    metadata = obj.get("metadata", {})
    return obj["kind"], metadata.get("namespace", ""), metadata.get("name", "")


def mend(cluster: list[Object], fault: Fault) -> list[Object]:
    """Return the cluster without one fault."""
    replaced = {name_of(obj) for obj in (*fault.mended, *fault.deleted)}
    return [*(obj for obj in cluster if name_of(obj) not in replaced), *fault.mended]
