"""Troubles, one at a time: each returns when it is over and the killed process runs again.

A write point is a write to a claim: the connection breaks at this write, so that only one side knows its outcome, and the process is
killed.
"""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from e2e.actors import clock
from e2e.actors.client import BUSY_FACTOR, ApiError
from e2e.actors.proxy import Proxy, Request
from e2e.actors.webhook import SYSTEM
from e2e.chaos.pairs import Pair, Pairs, until
from e2e.ground.controlplane import ControlPlane

LEASE_SECONDS = 15.0
READY_SECONDS = 60.0
REACHED_SECONDS = 60.0
DAY = 86_400.0
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
CLAIM = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"}  # items of a list have no kind
MISSED = "no such write was sent; killed without it"


class Scene(NamedTuple):
    """The objects that a trouble acts on."""

    cluster: ControlPlane
    controllers: Proxy  # of kube-controller-manager
    pairs: Pairs
    random: random.Random

    def seconds(self, least: float, most: float) -> float:
        return self.random.uniform(least, most)


class Trouble(NamedTuple):
    """A trouble; `do` returns a note about how it went."""

    name: str
    do: Callable[[Scene], str]


def kill_allocator(scene: Scene) -> str:
    scene.cluster.kill(scene.pairs.leader().allocator)
    return ""


def is_finalizer(write: Request) -> bool:
    return write.patches_claim and "finalizers" in write.body["metadata"]


def is_allocation(write: Request) -> bool:
    return write.patches_claim and bool(write.body.get("status", {}).get("allocation"))


def is_reservation(write: Request) -> bool:
    """Return whether a write changes the reservations of a claim that stays allocated."""
    return write.patches_claim and "allocation" not in write.body.get("status", {"allocation": None})


WRITES = {"the finalizer": is_finalizer, "the allocation": is_allocation, "a change of reservations": is_reservation}


def kill_at_write(scene: Scene, *, selects: Callable[[Request], bool], answered: bool) -> str:
    pair = scene.pairs.leader()
    pair.proxy.break_at(1, answered=answered, selects=selects)
    reached = pair.proxy.broken.wait(REACHED_SECONDS * BUSY_FACTOR)
    scene.cluster.kill(pair.allocator)
    pair.proxy.restore()
    return "" if reached else MISSED


def kill_scheduler(scene: Scene) -> str:
    scene.cluster.kill(scene.pairs.leader().scheduler)
    return ""


def kill_api_server(scene: Scene) -> str:
    scene.cluster.kill("kube-apiserver")
    await_api(scene)
    return ""


def kill_etcd(scene: Scene) -> str:
    scene.cluster.kill("etcd")
    await_api(scene)
    return ""


def await_api(scene: Scene) -> None:
    until("the API server is ready", scene.cluster.api_ready, READY_SECONDS)


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


def slow_leader(scene: Scene) -> str:
    """Delay each of the leader's requests, for some seconds."""
    return slow(scene, scene.pairs.leader().proxy, scene.seconds(0.5, 2))


def slow(scene: Scene, proxy: Proxy, pause: float) -> str:
    proxy.pause = pause
    time.sleep(scene.seconds(4, 8))
    proxy.restore()
    return f"{pause:.1f} s a request"


def freeze_api_server(scene: Scene) -> str:
    seconds = scene.seconds(3, 8)
    with scene.cluster.apiserver.frozen():
        time.sleep(seconds)
    return f"for {seconds:.0f} s"


def expire_leader_watches(scene: Scene) -> str:
    """Close the leader's watches, and answer 410 Gone when it resumes them."""
    return expire_watches(scene.pairs.leader().proxy)


def expire_watches(proxy: Proxy) -> str:
    proxy.forget(2.0)
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


def slow_scheduler(scene: Scene) -> str:
    return slow(scene, scene.pairs.leader().scheduler_proxy, scene.seconds(0.3, 1))


def expire_scheduler_watches(scene: Scene) -> str:
    return expire_watches(scene.pairs.leader().scheduler_proxy)


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
        for claim in scene.cluster.get("/apis/resource.k8s.io/v1/resourceclaims")["items"]:
            changed += 1
            with suppress(ApiError):  # it no longer exists
                scene.cluster.patch(scene.cluster.path_of(CLAIM | claim), {"metadata": {"labels": {"n": str(changed)}}})
    return f"{changed} times"


def kill_server_at_write(scene: Scene, *, name: str, selects: Callable[[Request], bool]) -> str:
    """Kill the API server or etcd right after a write of the leader was forwarded; the leader gets no response."""
    pair = scene.pairs.leader()
    pair.proxy.break_at(1, answered=True, selects=selects)
    reached = pair.proxy.broken.wait(REACHED_SECONDS * BUSY_FACTOR)
    scene.cluster.kill(name)
    pair.proxy.restore()
    await_api(scene)
    return "" if reached else MISSED


def is_claim_create(write: Request) -> bool:
    return write.verb == "POST" and write.path.partition("?")[0].endswith("/resourceclaims")


def kill_at_create(scene: Scene, *, name: str, answered: bool) -> str:
    """Break the connection of kube-controller-manager at its create of a claim, and kill a process. It may create a second claim."""
    scene.controllers.break_at(1, answered=answered, selects=is_claim_create)
    reached = scene.controllers.broken.wait(REACHED_SECONDS * BUSY_FACTOR)
    scene.cluster.kill(name)
    scene.controllers.restore()
    await_api(scene)
    return "" if reached else MISSED


def at_write(kind: str, *, answered: bool) -> Trouble:
    when = "after" if answered else "before"
    return Trouble(f"allocator killed {when} {kind}", partial(kill_at_write, selects=WRITES[kind], answered=answered))


KILLS = (
    Trouble("allocator killed", kill_allocator),
    Trouble("scheduler killed", kill_scheduler),
    Trouble("API server killed", kill_api_server),
    Trouble("etcd killed", kill_etcd),
)
CONNECTIONS = (
    Trouble("leader's requests delayed", slow_leader),
    Trouble("API server stopped (SIGSTOP)", freeze_api_server),
    Trouble("watches answered with 410 Gone", expire_leader_watches),
    Trouble("allocators' requests answered with 429", throttle_allocators),
)
TAKE_OVERS = (
    Trouble("leader stopped (SIGSTOP)", stop_leader),
    Trouble("leader disconnected", disconnect_leader),
)
POINTS = tuple(at_write(kind, answered=answered) for kind in WRITES for answered in (True, False))
SERVERS = {"API server": "kube-apiserver", "etcd": "etcd"}
SERVER_POINTS = tuple(
    Trouble(f"{label} killed at {kind}", partial(kill_server_at_write, name=name, selects=WRITES[kind]))
    for label, name in SERVERS.items()
    for kind in WRITES
)
CREATES = tuple(
    Trouble(
        f"{label} killed {'after' if answered else 'before'} a create of a claim",
        partial(kill_at_create, name=name, answered=answered),
    )
    for label, name in {"API server": "kube-apiserver", "controller manager": "kube-controller-manager"}.items()
    for answered in (True, False)
)
SCHEDULER_CONNECTIONS = (
    Trouble("scheduler disconnected", disconnect_scheduler),
    Trouble("scheduler's requests delayed", slow_scheduler),
    Trouble("scheduler's watches answered with 410 Gone", expire_scheduler_watches),
)
OBJECTS = (
    Trouble("pools published anew", publish_anew),
    Trouble("taints for moments", taint_for_moments),
    Trouble("claims labelled", label_claims),
)
CLOCKS = Trouble("allocators' clocks set", set_clocks)
# One of each kind, as fast as possible; take-overs, which wait for a lease, have tests of their own (`e2e.chaos.test_chaos`).
AFTER = tuple(at_write(kind, answered=True) for kind in ("the allocation", "a change of reservations"))
SHORT = (*KILLS, *AFTER, CREATES[0], *CONNECTIONS[2:], SCHEDULER_CONNECTIONS[0], *OBJECTS, CLOCKS)
LONG = (*KILLS, *POINTS, *SERVER_POINTS, *CREATES, *CONNECTIONS, *SCHEDULER_CONNECTIONS, *OBJECTS, CLOCKS, *TAKE_OVERS)


def rounds(chance: random.Random, word: str = "") -> Iterator[Trouble]:
    """Yield all troubles whose name contains a word in each round, in a new order, without an end."""
    troubles = [trouble for trouble in LONG if word in trouble.name]
    while troubles:
        yield from chance.sample(troubles, len(troubles))
