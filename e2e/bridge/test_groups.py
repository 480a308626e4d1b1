"""Pods of a PodGroup (gates GenericWorkload and DRAWorkloadResourceClaims, both off by default), placed by our scheduler."""

import os
import random
import time

import pytest

from e2e.actors import fleet
from e2e.actors.bridge import SCHEDULER, Bridge
from e2e.actors.proxy import Proxy
from e2e.actors.workloads import claim, group, pod, request, template, using, using_template
from e2e.bridge.gangs import CLASS, DRIVER, GangTrial, play, random_gang, reason_of
from e2e.ground.controlplane import GROUP_GATES, ControlPlane
from tests.limits import PATIENCE

pytestmark = pytest.mark.real

STOCK = "default-scheduler"
NODES = ("group-0", "group-1")
NODE_PAIRS = 8  # how many pairs of nodes each scheduler has; a pair is for one gang at a time


@pytest.fixture(scope="module")
def cluster():
    """A control plane with PodGroups."""
    with ControlPlane(name="groups", feature_gates=GROUP_GATES) as running:
        yield running


@pytest.fixture(scope="module")
def allocator_proxy(cluster):
    """The allocator's connection to the API server, which can be broken."""
    proxy = Proxy(cluster.url, cluster.ca)
    yield proxy
    proxy.close()


@pytest.fixture(scope="module")
def groups(cluster, allocator_proxy):
    """The allocator, our scheduler, and two nodes with one device each."""
    bridge = Bridge(cluster)
    try:
        bridge.prepare()
        bridge.start(via=f"http://127.0.0.1:{allocator_proxy.port}")
        bridge.start_scheduler()
        cluster.add_fake_nodes(2, prefix="group-")
        cluster.create(fleet.device_class(CLASS, f"device.driver == '{DRIVER}'"))
        for name in NODES:
            cluster.create(*fleet.slices(DRIVER, name, [fleet.device("gpu-0", {})], by_name=True))
        yield cluster
    finally:
        bridge.remove()


@pytest.fixture
def ours(groups, request):
    """A fresh namespace whose pods are deleted after the test."""
    name = groups.namespace(f"groups-{abs(hash(request.node.name)) % 10**6}")
    yield name
    groups.delete(f"/api/v1/namespaces/{name}/pods", gracePeriodSeconds=0)
    groups.until("the devices are free", lambda: not allocated_claims(groups, name), 60)


def member(name, namespace, group_name, *claims):
    return pod(name, namespace, schedulerName=SCHEDULER, resourceClaims=list(claims), schedulingGroup={"podGroupName": group_name})  # fmt: skip


def priority_class(name, value):
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value}


def allocated_claims(cluster, namespace):
    claims = cluster.get(f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims")["items"]
    return [claim["metadata"]["name"] for claim in claims if claim.get("status", {}).get("allocation")]


def results(cluster, namespace):
    claims = cluster.get(f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims")["items"]
    return [result for claim in claims if claim.get("status", {}).get("allocation") for result in claim["status"]["allocation"]["devices"]["results"]]  # fmt: skip


def placed_pods(cluster, namespace):
    pods = cluster.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
    return sorted(pod["metadata"]["name"] for pod in pods if pod["spec"].get("nodeName"))


def test_a_group_is_placed_completely_or_holds_no_device(groups, ours):
    """Three pods for two devices: no claim is written. Two pods: both are placed at once."""
    groups.create(
        template("one", ours, request("gpu", CLASS)),
        group("three", ours, 3),
        *(member(f"t{index}", ours, "three", using_template("one")) for index in range(3)),
    )
    for index in range(3):
        message = groups.wait_unschedulable(ours, f"t{index}")["message"]
        assert "held by" not in message, "the message names a device that is held, but no pod may hold one"
    assert (placed_pods(groups, ours), allocated_claims(groups, ours)) == ([], [])
    groups.create(
        group("two", ours, 2), *(member(f"p{index}", ours, "two", using_template("one")) for index in range(2))
    )
    groups.until("both are placed", lambda: placed_pods(groups, ours) == ["p0", "p1"], 60)
    assert len(allocated_claims(groups, ours)) == 2


def test_a_group_claim_is_allocated_once_and_reserved_per_pod(groups, ours):
    """The stock scheduler reserves the claim for the group. Our scheduler reserves it for each pod, which the kubelet accepts too."""
    entry = {"name": "shared", "resourceClaimName": "shared"}
    groups.create(
        claim("shared", ours, request("gpu", CLASS)),
        group("pair", ours, 2, resourceClaims=[entry]),
        *(member(f"s{at}", ours, "pair", {**using("shared"), **entry}) for at in range(2)),
    )
    groups.until("both are placed", lambda: placed_pods(groups, ours) == ["s0", "s1"], 60)
    claim_ = groups.get(f"/apis/resource.k8s.io/v1/namespaces/{ours}/resourceclaims/shared")
    consumers = sorted((consumer["resource"], consumer["name"]) for consumer in claim_["status"]["reservedFor"])
    assert consumers == [("pods", "s0"), ("pods", "s1")]


def test_a_pod_cannot_use_the_claim_of_its_groups_template(groups, ours):
    """The claim belongs to the group. docs/bridge.md lists this limit, an event of the pod reports it, and the pod holds nothing."""
    entry = {"name": "made", "resourceClaimTemplateName": "one"}
    groups.create(
        template("one", ours, request("gpu", CLASS)),
        group("pair", ours, 2, resourceClaims=[entry]),
        *(member(f"m{at}", ours, "pair", entry) for at in range(2)),
    )
    groups.until(
        "an event names the group for which the claim was created",
        lambda: any("PodGroup pair" in event for event in groups.events(ours, "m0")),
        60,
    )
    assert (placed_pods(groups, ours), allocated_claims(groups, ours)) == ([], [])


def test_a_gang_evicts_as_few_lower_priority_pods_as_needed(groups, ours):
    """Each of two nodes has one device; one is held by a pod of low priority, the other by a pod of medium priority."""
    groups.create(
        priority_class("gang-urgent", 1000),
        priority_class("gang-usual", 500),
        template("one", ours, request("gpu", CLASS)),
    )
    victims = [pod(name, ours, schedulerName=SCHEDULER, terminationGracePeriodSeconds=0, resourceClaims=[using_template("one")]) for name in ("low", "other")]  # fmt: skip
    victims[1]["spec"]["priorityClassName"] = "gang-usual"
    groups.create(*victims)
    groups.until("both are placed", lambda: placed_pods(groups, ours) == ["low", "other"], 60)
    members = [member(f"g{at}", ours, "gang", using_template("one")) for at in range(2)]
    for pod_ in members:
        pod_["spec"]["priorityClassName"] = "gang-urgent"
    groups.create(group("gang", ours, 2, priorityClassName="gang-urgent"), *members)
    groups.until("the gang is placed", lambda: placed_pods(groups, ours) == ["g0", "g1"], 60)
    assert len(allocated_claims(groups, ours)) == 2


# Each of the two evictions takes two writes. The connection breaks between the evictions, or within the second one.
@pytest.mark.parametrize("writes", [2, 3])
def test_a_gang_is_placed_after_a_kill_between_its_evictions(groups, allocator_proxy, ours, writes):
    path = f"/api/v1/namespaces/{ours}/pods"
    urgent = priority_class(f"gang-killed-{writes}", 1000)
    urgent_class = urgent["metadata"]["name"]
    victims = [pod(name, ours, schedulerName=SCHEDULER, terminationGracePeriodSeconds=0, resourceClaims=[using_template("one")]) for name in ("low", "other")]  # fmt: skip
    groups.create(urgent, template("one", ours, request("gpu", CLASS)), *victims)
    groups.until("both are placed", lambda: placed_pods(groups, ours) == ["low", "other"], PATIENCE)
    evictions = (f"{path}/low", f"{path}/other")
    allocator_proxy.break_at(writes, answered=True, selects=lambda write: write.verb in ("PATCH", "DELETE") and write.path.split("?")[0].removesuffix("/status") in evictions)  # fmt: skip
    members = [member(f"g{at}", ours, "gang", using_template("one")) for at in range(2)]
    for pod_ in members:
        pod_["spec"]["priorityClassName"] = urgent_class
    groups.create(group("gang", ours, 2, priorityClassName=urgent_class), *members)
    try:
        assert allocator_proxy.broken.wait(PATIENCE), "no pod was evicted"
        assert [pod["metadata"]["name"] in ("low", "other") for pod in groups.get(path)["items"]].count(True) == 1
    finally:
        groups.kill("drawbridge-allocator-0")
        allocator_proxy.restore()
    groups.until("the gang is placed", lambda: placed_pods(groups, ours) == ["g0", "g1"], PATIENCE)
    assert len({(result["pool"], result["device"]) for result in results(groups, ours)}) == 2
    groups.remove(urgent)


@pytest.mark.timeout(900)
def test_random_gangs_are_placed_completely_or_have_reasons(groups, ours):
    """The results are compared with kube-scheduler, which does not evict pods for groups, and with all possible placements."""
    case_count, first = (
        int(os.environ.get(f"GANG_{setting}", default)) for setting, default in (("CASES", 16), ("FIRST", 0))
    )
    schedulers = {"ours": SCHEDULER, "stock": STOCK}
    nodes = [f"{lane}-{at}" for lane in schedulers for at in range(NODE_PAIRS)]
    for name in nodes:
        groups.add_fake_nodes(2, prefix=f"gang-{name}-", labels={"stall": name})
    classes = [priority_class(f"gang-{kind}", value) for kind, value in (("lesser", 1), ("middle", 2), ("greater", 3))]
    groups.create(*classes, *(template(f"take-{default}", ours, request("gpu", CLASS, default)) for default in (1, 2)))
    faults, outcomes = [], {"placed": 0, "with evictions": 0, "wait": 0}
    reasons = set()
    try:
        for start in range(first, first + case_count, NODE_PAIRS):
            cases = [random_gang(random.Random(at)) for at in range(start, min(start + NODE_PAIRS, first + case_count))]
            trials = [GangTrial(groups, ours, scheduler, at, gang) for at, gang in enumerate(cases) for scheduler in schedulers.values()]  # fmt: skip
            pods, claims = play(groups, ours, trials)
            for trial in trials:
                faults += [f"{trial.name} {trial.gang}: {fault}" for fault in trial.faults(pods, claims)]
                if trial.ours:
                    is_placed = bool(pods[trial.members[0]]["spec"].get("nodeName"))
                    evicts = any(name not in pods for name, *_ in trial.holders)
                    outcomes["placed"] += is_placed
                    outcomes["with evictions"] += evicts
                    outcomes["wait"] += not is_placed
                    reasons |= {reason_of(pods[name]) for name in trial.members if not is_placed}
    finally:
        groups.remove(*classes, *({"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"gang-{name}-{at}"}} for name in nodes for at in range(2)))  # fmt: skip
    print(outcomes, *sorted(reasons), sep="\n")
    assert not faults, "\n".join(faults)
    assert outcomes["placed"] > case_count // 4
    assert outcomes["wait"] > case_count // 8
    assert outcomes["with evictions"] > case_count // 12


def churn(cluster, namespace, draw, seconds):
    """Create gangs, delete gangs or one of their pods, and cordon nodes. Return the members of the gangs that are complete."""
    path = f"/api/v1/namespaces/{namespace}"
    groups_path = f"/apis/scheduling.k8s.io/v1beta1/namespaces/{namespace}/podgroups"
    gangs, leftovers, kills = {}, [], 0
    begun = time.monotonic()
    number = 0
    while (elapsed := time.monotonic() - begun) < seconds:
        assert_held_once(cluster, namespace)
        action = draw.choice(("come", "come", "go", "lose", "cordon"))
        if kills < 2 and elapsed > (kills + 1) * seconds / 3:
            kills += 1
            cluster.kill("drawbridge-allocator-0")
        if action == "come" and len(gangs) < 8:
            name = f"c{number}"
            number += 1
            gangs[name] = [f"{name}-m{at}" for at in range(draw.randint(2, 4))]
            members = [member(pod_name, namespace, name, using_template("one")) for pod_name in gangs[name]]
            for pod_ in members:
                pod_["spec"] |= {"nodeSelector": {"churn": "yes"}, "terminationGracePeriodSeconds": 0}
            cluster.create(group(name, namespace, len(members)), *members)
        elif action in ("go", "lose") and gangs:
            name = draw.choice(sorted(gangs))
            gang = gangs.pop(name)
            for pod_name in gang if action == "go" else gang[:1]:
                cluster.delete(f"{path}/pods/{pod_name}", gracePeriodSeconds=0)
            if action == "go":
                cluster.delete(f"{groups_path}/{name}")
            else:
                leftovers += gang[1:]  # members of an incomplete gang, which is not placed unless it was placed before
        elif action == "cordon":
            cluster.patch(f"/api/v1/nodes/churn-{draw.randrange(4)}", {"spec": {"unschedulable": draw.random() < 0.5}})
        time.sleep(draw.uniform(0, 0.5))
    for leftover in leftovers:
        cluster.delete(f"{path}/pods/{leftover}", gracePeriodSeconds=0)
    return gangs


def assert_held_once(cluster, namespace):
    devices = [(result["pool"], result["device"]) for result in results(cluster, namespace)]
    assert len(set(devices)) == len(devices), f"a device is held twice: {sorted(devices)}"


def test_changing_gangs_neither_lose_devices_nor_hold_them_twice(groups, ours):
    """Meanwhile pods of gangs are deleted, nodes are cordoned, and the allocator is killed. CHURN_SECONDS sets the duration."""
    path = f"/api/v1/namespaces/{ours}/pods"
    nodes = [f"churn-{at}" for at in range(4)]
    groups.add_fake_nodes(4, prefix="churn-", labels={"churn": "yes"})
    slices = [slice_ for node in nodes for slice_ in fleet.slices(DRIVER, node, [fleet.device(f"gpu-{at}", {}) for at in range(2)], by_name=True)]  # fmt: skip
    groups.create(*slices, template("one", ours, request("gpu", CLASS)))
    try:
        gangs = churn(
            groups,
            ours,
            random.Random(int(os.environ.get("CHURN_SEED", "1"))),
            float(os.environ.get("CHURN_SECONDS", "12")),
        )
        for node in nodes:
            groups.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": False}})
        gangs_are_consistent = lambda: all(set(members).isdisjoint(placed_pods(groups, ours)) or set(members) <= set(placed_pods(groups, ours)) for members in gangs.values())  # noqa: E731  # fmt: skip
        groups.until("each gang is placed completely or not at all", gangs_are_consistent, PATIENCE)
        while sum(map(len, gangs.values())) > 8:
            for name in gangs.pop(max(gangs, key=lambda name: len(gangs[name]))):
                groups.delete(f"{path}/{name}", gracePeriodSeconds=0)
        expected = sorted(member for members in gangs.values() for member in members)
        groups.until("all remaining gangs are placed", lambda: placed_pods(groups, ours) == expected, PATIENCE)
        assert_held_once(groups, ours)
        assert len(results(groups, ours)) == len(expected)
        groups.delete(path, gracePeriodSeconds=0)
        last_members = [f"last-{at}" for at in range(8)]
        members = [member(name, ours, "last", using_template("one")) for name in last_members]
        for pod_ in members:
            pod_["spec"]["nodeSelector"] = {"churn": "yes"}
        groups.create(group("last", ours, 8), *members)
        groups.until("one gang has all devices", lambda: placed_pods(groups, ours) == last_members, PATIENCE)
    finally:
        groups.delete(path, gracePeriodSeconds=0)
        groups.remove(*slices, *({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}} for node in nodes))
