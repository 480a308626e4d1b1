"""Fleets with a pod that does not run: fleet × fault × spelling. `apply` does what a remedy says, as a user would."""

import re
from copy import deepcopy
from typing import Any, NamedTuple

from dra.codes import CODES
from tests.objects import (
    RESOURCE_API,
    allocated,
    claim_entries,
    claim_template,
    container,
    device_class,
    exactly,
    obj,
    result,
)
from tests.objects import claim as plain_claim
from tests.objects import node as plain_node
from tests.objects import pod as plain_pod

BORN, LATER = "2026-11-28T08:00:00Z", "2026-11-28T09:00:00Z"
GPU, NIC, KEY = "gpu.example.com", "nic.example.com", "example.com/gpu"
TEAM, OTHER = "team", "other"  # namespaces
HEALTH, DEDICATED = "example.com/unhealthy", "example.com/dedicated"
TRIED = "0/9 nodes are available: 9 cannot allocate all claims."
CLAIM, TEMPLATE, EXTENDED = SPELLINGS = ("claim", "template", "extended resource")
OWN = (CLAIM, TEMPLATE)  # with requests of the author
FLEETS = {"one node": (("H100", 2),), "equal nodes": (("A100", 2),) * 3, "two products": (("H100", 4), ("A100", 2), ("A100", 2))}  # fmt: skip
MEMORY = {"H100": "80Gi", "A100": "40Gi"}


class World:
    """The objects of a dump, and a pod `team/p` that waits."""

    def __init__(self, fleet: str, spelling: str) -> None:
        self.fleet, self.spelling = fleet, spelling
        self.nodes, self.slices, self.other = {}, {}, []
        for at, (product, count) in enumerate(FLEETS[fleet]):
            name = f"n{at}"
            labels = {"kubernetes.io/hostname": name, "zone": f"z{at}", "product": product}
            amounts = {"cpu": "16", "memory": "64Gi", "pods": "10"}
            self.nodes[name] = plain_node(name, labels=labels, allocatable=amounts, capacity=amounts) | {"spec": {}}
            gpus = [
                {
                    "name": f"gpu-{device}",
                    "attributes": {"model": {"string": product}, "uuid": {"string": f"GPU-{name}-{device}"}},
                    "capacity": {"memory": {"value": MEMORY[product]}},
                }
                for device in range(count)
            ]
            self.slices[name] = self.slice(name, GPU, gpus)
            self.other.append(self.slice(name, NIC, [{"name": "nic-0"}]))
        self.classes = {
            "gpu": device_class("gpu", f"device.driver == '{GPU}'", extendedResourceName=KEY),
            "nic": device_class("nic", f"device.driver == '{NIC}'"),
        }
        self.body = exactly("gpu")["exactly"]
        self.constraints: list[Any] = []
        self.status: dict[str, Any] = {}  # of the claim
        self.container = container("main", requests={"cpu": "1", "memory": "1Gi"})
        self.message = TRIED
        self.spec: dict[str, Any] = {"priority": 0}
        self.pod_status: dict[str, Any] = {"phase": "Pending"}
        self.without: set[str] = set()  # kinds of the pod's objects that do not exist
        self.other += [*runs("living", TEAM), *runs("living", OTHER)]

    @staticmethod
    def slice(name: str, driver: str, devices: list[Any]) -> Any:
        pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
        return obj("ResourceSlice", f"{name}-{driver}", RESOURCE_API, driver=driver, nodeName=name, pool=pool, devices=devices)  # fmt: skip

    @property
    def devices(self) -> list[tuple[str, str]]:
        return [(name, device["name"]) for name, slice_ in self.slices.items() for device in slice_["spec"]["devices"]]

    def objects(self) -> list[Any]:
        """Return the objects of the dump."""
        own: list[Any] = []
        main, spec = deepcopy(self.container), deepcopy(self.spec)
        conditions = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": self.message, "lastTransitionTime": BORN}]  # fmt: skip
        status = {"conditions": [] if spec.get("nodeName") or not self.message else conditions} | self.pod_status
        request = {"name": "r", "exactly": self.body}
        if self.spelling == EXTENDED:
            main["resources"]["limits"] = {KEY: str(self.body["count"])}
        elif self.spelling == CLAIM:
            main["resources"]["claims"] = [{"name": "c"}]
            spec["resourceClaims"] = claim_entries("c")
            own.append(self.claim("c", request))
        else:
            main["resources"]["claims"] = [{"name": "c"}]
            spec["resourceClaims"] = [{"name": "c", "resourceClaimTemplateName": "t"}]
            if "ResourceClaimTemplate" not in self.without:
                status["resourceClaimStatuses"] = [{"name": "c", "resourceClaimName": "p-c-x"}]
                owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "pod-p", "controller": True}
                own.append(claim_template("t", request, namespace=TEAM, constraints=self.constraints))
                own.append(self.claim("p-c-x", request, ownerReferences=[owner], annotations={"resource.kubernetes.io/pod-claim-name": "c"}))  # fmt: skip
        own = [stored for stored in own if stored["kind"] not in self.without]
        pod = plain_pod("p", namespace=TEAM, uid="pod-p", creationTimestamp=BORN, status=status, **spec | {"containers": [main]})  # fmt: skip
        event = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "newest", "namespace": OTHER}, "involvedObject": {"kind": "Pod", "namespace": OTHER, "name": "living"}, "reason": "Started", "type": "Normal", "lastTimestamp": LATER}  # fmt: skip
        objects = [*self.classes.values(), *self.nodes.values(), *self.slices.values(), *self.other, *own, pod, event]
        return deepcopy([*objects, *TRAPS])

    def claim(self, name: str, request: Any, **fields: Any) -> Any:
        stored = plain_claim(name, request, namespace=TEAM, uid=f"claim-{name}", creationTimestamp=BORN, constraints=self.constraints, **fields)  # fmt: skip
        return stored | ({"status": self.status} if self.status else {})

    def remove(self, kind: str, key: str) -> None:
        """Remove an object of the surroundings, by namespace/name."""
        namespace, _, name = key.rpartition("/")
        kept = [
            stored
            for stored in self.other
            if (stored["kind"], stored["metadata"].get("namespace", ""), stored["metadata"]["name"])
            != (kind, namespace, name)
        ]
        assert len(kept) < len(self.other), f"{kind} {key} is not in the dump"
        self.other = kept

    def first_on(self, node: str) -> str:
        """Return the first pod on a node."""
        pods = (stored for stored in self.other if stored["kind"] == "Pod" and stored["spec"]["nodeName"] == node)
        return next(
            f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
            for pod in pods
            if "living" not in pod["metadata"]["name"]
        )

    def end(self, key: str) -> None:
        """End a pod; its claim goes with it."""
        self.remove("Pod", key)
        claim = f"{key.partition('/')[0]}/c-{key.partition('/')[2]}"
        if any(stored["metadata"]["name"] == claim.partition("/")[2] for stored in self.other):
            self.remove("ResourceClaim", claim)


def runs(name: str, namespace: str, on: str = "n0", devices: Any = (), *, priority: int = 0, lives: bool = True, **fields: Any) -> list[Any]:  # fmt: skip
    """Return a running pod and its claim with these devices of a node; only the claim if the pod does not live."""
    resources = {"requests": fields.pop("requests", {})}
    pod = plain_pod(name, namespace=namespace, uid=f"pod-{name}", creationTimestamp=BORN, nodeName=on, priority=priority, phase="Running", **{"containers": [{"name": "main", "image": "i", "resources": resources}]} | fields)  # fmt: skip
    if not devices:
        return [pod]
    results = [result(device, driver=GPU, pool=on) for device in devices]
    status = allocated(*results, pods=[name], node=on)
    status["allocation"]["allocationTimestamp"] = BORN
    held = plain_claim(f"c-{name}", exactly("gpu", count=len(results)), namespace=namespace, uid=f"claim-{name}", creationTimestamp=BORN, status=status)  # fmt: skip
    pod["spec"]["resourceClaims"] = claim_entries(held["metadata"]["name"])
    return [held, pod] if lives else [held]


def _trap(name, *, restarts=0, **fields):
    entry = {"name": "main", "ready": True, "restartCount": restarts, "state": {"running": {}}, "image": "i", "imageID": ""}  # fmt: skip
    return plain_pod(name, "trap", namespace="trap", uid=f"pod-{name}", **{"creationTimestamp": BORN, "status": {"phase": "Running", "containerStatuses": [entry]}, "nodeName": "n9"} | fields)  # fmt: skip


# Pods that need nobody, on a node without devices: they run, have ended, or were created a moment ago.
TRAPS = [
    _trap("restarted", restarts=2),
    _trap("ended", status={"phase": "Succeeded"}),
    _trap("failed", status={"phase": "Failed"}),
    _trap("new", status={"phase": "Pending"}, nodeName="", creationTimestamp=LATER),
    plain_claim("trap", exactly("gpu"), namespace="trap", uid="claim-trap", creationTimestamp=LATER, status={"allocation": {"devices": {}}, "reservedFor": [{"resource": "pods", "name": "restarted", "uid": "pod-restarted"}]}),
    plain_node("n9", allocatable={"cpu": "1", "memory": "1Gi", "pods": "10"}, taints=[{"key": "example.com/no-devices", "effect": "NoSchedule"}]),
]  # fmt: skip


# ---- faults


def hold(world, namespace=TEAM, **fields):
    if not any(stored["metadata"]["name"] == "holder-0" for stored in world.other):
        for at, (node, device) in enumerate(world.devices):
            world.other += runs(f"holder-{at}", namespace, node, [device], **fields)


def of_nodes(world, **spec):
    for node in world.nodes.values():
        for field, value in spec.items():
            node["spec"][field] = [*node["spec"].get(field, ()), value] if field == "taints" else value


def of_devices(world, key):
    for slice_ in world.slices.values():
        for device in slice_["spec"]["devices"]:
            device.setdefault("taints", []).append({"key": key, "effect": "NoSchedule"})


def rule(world, key):
    taint = {"key": key, "effect": "NoSchedule"}
    world.other.append(obj("DeviceTaintRule", "rule", RESOURCE_API, deviceSelector={"driver": GPU}, taint=taint))


def tolerate(world, key, **fields):
    world.spec.setdefault("tolerations", []).append({"key": key, "operator": "Exists", "effect": "NoSchedule"} | fields)


def select(world, expression):
    world.body.setdefault("selectors", []).append({"cel": {"expression": expression}})


def incomplete(world):
    for slice_ in world.slices.values():
        slice_["spec"]["pool"]["resourceSliceCount"] = 2


def busy(world, resource, amount):
    for name in world.nodes:
        world.other += runs(f"busy-{name}", OTHER, name, requests={resource: amount})


def full(world):
    for name in world.nodes:
        for at in range(10):
            world.other += runs(f"small-{name}-{at}", OTHER, name)


def bind(world, **status):
    """Put the pod on a node, with a device."""
    world.spec["nodeName"] = "n0"
    world.status = allocated(result("gpu-0", driver=GPU, pool="n0"), pods=["p"], node="n0")
    ready = [{"type": kind, "status": "True", "lastTransitionTime": BORN} for kind in ("PodScheduled",)]
    world.pod_status |= {"conditions": ready} | status


def fails(world, restarts=0, **state):
    entry = {"name": "main", "ready": False, "restartCount": restarts, "state": state, "image": "i", "imageID": ""}
    bind(world, containerStatuses=[entry], phase="Running" if restarts else "Pending")


def warn(world, reason, message):
    world.other.append({"apiVersion": "v1", "kind": "Event", "metadata": {"name": reason.casefold(), "namespace": TEAM}, "involvedObject": {"kind": "Pod", "namespace": TEAM, "name": "p", "uid": "pod-p"}, "reason": reason, "type": "Warning", "message": message, "source": {"component": "kubelet"}, "lastTimestamp": LATER})  # fmt: skip


def elsewhere(world):
    """Let the claim have a device of a node that the pod's selector does not allow."""
    world.status = allocated(result("gpu-0", driver=GPU, pool="n0"), node="n0")
    world.spec["nodeSelector"] = {"zone": f"z{len(world.nodes) - 1 or 9}"}


def volume(world, message):
    world.spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    world.message = message


def affinity(world, key, *values):
    term = {"matchExpressions": [{"key": key, "operator": "In", "values": list(values)}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    world.spec["affinity"] = {"nodeAffinity": required}


def without_slices(world):
    world.slices.clear()


def gang(world):
    policy = {"gang": {"minCount": 3}}
    world.other.append(obj("PodGroup", "group", "scheduling.k8s.io/v1alpha2", namespace=TEAM, schedulingPolicy=policy))
    world.spec["schedulingGroup"] = {"podGroupName": "group"}


WAITS, CHANGE, NEVER = "waits", "needs a change", "never"


class Fault(NamedTuple):
    plant: Any  # a function that changes a world
    degree: str
    spellings: tuple[str, ...] = SPELLINGS
    alone: bool = False  # whether it leaves no room for a second fault: the pod has a node, or its objects are missing


def fault(plant, degree, *arguments, spellings=SPELLINGS, alone=False, **fields):
    return Fault(lambda world: plant(world, *arguments, **fields), degree, spellings, alone)


def field(path, value):
    """Return a function that sets a field of the world, such as `body.count`."""
    owner, _, name = path.partition(".")
    return lambda world: getattr(world, owner).update({name: deepcopy(value)})


def amount(world, resource, quantity):
    world.container["resources"]["requests"][resource] = quantity


def larger_init(world, resource, quantity):
    world.spec["initContainers"] = [container("init", requests={resource: quantity})]


def empty_class(world):
    world.classes["gpu"]["spec"]["selectors"] = [{"cel": {"expression": "device.driver == 'gpu.example.org'"}}]


FAULTS = {
    # the author's
    "200 CPUs": fault(amount, NEVER, "cpu", "200"),
    "memory of no node": fault(amount, NEVER, "memory", "900Gi"),
    "an init container with 200 CPUs": fault(larger_init, NEVER, "cpu", "200"),
    "a resource of no node": fault(amount, NEVER, "hugepages-2Mi", "64Mi"),
    "a misspelt label": fault(field("spec.nodeSelector", {"product": "H10O"}), CHANGE),
    "a label of no node": fault(field("spec.nodeSelector", {"rack": "r7"}), CHANGE),
    "a zone of no node": fault(affinity, CHANGE, "zone", "z9"),
    "a taint that it does not tolerate": fault(of_nodes, CHANGE, taints={"key": DEDICATED, "effect": "NoSchedule"}),
    "a misspelt toleration": Fault(lambda world: (of_nodes(world, taints={"key": DEDICATED, "effect": "NoSchedule"}), tolerate(world, "example.com/dedicatde")), CHANGE),
    "a toleration of another value": Fault(lambda world: (of_nodes(world, taints={"key": DEDICATED, "value": "ml", "effect": "NoSchedule"}), tolerate(world, DEDICATED, operator="Equal", value="web")), CHANGE),
    "a toleration of another effect": Fault(lambda world: (of_nodes(world, taints={"key": DEDICATED, "effect": "NoExecute"}), tolerate(world, DEDICATED)), CHANGE),
    "more devices than a node has": fault(field("body.count", 5), NEVER),
    "more memory than a card has": fault(field("body.capacity", {"requests": {"memory": "90Gi"}}), NEVER, spellings=OWN),
    "a model of no card": fault(select, NEVER, f"device.attributes['{GPU}'].model == 'B200'", spellings=OWN),
    "a misspelt model": fault(select, NEVER, f"device.attributes['{GPU}'].model == 'H10O'", spellings=OWN),
    "an attribute of no card": fault(select, NEVER, f"'profile' in device.attributes['{GPU}']", spellings=OWN),
    "a partition of no card": fault(select, NEVER, f"device.attributes['{GPU}'].?profile.orValue('') == '1g.10gb'", spellings=OWN),
    "a selector that fails": fault(select, CHANGE, f"device.attributes['{GPU}'].profile == '1g.10gb'", spellings=OWN),
    "a constraint that never holds": Fault(lambda world: (world.body.update(count=2), world.constraints.append({"requests": ["r"], "matchAttribute": f"{GPU}/uuid"})), NEVER, OWN),
    "a class that does not exist": fault(field("body.deviceClassName", "tpu"), NEVER, spellings=OWN),
    "a misspelt class": fault(field("body.deviceClassName", "gqu"), NEVER, spellings=OWN),
    "a class that selects nothing": fault(empty_class, NEVER),
    "a template that does not exist": Fault(lambda world: world.without.update(("ResourceClaimTemplate", "ResourceClaim")), NEVER, (TEMPLATE,), alone=True),
    "a claim that does not exist": Fault(lambda world: world.without.add("ResourceClaim"), NEVER, (CLAIM,), alone=True),
    "a claim on another node": fault(elsewhere, CHANGE, spellings=(CLAIM,)),
    "a scheduler that does not exist": Fault(lambda world: (world.spec.update(schedulerName="volcanoo"), setattr(world, "message", "")), CHANGE, alone=True),
    "a volume that does not exist": fault(volume, CHANGE, 'persistentvolumeclaim "data" not found', alone=True),
    "a volume of another zone": fault(volume, CHANGE, "0/3 nodes are available: 3 node(s) had volume node affinity conflict.", alone=True),
    "a gang without members": fault(gang, CHANGE, alone=True),
    # an administrator's
    "cordoned nodes": fault(of_nodes, CHANGE, unschedulable=True),
    "nodes that are not ready": fault(of_nodes, CHANGE, taints={"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}),
    "nodes in maintenance": fault(of_nodes, CHANGE, taints={"key": "example.com/maintenance", "effect": "NoSchedule"}),
    "devices out of order": fault(of_devices, CHANGE, HEALTH),
    "dedicated devices": fault(of_devices, CHANGE, DEDICATED),
    "a rule about health": fault(rule, CHANGE, HEALTH),
    "a rule for others": fault(rule, CHANGE, DEDICATED),
    "incomplete pools": fault(incomplete, CHANGE),
    "a driver without slices": fault(without_slices, NEVER),
    "claims of dead pods": fault(hold, CHANGE, lives=False),
    # nobody's
    "holders of its namespace": fault(hold, WAITS),
    "holders of another namespace": fault(hold, WAITS, OTHER),
    "holders of lower priority": fault(hold, WAITS, OTHER, priority=-5),
    "holders of higher priority": fault(hold, WAITS, OTHER, priority=1000),
    "CPUs in use": fault(busy, WAITS, "cpu", "16"),
    "memory in use": fault(busy, WAITS, "memory", "64Gi"),
    "ten pods on each node": fault(full, WAITS),
    # on its node
    "an image that does not exist": fault(fails, CHANGE, waiting={"reason": "ImagePullBackOff", "message": "not found"}, spellings=OWN, alone=True),
    "a crash loop": fault(fails, CHANGE, 80, waiting={"reason": "CrashLoopBackOff"}, spellings=OWN, alone=True),
    "a driver that does not prepare": Fault(lambda world: (bind(world), warn(world, "FailedPrepareDynamicResources", "driver is gone")), CHANGE, OWN, alone=True),
    "a node named by hand": fault(field("spec.nodeName", "n0"), CHANGE, spellings=OWN, alone=True),
}  # fmt: skip


def plant(fleet: str, spelling: str, *kinds: str) -> World:
    """Return a fleet with these faults of the pod."""
    world = World(fleet, spelling)
    for kind in kinds:
        FAULTS[kind].plant(world)
    return world


# ---- what users do


def of_pod(world, name, *values):
    """Correct one field of the pod's spec or of its container."""
    if name == "tolerations":
        key, _, effect = values[0].rpartition(":")
        tolerate(world, key.partition("=")[0], **({"effect": effect} if key else {}))
        world.spec["tolerations"][-1] |= {"operator": "Exists"}
    elif name == "labels":
        world.spec["nodeSelector"] = (
            {} if values[0] == "any" else {"zone": world.nodes[values[0]]["metadata"]["labels"]["zone"]}
        )
        world.spec.pop("affinity", None)
    else:
        quantity, resource = values
        for main in (world.container, *world.spec.get("initContainers", ())):
            if resource in main["resources"]["requests"]:
                main["resources"]["requests"][resource] = quantity


def mend_devices(world, node, deleted=""):
    if deleted:
        world.remove("DeviceTaintRule", f"/{deleted}")
    for device in world.slices[node]["spec"]["devices"]:
        device.pop("taints", None)


def mend_node(world, node, taint=""):
    kept = [
        stored
        for stored in world.nodes[node]["spec"]["taints"]
        if not stored["key"].startswith(taint or "node.kubernetes.io/")
    ]
    world.nodes[node]["spec"]["taints"] = kept


def request_tolerates(world, taint):
    key, _, effect = taint.rpartition(":")
    world.body.setdefault("tolerations", []).append({"key": key, "operator": "Exists", "effect": effect})
    if world.spelling == EXTENDED:
        world.spelling = CLAIM


def exists(world):
    world.without.clear()


def publish(world):
    """Correct the class, and let the drivers publish their devices."""
    world.classes["gpu"]["spec"]["selectors"] = [{"cel": {"expression": f"device.driver == '{GPU}'"}}]
    world.slices = world.slices or World(world.fleet, world.spelling).slices


REMEDIES = {
    r"uncordon node (\S+)": lambda world, node: world.nodes[node]["spec"].pop("unschedulable"),
    r"repair node (\S+)": mend_node,
    r"end the maintenance of node (\S+), and remove its taint (\S+):": mend_node,
    r"repair the devices of node (\S+), then delete DeviceTaintRule (\S+)": mend_devices,
    r"repair the devices of node (\S+)": mend_devices,
    r"delete claim (\S+)": lambda world, claim: world.remove("ResourceClaim", claim),
    r"restart the driver on node ([^\s,]+)": lambda world, node: world.slices[node]["spec"]["pool"].update(resourceSliceCount=1),
    r"let request r of the claim tolerate (\S+)": request_tolerates,
    r"write a ResourceClaim that tolerates (\S+):NoSchedule: claims": lambda world, key: request_tolerates(world, f"{key}:NoSchedule"),
    r"^tolerate ([^\s,]+)": lambda world, taint: of_pod(world, "tolerations", taint),
    r"select labels of node ([^\s,]+)": lambda world, node: of_pod(world, "labels", node),
    r"select labels that nodes have": lambda world: of_pod(world, "labels", "any"),
    r"^select (\S+)=(\S+) instead of": lambda world, key, value: world.spec["nodeSelector"].update({key: value}),
    r"request at most (\S+) (cpu|memory)$": lambda world, quantity, resource: of_pod(world, "amount", quantity, resource),
    r"remove (\S+) from what it requests": lambda world, resource: world.container["resources"]["requests"].pop(resource),
    r"request at most (\d+) devices? in": lambda world, count: world.body.update(count=int(count)),
    r"request at most (\S+) of memory per device": lambda world, quantity: world.body.update(capacity={"requests": {"memory": quantity}}),
    r"request one of these values|request a device that a node has|did you mean H100\?|remove the selector": lambda world: world.body.pop("selectors"),
    r"remove the constraint": lambda world: world.constraints.clear(),
    r"use DeviceClass (\S+)": lambda world, name: world.body.update(deviceClassName=name),
    r"create it, or": exists,
    r"check that a scheduler with that profile runs": lambda world: (world.spec.pop("schedulerName"), setattr(world, "message", TRIED)),
    r"create PersistentVolumeClaim|look at the volume": lambda world: setattr(world, "message", TRIED),
    r"create the other pods of the group, or lower its minCount": lambda world: (world.spec.pop("schedulingGroup"), world.remove("PodGroup", f"{TEAM}/group")),
    r"let the pod run where its claim is allocated": lambda world: of_pod(world, "labels", "any"),
    r"install the driver's chart": lambda world: world.classes.update({name: device_class(name, f"device.driver == '{GPU}'") for name in [world.body["deviceClassName"]]}),
    r"check that the driver runs and publishes": publish,
    r"correct this selector": lambda world: world.body.pop("selectors"),
    r"look at its log|look at the pod's events|check that the driver's pod runs": lambda world: world.pod_status.update(phase="Running", containerStatuses=[]),
    r"delete the pod, and create it again without nodeName": lambda world: world.spec.pop("nodeName"),
}  # fmt: skip
# What a user reads in the text if no single change helps.
READ = {r"memory: 90Gi requested, the device has (\S+)": REMEDIES[r"request at most (\S+) of memory per device"]}
# What happens without anybody, by the text of a pod that waits.
ENDS = {
    r"pod (\S+?),? (?:which has a higher priority, )?holds": lambda world, pod: world.end(pod),
    r"pod (\S+) requests the most": lambda world, pod: world.end(pod),
    r"node (\S+) has as many pods as it can have": lambda world, node: world.end(world.first_on(node)),
}


def apply(world: World, text: str, remedy: str, waits: bool) -> None:
    """Do what a remedy says; if the pod waits, end the pod that its text names."""
    by_text = ENDS if waits else READ if remedy == CODES["O115"].remedy else {}
    for pattern, act in (by_text or REMEDIES).items():
        if match := re.search(pattern, text if by_text else remedy):
            act(world, *match.groups())
            return
    raise AssertionError(f"nobody can apply this: {text} -> {remedy}")
