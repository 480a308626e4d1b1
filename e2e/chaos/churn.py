"""Pods that come, are placed, stay a while and go, always a few more than the devices can serve.

No kubelet runs them: a pod that has a node is deleted, or says that it has succeeded and is deleted later. Requests that fail because the
API server is away are made again in the next round; nothing else is remembered than what a list shows.
"""

import http.client
import random
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from e2e.actors import fleet
from e2e.actors.client import BUSY, ApiError, Client, Object
from e2e.actors.workloads import claim, pod, request, template, using, using_template
from e2e.chaos.judge import FICKLE, FINAL

WHOLE, SHARED, HALF, QUARTER = "chaos-gpu", "chaos-share", "chaos-half", "chaos-quarter"
GPUS, SHARES = 4, 1  # devices of a node
PARTS = "parts.example.com"  # a driver: its one GPU a node is halves or quarters, never both
SHARE = {"requests": {"memory": "16Gi", "cores": "30"}}  # two of them fit on a device
KINDS = {"one": 6, "two": 2, "share": 4, "half": 1, "quarter": 2}  # templates, and how often each
TOGETHER = 3  # pods of one shared claim
GROUP = "group-"
ROUND_SECONDS = 0.5
TURNOVER = 0.08  # of the pods that have a node, those that go in a round
THREADS = 4
PASSING = (OSError, http.client.HTTPException, ApiError)


def devices(nodes: Iterable[str]) -> list[Object]:
    """The classes, and what each node has: whole GPUs, one that is shared by memory and cores, and one that is parted."""
    made = [
        fleet.device_class(WHOLE, f"device.driver == '{fleet.NVIDIA}'"),
        fleet.device_class(SHARED, f"device.driver == '{fleet.HAMI}'"),
        fleet.device_class(HALF, of_parts("half")),
        fleet.device_class(QUARTER, of_parts("quarter")),
    ]
    for name in nodes:
        made += fleet.slices(fleet.NVIDIA, name, fleet.whole_gpus(GPUS), by_name=True)
        made += fleet.slices(fleet.HAMI, name, fleet.hami_gpus(SHARES), by_name=True)
        made += fleet.counted_slices(PARTS, name, {"gpu": {"memory": "40Gi"}}, parts(), by_name=True)
    return made


def parts() -> list[Object]:
    """Halves and quarters of one GPU, by its memory; one kind beside the other does not work."""
    sizes = [("half", "20Gi")] * 2 + [("quarter", "10Gi")] * 4
    return [
        fleet.device(f"part-{at}", {"kind": kind}, consumesCounters=[fleet.consumes("gpu", [kind], memory=size)])
        for at, (kind, size) in enumerate(sizes)
    ]


def of_parts(kind: str) -> str:
    return f"device.driver == '{PARTS}' && device.attributes['{PARTS}'].kind == '{kind}'"


def crowd(nodes: int) -> int:
    """How many pods there have to be for some to wait: seven want five GPUs, a share and a part on average."""
    return max(8, round(nodes * (GPUS + 3 * SHARES) * 0.95))


class Churn:
    """Goes on in a thread from `start()` to `stop()`; `drain()` sees every pod through."""

    def __init__(self, cluster: Client, namespace: str, scheduler: str, *, pods: int, seed: int, **fields: Any) -> None:
        """`pods` are there at a time; `fields` are added to every request for devices."""
        self.cluster = cluster
        self.path = f"/api/v1/namespaces/{namespace}/pods"
        self.claims_path = f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims"
        self.namespace = namespace
        self.scheduler = scheduler
        self.fields = fields
        self.target = pods
        self.random = random.Random(seed)
        self.made = 0
        self.seen: set[str] = set()  # uids of pods that had a node
        self.listed = 0.0  # when the pods were listed last
        self.last_bound = 0.0  # some pod was bound after this moment
        self.over = threading.Event()
        self.several = ThreadPoolExecutor(THREADS)
        self.thread = threading.Thread(target=self.run)

    def start(self) -> None:
        self.cluster.create(
            template("one", self.namespace, self.wanted(WHOLE)),
            template("two", self.namespace, self.wanted(WHOLE, 2)),
            template("share", self.namespace, self.wanted(SHARED, capacity=SHARE)),
            template("half", self.namespace, self.wanted(HALF)),
            template("quarter", self.namespace, self.wanted(QUARTER)),
        )
        self.thread.start()

    def stop(self) -> None:
        self.over.set()
        self.thread.join()

    def close(self) -> None:
        self.stop()
        self.several.shutdown()

    def run(self) -> None:
        while not self.over.wait(ROUND_SECONDS):
            self.round(self.target)

    def round(self, target: int, turnover: float = TURNOVER) -> int:
        """Let some pods go and make others; say how many there were."""
        begun = time.monotonic()
        try:
            found = self.cluster.get(self.path)["items"]
            self.keep_claims(found)
        except PASSING:
            return target
        bound = [one for one in found if one["spec"].get("nodeName") and phase(one) not in FINAL]
        pending = [one for one in found if not one["spec"].get("nodeName")]
        self.note(bound, begun)
        going = self.random.sample(bound, min(len(bound), round(len(bound) * turnover + 0.5)))
        fickle = [one for one in pending if FICKLE in one["metadata"].get("labels", {})]
        work = [lambda one=one: self.end(one) for one in going]
        work += [lambda one=one: self.delete(one) for one in found if phase(one) in FINAL]
        work += [lambda one=one: self.delete(one) for one in fickle if self.random.random() < 0.1]
        missing = target - len(bound) - len(pending)
        if missing > 0 and (late := self.latecomer(bound)):
            work.append(lambda: self.cluster.create(late))
            missing -= 1
        while missing > 0:
            items = self.next_pods()
            work.append(lambda items=items: self.cluster.create(*items))
            missing -= len(items)
        self.do(work)
        return len(found)

    def drain(self, seconds: float) -> int:
        """Make no more pods, and let those that have a node go until all had one; say how many are left."""
        deadline = time.monotonic() + seconds * BUSY
        while (left := self.round(0, turnover=0.5)) and time.monotonic() < deadline:
            time.sleep(ROUND_SECONDS)
        return left

    def note(self, bound: list[Object], listed: float) -> None:
        """Remember pods with a node. One without a node in the list before was bound after that one."""
        uids = {one["metadata"]["uid"] for one in bound}
        if uids - self.seen:
            self.last_bound = self.listed
        self.seen |= uids
        self.listed = listed

    def keep_claims(self, pods: list[Object]) -> None:
        """Make the shared claims that pods wait for, and delete those of which no pod is left; templates' go with their pods."""
        wanted = {name for one in pods if (name := group_of(one))}
        found = self.cluster.get(self.claims_path)["items"]
        there = {one["metadata"]["name"] for one in found if one["metadata"]["name"].startswith(GROUP)}
        for name in sorted(wanted - there):
            self.cluster.create(claim(name, self.namespace, self.wanted(WHOLE)))
        for name in sorted(there - wanted):
            self.cluster.delete(f"{self.claims_path}/{name}")

    def next_pods(self) -> list[Object]:
        """A pod with its own claim, or several that share one, which is made when they are there."""
        self.made += 1
        if self.made % 5 == 0:
            name = f"{GROUP}{self.made}"
            return [self.pod(f"{name}-{at}", using(name)) for at in range(TOGETHER)]
        kind = self.random.choices(tuple(KINDS), tuple(KINDS.values()))[0]
        return [self.pod(f"{kind}-{self.made}", using_template(kind))]

    def latecomer(self, bound: list[Object]) -> Object | None:
        """A pod for a claim that others have already. Those of a group come at once, so that one write serves all of them."""
        names = sorted({name for one in bound if (name := group_of(one))})
        if not names:
            return None
        self.made += 1
        name = self.random.choice(names)
        return self.pod(f"{name}-{self.made}", using(name))

    def wanted(self, device_class: str, count: int = 1, **fields: Any) -> Object:
        return request("gpu", device_class, count, **fields, **self.fields)

    def pod(self, name: str, uses: Object) -> Object:
        item = pod(name, self.namespace, schedulerName=self.scheduler, resourceClaims=[uses])
        if self.random.random() < 0.1:
            item["metadata"]["labels"] = {FICKLE: ""}
        return item

    def end(self, one: Object) -> None:
        if self.random.random() < 0.7:
            self.delete(one)
            return
        self.cluster.patch(f"{self.path}/{one['metadata']['name']}/status", {"status": {"phase": "Succeeded"}})

    def delete(self, one: Object) -> None:
        """Delete it as it is known: what got a node meanwhile is another round's."""
        known = {"uid": one["metadata"]["uid"]}
        if not one["spec"].get("nodeName"):
            known["resourceVersion"] = one["metadata"]["resourceVersion"]
        body = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0, "preconditions": known}
        self.cluster.request("DELETE", f"{self.path}/{one['metadata']['name']}", body)

    def do(self, work: list[Callable[[], Any]]) -> None:
        """Do it all, a few at a time. What fails is found undone by the next round."""

        def attempt(one: Callable[[], Any]) -> None:
            try:
                one()
            except PASSING:
                return

        list(self.several.map(attempt, work))


def group_of(item: Object) -> str:
    """The shared claim of a pod; "" if it has one of its own."""
    name: str = item["metadata"]["name"].rpartition("-")[0]
    return name if name.startswith(GROUP) else ""


def phase(item: Object) -> str:
    return str(item.get("status", {}).get("phase", ""))
