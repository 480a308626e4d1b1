"""Troubles, one at a time: each returns when it is over and the killed process runs again.

A write point is a write to a claim: the connection breaks at this write, so that only one side knows its outcome, and the process is
killed.
"""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

from e2e.actors import clock
from e2e.actors.bridge import SCHEDULER
from e2e.actors.client import BUSY_FACTOR, ApiError, Object
from e2e.actors.proxy import Proxy, Request
from e2e.actors.webhook import SYSTEM
from e2e.actors.workloads import claim, pod, request, using
from e2e.build import program
from e2e.chaos.churn import NAMED, URGENT, named_class
from e2e.chaos.hardware import INSTALLED, INVENTORIES, MOVING, OTHER_NODE, node_pod
from e2e.chaos.judge import Fault
from e2e.chaos.pairs import Pair, Pairs, until
from e2e.ground.controlplane import ControlPlane
from e2e.ground.node import KUBELET

LEASE_SECONDS = 15.0
READY_SECONDS = 60.0
REACHED_SECONDS = 60.0
DAY = 86_400.0
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
CLAIM = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"}  # items of a list have no kind
BACKOFF_SECONDS = 2.0  # the longest of the schedulers (`e2e.actors.bridge`)
# Resources whose watch is late when the class appears: most often the class itself.
LATE = (*("deviceclasses",) * 4, "resourceslices", "resourceclaims", "pods", "nodes")
MISSED = "no such write was sent; killed without it"


class Scene(NamedTuple):
    """The objects that a trouble acts on."""

    cluster: ControlPlane
    controllers: Proxy  # of kube-controller-manager
    pairs: Pairs
    random: random.Random
    node: Any  # the Hardware, if there is a real node
    namespace: str  # for objects of troubles
    faults: list[Fault]

    def seconds(self, least: float, most: float) -> float:
        return self.random.uniform(least, most)


class Trouble(NamedTuple):
    """A trouble; `do` returns a note about how it went."""

    name: str
    do: Callable[[Scene], str]


def process_name(pair: Pair, label: str) -> str:
    """Return the name of a process: of a replica, or of the control plane."""
    servers = {"API server": "kube-apiserver", "controller manager": "kube-controller-manager"}
    return {"allocator": pair.allocator, "scheduler": pair.scheduler, **servers}.get(label, label)


def kill(scene: Scene, *, label: str) -> str:
    scene.cluster.kill(process_name(scene.pairs.leader(), label))
    await_api(scene)
    return ""


def await_api(scene: Scene) -> None:
    until("the API server is ready", scene.cluster.api_ready, READY_SECONDS)


def is_finalizer(write: Request) -> bool:
    return write.patches_claim and "finalizers" in write.body["metadata"]


def is_allocation(write: Request) -> bool:
    return write.patches_claim and bool(write.body.get("status", {}).get("allocation"))


def is_reservation(write: Request) -> bool:
    """Return whether a write changes the reservations of a claim that stays allocated."""
    return write.patches_claim and "allocation" not in write.body.get("status", {"allocation": None})


def is_claim_create(write: Request) -> bool:
    return write.verb == "POST" and write.path.partition("?")[0].endswith("/resourceclaims")


WRITES = {"the finalizer": is_finalizer, "the allocation": is_allocation, "a change of reservations": is_reservation}
CREATE = "a create of a claim"
REQUESTS = {**WRITES, CREATE: is_claim_create}


def kill_at(scene: Scene, *, label: str, selects: Callable[[Request], bool], answered: bool = True) -> str:
    """Break the connection of the client that sends a request, so that it gets no response, and kill a process.

    The leader's allocator writes claims. kube-controller-manager creates claims, and may create a second one.
    """
    pair = scene.pairs.leader()
    proxy = scene.controllers if selects is is_claim_create else pair.proxy
    proxy.break_at(1, answered=answered, selects=selects)
    reached = proxy.broken.wait(REACHED_SECONDS * BUSY_FACTOR)
    scene.cluster.kill(process_name(pair, label))
    proxy.restore()
    await_api(scene)
    return "" if reached else MISSED


def stop_leader(scene: Scene) -> str:
    """Stop the leader with SIGSTOP until the other replica leads, and continue it."""
    pair = scene.pairs.leader()
    begun = time.monotonic()
    with scene.cluster.process(pair.allocator).frozen():
        note = take_over(scene, pair, begun)
        time.sleep(scene.seconds(0, 2))
    return note


def disconnect_leader(scene: Scene) -> str:
    """Disconnect the leader from the API server until the other replica leads."""
    pair = scene.pairs.leader()
    begun = time.monotonic()
    pair.proxy.broken.set()
    try:
        return take_over(scene, pair, begun)
    finally:
        pair.proxy.restore()


def take_over(scene: Scene, pair: Pair, begun: float) -> str:
    """Wait until the other replica leads. A former leader waits a minute before it tries again."""
    until("the other replica leads", scene.pairs.other(pair).leads, 6 * LEASE_SECONDS)
    return f"the other replica led after {time.monotonic() - begun:.0f} s"


def slow(scene: Scene, *, of: Callable[[Pair], Proxy], least: float, most: float) -> str:
    """Delay each request of a process, for some seconds."""
    proxy = of(scene.pairs.leader())
    proxy.pause = scene.seconds(least, most)
    note = f"{proxy.pause:.1f} s a request"
    time.sleep(scene.seconds(4, 8))
    proxy.restore()
    return note


def freeze_api_server(scene: Scene) -> str:
    seconds = scene.seconds(3, 8)
    with scene.cluster.apiserver.frozen():
        time.sleep(seconds)
    return f"for {seconds:.0f} s"


def expire_watches(scene: Scene, *, of: Callable[[Pair], Proxy]) -> str:
    """Close the watches of a process, and answer 410 Gone when it resumes them."""
    of(scene.pairs.leader()).forget(2.0)
    time.sleep(2.0)
    return ""


def disconnect_scheduler(scene: Scene) -> str:
    """Disconnect the leader's scheduler from the API server, for some seconds."""
    pair = scene.pairs.leader()
    seconds = scene.seconds(3, 8)
    pair.scheduler_proxy.broken.set()
    time.sleep(seconds)
    pair.scheduler_proxy.restore()
    return f"for {seconds:.0f} s"


def set_clocks(scene: Scene) -> str:
    """Set the allocators' clocks forward or back, each by up to a day; the clocks keep this time."""
    offsets = [scene.seconds(-DAY, DAY) for _ in scene.pairs.all]
    for pair, seconds in zip(scene.pairs.all, offsets, strict=True):
        clock.set_clock(pair.clock, seconds)
    return "by " + " and ".join(f"{seconds / 3600:+.1f} h" for seconds in offsets)


def publish_anew(scene: Scene) -> str:
    """Publish the next generation of a node's pools, slice after slice with pauses, so that the pools are incomplete in between."""
    slices = scene.cluster.get(SLICES)["items"]
    node = scene.random.choice(sorted({slice_["spec"]["nodeName"] for slice_ in slices}))
    for slice_ in scene.random.sample(slices, len(slices)):
        if slice_["spec"]["nodeName"] == node:
            slice_["spec"]["pool"]["generation"] += 1
            with suppress(ApiError):  # its driver has changed it meanwhile
                scene.cluster.put(f"{SLICES}/{slice_['metadata']['name']}", slice_)
            time.sleep(scene.seconds(0, 0.5))
    return ""


def taint_for_moments(scene: Scene) -> str:
    """Taint the devices of one node after the other for a moment, so that taints appear between a decision and its writes."""
    pools = sorted({slice_["spec"]["pool"]["name"] for slice_ in scene.cluster.get(SLICES)["items"]})
    for number in range(10):
        taint = {"key": "chaos.drawbridge.dev/broken", "effect": "NoSchedule"}
        rule = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceTaintRule",
            "metadata": {"name": f"chaos-{number}"},
            "spec": {"deviceSelector": {"pool": scene.random.choice(pools)}, "taint": taint},
        }
        scene.cluster.create(rule)
        time.sleep(scene.seconds(0.02, 0.3))
        scene.cluster.remove(rule)
    return ""


def throttle_allocators(scene: Scene) -> str:
    """The API server answers all requests of the allocators with 429, for some seconds."""
    flow_control, name = "flowcontrol.apiserver.k8s.io/v1", {"name": "chaos"}
    limits = {"nominalConcurrencyShares": 0, "borrowingLimitPercent": 0, "limitResponse": {"type": "Reject"}}
    level = {"apiVersion": flow_control, "kind": "PriorityLevelConfiguration", "metadata": name, "spec": {"type": "Limited", "limited": limits}}  # fmt: skip
    account = {"kind": "ServiceAccount", "serviceAccount": {"namespace": SYSTEM, "name": "drawbridge-allocator"}}
    everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": True}
    rules = [{"subjects": [account], "resourceRules": [everything]}]
    schema = {"apiVersion": flow_control, "kind": "FlowSchema", "metadata": name, "spec": {"priorityLevelConfiguration": name, "matchingPrecedence": 2, "rules": rules}}  # fmt: skip
    seconds = scene.seconds(3, 12)
    scene.cluster.create(level, schema)
    time.sleep(seconds)
    scene.cluster.remove(schema, level)
    return f"for {seconds:.0f} s"


def label_claims(scene: Scene) -> str:
    """Label all claims repeatedly, so that writes conflict."""
    changed = 0
    deadline = time.monotonic() + scene.seconds(3, 6)
    while time.monotonic() < deadline:
        for item in scene.cluster.get("/apis/resource.k8s.io/v1/resourceclaims")["items"]:
            changed += 1
            with suppress(ApiError):  # it no longer exists
                scene.cluster.patch(scene.cluster.path_of(CLAIM | item), {"metadata": {"labels": {"n": str(changed)}}})
    return f"{changed} times"


def flip_class(scene: Scene, *, late: Callable[[Pair], Proxy] | None = None) -> str:
    """Delete the class of pods that request devices by name, and create it again when such pods wait without a backoff.

    At the process of the `late` proxy, the watches of one resource show the new class, or what follows it, a moment late.
    """
    proxy = late(scene.pairs.leader()) if late else None
    resource = scene.random.choice(LATE) if late else ""
    for _ in range(2):
        scene.cluster.remove(named_class())
        time.sleep(scene.seconds(BACKOFF_SECONDS, BACKOFF_SECONDS + 1))
        if proxy:
            proxy.silenced = resource
        scene.cluster.create(named_class())
        time.sleep(scene.seconds(1, 2))
        if proxy:
            proxy.restore()
    return resource


def change_class(scene: Scene) -> str:
    """The class has another extended resource name for a moment, and then selects no device."""
    right = named_class()["spec"]
    nothing = [{"cel": {"expression": "false"}}]
    for wrong in ({"extendedResourceName": "chaos.example.com/other"}, {"selectors": nothing}):
        for change in (wrong, right):
            scene.cluster.patch(f"/apis/resource.k8s.io/v1/deviceclasses/{NAMED}", {"spec": change})
            time.sleep(scene.seconds(0.3, 1.5))
    return ""


def change_inventory(scene: Scene, *, inventory: str) -> str:
    """Replace the inventory under running pods, and end their containers, which the kubelet starts again."""
    with named_claim(scene) as used:
        user = use_claim(scene, used, "user", scene.node.node.name)
        await_container(scene, user, 0)
        scene.node.offer(inventory, hard=scene.random.random() < 0.5)
        running = running_pods(scene)
        for item in running:
            container = item["status"]["containerStatuses"][0].get("containerID", "").partition("://")[2]
            with suppress(RuntimeError):  # it has ended
                scene.node.node.box.run(program("ctr"), "-n=k8s.io", "tasks", "kill", "--signal=SIGKILL", container)
        await_container(scene, user, 1)
    return f"{len(running)} pods ran"


def await_container(scene: Scene, item: Object, restarts: int) -> None:
    """Wait until a pod's container, started so often again, has printed its hardware, and the API server knows that it runs."""

    def is_known() -> bool:
        [status] = scene.cluster.read(item)["status"].get("containerStatuses", [{}])
        known = status.get("restartCount") == restarts and "running" in status["state"]
        return known and (item["metadata"]["uid"], restarts) in scene.node.seen

    until(f"start {restarts} of a container is known", is_known, REACHED_SECONDS)


def running_pods(scene: Scene) -> list[Object]:
    pods = scene.cluster.get("/api/v1/pods", fieldSelector=f"spec.nodeName={scene.node.node.name}")["items"]
    return [pod for pod in pods if pod["status"].get("phase") == "Running"]


def restart_kubelet(scene: Scene, *, forgets: bool) -> str:
    if forgets:
        scene.node.node.outside(f"{KUBELET}/dra_manager_state").unlink(missing_ok=True)
    scene.node.node.restart_kubelet()
    time.sleep(scene.seconds(3, 6))
    return ""


@contextmanager
def named_claim(scene: Scene) -> Iterator[Object]:
    """A claim with a name of its own, which is deleted with its users. The driver offers all devices."""
    scene.node.offer(INSTALLED)
    name = f"claim-{scene.random.randrange(1 << 32):x}"
    [item] = scene.cluster.create(claim(name, scene.namespace, request("gpu", MOVING)))
    try:
        yield item
    finally:
        scene.cluster.delete(f"/api/v1/namespaces/{scene.namespace}/pods", gracePeriodSeconds=0)
        scene.cluster.remove(item)


def use_claim(scene: Scene, used: Object, name: str, node: str) -> Object:
    """Create an urgent pod with a claim, and wait until it has a node."""
    spec = node_pod(using(used["metadata"]["name"])) | {"schedulerName": SCHEDULER, "priorityClassName": URGENT}
    name = f"{used['metadata']['name']}-{name}"
    [item] = scene.cluster.create(pod(name, scene.namespace, *spec.pop("containers"), node=node, **spec))
    scene.cluster.wait_scheduled(scene.namespace, name, REACHED_SECONDS)
    return item


def use_by_force(scene: Scene) -> str:
    """A pod uses a claim and is deleted by force, and its successor is created at once. It waits until the kubelet has let go."""
    with named_claim(scene) as used:
        for index in range(2):
            user = use_claim(scene, used, str(index), scene.node.node.name)
            time.sleep(scene.seconds(1, 4))
            scene.cluster.remove(user)
            time.sleep(scene.seconds(0, 0.3))
    return ""


def move_claim(scene: Scene) -> str:
    """A claim moves to another node while the kubelet loses its record; the driver must release the device."""
    with named_claim(scene) as used:
        here = use_claim(scene, used, "here", scene.node.node.name)
        scene.cluster.wait_phase(scene.namespace, here["metadata"]["name"], "Running")
        scene.node.node.kubelet.stop()
        scene.cluster.remove(here)
        use_claim(scene, used, "there", OTHER_NODE)
        restart_kubelet(scene, forgets=True)
        uid = used["metadata"]["uid"]
        until("the driver has released a claim that moved", lambda: uid not in scene.node.driver.prepared(), 30)
    return ""


ALLOCATOR, SCHEDULERS = attrgetter("proxy"), attrgetter("scheduler_proxy")  # of a replica
SERVERS = ("API server", "etcd")
KILLS = tuple(Trouble(f"{label} killed", partial(kill, label=label)) for label in ("allocator", "scheduler", *SERVERS))
CONNECTIONS = (
    Trouble("leader's requests delayed", partial(slow, of=ALLOCATOR, least=0.5, most=2)),
    Trouble("API server stopped (SIGSTOP)", freeze_api_server),
    Trouble("watches answered with 410 Gone", partial(expire_watches, of=ALLOCATOR)),
    Trouble("allocators' requests answered with 429", throttle_allocators),
    Trouble("scheduler disconnected", disconnect_scheduler),
    Trouble("scheduler's requests delayed", partial(slow, of=SCHEDULERS, least=0.3, most=1)),
    Trouble("scheduler's watches answered with 410 Gone", partial(expire_watches, of=SCHEDULERS)),
)
TAKE_OVERS = (
    Trouble("leader stopped (SIGSTOP)", stop_leader),
    Trouble("leader disconnected", disconnect_leader),
)


def at_request(label: str, kind: str, *, answered: bool) -> Trouble:
    when = "after" if answered else "before"
    return Trouble(
        f"{label} killed {when} {kind}", partial(kill_at, label=label, selects=REQUESTS[kind], answered=answered)
    )


POINTS = tuple(at_request("allocator", kind, answered=answered) for kind in WRITES for answered in (True, False))
SERVER_POINTS = tuple(at_request(label, kind, answered=True) for label in SERVERS for kind in WRITES)
CREATES = tuple(
    at_request(label, CREATE, answered=answered)
    for label in ("API server", "controller manager")
    for answered in (True, False)
)
CHANGES = (
    Trouble("pools published anew", publish_anew),
    Trouble("taints for moments", taint_for_moments),
    Trouble("claims labelled", label_claims),
    Trouble("allocators' clocks set", set_clocks),
)
CLASSES = (
    Trouble("class deleted and created", flip_class),
    Trouble("class changed", change_class),
    Trouble("class created, allocator late", partial(flip_class, late=ALLOCATOR)),
    Trouble("class created, scheduler late", partial(flip_class, late=SCHEDULERS)),
)
INVENTORY = {name: Trouble(f"inventory {name}", partial(change_inventory, inventory=name)) for name in INVENTORIES}
# They need the real node.
NODE = (
    *INVENTORY.values(),
    Trouble("kubelet restarted", partial(restart_kubelet, forgets=False)),
    Trouble("kubelet restarted without its record", partial(restart_kubelet, forgets=True)),
    Trouble("claim used again after forced deletions", use_by_force),
    Trouble("claim moved to another node", move_claim),
)
# One of each kind, as fast as possible; take-overs, which wait for a lease, have tests of their own (`e2e.chaos.test_chaos`).
AFTER = tuple(at_request("allocator", kind, answered=True) for kind in ("the allocation", "a change of reservations"))
SHORT = (*KILLS, *AFTER, CREATES[0], *CONNECTIONS[2:5], *CHANGES, CLASSES[2])
SHORT_NODE = tuple(INVENTORY[name] for name in ("renamed", "shared", "empty"))
LONG = (*KILLS, *POINTS, *SERVER_POINTS, *CREATES, *CONNECTIONS, *CHANGES, *CLASSES, *TAKE_OVERS)


def rounds(chance: random.Random, word: str = "", *, node: bool) -> Iterator[Trouble]:
    """Yield all troubles whose name contains a word in each round, in a new order, without an end."""
    troubles = [trouble for trouble in (*LONG, *(NODE if node else ())) if word in trouble.name]
    while troubles:
        yield from chance.sample(troubles, len(troubles))
