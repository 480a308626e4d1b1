"""Creates pods, and deletes them some time after they were placed. There are always a few more pods than the devices can serve.

No kubelet runs the pods: a pod with a node is deleted, or its phase is set to Succeeded and it is deleted later. Requests that fail
while the API server is away are repeated in the next round; each round starts with a list of all pods.
"""

import http.client
import itertools
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

from e2e.actors import fleet
from e2e.actors.bridge import SCHEDULER
from e2e.actors.client import BUSY_FACTOR, ApiError, Client, Object
from e2e.actors.workloads import claim, container, group, limits, pod, request, template, using, using_template
from e2e.chaos.hardware import ANY, SHARE, WAYS, node_pod
from e2e.chaos.judge import BROKEN, FICKLE, FINAL, gang_of

WHOLE, SHARED, HALF, QUARTER = "chaos-gpu", "chaos-share", "chaos-half", "chaos-quarter"
GPUS, SHARES = 4, 1  # devices of a node
PARTS = "parts.example.com"  # a driver whose one GPU per node is partitioned into halves or quarters, never both
RACK = "rack.example.com"  # a driver for gangs, urgent pods and pods that request its devices by name; also its class
NAMED, NAME = "chaos-named", "rack.example.com/device"  # the class with a name
RACK_DEVICES = 4  # of a node
URGENT = "chaos-urgent"
TEMPLATES: dict[str, tuple[str, Object]] = {
    "one": (WHOLE, {}),
    "two": (WHOLE, {"count": 2}),
    "share": (SHARED, {"capacity": SHARE}),
    "half": (HALF, {}),
    "quarter": (QUARTER, {}),
    "rack": (RACK, {}),
    **{way: (f"chaos-own-{way}", {"capacity": SHARE} if way == "shared" else {}) for way in WAYS},
}
PODS_PER_GROUP = 3  # pods per shared claim, and per gang
GROUP = "group-"
EVICTION_SECONDS = 90.0  # in which all members of a gang have to be evicted, also by a new leader
ROUND_SECONDS, NODE_ROUND_SECONDS = 0.5, 2.0
TURNOVER = 0.08  # share of the bound pods that are deleted in a round
THREADS = 4
TRANSIENT_ERRORS = (OSError, http.client.HTTPException, ApiError)


def devices(nodes: Iterable[str]) -> list[Object]:
    """The classes, and the devices of each node: whole GPUs, one shared by memory and cores, and one with partitions."""
    objects = [
        fleet.device_class(WHOLE, f"device.driver == '{fleet.NVIDIA}'"),
        fleet.device_class(SHARED, f"device.driver == '{fleet.HAMI}'"),
        fleet.device_class(HALF, part_expression("half")),
        fleet.device_class(QUARTER, part_expression("quarter")),
        fleet.device_class(RACK, f"device.driver == '{RACK}'"),
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": URGENT}, "value": 1000},
        named_class(),
    ]
    for name in nodes:
        objects += fleet.slices(fleet.NVIDIA, name, fleet.whole_gpus(GPUS), by_name=True)
        objects += fleet.slices(fleet.HAMI, name, fleet.hami_gpus(SHARES), by_name=True)
        objects += fleet.counted_slices(PARTS, name, {"gpu": {"memory": "40Gi"}}, parts(), by_name=True)
        objects += fleet.slices(
            RACK, name, [fleet.device(f"rack-{at}", {}) for at in range(RACK_DEVICES)], by_name=True
        )
    return objects


def named_class() -> Object:
    return fleet.device_class(NAMED, f"device.driver == '{RACK}'", NAME)


def parts() -> list[Object]:
    """Halves and quarters of one GPU, by its memory; the two kinds exclude each other."""
    sizes = [("half", "20Gi")] * 2 + [("quarter", "10Gi")] * 4
    return [
        fleet.device(f"part-{index}", {"kind": kind}, consumesCounters=[fleet.consumes("gpu", [kind], memory=size)])
        for index, (kind, size) in enumerate(sizes)
    ]


def part_expression(kind: str) -> str:
    return f"device.driver == '{PARTS}' && device.attributes['{PARTS}'].kind == '{kind}'"


def crowd(nodes: int) -> int:
    """Return a number of pods of which some wait. On average seven pods request about four GPUs, one share and one partition."""
    return max(8, round(nodes * (GPUS + 3 * SHARES) * 0.95))


class Kind(NamedTuple):
    """A row of a crowd: how often such pods arrive, and the objects of one arrival."""

    weight: int
    arrive: Callable[["Churn", str], list[Object]]


class Churn:
    """Runs in a thread from `start()` to `stop()`. At the end of `drain()` all pods were placed and deleted."""

    def __init__(
        self,
        cluster: Client,
        namespace: str,
        scheduler: str,
        *,
        pods: int,
        seed: int,
        kinds: dict[str, Kind] | None = None,
        has_kubelet: bool = False,
        **fields: Any,
    ) -> None:
        """`pods` is the number of pods at a time; `fields` are added to every request for devices. A kubelet ends some pods in their grace period."""
        self.kinds = kinds or CLAIMING
        self.pause = NODE_ROUND_SECONDS if has_kubelet else ROUND_SECONDS
        self.has_kubelet = has_kubelet
        self.incomplete: dict[str, float] = {}  # since when gangs lack a member
        self.cluster = cluster
        self.path = f"/api/v1/namespaces/{namespace}/pods"
        self.claims_path = f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims"
        self.namespace = namespace
        self.scheduler = scheduler
        self.fields = fields
        self.target = pods
        self.random = random.Random(seed)
        self.created = 0
        self.bound_uids: set[str] = set()  # uids of pods that had a node
        self.listed = 0.0  # when the pods were listed last
        self.last_bound = 0.0  # a pod was bound after this moment
        self.stopped = threading.Event()
        self.executor = ThreadPoolExecutor(THREADS)
        self.thread = threading.Thread(target=self.run)

    def start(self) -> None:
        for name, (device_class, fields) in TEMPLATES.items():
            self.cluster.create(template(name, self.namespace, self.device_request(device_class, **fields)))
        self.cluster.create(template("any", self.namespace, ANY))
        self.thread.start()

    def stop(self) -> None:
        self.stopped.set()
        self.thread.join()

    def close(self) -> None:
        self.stop()
        self.executor.shutdown()

    def run(self) -> None:
        while not self.stopped.wait(self.pause):
            self.round(self.target)

    def round(self, target: int, turnover: float = TURNOVER) -> int:
        """Delete some pods and create others; return how many there were."""
        begun = time.monotonic()
        try:
            pods = self.cluster.get(self.path)["items"]
            self.keep_claims(pods)
        except TRANSIENT_ERRORS:
            return target
        gangs = [pod for pod in pods if gang_of(pod)]
        work = [*self.end_gangs(gangs, turnover, draining=not target)]
        alone = [pod for pod in pods if not gang_of(pod)]
        bound = [pod for pod in alone if pod["spec"].get("nodeName") and phase(pod) not in FINAL]
        pending = [pod for pod in alone if not pod["spec"].get("nodeName")]
        self.record_bound(bound, begun)
        ended = self.random.sample(bound, min(len(bound), round(len(bound) * turnover + 0.5)))
        fickle = [pod for pod in pending if FICKLE in pod["metadata"].get("labels", {})]
        work += [lambda pod=pod: self.end(pod) for pod in ended]
        work += [lambda pod=pod: self.delete(pod) for pod in pods if phase(pod) in FINAL]
        work += [lambda pod=pod: self.delete(pod) for pod in fickle if self.random.random() < 0.1]
        missing = target - len(bound) - len(pending) - len(gangs)
        if missing > 0 and (latecomer := self.latecomer(bound)):
            work.append(lambda: self.cluster.create(latecomer))
            missing -= 1
        while missing > 0:
            items = self.next_objects()
            work.append(lambda items=items: self.cluster.create(*items))
            missing -= sum(item["kind"] == "Pod" for item in items)
        self.attempt_all(work)
        return len(pods)

    def drain(self, seconds: float) -> int:
        """Create no more pods, and delete pods with a node until every pod had a node; return how many pods are left."""
        deadline = time.monotonic() + seconds * BUSY_FACTOR
        while (remaining := self.round(0, turnover=0.5)) and time.monotonic() < deadline:
            time.sleep(ROUND_SECONDS)
        return remaining

    def record_bound(self, bound: list[Object], listed: float) -> None:
        """Record pods with a node. A pod that had none in the previous list was bound after it."""
        uids = {pod["metadata"]["uid"] for pod in bound}
        if uids - self.bound_uids:
            self.last_bound = self.listed
        self.bound_uids |= uids
        self.listed = listed

    def keep_claims(self, pods: list[Object]) -> None:
        """Create the shared claims that pods wait for, and delete shared claims without a pod; other claims end with their pods."""
        wanted = {name for pod in pods if (name := group_of(pod))}
        claims = self.cluster.get(self.claims_path)["items"]
        existing = {claim["metadata"]["name"] for claim in claims if claim["metadata"]["name"].startswith(GROUP)}
        for name in sorted(wanted - existing):
            self.cluster.create(claim(name, self.namespace, self.device_request(WHOLE)))
        for name in sorted(existing - wanted):
            self.cluster.delete(f"{self.claims_path}/{name}")

    def next_objects(self) -> list[Object]:
        """Return a pod, or several pods that belong together."""
        self.created += 1
        weights = [kind.weight for kind in self.kinds.values()]
        [name] = self.random.choices(tuple(self.kinds), weights)
        return self.kinds[name].arrive(self, f"{name}-{self.created}")

    def end_gangs(self, members: list[Object], turnover: float, *, draining: bool) -> Iterator[Callable[[], Any]]:
        """Yield the deletions of some complete gangs, and of gangs that have lacked a member for long, whose other members get a label."""
        now = time.monotonic()
        for name, group_ in itertools.groupby(members, key=gang_of):
            pods = [*group_]
            if len(pods) < PODS_PER_GROUP:
                broken = now - self.incomplete.setdefault(name, now) > EVICTION_SECONDS
                ends = broken or draining
            else:
                broken = False
                ends = all(pod["spec"].get("nodeName") for pod in pods) and self.random.random() < turnover
            if ends:
                yield partial(self.end_gang, name, pods, broken=broken)

    def end_gang(self, name: str, pods: list[Object], *, broken: bool) -> None:
        for member in pods if broken else ():
            self.cluster.patch(f"{self.path}/{member['metadata']['name']}", {"metadata": {"labels": {BROKEN: ""}}})
        for member in pods:
            self.delete(member)
        self.cluster.delete(f"/apis/scheduling.k8s.io/v1beta1/namespaces/{self.namespace}/podgroups/{name}")

    def latecomer(self, bound: list[Object]) -> Object | None:
        """Return a pod for a claim that other pods already use, which needs a write of its own: for the first pods, one write served all."""
        names = sorted({name for pod in bound if (name := group_of(pod))})
        if not names:
            return None
        self.created += 1
        name = self.random.choice(names)
        return self.pod(f"{name}-{self.created}", resourceClaims=[using(name)])

    def device_request(self, device_class: str, **fields: Any) -> Object:
        return request("gpu", device_class, **fields, **self.fields)

    def pod(self, name: str, *containers: Object, **spec: Any) -> Object:
        item = pod(name, self.namespace, *containers, schedulerName=self.scheduler, **spec)
        if "schedulingGroup" in spec or self.random.random() < 0.1:
            item["metadata"]["labels"] = {FICKLE: ""}
        return item

    def end(self, pod: Object) -> None:
        if self.has_kubelet and self.random.random() < 0.5:
            self.cluster.delete(f"{self.path}/{pod['metadata']['name']}")
        elif self.has_kubelet or self.random.random() < 0.7:
            self.delete(pod)
        else:
            self.cluster.patch(f"{self.path}/{pod['metadata']['name']}/status", {"status": {"phase": "Succeeded"}})

    def delete(self, pod: Object) -> None:
        """Delete a pod; a pod that had no node is deleted only if it has not changed since it was listed."""
        preconditions = {"uid": pod["metadata"]["uid"]}
        if not pod["spec"].get("nodeName"):
            preconditions["resourceVersion"] = pod["metadata"]["resourceVersion"]
        body = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0, "preconditions": preconditions}
        self.cluster.request("DELETE", f"{self.path}/{pod['metadata']['name']}", body)

    def attempt_all(self, work: list[Callable[[], Any]]) -> None:
        """Run all actions, a few at a time. The next round repeats what failed."""

        def attempt(action: Callable[[], Any]) -> None:
            try:
                action()
            except TRANSIENT_ERRORS:
                return

        list(self.executor.map(attempt, work))


def group_of(item: Object) -> str:
    """Return the shared claim of a pod; "" if it has its own."""
    name: str = item["metadata"]["name"].rpartition("-")[0]
    return name if name.startswith(GROUP) else ""


def phase(item: Object) -> str:
    return str(item.get("status", {}).get("phase", ""))


def from_template(churn: Churn, name: str) -> list[Object]:
    """A pod with a claim of its own."""
    return [churn.pod(name, resourceClaims=[using_template(name.partition("-")[0])])]


def with_shared_claim(churn: Churn, name: str) -> list[Object]:
    """Several pods that share a claim, which is created after them."""
    return [churn.pod(f"{name}-{index}", resourceClaims=[using(name)]) for index in range(PODS_PER_GROUP)]


def by_name(churn: Churn, name: str) -> list[Object]:
    """A pod that requests a device by an extended resource name."""
    return [churn.pod(name, container(**limits(**{NAME: 1})))]


def on_real_node(churn: Churn, name: str) -> list[Object]:
    """A pod whose container prints its hardware."""
    spec = node_pod(using_template(name.partition("-")[0]))
    return [churn.pod(name, *spec.pop("containers"), **spec)]


def gang(churn: Churn, name: str) -> list[Object]:
    """Pods that are placed and evicted together."""
    fields = {"schedulingGroup": {"podGroupName": name}, "terminationGracePeriodSeconds": 0}
    members = [
        churn.pod(f"{name}-{index}", resourceClaims=[using_template("rack")], **fields)
        for index in range(PODS_PER_GROUP)
    ]
    return [group(name, churn.namespace, PODS_PER_GROUP, disruptionMode={"all": {}}), *members]


def urgent(churn: Churn, name: str) -> list[Object]:
    """A pod that may evict gangs."""
    return [churn.pod(name, resourceClaims=[using_template("rack")], priorityClassName=URGENT)]


CLAIMING = {
    "one": Kind(12, from_template),
    "two": Kind(4, from_template),
    "share": Kind(8, from_template),
    "half": Kind(2, from_template),
    "quarter": Kind(4, from_template),
    "group": Kind(8, with_shared_claim),
}
ON_RACKS = {"gang": Kind(2, gang), "urgent": Kind(1, urgent), "named": Kind(5, by_name)}
ON_REAL_NODE = {
    kind: Kind(weight, on_real_node) for kind, weight in {"any": 5, "gpu": 2, "mig": 1, "shared": 1}.items()
}


def crowds(cluster: Client, namespace: str, nodes: int, seed: int, *, real_node: bool) -> list[Churn]:
    """Return the crowds of a run, each with devices and a namespace of its own. The first is the largest."""
    on_racks = nodes * RACK_DEVICES * 3 // 2
    return [
        Churn(cluster, namespace, SCHEDULER, pods=crowd(nodes), seed=seed),
        Churn(cluster, f"{namespace}-racks", SCHEDULER, kinds=ON_RACKS, pods=on_racks, seed=seed + 1),
        *([Churn(cluster, f"{namespace}-node", SCHEDULER, kinds=ON_REAL_NODE, pods=10, seed=seed + 2, has_kubelet=True)] if real_node else ()),
    ]  # fmt: skip
