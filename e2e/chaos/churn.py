"""Creates pods, and deletes them some time after they were placed. There are always a few more pods than the devices can serve.

No kubelet runs the pods: a pod with a node is deleted, or its phase is set to Succeeded and it is deleted later. Requests that fail
while the API server is away are repeated in the next round; each round starts with a list of all pods.
"""

import http.client
import random
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from e2e.actors import fleet
from e2e.actors.client import BUSY_FACTOR, ApiError, Client, Object
from e2e.actors.workloads import claim, pod, request, template, using, using_template
from e2e.chaos.judge import FICKLE, FINAL

WHOLE, SHARED, HALF, QUARTER = "chaos-gpu", "chaos-share", "chaos-half", "chaos-quarter"
GPUS, SHARES = 4, 1  # devices of a node
PARTS = "parts.example.com"  # a driver whose one GPU per node is partitioned into halves or quarters, never both
SHARE = {"requests": {"memory": "16Gi", "cores": "30"}}  # two of them fit on a device
KINDS = {"one": 6, "two": 2, "share": 4, "half": 1, "quarter": 2}  # templates, and their weights
PODS_PER_GROUP = 3  # pods per shared claim
GROUP = "group-"
ROUND_SECONDS = 0.5
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
    ]
    for name in nodes:
        objects += fleet.slices(fleet.NVIDIA, name, fleet.whole_gpus(GPUS), by_name=True)
        objects += fleet.slices(fleet.HAMI, name, fleet.hami_gpus(SHARES), by_name=True)
        objects += fleet.counted_slices(PARTS, name, {"gpu": {"memory": "40Gi"}}, parts(), by_name=True)
    return objects


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


class Churn:
    """Runs in a thread from `start()` to `stop()`. At the end of `drain()` all pods were placed and deleted."""

    def __init__(self, cluster: Client, namespace: str, scheduler: str, *, pods: int, seed: int, **fields: Any) -> None:
        """`pods` is the number of pods at a time; `fields` are added to every request for devices."""
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
        self.cluster.create(
            template("one", self.namespace, self.device_request(WHOLE)),
            template("two", self.namespace, self.device_request(WHOLE, 2)),
            template("share", self.namespace, self.device_request(SHARED, capacity=SHARE)),
            template("half", self.namespace, self.device_request(HALF)),
            template("quarter", self.namespace, self.device_request(QUARTER)),
        )
        self.thread.start()

    def stop(self) -> None:
        self.stopped.set()
        self.thread.join()

    def close(self) -> None:
        self.stop()
        self.executor.shutdown()

    def run(self) -> None:
        while not self.stopped.wait(ROUND_SECONDS):
            self.round(self.target)

    def round(self, target: int, turnover: float = TURNOVER) -> int:
        """Delete some pods and create others; return how many there were."""
        begun = time.monotonic()
        try:
            pods = self.cluster.get(self.path)["items"]
            self.keep_claims(pods)
        except TRANSIENT_ERRORS:
            return target
        bound = [pod for pod in pods if pod["spec"].get("nodeName") and phase(pod) not in FINAL]
        pending = [pod for pod in pods if not pod["spec"].get("nodeName")]
        self.record_bound(bound, begun)
        ended = self.random.sample(bound, min(len(bound), round(len(bound) * turnover + 0.5)))
        fickle = [pod for pod in pending if FICKLE in pod["metadata"].get("labels", {})]
        work = [lambda pod=pod: self.end(pod) for pod in ended]
        work += [lambda pod=pod: self.delete(pod) for pod in pods if phase(pod) in FINAL]
        work += [lambda pod=pod: self.delete(pod) for pod in fickle if self.random.random() < 0.1]
        missing = target - len(bound) - len(pending)
        if missing > 0 and (latecomer := self.latecomer(bound)):
            work.append(lambda: self.cluster.create(latecomer))
            missing -= 1
        while missing > 0:
            items = self.next_pods()
            work.append(lambda items=items: self.cluster.create(*items))
            missing -= len(items)
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

    def next_pods(self) -> list[Object]:
        """Return a pod with its own claim, or several pods that share a claim, which is created after them."""
        self.created += 1
        if self.created % 5 == 0:
            name = f"{GROUP}{self.created}"
            return [self.pod(f"{name}-{index}", using(name)) for index in range(PODS_PER_GROUP)]
        kind = self.random.choices(tuple(KINDS), tuple(KINDS.values()))[0]
        return [self.pod(f"{kind}-{self.created}", using_template(kind))]

    def latecomer(self, bound: list[Object]) -> Object | None:
        """Return a pod for a claim that other pods already use, which needs a write of its own: for the first pods, one write served all."""
        names = sorted({name for pod in bound if (name := group_of(pod))})
        if not names:
            return None
        self.created += 1
        name = self.random.choice(names)
        return self.pod(f"{name}-{self.created}", using(name))

    def device_request(self, device_class: str, count: int = 1, **fields: Any) -> Object:
        return request("gpu", device_class, count, **fields, **self.fields)

    def pod(self, name: str, entry: Object) -> Object:
        item = pod(name, self.namespace, schedulerName=self.scheduler, resourceClaims=[entry])
        if self.random.random() < 0.1:
            item["metadata"]["labels"] = {FICKLE: ""}
        return item

    def end(self, pod: Object) -> None:
        if self.random.random() < 0.7:
            self.delete(pod)
            return
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
