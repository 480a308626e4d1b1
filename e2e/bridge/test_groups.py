"""Pods of a PodGroup (gates GenericWorkload and DRAWorkloadResourceClaims, both off by default), placed by our scheduler."""

import itertools
import os
import random
import re
import time
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pytest

from e2e.actors import fleet
from e2e.actors.bridge import PLUGIN_SCHEDULER, SCHEDULER, Bridge, plugin_configuration
from e2e.actors.proxy import Proxy
from e2e.actors.workloads import claim, group, pod, request, template, using, using_template
from e2e.build import program
from e2e.ground.controlplane import GROUP_GATES, ControlPlane
from tests.limits import PATIENCE

pytestmark = pytest.mark.real
DRIVER = "group.example.com"
CLASS = "group-gpu"
NODES = ("group-0", "group-1")
STOCK = "default-scheduler"
STALLS = 8  # pairs of nodes of each scheduler, each for one gang at a time


@pytest.fixture(scope="module")
def cluster():
    """A control plane that knows PodGroups."""
    with ControlPlane(name="groups", feature_gates=GROUP_GATES) as running:
        yield running


@pytest.fixture(scope="module")
def line(cluster):
    """The allocator's way to the API server, which can be broken."""
    proxy = Proxy(cluster.url, cluster.ca)
    yield proxy
    proxy.close()


@pytest.fixture(scope="module")
def groups(cluster, line):
    """The allocator, our scheduler, and two nodes with one device each."""
    bridge = Bridge(cluster)
    try:
        bridge.prepare()
        bridge.start(via=f"http://127.0.0.1:{line.port}")
        bridge.start_scheduler()
        cluster.start_scheduler(
            plugin_configuration(bridge.socket), name="group-scheduler", binary=program("drawbridge-scheduler")
        )
        cluster.add_fake_nodes(2, prefix="group-")
        cluster.create(fleet.device_class(CLASS, f"device.driver == '{DRIVER}'"))
        for name in NODES:
            cluster.create(*fleet.slices(DRIVER, name, [fleet.device("gpu-0", {})], by_name=True))
        yield cluster
    finally:
        bridge.remove()


@pytest.fixture
def ours(groups, request):
    """A fresh namespace whose pods are gone when the test is over."""
    name = groups.namespace(f"groups-{abs(hash(request.node.name)) % 10**6}")
    yield name
    groups.delete(f"/api/v1/namespaces/{name}/pods", gracePeriodSeconds=0)
    groups.until("the devices are free", lambda: not held(groups, name), 60)


def member(name, namespace, of, *claims):
    return pod(name, namespace, schedulerName=PLUGIN_SCHEDULER, resourceClaims=list(claims), schedulingGroup={"podGroupName": of})  # fmt: skip


def priority_class(name, value):
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value}


def held(cluster, namespace):
    found = cluster.get(f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims")["items"]
    return [one["metadata"]["name"] for one in found if one.get("status", {}).get("allocation")]


def results(cluster, namespace):
    found = cluster.get(f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims")["items"]
    return [result for one in found if one.get("status", {}).get("allocation") for result in one["status"]["allocation"]["devices"]["results"]]  # fmt: skip


def placed(cluster, namespace):
    found = cluster.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
    return sorted(one["metadata"]["name"] for one in found if one["spec"].get("nodeName"))


def test_a_group_that_fits_is_placed_and_one_that_does_not_holds_nothing(groups, ours):
    """Three pods for two devices: no claim is written. Then two: both, at once."""
    groups.create(
        template("one", ours, request("gpu", CLASS)),
        group("three", ours, 3),
        *(member(f"t{at}", ours, "three", using_template("one")) for at in range(3)),
    )
    for at in range(3):
        told = groups.wait_unschedulable(ours, f"t{at}")["message"]
        assert "held by" not in told, "no pod of the group holds anything"
    assert (placed(groups, ours), held(groups, ours)) == ([], [])
    groups.create(group("two", ours, 2), *(member(f"p{at}", ours, "two", using_template("one")) for at in range(2)))
    groups.until("both are placed", lambda: placed(groups, ours) == ["p0", "p1"], 60)
    assert len(held(groups, ours)) == 2


def test_a_claim_of_the_group_is_given_once_and_reserved_for_its_pods(groups, ours):
    """The stock scheduler reserves it for the group; we reserve it for each pod, which the kubelet takes as well."""
    entry = {"name": "shared", "resourceClaimName": "shared"}
    groups.create(
        claim("shared", ours, request("gpu", CLASS)),
        group("pair", ours, 2, resourceClaims=[entry]),
        *(member(f"s{at}", ours, "pair", {**using("shared"), **entry}) for at in range(2)),
    )
    groups.until("both are placed", lambda: placed(groups, ours) == ["s0", "s1"], 60)
    found = groups.get(f"/apis/resource.k8s.io/v1/namespaces/{ours}/resourceclaims/shared")
    consumers = sorted((one["resource"], one["name"]) for one in found["status"]["reservedFor"])
    assert consumers == [("pods", "s0"), ("pods", "s1")]


def test_a_claim_that_a_group_makes_of_a_template_is_said_not_to_be_the_pods(groups, ours):
    """It belongs to the group. That is a limit (docs/bridge.md), and the pod says so and holds nothing."""
    entry = {"name": "made", "resourceClaimTemplateName": "one"}
    groups.create(
        template("one", ours, request("gpu", CLASS)),
        group("pair", ours, 2, resourceClaims=[entry]),
        *(member(f"m{at}", ours, "pair", entry) for at in range(2)),
    )
    groups.until(
        "a pod is told", lambda: any("was created for PodGroup pair" in said for said in groups.events(ours, "m0")), 60
    )
    assert (placed(groups, ours), held(groups, ours)) == ([], [])


def test_a_gang_has_as_many_less_important_pods_evicted_as_it_needs(groups, ours):
    """Two devices, one a node, held by a pod that matters little and one that matters more than it and less than the gang."""
    groups.create(
        priority_class("gang-urgent", 1000),
        priority_class("gang-usual", 500),
        template("one", ours, request("gpu", CLASS)),
    )
    low = [pod(name, ours, schedulerName=PLUGIN_SCHEDULER, terminationGracePeriodSeconds=0, resourceClaims=[using_template("one")]) for name in ("low", "other")]  # fmt: skip
    low[1]["spec"]["priorityClassName"] = "gang-usual"
    groups.create(*low)
    groups.until("both are placed", lambda: placed(groups, ours) == ["low", "other"], 60)
    members = [member(f"g{at}", ours, "gang", using_template("one")) for at in range(2)]
    for one in members:
        one["spec"]["priorityClassName"] = "gang-urgent"
    groups.create(group("gang", ours, 2, priorityClassName="gang-urgent"), *members)
    groups.until("the gang is placed", lambda: placed(groups, ours) == ["g0", "g1"], 60)
    assert len(held(groups, ours)) == 2


# Two pods have to go, by two writes each: the line breaks between the pods, or within the second eviction.
@pytest.mark.parametrize("writes", [2, 3])
def test_a_gang_whose_allocator_is_killed_between_its_evictions_is_placed_by_the_next(groups, line, ours, writes):
    path = f"/api/v1/namespaces/{ours}/pods"
    urgent = priority_class(f"gang-killed-{writes}", 1000)
    level = urgent["metadata"]["name"]
    low = [pod(name, ours, schedulerName=PLUGIN_SCHEDULER, terminationGracePeriodSeconds=0, resourceClaims=[using_template("one")]) for name in ("low", "other")]  # fmt: skip
    groups.create(urgent, template("one", ours, request("gpu", CLASS)), *low)
    groups.until("both are placed", lambda: placed(groups, ours) == ["low", "other"], PATIENCE)
    evictions = (f"{path}/low", f"{path}/other")
    line.break_at(writes, answered=True, which=lambda write: write.verb in ("PATCH", "DELETE") and write.path.split("?")[0].removesuffix("/status") in evictions)  # fmt: skip
    members = [member(f"g{at}", ours, "gang", using_template("one")) for at in range(2)]
    for one in members:
        one["spec"]["priorityClassName"] = level
    groups.create(group("gang", ours, 2, priorityClassName=level), *members)
    try:
        assert line.broken.wait(PATIENCE), "no pod was evicted"
        assert [one["metadata"]["name"] in ("low", "other") for one in groups.get(path)["items"]].count(True) == 1
    finally:
        groups.kill("drawbridge-allocator-0")
        line.restore()
    groups.until("the gang is placed", lambda: placed(groups, ours) == ["g0", "g1"], PATIENCE)
    assert len({(result["pool"], result["device"]) for result in results(groups, ours)}) == 2
    groups.remove(urgent)


def test_a_stock_scheduler_that_asks_by_the_extender_leaves_a_group_alone_and_says_why(groups, ours):
    """It would look at each member with nothing held for the others, and bind two of three; there are two devices."""
    members = [member(f"x{at}", ours, "trio", using_template("one")) for at in range(3)]
    for one in members:
        one["spec"]["schedulerName"] = SCHEDULER
    groups.create(template("one", ours, request("gpu", CLASS)), group("trio", ours, 3), *members)
    words = "which an extender could place only in part"
    groups.until(
        "they are told", lambda: any(words in said for at in range(3) for said in groups.events(ours, f"x{at}")), 60
    )
    assert (placed(groups, ours), held(groups, ours)) == ([], [])


class Gang(NamedTuple):
    """Pods that are to be placed together on two nodes, beside pods that hold devices there."""

    free: tuple[int, int]  # devices of each node that no pod holds
    lesser: tuple[int, int]  # held by less important pods
    greater: tuple[int, int]  # held by more important ones
    members: tuple[int, ...]  # how many devices each asks for

    @property
    def fewest_victims(self):
        """How many pods have to go so that all members fit, by trying it all; None if it is never so."""
        found = []
        for places in itertools.product((0, 1), repeat=len(self.members)):
            asked = [sum(much for much, at in zip(self.members, places, strict=True) if at == node) for node in (0, 1)]
            lacking = [max(0, asked[node] - self.free[node]) for node in (0, 1)]
            if all(lacking[node] <= self.lesser[node] for node in (0, 1)):
                found.append(sum(lacking))
        return min(found, default=None)

    @property
    def alike(self):
        """Whether the order in which members are placed cannot matter."""
        return len(set(self.members)) == 1


def drawn(draw):
    held = [[draw.choice((0, 0, 1, 2)) for _ in range(2)] for _ in range(3)]
    members = [draw.choice((1, 1, 2)) for _ in range(draw.randint(2, 4))]
    if draw.random() < 0.6:
        members = members[:1] * len(members)
    return Gang(*(tuple(one) for one in held), tuple(members))


class Stall:
    """One gang for one scheduler, on nodes of its own."""

    def __init__(self, cluster, namespace, scheduler, at, gang):
        self.cluster, self.namespace, self.scheduler, self.gang = cluster, namespace, scheduler, gang
        self.ours = scheduler == PLUGIN_SCHEDULER
        self.name = f"{'ours' if self.ours else 'stock'}-{at}"
        self.nodes = [f"gang-{self.name}-{node}" for node in range(2)]
        self.members = [f"{self.name}-m{at}" for at in range(len(gang.members))]
        # kube-scheduler has no pods evicted for the devices of a group: there only pods that cannot go hold devices.
        self.holders = [
            (f"{self.name}-{kind}{node}{at}", node, kind)
            for kind, much in (("lesser", gang.lesser), ("greater", gang.greater))
            for node in range(2)
            for at in range(much[node])
            if self.ours or kind == "greater"
        ]

    def prepare(self):
        for node in range(2):
            there = self.gang.free[node] + sum(holder[1] == node for holder in self.holders)
            devices = [fleet.device(f"gpu-{at}", {}) for at in range(there)]
            self.cluster.create(*fleet.slices(DRIVER, self.nodes[node], devices, by_name=True))
        for name, node, kind in self.holders:
            self.cluster.create(self.pod(name, 1, node=self.nodes[node], priorityClassName=f"gang-{kind}"))

    def pod(self, name, much, **spec):
        more = {"terminationGracePeriodSeconds": 0, "nodeSelector": {"stall": self.name}} | spec
        return pod(name, self.namespace, schedulerName=self.scheduler, resourceClaims=[using_template(f"take-{much}")], **more)  # fmt: skip

    def begin(self):
        of = {"schedulingGroup": {"podGroupName": self.name}, "priorityClassName": "gang-middle"}
        self.cluster.create(
            group(self.name, self.namespace, len(self.members), priorityClassName="gang-middle"),
            *(self.pod(name, much, **of) for name, much in zip(self.members, self.gang.members, strict=True)),
        )

    def is_over(self, pods):
        """Whether all are placed, or all were told why not."""
        found = [pods[name] for name in self.members]
        return all(one["spec"].get("nodeName") for one in found) or (
            self.may_wait and all(reason_of(one) for one in found)
        )

    @property
    def may_wait(self):
        fewest = self.gang.fewest_victims
        return fewest is None or not self.gang.alike or (fewest > 0 and not self.ours)

    def faults(self, pods, claims):
        """What is wrong with what has become of a gang, in words."""
        placed = [name for name in self.members if pods[name]["spec"].get("nodeName")]
        fewest = self.gang.fewest_victims
        gone = [name for name, *_ in self.holders if name not in pods]
        if 0 < len(placed) < len(self.members):
            yield f"placed by half: {placed}"
        if placed and (fewest is None or (fewest and not self.ours)):
            yield "it is placed where it does not fit"
        if not placed and gone:
            yield f"nothing is placed, and gone are {gone}"
        if any("greater" in name for name in gone) or (gone and self.gang.alike and len(gone) > fewest + 1):
            yield f"gone are {gone}, and {fewest} would do"
        held = [(one["driver"], one["pool"], one["device"]) for claim in claims.values() for one in claim if one["pool"].startswith(f"gang-{self.name}-")]  # fmt: skip
        if len(set(held)) < len(held):
            yield f"held twice: {held}"
        for name in self.members if self.ours and not placed else ():
            why = reason_of(pods[name])
            if any(claims.get(one) is None for one in re.findall(r"held by [-a-z0-9]+/([-a-z0-9]+)", why)) or not why:
                yield f"{name} is told {why!r}"


def reason_of(found):
    said = [one for one in found["status"].get("conditions", ()) if one["type"] == "PodScheduled" and one["status"] == "False"]  # fmt: skip
    return said[0]["message"] if said else ""


def listed(cluster, path):
    return {one["metadata"]["name"]: one for one in cluster.get(path)["items"]}


@pytest.mark.time_limit(900, "GANG_CASES asks for many")
def test_random_gangs_are_placed_whole_where_they_fit_and_else_hold_nothing_and_are_told_why(groups, ours):
    """Beside kube-scheduler, which has no pods evicted for them, and beside all ways to place them."""
    number, first = (int(os.environ.get(f"GANG_{what}", much)) for what, much in (("CASES", 16), ("FIRST", 0)))
    lanes = {"ours": PLUGIN_SCHEDULER, "stock": STOCK}
    nodes = [f"{lane}-{at}" for lane in lanes for at in range(STALLS)]
    for name in nodes:
        groups.add_fake_nodes(2, prefix=f"gang-{name}-", labels={"stall": name})
    levels = [priority_class(f"gang-{kind}", value) for kind, value in (("lesser", 1), ("middle", 2), ("greater", 3))]
    groups.create(*levels, *(template(f"take-{much}", ours, request("gpu", CLASS, much)) for much in (1, 2)))
    faults, count = [], {"placed": 0, "with evictions": 0, "wait": 0}
    said = set()
    try:
        for start in range(first, first + number, STALLS):
            cases = [drawn(random.Random(at)) for at in range(start, min(start + STALLS, first + number))]
            stalls = [Stall(groups, ours, scheduler, at, one) for at, one in enumerate(cases) for scheduler in lanes.values()]  # fmt: skip
            pods, claims = play(groups, ours, stalls)
            for one in stalls:
                faults += [f"{one.name} {one.gang}: {fault}" for fault in one.faults(pods, claims)]
                if one.ours:
                    placed = bool(pods[one.members[0]]["spec"].get("nodeName"))
                    gone = any(name not in pods for name, *_ in one.holders)
                    count["placed"] += placed
                    count["with evictions"] += gone
                    count["wait"] += not placed
                    said |= {reason_of(pods[name]) for name in one.members if not placed}
    finally:
        groups.remove(*levels, *({"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"gang-{name}-{at}"}} for name in nodes for at in range(2)))  # fmt: skip
    print(count, *sorted(said), sep="\n")
    assert not faults, "\n".join(faults)
    assert count["placed"] > number // 4
    assert count["wait"] > number // 8
    assert count["with evictions"] > number // 12


def play(cluster, namespace, stalls):
    """Have gangs placed at once, each on its nodes; answer with what has become of all pods, and of what claims hold, once nothing is wrong."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    of_claims = f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims"
    with ThreadPoolExecutor(6) as several:
        list(several.map(Stall.prepare, stalls))
        cluster.until("the holders are placed", lambda: all(one["spec"].get("nodeName") for one in cluster.get(path)["items"]), PATIENCE)  # fmt: skip
        list(several.map(Stall.begin, stalls))

    def look():
        claims = {name: one["status"]["allocation"]["devices"]["results"] for name, one in listed(cluster, of_claims).items() if one.get("status", {}).get("allocation")}  # fmt: skip
        return listed(cluster, path), claims

    cluster.until("the gangs are placed or told", lambda: all(stall.is_over(listed(cluster, path)) for stall in stalls), PATIENCE)  # fmt: skip
    time.sleep(1)  # what would be placed by half, or evicted for nothing, would have happened
    end = time.monotonic() + PATIENCE
    found = look()
    # Pods are bound one by one, and victims go before a gang is placed.
    while any(fault for stall in stalls for fault in stall.faults(*found)) and time.monotonic() < end:
        time.sleep(0.2)
        found = look()
    cluster.delete(path, gracePeriodSeconds=0)
    cluster.delete(f"/apis/scheduling.k8s.io/v1beta1/namespaces/{namespace}/podgroups")
    cluster.until("no claim is left", lambda: not listed(cluster, of_claims), PATIENCE)
    for one in stalls:
        cluster.remove(*({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": fleet.slices(DRIVER, node, [], by_name=True)[0]["metadata"]["name"]}} for node in one.nodes))  # fmt: skip
    return found


def churned(cluster, namespace, draw, seconds):
    """Have gangs come and go, halfway at times, on nodes that are cordoned at times; answer with the members of those that are left whole."""
    path = f"/api/v1/namespaces/{namespace}"
    of_groups = f"/apis/scheduling.k8s.io/v1beta1/namespaces/{namespace}/podgroups"
    gangs, halves, kills = {}, [], 0
    begun = time.monotonic()
    number = 0
    while (passed := time.monotonic() - begun) < seconds:
        assert_held_once(cluster, namespace)
        what = draw.choice(("come", "come", "go", "lose", "cordon"))
        if kills < 2 and passed > (kills + 1) * seconds / 3:
            kills += 1
            cluster.kill("drawbridge-allocator-0")
        if what == "come" and len(gangs) < 8:
            name = f"c{number}"
            number += 1
            gangs[name] = [f"{name}-m{at}" for at in range(draw.randint(2, 4))]
            members = [member(one, namespace, name, using_template("one")) for one in gangs[name]]
            for one in members:
                one["spec"] |= {"nodeSelector": {"churn": "yes"}, "terminationGracePeriodSeconds": 0}
            cluster.create(group(name, namespace, len(members)), *members)
        elif what in ("go", "lose") and gangs:
            name = draw.choice(sorted(gangs))
            gone = gangs.pop(name)
            for one in gone if what == "go" else gone[:1]:
                cluster.delete(f"{path}/pods/{one}", gracePeriodSeconds=0)
            if what == "go":
                cluster.delete(f"{of_groups}/{name}")
            else:
                halves += gone[1:]  # never placed, unless they were
        elif what == "cordon":
            cluster.patch(f"/api/v1/nodes/churn-{draw.randrange(4)}", {"spec": {"unschedulable": draw.random() < 0.5}})
        time.sleep(draw.uniform(0, 0.5))
    for halve in halves:
        cluster.delete(f"{path}/pods/{halve}", gracePeriodSeconds=0)
    return gangs


def assert_held_once(cluster, namespace):
    held = [(result["pool"], result["device"]) for result in results(cluster, namespace)]
    assert len(set(held)) == len(held), f"held twice: {sorted(held)}"


def test_gangs_that_come_and_go_are_placed_whole_in_the_end_and_no_device_is_held_twice_or_lost(groups, ours):
    """Members of one are deleted, nodes are cordoned, and the allocator is killed meanwhile; CHURN_SECONDS asks for longer."""
    path = f"/api/v1/namespaces/{ours}/pods"
    nodes = [f"churn-{at}" for at in range(4)]
    groups.add_fake_nodes(4, prefix="churn-", labels={"churn": "yes"})
    made = [slice_ for node in nodes for slice_ in fleet.slices(DRIVER, node, [fleet.device(f"gpu-{at}", {}) for at in range(2)], by_name=True)]  # fmt: skip
    groups.create(*made, template("one", ours, request("gpu", CLASS)))
    try:
        gangs = churned(
            groups,
            ours,
            random.Random(int(os.environ.get("CHURN_SEED", "1"))),
            float(os.environ.get("CHURN_SECONDS", "12")),
        )
        for node in nodes:
            groups.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": False}})
        whole = lambda: all(set(members).isdisjoint(placed(groups, ours)) or set(members) <= set(placed(groups, ours)) for members in gangs.values())  # noqa: E731  # fmt: skip
        groups.until("each gang is whole or not there", whole, PATIENCE)
        while sum(map(len, gangs.values())) > 8:
            for one in gangs.pop(max(gangs, key=lambda name: len(gangs[name]))):
                groups.delete(f"{path}/{one}", gracePeriodSeconds=0)
        expected = sorted(member for members in gangs.values() for member in members)
        groups.until("all gangs that are left are placed", lambda: placed(groups, ours) == expected, PATIENCE)
        assert_held_once(groups, ours)
        assert len(results(groups, ours)) == len(expected)
        groups.delete(path, gracePeriodSeconds=0)
        last = [f"last-{at}" for at in range(8)]
        members = [member(one, ours, "last", using_template("one")) for one in last]
        for one in members:
            one["spec"]["nodeSelector"] = {"churn": "yes"}
        groups.create(group("last", ours, 8), *members)
        groups.until("one gang has all devices", lambda: placed(groups, ours) == last, PATIENCE)
    finally:
        groups.delete(path, gracePeriodSeconds=0)
        groups.remove(*made, *({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}} for node in nodes))
