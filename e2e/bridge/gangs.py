"""Random gangs and their allowed outcomes. A gang is a group of pods that are placed together, here on two nodes of its own."""

import itertools
import re
import time
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from e2e.actors import fleet
from e2e.actors.bridge import SCHEDULER
from e2e.actors.workloads import group, pod, using_template
from tests.limits import PATIENCE

DRIVER = "group.example.com"
CLASS = "group-gpu"


class Gang(NamedTuple):
    """Pods to be placed together on two nodes, beside pods that hold devices there."""

    free: tuple[int, int]  # devices of each node that no pod holds
    lesser: tuple[int, int]  # devices of each node that pods of lower priority hold
    greater: tuple[int, int]  # devices of each node that pods of higher priority hold
    members: tuple[int, ...]  # how many devices each member requests

    @property
    def fewest_victims(self):
        """The smallest number of evictions with which all members fit, over all placements; None if they never fit."""
        victims = []
        for placement in itertools.product((0, 1), repeat=len(self.members)):
            requested = [
                sum(count for count, place in zip(self.members, placement, strict=True) if place == node)
                for node in (0, 1)
            ]
            lacking = [max(0, requested[node] - self.free[node]) for node in (0, 1)]
            if all(lacking[node] <= self.lesser[node] for node in (0, 1)):
                victims.append(sum(lacking))
        return min(victims, default=None)

    @property
    def has_equal_members(self):
        """Whether the order in which members are placed does not matter."""
        return len(set(self.members)) == 1


def random_gang(draw):
    held = [[draw.choice((0, 0, 1, 2)) for _ in range(2)] for _ in range(3)]
    members = [draw.choice((1, 1, 2)) for _ in range(draw.randint(2, 4))]
    if draw.random() < 0.6:
        members = members[:1] * len(members)
    return Gang(*(tuple(devices) for devices in held), tuple(members))


class GangTrial:
    """One gang for one scheduler, on nodes of its own."""

    def __init__(self, cluster, namespace, scheduler, index, gang):
        self.cluster, self.namespace, self.scheduler, self.gang = cluster, namespace, scheduler, gang
        self.ours = scheduler == SCHEDULER
        self.name = f"{'ours' if self.ours else 'stock'}-{index}"
        self.nodes = [f"gang-{self.name}-{node}" for node in range(2)]
        self.members = [f"{self.name}-m{index}" for index in range(len(gang.members))]
        # kube-scheduler does not evict pods for a group's devices: there only pods of higher priority hold devices.
        self.holders = [
            (f"{self.name}-{kind}{node}{index}", node, kind)
            for kind, counts in (("lesser", gang.lesser), ("greater", gang.greater))
            for node in range(2)
            for index in range(counts[node])
            if self.ours or kind == "greater"
        ]

    def prepare(self):
        for node in range(2):
            device_count = self.gang.free[node] + sum(holder[1] == node for holder in self.holders)
            devices = [fleet.device(f"gpu-{at}", {}) for at in range(device_count)]
            self.cluster.create(*fleet.slices(DRIVER, self.nodes[node], devices, by_name=True))
        for name, node, kind in self.holders:
            self.cluster.create(self.pod(name, 1, node=self.nodes[node], priorityClassName=f"gang-{kind}"))

    def pod(self, name, count, **spec):
        fields = {"terminationGracePeriodSeconds": 0, "nodeSelector": {"stall": self.name}} | spec
        return pod(name, self.namespace, schedulerName=self.scheduler, resourceClaims=[using_template(f"take-{count}")], **fields)  # fmt: skip

    def begin(self):
        fields = {"schedulingGroup": {"podGroupName": self.name}, "priorityClassName": "gang-middle"}
        self.cluster.create(
            group(self.name, self.namespace, len(self.members), priorityClassName="gang-middle"),
            *(self.pod(name, count, **fields) for name, count in zip(self.members, self.gang.members, strict=True)),
        )

    def is_over(self, pods):
        """Return whether all members are placed, or all have a reason."""
        members = [pods[name] for name in self.members]
        return all(pod["spec"].get("nodeName") for pod in members) or (
            self.may_wait and all(reason_of(pod) for pod in members)
        )

    @property
    def may_wait(self):
        fewest = self.gang.fewest_victims
        return fewest is None or not self.gang.has_equal_members or (fewest > 0 and not self.ours)

    def faults(self, pods, claims):
        """Yield what is wrong with the outcome of a gang."""
        placed = [name for name in self.members if pods[name]["spec"].get("nodeName")]
        fewest = self.gang.fewest_victims
        evicted = [name for name, *_ in self.holders if name not in pods]
        if 0 < len(placed) < len(self.members):
            yield f"only some members are placed: {placed}"
        if placed and (fewest is None or (fewest and not self.ours)):
            yield "the gang is placed although it does not fit"
        if not placed and evicted:
            yield f"no member is placed, and these pods were evicted: {evicted}"
        if any("greater" in name for name in evicted) or (
            evicted and self.gang.has_equal_members and len(evicted) > fewest + 1
        ):
            yield f"these pods were evicted: {evicted}; {fewest} evictions are enough"
        held = [(result["driver"], result["pool"], result["device"]) for claim in claims.values() for result in claim if result["pool"].startswith(f"gang-{self.name}-")]  # fmt: skip
        if len(set(held)) < len(held):
            yield f"a device is held twice: {held}"
        for name in self.members if self.ours and not placed else ():
            reason = reason_of(pods[name])
            if (
                any(claims.get(name) is None for name in re.findall(r"held by claim [-a-z0-9]+/([-a-z0-9]+)", reason))
                or not reason
            ):
                yield f"{name} waits with the reason {reason!r}"


def reason_of(pod_):
    conditions = [condition for condition in pod_["status"].get("conditions", ()) if condition["type"] == "PodScheduled" and condition["status"] == "False"]  # fmt: skip
    return conditions[0]["message"] if conditions else ""


def by_name(cluster, path):
    return {item["metadata"]["name"]: item for item in cluster.get(path)["items"]}


def play(cluster, namespace, trials):
    """Place gangs at the same time. Once no outcome has a fault, or on timeout, return all pods and the devices of all claims."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    claims_path = f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims"
    with ThreadPoolExecutor(6) as executor:
        list(executor.map(GangTrial.prepare, trials))
        cluster.until("the pods that hold devices are placed", lambda: all(pod["spec"].get("nodeName") for pod in cluster.get(path)["items"]), PATIENCE)  # fmt: skip
        list(executor.map(GangTrial.begin, trials))

    def read_state():
        claims = {name: claim["status"]["allocation"]["devices"]["results"] for name, claim in by_name(cluster, claims_path).items() if claim.get("status", {}).get("allocation")}  # fmt: skip
        return by_name(cluster, path), claims

    cluster.until("each gang is placed or has a reason", lambda: all(trial.is_over(by_name(cluster, path)) for trial in trials), PATIENCE)  # fmt: skip
    time.sleep(1)  # a partial placement or a needless eviction would have happened by now
    deadline = time.monotonic() + PATIENCE
    state = read_state()
    # Pods are bound one by one, and victims end before a gang is placed.
    while any(fault for trial in trials for fault in trial.faults(*state)) and time.monotonic() < deadline:
        time.sleep(0.2)
        state = read_state()
    cluster.delete(path, gracePeriodSeconds=0)
    cluster.delete(f"/apis/scheduling.k8s.io/v1beta1/namespaces/{namespace}/podgroups")
    cluster.until("no claim is left", lambda: not by_name(cluster, claims_path), PATIENCE)
    for trial in trials:
        cluster.remove(*({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": fleet.slices(DRIVER, node, [], by_name=True)[0]["metadata"]["name"]}} for node in trial.nodes))  # fmt: skip
    return state
